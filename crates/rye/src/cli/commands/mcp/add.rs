//! `rye mcp add`: adds a server, and tests it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lillux::shell_quote;
use rye_host::mcp::add::{NewServer, add};
use rye_host::mcp_items::ServerItem;
use rye_mcp::client::{ConfigValue, Transport};
use serde_json::{Value, json};

use super::super::execute::StartedSupervisor;
use crate::cli::args::{AddArgs, SpaceChoice};
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
    let new = NewServer {
        name: args.name.as_str(),
        transport: transport(args),
        secret: args.secret.as_deref(),
        space: args.space.into(),
        replace: args.force,
    };
    let added = add(new, context, |variable| {
        let secret = secret_input::read(&format!("Value of {variable} (not shown): "));
        secret
            .map_err(|error| Failure::failed("io", format_args!("cannot read the value: {error}")))
    });
    let path = added.map_err(|failure| match failure.code {
        "exists" => failure.hint(replace_command(args)),
        _ => failure,
    })?;
    let mut report = AddReport {
        name: args.name.to_string(),
        path,
        tools: None,
        failure: None,
    };
    if !args.no_check {
        let item = ServerItem::load(context.library()?, args.name.as_str())?;
        let server = item.server(context);
        match super::first_tools(supervisor, context, server) {
            Ok(Ok(tools)) => {
                report.tools = Some(tools.iter().map(|t| t.name().to_owned()).collect());
            }
            Ok(Err(error)) => {
                report.failure = Some(Failure::from(error).or_hint(replace_command(args)));
            }
            // The server is added all the same.
            Err(interrupted) => {
                let retry = format!("rye mcp discover {}", args.name);
                report.failure = Some(interrupted.or_hint(retry));
            }
        }
    }
    Ok(Box::new(report))
}

/// The command that overwrites an existing server.
fn replace_command(args: &AddArgs) -> String {
    let mut words = vec![format!("rye mcp add {} --force", args.name)];
    if args.space != SpaceChoice::Project {
        words.push("--space user".to_owned());
    }
    let mut option = |name: &str, value: &str| {
        words.push(format!("--{name} {}", shell_quote(value)));
    };
    let pairs = args.env.iter().map(|pair| ("env", pair));
    for (option_name, (name, value)) in pairs.chain(args.header.iter().map(|it| ("header", it))) {
        // A hint must not repeat a secret.
        let is_reference = value.starts_with("${");
        let value = if is_reference { value } else { "VALUE" };
        option(option_name, &format!("{name}={value}"));
    }
    let options = [
        ("secret", &args.secret),
        ("cwd", &args.cwd),
        ("url", &args.url),
    ];
    for (name, value) in options {
        if let Some(value) = value {
            option(name, value);
        }
    }
    if !args.command.is_empty() {
        words.push("--".to_owned());
        words.extend(args.command.iter().map(|word| shell_quote(word)));
    }
    words.join(" ")
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
