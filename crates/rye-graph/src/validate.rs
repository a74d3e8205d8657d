//! Validation of a whole graph: reachability, loops, state keys and permissions.

use std::collections::{BTreeMap, BTreeSet};

use rye_items::ItemId;

use crate::definition::{Action, Graph, Node, NodeKind, literal_item};
use crate::path::Path;
use crate::permission;
use crate::problem::{Problem, nearest};
use crate::walk::LAST_ERROR;

/// Validates a graph. Parts of it may be invalid and the start node may be unknown; problems that
/// only follow from these are not reported.
pub(crate) fn check(graph: &Graph, start: Option<usize>, problems: &mut Vec<Problem>) {
    let is_complete = problems.is_empty();
    let reached = match start {
        Some(start) => check_reachability(graph, start, problems),
        None => vec![true; graph.nodes.len()],
    };
    check_loops(graph, &reached, problems);
    if is_complete {
        check_state(graph, problems);
    }
    check_permissions(graph, is_complete, problems);
}

/// Nodes that can follow a node.
pub(crate) fn successors(node: &Node) -> impl Iterator<Item = usize> + '_ {
    let edges = node.next.iter().map(|edge| edge.to);
    edges.chain(node.on_error)
}

/// Whether a run can end at a node.
fn can_end(node: &Node) -> bool {
    match node.kind {
        NodeKind::Return(_) => true,
        // If every edge has a condition, none may hold.
        _ => node.next.iter().all(|edge| edge.when.is_some()),
    }
}

fn check_reachability(graph: &Graph, start: usize, problems: &mut Vec<Problem>) -> Vec<bool> {
    let reached = reachable(graph, vec![start]);
    for (node, reached) in graph.nodes.iter().zip(&reached) {
        if !reached {
            let message = format!("the node `{}` is unreachable", node.name);
            let hint = format!("add an edge with `next: {}`, or remove the node", node.name);
            problems.push(Problem::error(node.at, "unreachable", message).with_hint(hint));
        }
    }
    reached
}

/// Checks that every reachable node leads to a node where a run can end.
fn check_loops(graph: &Graph, reached: &[bool], problems: &mut Vec<Problem>) {
    let mut leads_out: Vec<_> = graph.nodes.iter().map(can_end).collect();
    loop {
        let mut changed = false;
        for (index, node) in graph.nodes.iter().enumerate() {
            if !leads_out[index] && successors(node).any(|to| leads_out[to]) {
                leads_out[index] = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let stuck = (0..graph.nodes.len()).filter(|index| reached[*index] && !leads_out[*index]);
    // Keep only nodes inside a loop, not those that lead into one.
    let after = |index: usize| reachable(graph, successors(&graph.nodes[index]).collect());
    let mut stuck: Vec<_> = stuck.filter(|it| after(*it)[*it]).collect();
    while let Some(first) = stuck.first().copied() {
        let after_first = after(first);
        let is_in_loop = |it: usize| after_first[it] && after(it)[first];
        let (names, others): (Vec<_>, _) = stuck.into_iter().partition(|it| is_in_loop(*it));
        stuck = others;
        let names = names.iter().map(|it| graph.nodes[*it].name.as_str());
        let names = names.collect::<Vec<_>>().join(" → ");
        let message = format!("the loop {names} → … has no exit");
        let hint = "add an edge with a `when` to a node outside of the loop";
        problems
            .push(Problem::error(graph.nodes[first].at, "endless_loop", message).with_hint(hint));
    }
}

/// For each node, whether it is one of the nodes in `open` or can be reached from them.
fn reachable(graph: &Graph, mut open: Vec<usize>) -> Vec<bool> {
    let mut seen = vec![false; graph.nodes.len()];
    while let Some(other) = open.pop() {
        if !std::mem::replace(&mut seen[other], true) {
            open.extend(successors(&graph.nodes[other]));
        }
    }
    seen
}

/// Checks that every state key that is read is assigned, and the other way round.
fn check_state(graph: &Graph, problems: &mut Vec<Problem>) {
    let mut written: BTreeMap<&str, usize> = BTreeMap::new();
    let mut read: Vec<(usize, &Path)> = Vec::new();
    for node in &graph.nodes {
        for (name, at, value) in &node.assign {
            written.entry(name).or_insert(*at);
            value.paths(&mut read);
        }
        for edge in &node.next {
            if let Some(when) = &edge.when {
                when.paths(&mut read);
            }
        }
        match &node.kind {
            NodeKind::Action(action) => collect_action_paths(action, &mut read),
            NodeKind::Foreach(foreach) => {
                foreach.over.paths(&mut read);
                collect_action_paths(&foreach.action, &mut read);
                if let Some((name, at)) = &foreach.collect {
                    written.entry(name).or_insert(*at);
                }
            }
            NodeKind::Return(Some(output)) => output.paths(&mut read),
            NodeKind::Decision(decision) => {
                decision.title.paths(&mut read);
                decision.body.paths(&mut read);
            }
            NodeKind::Gate | NodeKind::Return(None) => {}
        }
    }
    for hook in &graph.hooks {
        if let Some(condition) = &hook.condition {
            condition.paths(&mut read);
        }
        collect_action_paths(&hook.action, &mut read);
    }
    let mut used = BTreeSet::new();
    // A run without an explicit output returns the whole state.
    let returns_all = graph.nodes.iter().any(|node| match &node.kind {
        NodeKind::Return(output) => output.is_none(),
        _ => node.next.is_empty(),
    });
    let reads_all = read.iter().any(|(_, path)| path.text == "state");
    for (at, path) in read {
        let Some(key) = path.state_key() else {
            continue;
        };
        used.insert(key);
        if !written.contains_key(key) && key != LAST_ERROR {
            let message = format!("`{}` is read, but `{key}` is never assigned", path.text);
            let near = nearest(key, written.keys().copied().chain([LAST_ERROR]));
            problems.push(Problem {
                hint: near.map(|near| format!("did you mean `state.{near}`?")),
                ..Problem::warning(at, "never_assigned", message)
            });
        }
    }
    if reads_all || returns_all {
        return;
    }
    for (name, at) in written {
        if !used.contains(name) {
            let message = format!("`{name}` is assigned, but never read");
            problems.push(Problem::warning(at, "never_read", message));
        }
    }
}

fn collect_action_paths<'g>(action: &'g Action, read: &mut Vec<(usize, &'g Path)>) {
    action.item.paths(read);
    action.params.paths(read);
}

/// All actions of a graph.
pub(crate) fn actions(graph: &Graph) -> impl Iterator<Item = &Action> {
    let nodes = graph.nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::Action(action) => Some(action),
        NodeKind::Foreach(foreach) => Some(&foreach.action),
        _ => None,
    });
    nodes.chain(graph.hooks.iter().map(|hook| &hook.action))
}

fn check_permissions(graph: &Graph, is_complete: bool, problems: &mut Vec<Problem>) {
    let mut used = vec![false; graph.permissions.len()];
    for action in actions(graph) {
        let Some(item) = literal_item(action) else {
            // The tool is only known at run time, so any permission may be needed.
            used.fill(true);
            continue;
        };
        if item.parse::<ItemId>().is_err() {
            // Reported by the parser.
            continue;
        }
        let required = permission::required_permission(item);
        let mut covered = false;
        for (permission, used) in graph.permissions.iter().zip(&mut used) {
            if permission.covers(&required) {
                (*used, covered) = (true, true);
            }
        }
        if !covered {
            let message = format!("no permission covers {item}");
            let hint = format!("permissions: [\"{required}\"]");
            problems.push(Problem::error(action.at, "not_permitted", message).with_hint(hint));
        }
    }
    let unused = graph.permissions.iter().zip(used).filter(|(_, used)| !used);
    for (permission, _) in unused.filter(|_| is_complete) {
        let message = format!("unused permission `{}`", permission.pattern);
        problems.push(Problem::warning(
            permission.at,
            "unused_permission",
            message,
        ));
    }
}

#[cfg(test)]
mod tests;
