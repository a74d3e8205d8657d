//! `rye mcp install`: the server written into a client's own configuration file.

mod clients;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use lillux::At as _;
use lillux::durable::{self, Existing};
use serde_json::{Map, Value, json};

use crate::cli::args::InstallArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{DIM, GOOD, Page, paint};
use crate::cli::printer::{Outcome, Report};
use crate::settings::{Options, Origin, variable};
use clients::{CLIENTS, Client, Form};

/// The name under which clients show the server.
const NAME: &str = "rye";

/// The clients that can be named.
pub(crate) fn names() -> PossibleValuesParser {
    CLIENTS
        .iter()
        .map(|client| client.name)
        .collect::<Vec<_>>()
        .into()
}

pub(crate) fn run(args: &InstallArgs, _: &Options, context: &Context) -> Outcome {
    let client = CLIENTS.iter().find(|client| client.name == args.client);
    let client = client.ok_or_else(|| Failure::usage("there is no such client"))?;
    let project = &context.settings.places.project;
    let project = matches!(project.origin, Origin::Option(_)).then_some(project.value.as_path());
    let path = client.file(project, &variable)?;
    let program = std::env::current_exe().at("find", Path::new("this program"))?;
    let call = call(&program, project);
    let before = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.at("read", &path)?,
    };
    let after = client
        .form
        .with(&before, NAME, &call)
        .map_err(|failure| failure.at(&path))?;
    let changed = before != after;
    if changed && !args.print {
        let above = path.parent().unwrap_or(&path);
        durable::create_folder(above, 0o755)?;
        // Where somebody has linked it to, it stays.
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        durable::write(&real, after.as_bytes(), 0o600, Existing::Replace)?;
    }
    Ok(Box::new(Installed {
        client,
        path,
        content: after,
        state: match (args.print, changed) {
            (true, _) => "printed",
            (false, true) => "written",
            (false, false) => "unchanged",
        },
    }))
}

/// The words that start the server.
fn call(program: &Path, project: Option<&Path>) -> Vec<String> {
    let mut words = vec![program.display().to_string()];
    if let Some(project) = project {
        words.extend(["--project".to_owned(), project.display().to_string()]);
    }
    words.extend(["mcp", "serve"].map(str::to_owned));
    words
}

impl Form {
    /// A configuration with the server in it, and all else as it was.
    fn with(self, before: &str, name: &str, call: &[String]) -> Result<String, Failure> {
        match self {
            Self::Json { key, entry } => with_json(before, key, name, entry(call)),
            Self::Toml { table } => with_toml(before, table, name, call),
        }
    }
}

fn with_json(before: &str, key: &str, name: &str, entry: Value) -> Result<String, Failure> {
    let whole = if before.trim().is_empty() {
        Ok(json!({}))
    } else {
        serde_json::from_str(before)
    };
    let mut whole: Value = whole.map_err(|error| {
        let message = format!("it is not plain JSON, so it is not changed: {error}");
        Failure::failed("not_json", message).hint("rye mcp install --print shows what to add")
    })?;
    let not_an_object = || {
        let message = format!("`{key}` is not an object there, so it is not changed");
        Failure::failed("unexpected", message).hint("rye mcp install --print shows what to add")
    };
    let top = whole.as_object_mut().ok_or_else(not_an_object)?;
    let servers = top.entry(key).or_insert_with(|| Map::new().into());
    let servers = servers.as_object_mut().ok_or_else(not_an_object)?;
    if servers.get(name) == Some(&entry) {
        return Ok(before.to_owned());
    }
    servers.insert(name.to_owned(), entry);
    let text = serde_json::to_string_pretty(&whole);
    let text = text.map_err(|error| Failure::failed("io", error))?;
    Ok(text + "\n")
}

/// Added at the end: comments and order are the person's.
fn with_toml(before: &str, table: &str, name: &str, call: &[String]) -> Result<String, Failure> {
    let whole: toml::Table = before.parse().map_err(|error: toml::de::Error| {
        let message = format!("it is not TOML, so it is not changed: {}", error.message());
        Failure::failed("not_toml", message)
    })?;
    let (command, arguments) = call
        .split_first()
        .map_or(("", call), |(c, a)| (c.as_str(), a));
    let mut entry = toml::Table::new();
    entry.insert("command".into(), command.into());
    entry.insert("args".into(), arguments.to_vec().into());
    if let Some(there) = whole.get(table).and_then(|servers| servers.get(name)) {
        if there.as_table() == Some(&entry) {
            return Ok(before.to_owned());
        }
        let message = format!("[{table}.{name}] is there already and says something else");
        return Err(Failure::failed("exists", message)
            .hint("remove it, or `rye mcp install --print` shows what to write"));
    }
    let entry = toml::to_string(&entry).map_err(|error| Failure::failed("io", error))?;
    let gap = if before.is_empty() { "" } else { "\n" };
    let newline = if before.is_empty() || before.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    Ok(format!("{before}{newline}{gap}[{table}.{name}]\n{entry}"))
}

struct Installed {
    client: &'static Client,
    path: PathBuf,
    content: String,
    state: &'static str,
}

impl Report for Installed {
    fn json(&self) -> Value {
        json!({
            "client": self.client.name,
            "path": self.path.to_string_lossy(),
            "state": self.state,
            "content": self.content,
        })
    }

    fn show(&self, page: &mut Page) {
        let path = self.path.display();
        match self.state {
            "printed" => {
                page.line(paint(DIM, format_args!("{path}:")));
                page.line(self.content.trim_end());
            }
            state => {
                page.line(format_args!("{} {path}", paint(GOOD, state)));
                page.line(paint(DIM, self.client.then));
            }
        }
    }
}

#[cfg(test)]
mod tests;
