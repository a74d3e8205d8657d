//! Parser for graph files. Reports all problems at once, with positions.

mod fields;
mod node;

use std::collections::HashMap;

use lillux::Hash;
use rye_items::metadata::{self, Data, MetadataError, Node};

use crate::definition::{ErrorPolicy, Graph, Hook, HookEvent};
use crate::permission::Permission;
use crate::problem::{Problem, Severity};
use crate::validate;
use strum::VariantNames as _;

pub(crate) use fields::Fields;
use fields::type_error;

/// Default of `max_steps`.
const DEFAULT_MAX_STEPS: u64 = 100;

/// Result of parsing a graph.
#[derive(Debug)]
pub struct ParsedGraph {
    /// The graph, if there are no errors.
    pub graph: Option<Graph>,
    /// Errors and warnings, in file order.
    pub problems: Vec<Problem>,
}

impl ParsedGraph {
    /// Only the errors.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        let all = self.problems.iter();
        all.filter(|problem| problem.severity == Severity::Error)
    }
}

impl Graph {
    /// Parses and validates a graph. Fails if the text is not valid YAML.
    pub fn parse(text: &[u8]) -> Result<ParsedGraph, MetadataError> {
        let tree = metadata::parse_yaml(text)?;
        let mut problems = Vec::new();
        let graph = parse(&tree, text, &mut problems);
        if let Some((graph, start)) = &graph {
            validate::check(graph, *start, &mut problems);
        }
        let graph = graph.map(|(graph, _)| graph);
        problems.sort_by_key(|problem| (problem.at, problem.severity));
        problems.dedup();
        let is_valid = problems.iter().all(|it| it.severity != Severity::Error);
        Ok(ParsedGraph {
            graph: graph.filter(|_| is_valid),
            problems,
        })
    }
}

/// Indices of the nodes by name.
pub(crate) type NodeIndices<'n> = HashMap<&'n str, usize>;

/// Parses as much of the graph as possible; returns it with its start node, if that is valid.
fn parse(tree: &Node, text: &[u8], problems: &mut Vec<Problem>) -> Option<(Graph, Option<usize>)> {
    let top = Fields::parse(tree, "a graph", problems)?;
    let permissions = top.texts("permissions", problems);
    top.text("description", problems);
    let Some(config) = top.get("config") else {
        let message = "missing `config` with `start` and `nodes`";
        problems.push(Problem::error(tree.at, "no_config", message));
        return None;
    };
    let config = Fields::parse(config, "`config`", problems)?;
    config.check_known(
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
    let max_steps = config.integer("max_steps", 1, problems);
    let error_policy = error_policy(&config, problems);
    let nodes = config.get("nodes").filter(|node| node.data != Data::Null);
    let Some(nodes) = nodes else {
        let message = "missing `nodes`";
        problems.push(Problem::error(config.at, "no_nodes", message));
        return None;
    };
    let Data::Map(entries) = &nodes.data else {
        problems.push(type_error(nodes, "nodes", "a mapping of names to nodes"));
        return None;
    };
    if entries.is_empty() {
        let message = "`nodes` is empty";
        problems.push(Problem::error(nodes.at, "no_nodes", message));
    }
    let names = entries.iter().map(|entry| entry.key.as_str());
    let names: NodeIndices<'_> = names.zip(0..).collect();
    let nodes = entries.iter();
    let nodes = nodes.map(|entry| node::parse(entry, &names, problems));
    let nodes: Vec<_> = nodes.collect();
    let start = start(&config, &names, problems);
    let hooks = hooks(&config, problems);
    let permissions = permissions.into_iter();
    let graph = Graph {
        text: text.to_owned(),
        hash: Hash::digest(text),
        permissions: permissions
            .map(|(at, pattern)| Permission { pattern, at })
            .collect(),
        start: start.unwrap_or_default(),
        max_steps: max_steps.unwrap_or(DEFAULT_MAX_STEPS),
        error_policy,
        nodes,
        hooks,
    };
    Some((graph, start))
}

fn error_policy(config: &Fields<'_>, problems: &mut Vec<Problem>) -> ErrorPolicy {
    match config.text("on_error", problems) {
        None | Some((_, "fail")) => ErrorPolicy::Fail,
        Some((_, "continue")) => ErrorPolicy::Continue,
        Some((at, other)) => {
            let message = format!("`on_error` of a graph must be fail or continue, not `{other}`");
            problems.push(
                Problem::error(at, "bad_policy", message)
                    .with_hint("to handle errors in a node, set `on_error` of the failing node"),
            );
            ErrorPolicy::Fail
        }
    }
}

fn start(
    config: &Fields<'_>,
    names: &NodeIndices<'_>,
    problems: &mut Vec<Problem>,
) -> Option<usize> {
    if config.get("start").is_none() {
        let message = "missing `start`";
        let first = names.iter().min_by_key(|(_, index)| **index);
        problems.push(Problem {
            hint: first.map(|(first, _)| format!("start: {first}")),
            ..Problem::error(config.at, "no_start", message)
        });
        return None;
    }
    let (at, name) = config.text("start", problems)?;
    node::target(at, name, "start", names, problems)
}

fn hooks(config: &Fields<'_>, problems: &mut Vec<Problem>) -> Vec<Hook> {
    let mut hooks = Vec::new();
    for node in config.list("hooks", problems) {
        let Some(fields) = Fields::parse(node, "a hook", problems) else {
            continue;
        };
        fields.check_known(&["event", "condition", "action"], problems);
        let event = fields.required_text("event", problems);
        let event = event.and_then(|(at, name)| {
            let names = HookEvent::VARIANTS;
            let problem = || Problem::unknown(at, "unknown_event", "hook event", name, names);
            name.parse().map_err(|_| problems.push(problem())).ok()
        });
        let condition = fields.condition("condition", None, problems);
        let action = node::action(&fields, None, problems);
        if let (Some(event), Some(action)) = (event, action) {
            hooks.push(Hook {
                event,
                condition,
                action,
            });
        }
    }
    hooks
}
