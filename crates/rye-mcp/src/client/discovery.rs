//! From what a server says of its tools to items. No I/O.
//!
//! What a server says is data from a stranger: it is bounded and holds no control
//! characters, and nothing that was accepted changes unless it is accepted anew.

use std::collections::BTreeMap;

use lillux::Hash;
use rye_items::metadata::Metadata;
use serde_json::{Map, Value, json};

use super::config::Transport;
use super::said::without_controls;
use super::tools::{Pin, RemoteTool};
use super::yaml::item_yaml;

/// The longest description that is kept, in characters.
const DESCRIPTION: usize = 4000;
/// The longest schema, in bytes.
const SCHEMA: usize = 256 * 1024;
/// The longest name, in bytes.
const NAME: usize = 80;

/// A server whose tools become items.
#[derive(Debug, Clone)]
pub struct DiscoveredServer<'s> {
    /// Its name.
    pub name: &'s str,
    /// How it is reached.
    pub transport: &'s Transport,
    /// What it says of its tools.
    pub tools: &'s [RemoteTool],
}

/// What becomes of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Its name at the server.
    pub tool: String,
    /// The id of its item.
    pub id: String,
    /// How it stands to what was accepted.
    pub change: Change,
    /// The item to write, where there is one.
    pub text: Option<String>,
    /// What the server says of it now, by the parts that are pinned, where it is not what
    /// was accepted.
    pub definition: Map<String, Value>,
}

/// How a tool stands to what was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    Added,
    /// It is what was accepted.
    Same,
    /// These parts of it are not what was accepted.
    Changed(Vec<String>),
    /// It is there no more.
    Removed,
    /// It cannot become an item, and why.
    Unusable(String),
}

impl Change {
    /// A word for scripts and people.
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

/// The id of a server's configuration.
pub fn server_id(name: &str) -> String {
    format!("mcp/servers/{name}")
}

/// Compares what a server says with what was accepted: the pins of its items, by the
/// names of its tools.
pub fn compare(server: &DiscoveredServer<'_>, accepted: &BTreeMap<String, Pin>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for tool in server.tools {
        if seen.contains(&tool.name()) {
            continue;
        }
        seen.push(tool.name());
        let change = match (unusable(tool), accepted.get(tool.name())) {
            (Some(why), _) => Change::Unusable(why),
            (None, None) => Change::Added,
            (None, Some(pin)) if pin.whole == tool.pin.whole => Change::Same,
            (None, Some(pin)) => Change::Changed(pin.differences(&tool.pin)),
        };
        let text = match change {
            Change::Added | Change::Changed(_) => Some(item(server, tool)),
            _ => None,
        };
        let definition = match change {
            Change::Changed(_) => definition(tool),
            _ => Map::new(),
        };
        findings.push(Finding {
            tool: shown(tool.name()),
            id: item_id(server.name, tool.name()),
            change,
            text,
            definition,
        });
    }
    let gone = accepted
        .keys()
        .filter(|name| !seen.contains(&name.as_str()));
    findings.extend(gone.map(|name| Finding {
        tool: shown(name),
        id: item_id(server.name, name),
        change: Change::Removed,
        text: None,
        definition: Map::new(),
    }));
    findings
}

/// The parts of a tool as its item has them, for those who have to accept them.
fn definition(tool: &RemoteTool) -> Map<String, Value> {
    let mut all = Map::new();
    all.insert("description".into(), bounded(tool.description()).into());
    for part in ["inputSchema", "outputSchema"] {
        let mut schema = tool.part(part).cloned().unwrap_or_default();
        tidy(&mut schema);
        all.insert(part.into(), schema);
    }
    all.insert("annotations".into(), annotations(risk(tool), effect(tool)));
    all
}

/// What was accepted of a tool, by the same parts, as far as its item has them.
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

/// The id of a tool's item. A name that is no id has its hash in it, so that no two
/// tools share one.
pub fn item_id(server: &str, tool: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_id = tool.len() <= NAME
        && tool.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && tool.chars().all(good);
    if is_id {
        return format!("mcp/{server}/{tool}");
    }
    let short: String = tool
        .chars()
        .take(NAME)
        .map(|c| if good(c) { c } else { '_' })
        .collect();
    let short = short.trim_start_matches(['.', '-']);
    let hash = Hash::digest(tool).to_hex();
    format!("mcp/{server}/{short}-{}", &hash[..8])
}

/// A name that can be shown.
fn shown(name: &str) -> String {
    without_controls(name).chars().take(NAME).collect()
}

/// Why a tool cannot become an item.
fn unusable(tool: &RemoteTool) -> Option<String> {
    let schema = tool.input_schema().to_string();
    if schema.len() > SCHEMA {
        return Some(format!("its schema has more than {SCHEMA} bytes"));
    }
    if tool.name().is_empty() {
        return Some("it has no name".to_owned());
    }
    None
}

/// A tool's item.
fn item(server: &DiscoveredServer<'_>, tool: &RemoteTool) -> String {
    let (risk, effect) = (risk(tool), effect(tool));
    let transport = server.transport.name();
    let mut schema = tool.input_schema().clone();
    tidy(&mut schema);
    let fields = json!({
        "version": "1.0.0",
        "tool_type": "mcp",
        "executor_id": format!("rye/core/runtimes/mcp/{transport}"),
        "category": format!("mcp/{}", server.name),
        "description": bounded(tool.description()),
        "risk_level": risk,
        "effect": effect,
        "config": {
            "server": server_id(server.name),
            "tool_name": tool.name(),
            "pin": tool.pin.whole,
            "parts": tool.pin.parts,
        },
        "config_schema": schema,
    });
    let heading = "# Written by `rye mcp discover`. `pin` is the hash of what the server said of this tool.\n";
    match fields {
        Value::Object(fields) => format!("{heading}{}", item_yaml(&fields)),
        _ => String::new(),
    }
}

/// A text without control characters, and of a bounded length.
fn bounded(text: &str) -> String {
    let text = without_controls(text);
    match text.char_indices().nth(DESCRIPTION) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The same for all descriptions in a schema.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "description" || key == "title" => {
                        *text = bounded(text);
                    }
                    value => tidy(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// How much harm it can do, as far as its server says.
fn risk(tool: &RemoteTool) -> &'static str {
    let says = |hint: &str, value: bool| tool.hints(hint) == Some(value);
    if says("readOnlyHint", true) {
        "low"
    } else if says("destructiveHint", false) {
        "medium"
    } else {
        "high"
    }
}

/// Whether a call may be repeated. What is read from the world may change with it.
fn effect(tool: &RemoteTool) -> &'static str {
    let says = |hint: &str, value: bool| tool.hints(hint) == Some(value);
    if says("readOnlyHint", true) && says("openWorldHint", false) {
        "pure"
    } else if tool.is_repeatable() {
        "idempotent"
    } else {
        "at_most_once"
    }
}

/// The tool that an item of a server stands for, and its pin. None for an item that was
/// not discovered.
pub fn accepted_pin(config: &Value) -> Option<(String, Pin)> {
    let config: &Map<String, Value> = config.as_object()?;
    let name = config.get("tool_name")?.as_str()?;
    Some((name.to_owned(), Pin::from_config(config)?))
}

#[cfg(test)]
mod tests {
    use rmcp::model::Tool;

    use super::*;

    fn tool(about: Value) -> RemoteTool {
        let tool: Tool = serde_json::from_value(about).unwrap();
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
    fn names_become_ids_and_no_two_share_one() {
        assert_eq!(item_id("s", "get-weather_2.x"), "mcp/s/get-weather_2.x");
        let odd = [
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
        let mut ids: Vec<_> = odd.iter().map(|name| item_id("s", name)).collect();
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
    fn what_was_accepted_is_compared_part_by_part() {
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
    fn an_item_says_what_the_server_said_and_nothing_that_steers_a_terminal() {
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
            DESCRIPTION + 1
        );
        assert_eq!(fields["risk_level"], "low");
        assert_eq!(fields["effect"], "pure");
        assert_eq!(fields["executor_id"], "rye/core/runtimes/mcp/stdio");
        let (name, pin) = accepted_pin(&fields["config"]).unwrap();
        assert_eq!((name.as_str(), pin), ("a b", tool.pin));
    }

    #[test]
    fn a_schema_that_is_too_long_is_not_taken() {
        let schema = json!({"type": "object", "x": "x".repeat(SCHEMA)});
        let tool = tool(json!({"name": "a", "inputSchema": schema}));
        let finding = findings(&[tool], &BTreeMap::new()).remove(0);
        assert!(matches!(finding.change, Change::Unusable(_)));
        assert_eq!(finding.text, None);
    }
}
