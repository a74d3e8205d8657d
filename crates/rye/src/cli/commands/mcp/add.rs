//! `rye mcp add`: writes and signs the configuration of a server, and tests it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lillux::durable::{IfExists, WriteError};
use lillux::shell_word;
use rye_host::mcp_items as items;
use rye_items::Space;
use rye_items::vault::{SecretName, Vault};
use rye_mcp::client::{ConfigValue, ServerConfig, Transport};
use serde_json::{Value, json};

use super::super::execute::StartedSupervisor;
use crate::cli::args::AddArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, DIM, Page, paint};
use crate::cli::printer::{Outcome, Report};
use crate::cli::secret_input;

pub(crate) fn run(
    args: &AddArgs,
    context: &Context,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    let name = args.name.as_str();
    let library = context.library()?;
    let key = context.require_signing_key()?;
    let root = items::root(library, args.space.into())?;
    let file = items::server_file(name);
    if !args.force && root.stat(&file)?.is_some() {
        return Err(exists(args, root.path_to(&file)));
    }
    let mut config = ServerConfig::new(transport(args));
    // Reject an invalid configuration before anything is written.
    ServerConfig::parse(&config.to_value()).map_err(Failure::usage)?;
    if let Some(secret) = &args.secret {
        store_secret(&mut config, name, secret, args.space.into(), context)?;
    }
    let existing = if args.force {
        IfExists::Replace
    } else {
        IfExists::Fail
    };
    let text = items::server_text(name, &config);
    let path = items::write(library, root, &file, &text, existing, key)?;
    let mut report = AddReport {
        name: name.to_owned(),
        path,
        tools: None,
        failure: None,
    };
    if !args.no_check {
        let item = items::ServerItem::load(library, args.name.as_str())?;
        let server = item.server(context);
        match super::with_pool(supervisor, context, async |pool| pool.tools(&server).await)? {
            Ok(tools) => report.tools = Some(tools.iter().map(|t| t.name().to_owned()).collect()),
            Err(error) => report.failure = Some(error.into()),
        }
    }
    Ok(Box::new(report))
}

fn exists(args: &AddArgs, path: PathBuf) -> Failure {
    let word = |text: &String| shell_word(Path::new(text));
    let words: Vec<_> = args.command.iter().map(word).collect();
    let target = match &args.url {
        Some(url) => format!("--url {}", word(url)),
        None => format!("-- {}", words.join(" ")),
    };
    let hint = format!("rye mcp add {} --force {target}", args.name);
    Failure::from(WriteError::Exists(path)).hint(hint)
}

fn transport(args: &AddArgs) -> Transport {
    let sources = |pairs: &[(String, String)]| {
        let pairs = pairs.iter().cloned();
        pairs
            .map(|(name, value)| (name, ConfigValue::Text(value)))
            .collect()
    };
    match (&args.url, args.command.split_first()) {
        (Some(url), _) => Transport::Http {
            url: ConfigValue::Text(url.clone()),
            headers: sources(&args.header),
            oauth: BTreeMap::new(),
        },
        (None, first) => {
            let (command, rest) = first.map_or((String::new(), &[][..]), |(c, r)| (c.clone(), r));
            Transport::Stdio {
                command,
                args: rest.iter().cloned().map(ConfigValue::Text).collect(),
                env: sources(&args.env),
                cwd: args.cwd.clone(),
            }
        }
    }
}

/// Asks for a secret, stores it in the vault and refers to it in the configuration.
fn store_secret(
    config: &mut ServerConfig,
    server: &str,
    variable: &str,
    space: Space,
    context: &Context,
) -> Result<(), Failure> {
    let name = secret_name(server, variable)?;
    let user = context.settings.user_space()?;
    let vault = Vault::new(user, Some(context.settings.project()));
    let secret = secret_input::read(&format!("Value of {variable} (not shown): "))
        .map_err(|error| Failure::failed("io", format_args!("cannot read the value: {error}")))?;
    vault.set(space, &name, &secret)?;
    let (values, prefix) = match &mut config.transport {
        Transport::Stdio { env, .. } => (env, ""),
        // An Authorization header is almost always a bearer token.
        Transport::Http { headers, .. } if variable.eq_ignore_ascii_case("authorization") => {
            (headers, "Bearer ")
        }
        Transport::Http { headers, .. } => (headers, ""),
    };
    let prefix = prefix.to_owned();
    values.insert(variable.to_owned(), ConfigValue::Vault { prefix, name });
    Ok(())
}

/// Name of a server's secret in the vault.
pub(super) fn secret_name(server: &str, variable: &str) -> Result<SecretName, Failure> {
    let name = rye_mcp::client::secret_name(server, variable);
    name.ok_or_else(|| Failure::usage(format!("name too long for a secret: {variable}")))
}

struct AddReport {
    name: String,
    path: PathBuf,
    tools: Option<Vec<String>>,
    failure: Option<Failure>,
}

impl Report for AddReport {
    fn json(&self) -> Value {
        json!({
            "server": self.name,
            "path": self.path.to_string_lossy(),
            "tools": self.tools,
        })
    }

    fn show(&self, page: &mut Page) {
        let path = self.path.display();
        page.line(format_args!("added {}: {path}", paint(BOLD, &self.name)));
        if let Some(tools) = &self.tools {
            let count = tools.len();
            let noun = if count == 1 { "tool" } else { "tools" };
            page.line(format_args!("the server answers and has {count} {noun}"));
            let next = format!("next: rye mcp discover {}", self.name);
            page.line(paint(DIM, next));
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }
}
