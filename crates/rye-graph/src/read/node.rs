//! One node of a graph.

use rye_items::metadata::{Data, Entry, Node as Tree};
use serde_json::{Map, Value};

use super::Names;
use super::fields::{Fields, kind_error};
use crate::condition::Condition;
use crate::model::{Action, Decision, Edge, Foreach, Kind, Node, Retry};
use crate::problem::{Problem, nearest};
use crate::template::Template;

/// What every node may have.
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
/// How many items of a parallel foreach run at once that does not say.
const AT_ONCE: usize = 8;
/// More at once than this is more than a machine has use for.
const MOST_AT_ONCE: u64 = 256;

/// Reads a node. One that is broken stands for what it leads to, so that the whole can be
/// looked at; a graph with errors is never walked.
pub(super) fn read(entry: &Entry, names: &Names<'_>, problems: &mut Vec<Problem>) -> Node {
    let Some(fields) = Fields::of(&entry.value, "a node", problems) else {
        return Node::broken(entry);
    };
    let kind = fields.text("type", problems);
    let kind = kind.unwrap_or((fields.at, "action"));
    let (what, own): (_, &[&str]) = match kind.1 {
        "action" => ("a node", &ACTION),
        "foreach" => ("a foreach", &FOREACH),
        "gate" => ("a gate", &[]),
        "return" => ("a return", &["output"]),
        "decision" => ("a decision", &DECISION),
        other => {
            let known = ["action", "foreach", "gate", "return", "decision"];
            let message = format!(
                "there is no kind of node `{other}`; there are {}",
                known.join(", ")
            );
            problems.push(Problem::error(kind.0, "unknown_type", message).nearest(other, known));
            let next = edges(&fields, names, problems);
            return Node {
                next,
                ..Node::broken(entry)
            };
        }
    };
    let fields = fields.known_as(what);
    let known: Vec<_> = COMMON.into_iter().chain(own.iter().copied()).collect();
    fields.know(&known, problems);
    let read = match kind.1 {
        "foreach" => foreach(entry, &fields, problems).map(Kind::Foreach),
        "gate" => Some(Kind::Gate),
        "return" => {
            let output = fields.get("output");
            let output = output.map(|node| Template::read(node, None, problems));
            Some(Kind::Return(output))
        }
        "decision" => Some(Kind::Decision(decision(entry, &fields, problems))),
        _ => {
            if fields.get("action").is_none() {
                let message = format!("the node `{}` has no `action`", entry.key);
                let hint = "or a `type`: foreach, gate, return, decision";
                problems.push(Problem::error(entry.at, "no_action", message).with_hint(hint));
            }
            action(&fields, None, problems).map(Kind::Action)
        }
    };
    let on_error = fields.text("on_error", problems);
    let on_error = on_error.map(|(at, name)| target(at, name, "on_error", names, problems));
    Node {
        kind: read.unwrap_or(Kind::Gate),
        assign: assign(&fields, problems),
        next: edges(&fields, names, problems),
        on_error: on_error.flatten(),
        retry: retry(&fields, problems),
        cache: fields.flag("cache_result", problems),
        ..Node::broken(entry)
    }
}

impl Node {
    /// A place in the program where something should be.
    fn broken(entry: &Entry) -> Self {
        Self {
            name: entry.key.clone(),
            at: entry.at,
            kind: Kind::Gate,
            assign: Vec::new(),
            next: Vec::new(),
            on_error: None,
            retry: Retry::default(),
            cache: false,
        }
    }
}

/// The node that a name means. Where there is none, the nearest is what was probably meant.
pub(super) fn target(
    at: usize,
    name: &str,
    what: &str,
    names: &Names<'_>,
    problems: &mut Vec<Problem>,
) -> Option<usize> {
    if let Some(found) = names.get(name) {
        return Some(*found);
    }
    let near = nearest(name, names.keys().copied());
    let message = format!("`{what}` leads to `{name}`, and there is no such node");
    let problem = Problem::error(at, "unknown_target", message);
    problems.push(match near {
        Some(near) => problem.with_hint(format!("did you mean `{near}`?")),
        None => problem,
    });
    near.and_then(|near| names.get(near).copied())
}

fn edges(fields: &Fields<'_>, names: &Names<'_>, problems: &mut Vec<Problem>) -> Vec<Edge> {
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
            problems.push(kind_error(
                node,
                "next",
                "a name, or a list of { to, when }",
            ));
            return Vec::new();
        }
    };
    let mut edges: Vec<Edge> = Vec::new();
    for item in items {
        let Some(fields) = Fields::of(item, "an edge", problems) else {
            continue;
        };
        fields.know(&["to", "when"], problems);
        if edges.last().is_some_and(|edge| edge.when.is_none()) {
            let message = "no edge after one without `when` is ever taken";
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
        problems.push(kind_error(node, "assign", "a mapping of names to values"));
        return Vec::new();
    };
    let mut all = Vec::new();
    for entry in entries {
        if entry.key.contains('.') || entry.key.starts_with('_') {
            let message = format!("`{}` is no name for a part of the state", entry.key);
            let hint = "one without dots that does not begin with _";
            problems.push(Problem::error(entry.at, "bad_name", message).with_hint(hint));
            continue;
        }
        let value = Template::read(&entry.value, None, problems);
        all.push((entry.key.clone(), entry.at, value));
    }
    all
}

fn retry(fields: &Fields<'_>, problems: &mut Vec<Problem>) -> Retry {
    let Some(node) = fields.get("retry") else {
        return Retry::default();
    };
    let Some(fields) = Fields::of(node, "`retry`", problems) else {
        return Retry::default();
    };
    fields.know(&["max", "backoff"], problems);
    let max = fields.whole("max", 0, problems).unwrap_or_default();
    Retry {
        max: u32::try_from(max).unwrap_or(u32::MAX),
        backoff: fields.seconds("backoff", problems).unwrap_or_default(),
    }
}

/// The call that a node, a foreach or a hook makes.
pub(super) fn action(
    outer: &Fields<'_>,
    variable: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Option<Action> {
    let node = outer.get("action")?;
    let fields = Fields::of(node, "an action", problems)?;
    fields.know(&["primary", "item_type", "item_id", "params"], problems);
    for (name, only) in [("primary", "execute"), ("item_type", "tool")] {
        if let Some((at, other)) = fields.text(name, problems).filter(|(_, it)| *it != only) {
            let message = format!("`{name}` of an action is {only}, not `{other}`");
            problems.push(Problem::error(at, "unknown_action", message));
        }
    }
    let (at, _) = fields.required_text("item_id", problems)?;
    let item = Template::read(fields.get("item_id")?, variable, problems);
    if let Some(id) = item.as_plain().and_then(Value::as_str)
        && let Err(error) = id.parse::<rye_items::ItemId>()
    {
        let message = format!("`{id}` is no item id: {error}");
        problems.push(Problem::error(at, "bad_item_id", message));
    }
    let params = match fields.get("params") {
        None => Template::Plain(Value::Object(Map::new())),
        Some(node) => match &node.data {
            Data::Map(_) | Data::Text(_) => Template::read(node, variable, problems),
            Data::Null => Template::Plain(Value::Object(Map::new())),
            _ => {
                problems.push(kind_error(node, "params", "a mapping of names to values"));
                return None;
            }
        },
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
        let message = format!("`{variable}` means something else already");
        problems.push(Problem::error(at, "bad_name", message));
    }
    let at_once = match (
        fields.flag("parallel", problems),
        fields.whole("max_concurrency", 1, problems),
    ) {
        (false, _) => 1,
        (true, None) => AT_ONCE,
        (true, Some(most)) => usize::try_from(most.min(MOST_AT_ONCE)).unwrap_or(AT_ONCE),
    };
    let collect = fields.text("collect", problems);
    let over = fields.get("over").map(|node| over(node, problems));
    let action = action(fields, Some(&variable), problems);
    let (over_at, over) = over?;
    Some(Foreach {
        over,
        over_at,
        action: action?,
        at_once,
        collect: collect.map(|(at, name)| (name.to_owned(), at)),
        variable,
    })
}

fn over(node: &Tree, problems: &mut Vec<Problem>) -> (usize, Template) {
    let template = Template::read(node, None, problems);
    let is_list = match &template {
        Template::Plain(value) => value.is_array(),
        Template::Whole(_) | Template::List(_) => true,
        Template::Text(_) | Template::Map(_) => false,
    };
    if !is_list {
        let problem = kind_error(node, "over", "a list, or one expression that gives one");
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
            let message = format!("a decision is an approval or a question, not `{other}`");
            problems.push(Problem::error(kind.0, "unknown_kind", message).nearest(other, known));
            true
        }
    };
    if fields.get("title").is_none() {
        let message = format!("the decision `{}` does not say what is asked", entry.key);
        let hint = "title: \"ship it?\"";
        problems.push(Problem::error(entry.at, "missing_key", message).with_hint(hint));
    }
    let empty = || Template::Plain(Value::String(String::new()));
    let mut template = |name: &str| {
        let node = fields.get(name);
        node.map_or_else(empty, |node| Template::read(node, None, problems))
    };
    let (title, body) = (template("title"), template("body"));
    let mut actions = Vec::new();
    for node in fields.list("actions", problems) {
        match &node.data {
            Data::Text(id) => actions.push((id.clone(), id.clone())),
            Data::Map(_) => {
                if let Some(fields) = Fields::of(node, "an answer", problems) {
                    fields.know(&["id", "label"], problems);
                    let id = fields.required_text("id", problems);
                    let label = fields.text("label", problems);
                    if let Some((_, id)) = id {
                        let label = label.map_or(id, |(_, label)| label);
                        actions.push((id.to_owned(), label.to_owned()));
                    }
                }
            }
            _ => problems.push(kind_error(node, "actions", "a list of names")),
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
