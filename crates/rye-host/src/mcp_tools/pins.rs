//! Pins: the accepted definitions of MCP tools, one file each in the state directory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lillux::Hash;
use lillux::durable::{self, IfExists};
use rye_executor::Executor;
use rye_items::{ItemKind, ItemRef};
use rye_mcp::client::discovery::{accepted_pin, item_id};
use rye_mcp::client::{Pin, RemoteTool};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

/// Maximum number of lines in a displayed difference.
const MAX_LINES: usize = 60;
/// Maximum length of such a line.
const MAX_LINE_LEN: usize = 500;

/// The pins of a project.
pub(super) struct Pins {
    dir: PathBuf,
    project: String,
}

/// The accepted definition of a tool.
#[derive(Serialize, Deserialize)]
pub(super) struct AcceptedTool {
    server: String,
    tool: String,
    pin: String,
    parts: std::collections::BTreeMap<String, String>,
    /// For the comparison with a later description.
    #[serde(default)]
    description: String,
    #[serde(default)]
    schema: Value,
}

/// The accepted configuration of a server that an editor offers.
#[derive(Serialize, Deserialize)]
pub(super) struct AcceptedServer {
    pub(super) server: String,
    pub(super) hash: String,
    /// The configuration for people, for the comparison with a later one.
    pub(super) text: String,
}

impl Pins {
    pub(super) fn new(dir: &Path, project: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            project: project.display().to_string(),
        }
    }

    fn path(&self, server: &str, tool: &str) -> PathBuf {
        self.path_of(&json!([self.project, server, tool]))
    }

    fn server_path(&self, server: &str) -> PathBuf {
        self.path_of(&json!([self.project, server]))
    }

    fn path_of(&self, key: &Value) -> PathBuf {
        let name = Hash::digest(key.to_string());
        self.dir.join(format!("{}.json", name.to_hex()))
    }

    /// The accepted configuration of an offered server; none if it was never accepted.
    pub(super) fn accepted_server(&self, server: &str) -> Result<Option<AcceptedServer>, String> {
        let path = self.server_path(server);
        read(&path, "accept the server again")
    }

    /// Stores the configuration of an offered server as accepted.
    pub(super) fn accept_server(&self, accepted: &AcceptedServer) -> Result<(), String> {
        self.write(&self.server_path(&accepted.server), accepted)
    }

    fn write(&self, path: &Path, accepted: &impl Serialize) -> Result<(), String> {
        let bytes = serde_json::to_vec_pretty(accepted).map_err(|error| error.to_string())?;
        // Unchanged in most calls.
        if std::fs::read(path).is_ok_and(|existing| existing == bytes) {
            return Ok(());
        }
        durable::create_dir(&self.dir, 0o700).map_err(|error| error.to_string())?;
        let result = durable::write(path, &bytes, 0o600, IfExists::Replace);
        result.map_err(|error| error.to_string())
    }

    /// The accepted definition: the stored pin, or else the signed item of the tool. None if the
    /// tool was never used.
    pub(super) fn accepted(
        &self,
        executor: &Executor,
        server: &str,
        tool: &str,
    ) -> Result<Option<AcceptedTool>, String> {
        let stored = read(&self.path(server, tool), "accept the tool again")?;
        Ok(stored.or_else(|| accepted_in_item(executor, server, tool)))
    }

    /// Stores the definition of a tool as accepted.
    pub(super) fn accept(
        &self,
        server: &str,
        tool: &str,
        pin: &Pin,
        (description, schema): &(String, Value),
    ) -> Result<(), String> {
        let path = self.path(server, tool);
        let accepted = AcceptedTool {
            server: server.to_owned(),
            tool: tool.to_owned(),
            pin: pin.hash.clone(),
            parts: pin.parts.clone(),
            description: description.clone(),
            schema: schema.clone(),
        };
        self.write(&path, &accepted)
    }
}

/// Reads a pin; none if there is no file. `remedy` is what removing a damaged file achieves.
fn read<T: DeserializeOwned>(path: &Path, remedy: &str) -> Result<Option<T>, String> {
    let shown = path.display();
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| format!("{shown}: {error}; remove the file to {remedy}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// The accepted definition in the signed item of a tool.
fn accepted_in_item(executor: &Executor, server: &str, tool: &str) -> Option<AcceptedTool> {
    let id = item_id(server, tool).parse().ok()?;
    let link = executor.tool(&ItemRef::new(ItemKind::Tool, id)).ok()?;
    let (name, pin) = accepted_pin(link.metadata.value("config")?)?;
    (name == tool).then(|| AcceptedTool {
        server: server.to_owned(),
        tool: name,
        pin: pin.hash,
        parts: pin.parts,
        description: link.metadata.description().unwrap_or_default().to_owned(),
        schema: link.metadata.config_schema().cloned().unwrap_or_default(),
    })
}

impl AcceptedTool {
    /// Describes the difference between the accepted and the current definition, if any.
    pub(super) fn drift(&self, current: &RemoteTool) -> Option<String> {
        if self.pin == current.pin.hash {
            return None;
        }
        let accepted = Pin {
            hash: self.pin.clone(),
            parts: self.parts.clone(),
        };
        let parts = accepted.differences(&current.pin);
        let mut text = format!("changed: {}\n", parts.join(", "));
        let before = definition_text(&self.description, &self.schema);
        let after = definition_text(current.description(), current.input_schema());
        let diff = TextDiff::from_lines(&before, &after);
        let changes = diff.iter_all_changes();
        let changes = changes.filter(|change| change.tag() != ChangeTag::Equal);
        for change in changes.take(MAX_LINES) {
            let sign = if change.tag() == ChangeTag::Delete {
                '-'
            } else {
                '+'
            };
            let line: String = change
                .value()
                .trim_end()
                .chars()
                .take(MAX_LINE_LEN)
                .collect();
            let _ = writeln!(text, "{sign} {line}");
        }
        Some(text)
    }
}

/// The definition of a tool as text, for comparisons.
pub(super) fn definition_text(description: &str, schema: &Value) -> String {
    let schema = serde_json::to_string_pretty(schema).unwrap_or_default();
    format!("{description}\n{schema}\n")
}
