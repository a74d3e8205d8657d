//! From a file to a graph: all that is wrong at once, each with its place.

mod fields;
mod node;

use std::collections::HashMap;

use lillux::Hash;
use rye_items::metadata::{self, Data, MetadataError, Node};

use crate::model::{Graph, Hook, Moment, Policy};
use crate::permission::Permission;
use crate::problem::{Problem, Severity};
use crate::validate;
use fields::{Fields, kind_error};

/// Steps of a graph that does not say how many it may take.
const MAX_STEPS: u64 = 100;

/// A graph, and what is wrong with it. There is no graph where something is an error.
#[derive(Debug)]
pub struct ParsedGraph {
    /// It, unless there is an error.
    pub graph: Option<Graph>,
    /// Errors and warnings, in the order of the file.
    pub problems: Vec<Problem>,
}

impl ParsedGraph {
    /// The errors alone.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        let all = self.problems.iter();
        all.filter(|problem| problem.severity == Severity::Error)
    }
}

impl Graph {
    /// Reads a graph and looks at it from all sides. What is no YAML at all is an error.
    pub fn parse(text: &[u8]) -> Result<ParsedGraph, MetadataError> {
        let tree = metadata::parse_yaml(text)?;
        let mut problems = Vec::new();
        let graph = read(&tree, text, &mut problems);
        if let Some((graph, start)) = &graph {
            validate::check(graph, *start, &mut problems);
        }
        let graph = graph.map(|(graph, _)| graph);
        problems.sort_by_key(|problem| (problem.at, problem.severity));
        problems.dedup();
        let sound = problems.iter().all(|it| it.severity != Severity::Error);
        Ok(ParsedGraph {
            graph: graph.filter(|_| sound),
            problems,
        })
    }
}

/// The nodes by name, known before any of them is read.
pub(crate) type Names<'n> = HashMap<&'n str, usize>;

/// The graph, as far as there is one, and where it starts, if it says so.
fn read(tree: &Node, text: &[u8], problems: &mut Vec<Problem>) -> Option<(Graph, Option<usize>)> {
    let top = Fields::of(tree, "a graph", problems)?;
    let permissions = top.texts("permissions", problems);
    let description = top.text("description", problems).map(|(_, text)| text);
    let Some(config) = top.get("config") else {
        let message = "the graph has no `config` with its `start` and `nodes`";
        problems.push(Problem::error(tree.at, "no_config", message));
        return None;
    };
    let config = Fields::of(config, "`config`", problems)?;
    config.know(
        &[
            "start",
            "max_steps",
            "on_error",
            "nodes",
            "hooks",
            "timeout",
        ],
        problems,
    );
    let max_steps = config.whole("max_steps", 1, problems);
    let policy = policy(&config, problems);
    let nodes = config.get("nodes").filter(|node| node.data != Data::Null);
    let Some(nodes) = nodes else {
        let message = "the graph has no `nodes`";
        problems.push(Problem::error(config.at, "no_nodes", message));
        return None;
    };
    let Data::Map(entries) = &nodes.data else {
        problems.push(kind_error(nodes, "nodes", "a mapping of names to nodes"));
        return None;
    };
    if entries.is_empty() {
        let message = "the graph has no nodes";
        problems.push(Problem::error(nodes.at, "no_nodes", message));
    }
    let names: Names<'_> = entries
        .iter()
        .enumerate()
        .map(|(index, entry)| (entry.key.as_str(), index))
        .collect();
    let nodes = entries.iter();
    let nodes = nodes.map(|entry| node::read(entry, &names, problems));
    let nodes: Vec<_> = nodes.collect();
    let start = start(&config, &names, problems);
    let hooks = hooks(&config, problems);
    let permissions = permissions.into_iter();
    let graph = Graph {
        text: text.to_owned(),
        hash: Hash::digest(text),
        description: description.map(str::to_owned),
        permissions: permissions
            .map(|(at, pattern)| Permission { pattern, at })
            .collect(),
        start: start.unwrap_or_default(),
        max_steps: max_steps.unwrap_or(MAX_STEPS),
        policy,
        nodes,
        hooks,
    };
    Some((graph, start))
}

fn policy(config: &Fields<'_>, problems: &mut Vec<Problem>) -> Policy {
    match config.text("on_error", problems) {
        None | Some((_, "fail")) => Policy::Fail,
        Some((_, "continue")) => Policy::Continue,
        Some((at, other)) => {
            let message = format!("`on_error` of a graph is fail or continue, not `{other}`");
            problems.push(
                Problem::error(at, "bad_policy", message)
                    .with_hint("a node that sees to errors is named by `on_error` of a node"),
            );
            Policy::Fail
        }
    }
}

fn start(config: &Fields<'_>, names: &Names<'_>, problems: &mut Vec<Problem>) -> Option<usize> {
    if config.get("start").is_none() {
        let message = "the graph does not say where it starts";
        let problem = Problem::error(config.at, "no_start", message);
        problems.push(match names.iter().min_by_key(|(_, index)| **index) {
            Some((first, _)) => problem.with_hint(format!("start: {first}")),
            None => problem,
        });
        return None;
    }
    let (at, name) = config.text("start", problems)?;
    node::target(at, name, "start", names, problems)
}

fn hooks(config: &Fields<'_>, problems: &mut Vec<Problem>) -> Vec<Hook> {
    let mut hooks = Vec::new();
    for node in config.list("hooks", problems) {
        let Some(fields) = Fields::of(node, "a hook", problems) else {
            continue;
        };
        fields.know(&["event", "condition", "action"], problems);
        let moment = fields.required_text("event", problems);
        let moment = moment.and_then(|(at, name)| {
            let found = Moment::ALL.iter().find(|(known, _)| *known == name);
            if found.is_none() {
                let names = Moment::ALL.map(|(name, _)| name);
                let message = format!(
                    "no hook is asked at `{name}`; there are {}",
                    names.join(", ")
                );
                problems.push(Problem::error(at, "unknown_event", message).nearest(name, names));
            }
            found.map(|(_, moment)| *moment)
        });
        let condition = fields.condition("condition", None, problems);
        let action = node::action(&fields, None, problems);
        if let (Some(moment), Some(action)) = (moment, action) {
            hooks.push(Hook {
                moment,
                condition,
                action,
            });
        }
    }
    hooks
}
