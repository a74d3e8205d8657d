//! Parser for the nodes of a graph.

use rye_items::metadata::{Data, Entry, Node as Tree};
use serde_json::{Map, Value};
use strum::VariantNames as _;

use super::NodeIndices;
use super::fields::{Fields, type_error};
use crate::condition::Condition;
use crate::definition::{Action, Decision, Edge, Foreach, Node, NodeKind, Retry};
use crate::problem::{Problem, nearest};
use crate::template::Template;

/// Fields that every node may have.
const COMMON: [&str; 5] = ["type", "description", "assign", "next", "on_error"];
const ACTION: [&str; 3] = ["action", "retry", "cache_result"];
const FOREACH: [&str; 8] = [
    "action",
    "retry",
    "cache_result",
    "over",
    "as",
    "parallel",
    "max_concurrency",
    "collect",
];
const DECISION: [&str; 5] = ["kind", "title", "body", "actions", "expires_in"];
/// Default concurrency of a parallel foreach.
const DEFAULT_CONCURRENCY: usize = 8;
/// Upper limit of `max_concurrency`.
const MAX_CONCURRENCY: u64 = 256;

/// Parses a node. An invalid node is replaced by a placeholder with the same edges, so that the
/// rest of the graph can be validated; a graph with errors never runs.
pub(super) fn parse(entry: &Entry, names: &NodeIndices<'_>, problems: &mut Vec<Problem>) -> Node {
    let Some(fields) = Fields::parse(&entry.value, "a node", problems) else {
        return Node::placeholder(entry);
    };
    let kind = fields.text("type", problems);
    let kind = kind.unwrap_or((fields.at, "action"));
    let (what, own): (_, &[&str]) = match kind.1 {
        "action" => ("a node", &ACTION),
        "foreach" => ("a foreach", &FOREACH),
        "gate" => ("a gate (it asks nobody, unlike a `decision`)", &[]),
        "return" => ("a return", &["output"]),
        "decision" => ("a decision", &DECISION),
        other => {
            let known = NodeKind::VARIANTS;
            let problem = Problem::unknown(kind.0, "unknown_type", "node type", other, known);
            problems.push(problem);
            let next = edges(&fields, names, problems);
            return Node {
                next,
                ..Node::placeholder(entry)
            };
        }
    };
    let fields = fields.named(what);
    let known: Vec<_> = COMMON.into_iter().chain(own.iter().copied()).collect();
    fields.check_known(&known, problems);
    let node_kind = match kind.1 {
        "foreach" => foreach(entry, &fields, problems).map(NodeKind::Foreach),
        "gate" => Some(NodeKind::Gate),
        "return" => {
            let output = fields.get("output");
            let output = output.map(|node| Template::parse(node, None, problems));
            Some(NodeKind::Return(output))
        }
        "decision" => Some(NodeKind::Decision(decision(entry, &fields, problems))),
        _ => {
            if fields.get("action").is_none() {
                let message = format!("the node `{}` has no `action`", entry.key);
                let hint = "add an `action`, or a `type`: foreach, gate, return, decision";
                problems.push(Problem::error(entry.at, "no_action", message).with_hint(hint));
            }
            action(&fields, None, problems).map(NodeKind::Action)
        }
    };
    let on_error = fields.text("on_error", problems);
    let on_error = on_error.map(|(at, name)| target(at, name, "on_error", names, problems));
    Node {
        kind: node_kind.unwrap_or(NodeKind::Gate),
        assign: assign(&fields, problems),
        next: edges(&fields, names, problems),
        on_error: on_error.flatten(),
        retry: retry(&fields, problems),
        cache: fields.flag("cache_result", problems),
        ..Node::placeholder(entry)
    }
}

impl Node {
    /// Creates a node that does nothing.
    fn placeholder(entry: &Entry) -> Self {
        Self {
            name: entry.key.clone(),
            at: entry.at,
            kind: NodeKind::Gate,
            assign: Vec::new(),
            next: Vec::new(),
            on_error: None,
            retry: Retry::default(),
            cache: false,
        }
    }
}

/// Index of the target node. An unknown target is reported and replaced by the most similar one.
pub(super) fn target(
    at: usize,
    name: &str,
    what: &str,
    names: &NodeIndices<'_>,
    problems: &mut Vec<Problem>,
) -> Option<usize> {
    if let Some(found) = names.get(name) {
        return Some(*found);
    }
    let near = nearest(name, names.keys().copied());
    let message = format!("`{what}`: there is no node `{name}`");
    problems.push(Problem {
        hint: near.map(|near| format!("did you mean `{near}`?")),
        ..Problem::error(at, "unknown_target", message)
    });
    near.and_then(|near| names.get(near).copied())
}

fn edges(fields: &Fields<'_>, names: &NodeIndices<'_>, problems: &mut Vec<Problem>) -> Vec<Edge> {
    let Some(node) = fields.get("next") else {
        return Vec::new();
    };
    let items = match &node.data {
        Data::Null => return Vec::new(),
        Data::Text(name) => {
            let to = target(node.at, name, "next", names, problems);
            return to.map(|to| Edge { to, when: None }).into_iter().collect();
        }
        Data::List(items) => items,
        _ => {
            let expected = "a name, or a list of { to, when }";
            problems.push(type_error(node, "next", expected));
            return Vec::new();
        }
    };
    let mut edges: Vec<Edge> = Vec::new();
    for item in items {
        let Some(fields) = Fields::parse(item, "an edge", problems) else {
            continue;
        };
        fields.check_known(&["to", "when"], problems);
        if edges.last().is_some_and(|edge| edge.when.is_none()) {
            let message = "unreachable edge: the previous edge has no `when`";
            problems.push(Problem::error(item.at, "dead_edge", message));
        }
        let when = fields.get("when").map(|_| {
            let when = fields.condition("when", None, problems);
            when.unwrap_or(Condition::All(Vec::new()))
        });
        let to = fields.required_text("to", problems);
        let to = to.and_then(|(at, name)| target(at, name, "to", names, problems));
        edges.extend(to.map(|to| Edge { to, when }));
    }
    edges
}

fn assign(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Vec<(String, usize, Template)> {
    let Some(node) = fields.get("assign") else {
        return Vec::new();
    };
    let Data::Map(entries) = &node.data else {
        problems.push(type_error(node, "assign", "a mapping of names to values"));
        return Vec::new();
    };
    let mut all = Vec::new();
    for entry in entries {
        if entry.key.contains('.') || entry.key.starts_with('_') {
            let message = format!("invalid state key `{}`", entry.key);
            let hint = "a state key contains no dots and does not start with _";
            problems.push(Problem::error(entry.at, "bad_name", message).with_hint(hint));
            continue;
        }
        let value = Template::parse(&entry.value, None, problems);
        all.push((entry.key.clone(), entry.at, value));
    }
    all
}

fn retry(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Retry {
    let Some(node) = fields.get("retry") else {
        return Retry::default();
    };
    let Some(fields) = Fields::parse(node, "`retry`", problems) else {
        return Retry::default();
    };
    fields.check_known(&["max", "backoff"], problems);
    let max = fields.integer("max", 0, problems).unwrap_or_default();
    Retry {
        max: u32::try_from(max).unwrap_or(u32::MAX),
        backoff: fields.seconds("backoff", problems).unwrap_or_default(),
    }
}

/// Parses the action of a node, a foreach or a hook.
pub(super) fn action(
    outer: &Fields<'_>,
    variable: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Option<Action> {
    let node = outer.get("action")?;
    let fields = Fields::parse(node, "an action", problems)?;
    fields.check_known(&["primary", "item_type", "item_id", "params"], problems);
    for (name, only) in [("primary", "execute"), ("item_type", "tool")] {
        if let Some((at, other)) = fields.text(name, problems).filter(|(_, it)| *it != only) {
            let message = format!("`{name}` of an action must be {only}, not `{other}`");
            problems.push(Problem::error(at, "unknown_action", message));
        }
    }
    let (at, _) = fields.required_text("item_id", problems)?;
    let item = Template::parse(fields.get("item_id")?, variable, problems);
    if let Some(id) = item.as_literal().and_then(Value::as_str)
        && let Err(error) = id.parse::<rye_items::ItemId>()
    {
        let message = format!("`{id}` is not a valid item id: {error}");
        problems.push(Problem::error(at, "bad_item_id", message));
    }
    let params = match fields.get("params") {
        None
        | Some(Tree {
            data: Data::Null, ..
        }) => Template::Literal(Map::new().into()),
        Some(node) if matches!(node.data, Data::Map(_) | Data::Text(_)) => {
            Template::parse(node, variable, problems)
        }
        Some(node) => {
            problems.push(type_error(node, "params", "a mapping of names to values"));
            return None;
        }
    };
    Some(Action { at, item, params })
}

fn foreach(entry: &Entry, fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Option<Foreach> {
    for name in ["over", "action"] {
        if fields.get(name).is_none() {
            let message = format!("the foreach `{}` has no `{name}`", entry.key);
            problems.push(Problem::error(entry.at, "bad_foreach", message));
        }
    }
    let variable = fields.text("as", problems);
    let variable = variable.map_or("item", |(_, name)| name).to_owned();
    if crate::path::ROOTS.contains(&variable.as_str()) {
        let at = fields.get("as").map_or(fields.at, |node| node.at);
        let message = format!("`{variable}` is a reserved name");
        problems.push(Problem::error(at, "bad_name", message));
    }
    let concurrency = match (
        fields.flag("parallel", problems),
        fields.integer("max_concurrency", 1, problems),
    ) {
        (false, _) => 1,
        (true, None) => DEFAULT_CONCURRENCY,
        (true, Some(most)) => {
            usize::try_from(most.min(MAX_CONCURRENCY)).unwrap_or(DEFAULT_CONCURRENCY)
        }
    };
    let collect = fields.text("collect", problems);
    let over = fields.get("over").map(|node| over(node, problems));
    let action = action(fields, Some(&variable), problems);
    let (over_at, over) = over?;
    Some(Foreach {
        over,
        over_at,
        action: action?,
        concurrency,
        collect: collect.map(|(at, name)| (name.to_owned(), at)),
        variable,
    })
}

fn over(node: &Tree, problems: &mut Vec<Problem>) -> (usize, Template) {
    let template = Template::parse(node, None, problems);
    let is_list = match &template {
        Template::Literal(value) => value.is_array(),
        Template::Whole(_) | Template::List(_) => true,
        Template::Text(_) | Template::Map(_) => false,
    };
    if !is_list {
        let problem = type_error(node, "over", "a list or a single expression");
        problems.push(problem.with_hint("over: \"${state.parts}\""));
    }
    (node.at, template)
}

fn decision(entry: &Entry, fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Decision {
    let kind = fields.text("kind", problems).unwrap_or((0, "approval"));
    let is_approval = match kind.1 {
        "approval" => true,
        "question" => false,
        other => {
            let known = ["approval", "question"];
            let message =
                format!("`kind` of a decision must be approval or question, not `{other}`");
            problems.push(
                Problem::error(kind.0, "unknown_kind", message).with_suggestion(other, known),
            );
            true
        }
    };
    if fields.get("title").is_none() {
        let message = format!("the decision `{}` has no `title`", entry.key);
        let hint = "title: \"ship it?\"";
        problems.push(Problem::error(entry.at, "missing_key", message).with_hint(hint));
    }
    let empty = || Template::Literal(Value::String(String::new()));
    let mut template = |name: &str| {
        let node = fields.get(name);
        node.map_or_else(empty, |node| Template::parse(node, None, problems))
    };
    let (title, body) = (template("title"), template("body"));
    let mut actions = Vec::new();
    for node in fields.list("actions", problems) {
        match &node.data {
            Data::Text(id) => actions.push((id.clone(), id.clone())),
            Data::Map(_) => {
                if let Some(fields) = Fields::parse(node, "an answer", problems) {
                    fields.check_known(&["id", "label"], problems);
                    let id = fields.required_text("id", problems);
                    let label = fields.text("label", problems);
                    if let Some((_, id)) = id {
                        let label = label.map_or(id, |(_, label)| label);
                        actions.push((id.to_owned(), label.to_owned()));
                    }
                }
            }
            _ => problems.push(type_error(node, "actions", "a list of names")),
        }
    }
    if is_approval && actions.is_empty() {
        actions = ["approve", "deny"]
            .map(|id| (id.to_owned(), id.to_owned()))
            .to_vec();
    }
    Decision {
        is_approval,
        title,
        body,
        actions,
        expires_in: fields.seconds("expires_in", problems),
    }
}
