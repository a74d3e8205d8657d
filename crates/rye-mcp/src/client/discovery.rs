//! Discovery: generates items from a server's tool definitions and compares definitions with
//! their pins. No I/O.
//!
//! Definitions are untrusted data: they are truncated and stripped of control characters, and an
//! accepted definition is replaced only when the user accepts the new one.

use std::collections::BTreeMap;

use lillux::{Hash, strip_control};
use rye_items::metadata::Metadata;
use serde_json::{Map, Value, json};

use super::config::Transport;
use super::tools::{Pin, RemoteTool};
use super::yaml::item_yaml;

/// Maximum length of a description, in characters.
const MAX_DESCRIPTION_CHARS: usize = 4000;
/// Maximum size of a schema, in bytes.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// Maximum length of a name, in bytes.
const MAX_NAME_BYTES: usize = 80;

/// A server and its current tools.
#[derive(Debug, Clone)]
pub struct DiscoveredServer<'s> {
    /// Name of the server.
    pub name: &'s str,
    /// How to connect to the server.
    pub transport: &'s Transport,
    /// Current definitions of its tools.
    pub tools: &'s [RemoteTool],
}

/// Result of comparing one tool with its pin.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Name of the tool at the server.
    pub tool: String,
    /// Id of the tool's item.
    pub id: String,
    /// Difference from the accepted definition.
    pub change: Change,
    /// Text of the item to write, if any.
    pub text: Option<String>,
    /// Current definition by pinned part, if it differs from the accepted one.
    pub definition: Map<String, Value>,
}

/// Difference of a tool from its accepted definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The tool is new.
    Added,
    /// The definition is the accepted one.
    Same,
    /// These parts of the definition changed.
    Changed(Vec<String>),
    /// The server no longer has the tool.
    Removed,
    /// The tool cannot become an item, for this reason.
    Unusable(String),
}

impl Change {
    /// Stable name of the kind of difference.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Same => "same",
            Self::Changed(_) => "changed",
            Self::Removed => "removed",
            Self::Unusable(_) => "unusable",
        }
    }
}

/// Item id of a server's configuration.
pub fn server_id(name: &str) -> String {
    format!("mcp/servers/{name}")
}

/// Compares the tools of a server with the accepted pins, which are keyed by tool name.
pub fn compare(server: &DiscoveredServer<'_>, accepted: &BTreeMap<String, Pin>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for tool in server.tools {
        if seen.contains(&tool.name()) {
            continue;
        }
        seen.push(tool.name());
        let change = match (unusable_reason(tool), accepted.get(tool.name())) {
            (Some(why), _) => Change::Unusable(why),
            (None, None) => Change::Added,
            (None, Some(pin)) if pin.hash == tool.pin.hash => Change::Same,
            (None, Some(pin)) => Change::Changed(pin.differences(&tool.pin)),
        };
        let text = match change {
            Change::Added | Change::Changed(_) => Some(tool_item(server, tool)),
            _ => None,
        };
        let definition = match change {
            Change::Changed(_) => definition(tool),
            _ => Map::new(),
        };
        findings.push(Finding {
            tool: display_name(tool.name()),
            id: item_id(server.name, tool.name()),
            change,
            text,
            definition,
        });
    }
    let removed = accepted
        .keys()
        .filter(|name| !seen.contains(&name.as_str()));
    findings.extend(removed.map(|name| Finding {
        tool: display_name(name),
        id: item_id(server.name, name),
        change: Change::Removed,
        text: None,
        definition: Map::new(),
    }));
    findings
}

/// The pinned parts of a definition, sanitized as in its item, for the user to review.
fn definition(tool: &RemoteTool) -> Map<String, Value> {
    let mut all = Map::new();
    all.insert("description".into(), sanitize(tool.description()).into());
    for part in ["inputSchema", "outputSchema"] {
        let mut schema = tool.part(part).cloned().unwrap_or_default();
        sanitize_schema(&mut schema);
        all.insert(part.into(), schema);
    }
    all.insert(
        "annotations".into(),
        annotations(risk_level(tool), effect(tool)),
    );
    all
}

/// The accepted definition by pinned part, as far as the item contains it.
pub fn accepted_definition(item: &Metadata) -> Map<String, Value> {
    let mut all = Map::new();
    let description = item.description().unwrap_or_default();
    all.insert("description".into(), description.into());
    let schema = item.config_schema().cloned().unwrap_or_default();
    all.insert("inputSchema".into(), schema);
    let text = |key: &str| item.value(key).and_then(Value::as_str).unwrap_or_default();
    let annotations = annotations(text("risk_level"), text("effect"));
    all.insert("annotations".into(), annotations);
    all
}

fn annotations(risk: &str, effect: &str) -> Value {
    json!({ "risk_level": risk, "effect": effect })
}

/// Item id of a tool. If the name is not a valid id, a hash of it keeps the id unique.
pub fn item_id(server: &str, tool: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_id = tool.len() <= MAX_NAME_BYTES
        && tool.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && tool.chars().all(is_allowed);
    if is_id {
        return format!("mcp/{server}/{tool}");
    }
    let short: String = tool
        .chars()
        .take(MAX_NAME_BYTES)
        .map(|c| if is_allowed(c) { c } else { '_' })
        .collect();
    let short = short.trim_start_matches(['.', '-']);
    let hash = Hash::digest(tool).to_hex();
    format!("mcp/{server}/{short}-{}", &hash[..8])
}

/// A tool name, sanitized for display.
fn display_name(name: &str) -> String {
    strip_control(name).chars().take(MAX_NAME_BYTES).collect()
}

/// Why a tool cannot become an item; `None` if it can.
fn unusable_reason(tool: &RemoteTool) -> Option<String> {
    let schema = tool.input_schema().to_string();
    if schema.len() > MAX_SCHEMA_BYTES {
        return Some(format!("its schema exceeds {MAX_SCHEMA_BYTES} bytes"));
    }
    if tool.name().is_empty() {
        return Some("it has no name".to_owned());
    }
    None
}

/// Text of a tool's item.
fn tool_item(server: &DiscoveredServer<'_>, tool: &RemoteTool) -> String {
    let (risk, effect) = (risk_level(tool), effect(tool));
    let transport = server.transport.name();
    let mut schema = tool.input_schema().clone();
    sanitize_schema(&mut schema);
    let fields = json!({
        "version": "1.0.0",
        "tool_type": "mcp",
        "executor_id": format!("rye/core/runtimes/mcp/{transport}"),
        "category": format!("mcp/{}", server.name),
        "description": sanitize(tool.description()),
        "risk_level": risk,
        "effect": effect,
        "config": {
            "server": server_id(server.name),
            "tool_name": tool.name(),
            "pin": tool.pin.hash,
            "parts": tool.pin.parts,
        },
        "config_schema": schema,
    });
    let heading =
        "# Written by `rye mcp discover`. `pin` is the hash of the tool's accepted definition.\n";
    match fields {
        Value::Object(fields) => format!("{heading}{}", item_yaml(&fields)),
        _ => String::new(),
    }
}

/// Removes control characters and truncates to the maximum length of a description.
fn sanitize(text: &str) -> String {
    let text = strip_control(text);
    match text.char_indices().nth(MAX_DESCRIPTION_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// Sanitizes all titles and descriptions in a schema.
fn sanitize_schema(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "description" || key == "title" => {
                        *text = sanitize(text);
                    }
                    value => sanitize_schema(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(sanitize_schema),
        _ => {}
    }
}

/// Risk level according to the annotations.
fn risk_level(tool: &RemoteTool) -> &'static str {
    let has_hint = |hint: &str, value: bool| tool.hint(hint) == Some(value);
    if has_hint("readOnlyHint", true) {
        "low"
    } else if has_hint("destructiveHint", false) {
        "medium"
    } else {
        "high"
    }
}

/// Effect class according to the annotations. Reading from an open world is not pure.
fn effect(tool: &RemoteTool) -> &'static str {
    let has_hint = |hint: &str, value: bool| tool.hint(hint) == Some(value);
    if has_hint("readOnlyHint", true) && has_hint("openWorldHint", false) {
        "pure"
    } else if tool.is_repeatable() {
        "idempotent"
    } else {
        "at_most_once"
    }
}

/// Name and pin of the tool of a discovered item, from the item's `config`; `None` for other
/// items.
pub fn accepted_pin(config: &Value) -> Option<(String, Pin)> {
    let config: &Map<String, Value> = config.as_object()?;
    let name = config.get("tool_name")?.as_str()?;
    Some((name.to_owned(), Pin::from_config(config)?))
}

#[cfg(test)]
mod tests {
    use rmcp::model::Tool;

    use super::*;

    fn tool(definition: Value) -> RemoteTool {
        let tool: Tool = serde_json::from_value(definition).unwrap();
        RemoteTool::new(&tool).unwrap()
    }

    fn stdio() -> Transport {
        Transport::Stdio {
            command: "x".into(),
            args: vec![],
            env: BTreeMap::new(),
            cwd: None,
        }
    }

    fn findings(tools: &[RemoteTool], accepted: &BTreeMap<String, Pin>) -> Vec<Finding> {
        let transport = stdio();
        let server = DiscoveredServer {
            name: "s",
            transport: &transport,
            tools,
        };
        compare(&server, accepted)
    }

    #[test]
    fn tool_names_map_to_unique_item_ids() {
        assert_eq!(item_id("s", "get-weather_2.x"), "mcp/s/get-weather_2.x");
        let invalid = [
            "a b",
            "a/b",
            "a:b",
            "../../etc",
            "",
            "ä",
            ".hidden",
            "-x",
            "a\0b",
        ];
        let mut ids: Vec<_> = invalid.iter().map(|name| item_id("s", name)).collect();
        ids.push(item_id("s", &"x".repeat(500)));
        for id in &ids {
            id.parse::<rye_items::ItemId>().unwrap();
        }
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn changed_parts_are_reported() {
        let before =
            tool(json!({"name": "a", "description": "one", "inputSchema": {"type": "object"}}));
        let after =
            tool(json!({"name": "a", "description": "two", "inputSchema": {"type": "object"}}));
        let hinted = tool(
            json!({"name": "a", "description": "one", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}),
        );
        let accepted = BTreeMap::from([("a".to_owned(), before.pin.clone())]);
        let change = |tools: &[RemoteTool]| findings(tools, &accepted)[0].change.clone();
        assert_eq!(change(std::slice::from_ref(&before)), Change::Same);
        assert_eq!(
            change(&[after]),
            Change::Changed(vec!["description".into()])
        );
        assert_eq!(
            change(&[hinted]),
            Change::Changed(vec!["annotations".into()])
        );
        assert_eq!(change(&[]), Change::Removed);
        assert_eq!(
            findings(&[before], &BTreeMap::new())[0].change,
            Change::Added
        );
    }

    #[test]
    fn item_has_no_control_characters_and_bounded_descriptions() {
        let hostile = format!("\u{1b}[2Jclear\u{7} {}", "x".repeat(10_000));
        let tool = tool(json!({
            "name": "a b", "description": hostile,
            "inputSchema": {"type": "object", "properties": {"x": {"type": "string", "description": "\u{1b}]0;title"}}},
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
        }));
        let finding = findings(std::slice::from_ref(&tool), &BTreeMap::new()).remove(0);
        let text = finding.text.unwrap();
        assert!(!text.contains('\u{1b}') && !text.contains("001b"), "{text}");
        let fields: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(
            fields["description"].as_str().unwrap().chars().count(),
            MAX_DESCRIPTION_CHARS + 1
        );
        assert_eq!(fields["risk_level"], "low");
        assert_eq!(fields["effect"], "pure");
        assert_eq!(fields["executor_id"], "rye/core/runtimes/mcp/stdio");
        let (name, pin) = accepted_pin(&fields["config"]).unwrap();
        assert_eq!((name.as_str(), pin), ("a b", tool.pin));
    }

    #[test]
    fn oversized_schema_is_unusable() {
        let schema = json!({"type": "object", "x": "x".repeat(MAX_SCHEMA_BYTES)});
        let tool = tool(json!({"name": "a", "inputSchema": schema}));
        let finding = findings(&[tool], &BTreeMap::new()).remove(0);
        assert!(matches!(finding.change, Change::Unusable(_)));
        assert_eq!(finding.text, None);
    }
}
