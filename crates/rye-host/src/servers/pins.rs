//! What was accepted of the tools of servers: one file each, in the user's own state.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use lillux::Hash;
use lillux::durable::{self, IfExists};
use rye_executor::Executor;
use rye_items::{ItemKind, ItemRef};
use rye_mcp::client::discovery::{accepted_pin, item_id};
use rye_mcp::client::{Pin, RemoteTool};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

/// How many lines of a difference a person is shown.
const LINES: usize = 60;
/// And of a line.
const LINE: usize = 500;

/// The folder of all of them, and the project that these are of.
pub(super) struct Pins {
    folder: PathBuf,
    project: String,
}

/// What was accepted of a tool.
#[derive(Serialize, Deserialize)]
pub(super) struct Accepted {
    server: String,
    tool: String,
    pin: String,
    parts: std::collections::BTreeMap<String, String>,
    /// What it said, to be compared with; an item has its own words for it.
    #[serde(default)]
    description: String,
    #[serde(default)]
    schema: Value,
}

impl Pins {
    pub(super) fn new(folder: &Path, project: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            project: project.display().to_string(),
        }
    }

    fn path(&self, server: &str, tool: &str) -> PathBuf {
        let name = Hash::digest(json!([self.project, server, tool]).to_string());
        self.folder.join(format!("{}.json", name.to_hex()))
    }

    /// What was accepted: here, else by whoever signed the tool's item. None of one that
    /// nobody has used yet.
    pub(super) fn accepted(
        &self,
        executor: &Executor,
        server: &str,
        tool: &str,
    ) -> Result<Option<Accepted>, String> {
        let path = self.path(server, tool);
        match std::fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(accepted) => Ok(Some(accepted)),
                Err(error) => Err(format!(
                    "{}: {error}; remove it to be asked anew",
                    path.display()
                )),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(of_item(executor, server, tool))
            }
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Accepts what a server says of a tool, from now on.
    pub(super) fn accept(
        &self,
        server: &str,
        tool: &str,
        pin: &Pin,
        (description, schema): &(String, Value),
    ) -> Result<(), String> {
        let path = self.path(server, tool);
        let accepted = Accepted {
            server: server.to_owned(),
            tool: tool.to_owned(),
            pin: pin.hash.clone(),
            parts: pin.parts.clone(),
            description: description.clone(),
            schema: schema.clone(),
        };
        let bytes = serde_json::to_vec_pretty(&accepted).map_err(|error| error.to_string())?;
        // It is the same at nearly every call.
        if std::fs::read(&path).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        durable::create_dir(&self.folder, 0o700).map_err(|error| error.to_string())?;
        let written = durable::write(&path, &bytes, 0o600, IfExists::Replace);
        written.map_err(|error| error.to_string())
    }
}

/// What the signed item of a tool says was accepted.
fn of_item(executor: &Executor, server: &str, tool: &str) -> Option<Accepted> {
    let id = item_id(server, tool).parse().ok()?;
    let link = executor.tool(&ItemRef::new(ItemKind::Tool, id)).ok()?;
    let (name, pin) = accepted_pin(link.metadata.value("config")?)?;
    (name == tool).then(|| Accepted {
        server: server.to_owned(),
        tool: name,
        pin: pin.hash,
        parts: pin.parts,
        description: link.metadata.description().unwrap_or_default().to_owned(),
        schema: link.metadata.config_schema().cloned().unwrap_or_default(),
    })
}

impl Accepted {
    /// In what way a tool is not what was accepted, if it is not.
    pub(super) fn drift(&self, now: &RemoteTool) -> Option<String> {
        if self.pin == now.pin.hash {
            return None;
        }
        let was = Pin {
            hash: self.pin.clone(),
            parts: self.parts.clone(),
        };
        let parts = was.differences(&now.pin);
        let mut text = format!("changed: {}\n", parts.join(", "));
        let before = shown(&self.description, &self.schema);
        let after = shown(now.description(), now.input_schema());
        let diff = TextDiff::from_lines(&before, &after);
        let changes = diff.iter_all_changes();
        let changes = changes.filter(|change| change.tag() != ChangeTag::Equal);
        for change in changes.take(LINES) {
            let sign = if change.tag() == ChangeTag::Delete {
                '-'
            } else {
                '+'
            };
            let line: String = change.value().trim_end().chars().take(LINE).collect();
            let _ = writeln!(text, "{sign} {line}");
        }
        Some(text)
    }
}

fn shown(description: &str, schema: &Value) -> String {
    let schema = serde_json::to_string_pretty(schema).unwrap_or_default();
    format!("{description}\n{schema}\n")
}
