//! Adds the MCP server to the configuration file of a client.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lillux::PathContext as _;
use lillux::durable::{self, IfExists};
use serde_json::{Map, Value, json};

use super::clients::{CLIENTS, Client, Form};
use crate::context::Context;
use crate::failure::Failure;
use crate::settings::{Origin, variable};

/// Name of the server in the client's configuration.
const NAME: &str = "rye";

/// The names of all clients.
pub fn client_names() -> impl Iterator<Item = &'static str> {
    CLIENTS.iter().map(|client| client.name)
}

/// Adds the server to the configuration of a client. With `only_print`, writes nothing.
pub fn install(client: &str, only_print: bool, context: &Context) -> Result<Installation, Failure> {
    let named = CLIENTS.iter().find(|known| known.name == client);
    let client = named.ok_or_else(|| Failure::usage(format!("unknown client {client}")))?;
    let project = &context.settings.dirs.project;
    let project = matches!(project.origin, Origin::Option(_)).then_some(project.value.as_path());
    let path = client.file(project, &variable)?;
    let program = std::env::current_exe().at("find", Path::new("this program"))?;
    let command = server_command(&program, project);
    let before = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.at("read", &path)?,
    };
    let after = client
        .form
        .add_server(&before, NAME, &command)
        .map_err(|failure| {
            let hint = format!("rye mcp install --client {} --print", client.name);
            failure.at(&path).hint(hint)
        })?;
    let changed = before != after;
    if changed && !only_print {
        let parent = path.parent().unwrap_or(&path);
        durable::create_dir(parent, 0o755)?;
        // Write through a symbolic link rather than replace it.
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        durable::write(&real, after.as_bytes(), 0o600, IfExists::Replace)?;
    }
    Ok(Installation {
        client,
        path,
        content: after,
        state: match (only_print, changed) {
            (true, _) => "printed",
            (false, true) => "written",
            (false, false) => "unchanged",
        },
    })
}

/// The configuration of a client with the server.
pub struct Installation {
    /// The client.
    pub client: &'static Client,
    /// Its configuration file.
    pub path: PathBuf,
    /// The configuration.
    pub content: String,
    /// `printed`, `written` or `unchanged`.
    pub state: &'static str,
}

/// The command that starts the server.
fn server_command(program: &Path, project: Option<&Path>) -> Vec<String> {
    let mut words = vec![program.display().to_string()];
    if let Some(project) = project {
        words.extend(["--project".to_owned(), project.display().to_string()]);
    }
    words.extend(["mcp", "serve"].map(str::to_owned));
    words
}

impl Form {
    /// Adds the server to a configuration and keeps everything else.
    fn add_server(self, before: &str, name: &str, command: &[String]) -> Result<String, Failure> {
        match self {
            Self::Json { key, entry } => add_to_json(before, key, name, entry(command)),
            Self::Toml { table } => add_to_toml(before, table, name, command),
        }
    }
}

fn add_to_json(before: &str, key: &str, name: &str, entry: Value) -> Result<String, Failure> {
    let whole = if before.trim().is_empty() {
        Ok(json!({}))
    } else {
        serde_json::from_str(before)
    };
    let mut whole: Value = whole.map_err(|error| {
        let message = format!("invalid JSON, not changed: {error}");
        Failure::failed("not_json", message)
    })?;
    let not_an_object = || {
        let message = format!("`{key}` is not an object, not changed");
        Failure::failed("unexpected", message)
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

/// Appends the server, so that comments and order are kept.
fn add_to_toml(
    before: &str,
    table: &str,
    name: &str,
    command: &[String],
) -> Result<String, Failure> {
    let whole: toml::Table = before.parse().map_err(|error: toml::de::Error| {
        let message = format!("invalid TOML, not changed: {}", error.message());
        Failure::failed("not_toml", message)
    })?;
    let (program, arguments) = command
        .split_first()
        .map_or(("", command), |(first, rest)| (first.as_str(), rest));
    let mut entry = toml::Table::new();
    entry.insert("command".into(), program.into());
    entry.insert("args".into(), arguments.to_vec().into());
    if let Some(existing) = whole.get(table).and_then(|servers| servers.get(name)) {
        if existing.as_table() == Some(&entry) {
            return Ok(before.to_owned());
        }
        let message = format!("[{table}.{name}] already exists with other settings, not changed");
        return Err(Failure::failed("exists", message));
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

#[cfg(test)]
mod tests;
