//! MCP servers that an editor offers to the sessions of a project. Nobody has signed them, so a
//! person must accept a server before it is started or reached. Its configuration is pinned then; a
//! changed one must be accepted again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use lillux::{Hash, sanitize_line};
use parking_lot::Mutex;
use rye_engine::policy::Risk;
use rye_engine::tool_provider::{Component, ResolvedTool, Review, ReviewReason, ToolSummary};
use rye_mcp::client::discovery::server_id;
use rye_mcp::client::{ServerConfig, ServerSpec, Transport};
use serde_json::{Value, json};

use super::pins::{AcceptedServer, Pins};

/// Name of the tool that accepts a server.
pub(super) const CONNECT: &str = "connect";

/// The space of these servers, in rules of the policy.
pub(super) const SPACE: &str = "editor";

/// Who has signed a server.
const UNSIGNED: &str = "no one; offered by the editor";

/// The servers that editors offer.
#[derive(Debug, Clone, Default)]
pub struct OfferedServers(Arc<Mutex<BTreeMap<String, ServerConfig>>>);

/// A server that an editor offers.
#[derive(Debug, Clone)]
pub(super) struct OfferedServer {
    pub(super) name: String,
    pub(super) config: ServerConfig,
    /// Hash of the configuration, secrets included.
    pub(super) hash: Hash,
}

/// Whether a person has accepted a server.
pub(super) enum Acceptance {
    Accepted,
    New,
    /// The accepted configuration, for people.
    Changed(String),
}

impl OfferedServers {
    /// Offers a server, in place of an earlier one with this name. The error is a message for the
    /// user.
    pub fn offer(&self, name: &str, transport: Transport) -> Result<(), String> {
        let is_valid = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let name = name.trim().to_lowercase().replace(' ', "-");
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_valid) {
            let shown = sanitize_line(&name);
            return Err(format!(
                "`{shown}` is not a name for an MCP server: use letters, digits, `-` and `_`"
            ));
        }
        let config = ServerConfig::new(transport);
        // Checks it as a configuration file would be.
        ServerConfig::parse(&config.to_value())
            .map_err(|why| format!("MCP server `{name}`: {why}"))?;
        self.0.lock().insert(name, config);
        Ok(())
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<OfferedServer> {
        let config = self.0.lock().get(name).cloned()?;
        let hash = Hash::digest(config.to_value().to_string());
        Some(OfferedServer {
            name: name.to_owned(),
            config,
            hash,
        })
    }
}

impl OfferedServer {
    /// Whether a person has accepted exactly this configuration.
    pub(super) fn acceptance(&self, pins: &Pins) -> Result<Acceptance, String> {
        Ok(match pins.accepted_server(&self.name)? {
            None => Acceptance::New,
            Some(accepted) if accepted.hash == self.hash.to_hex() => Acceptance::Accepted,
            Some(accepted) => Acceptance::Changed(accepted.text),
        })
    }

    pub(super) fn accept(&self, pins: &Pins) -> Result<(), String> {
        let accepted = AcceptedServer {
            server: self.name.clone(),
            hash: self.hash.to_hex(),
            text: self.text(),
        };
        pins.accept_server(&accepted)
    }

    pub(super) fn component(&self) -> Component {
        Component {
            name: server_id(&self.name),
            hash: self.hash.to_hex(),
            signed_by: Some(UNSIGNED.to_owned()),
            text: Some(self.text().into()),
            ..Component::default()
        }
    }

    /// The entry of a list of tools before the server is accepted.
    pub(super) fn summary(&self) -> ToolSummary {
        ToolSummary {
            id: format!("{}/{CONNECT}", self.name),
            description: self.description(),
            risk: Some(Risk::High),
            space: Some(SPACE.to_owned()),
            ..ToolSummary::default()
        }
    }

    fn description(&self) -> String {
        format!(
            "Connects the MCP server {}, which the editor offers, after a person has accepted it. \
             Its tools are listed then.",
            self.name
        )
    }

    /// The tool that accepts the server.
    pub(super) fn connect_tool(&self, acceptance: &Acceptance) -> ResolvedTool {
        let drift = match acceptance {
            Acceptance::Changed(before) => Some(format!(
                "the server has changed since a person accepted it; before:\n{before}\n\
                 now:\n{}",
                self.text()
            )),
            _ => None,
        };
        ResolvedTool {
            id: format!("{}/{CONNECT}", self.name),
            description: self.description(),
            schema: Some(json!({ "type": "object", "additionalProperties": false })),
            risk: Some(Risk::High),
            space: Some(SPACE.to_owned()),
            requires_approval: true,
            effect: rye_engine::tool::EffectClass::Idempotent,
            drift,
            hash: self.hash.to_hex(),
            components: vec![self.component()],
            handle: Arc::new(self.clone()),
        }
    }

    pub(super) fn spec(&self, project: PathBuf) -> ServerSpec {
        ServerSpec {
            id: server_id(&self.name),
            hash: self.hash,
            config: self.config.clone(),
            environment: super::server_environment(&project),
            project,
            vault: None,
        }
    }

    /// What a person accepts. No rule can do so.
    pub(super) fn review(&self) -> Review {
        let text = self.text();
        let line = text.lines().collect::<Vec<_>>().join("; ");
        let reason = ReviewReason {
            text: format!("nobody has signed this MCP server: {line}"),
            can_be_allowed_by_rule: false,
            applies_to_all_params: true,
        };
        Review {
            reasons: vec![reason],
            ..Review::default()
        }
    }

    /// The configuration for people, without values that may be secrets.
    fn text(&self) -> String {
        let mut text = String::new();
        let mut add = |key: &str, value: &Value| {
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let _ = writeln!(text, "{key}: {}", sanitize_line(&value));
        };
        let config = self.config.to_value();
        for (key, value) in config.as_object().into_iter().flatten() {
            match (key.as_str(), value) {
                ("env" | "headers", Value::Object(values)) => {
                    let names: Vec<_> = values.keys().map(String::as_str).collect();
                    add(
                        key,
                        &json!(format!("{} (values not shown)", names.join(", "))),
                    );
                }
                _ => add(key, value),
            }
        }
        text
    }
}
