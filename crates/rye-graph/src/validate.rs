//! What is seen only of a graph as a whole.

use std::collections::{BTreeMap, BTreeSet};

use rye_items::ItemId;

use crate::model::{Action, Graph, Kind, Node, fixed_item};
use crate::path::Path;
use crate::permission;
use crate::problem::{Problem, nearest};
use crate::walk::LAST_ERROR;

/// Looks at a graph as a whole. Parts of it may be broken, and it may not say where it starts:
/// what follows only from that is not told.
pub(crate) fn check(graph: &Graph, start: Option<usize>, problems: &mut Vec<Problem>) {
    let is_whole = problems.is_empty();
    let reached = match start {
        Some(start) => reached(graph, start, problems),
        None => vec![true; graph.nodes.len()],
    };
    ways_out(graph, &reached, problems);
    if is_whole {
        state(graph, problems);
    }
    permissions(graph, is_whole, problems);
}

/// Where a run can come to from a node.
pub(crate) fn ways(node: &Node) -> impl Iterator<Item = usize> + '_ {
    let edges = node.next.iter().map(|edge| edge.to);
    edges.chain(node.on_error)
}

/// Whether a run can end at a node.
fn ends(node: &Node) -> bool {
    match node.kind {
        Kind::Return(_) => true,
        // Without a way that is always open, it may find none.
        _ => node.next.iter().all(|edge| edge.when.is_some()),
    }
}

fn reached(graph: &Graph, start: usize, problems: &mut Vec<Problem>) -> Vec<bool> {
    let mut reached = vec![false; graph.nodes.len()];
    let mut open = vec![start];
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut reached[index], true) {
            open.extend(ways(&graph.nodes[index]));
        }
    }
    for (node, reached) in graph.nodes.iter().zip(&reached) {
        if !reached {
            let message = format!("nothing leads to the node `{}`", node.name);
            let hint = format!("lead to it with `next: {}`, or take it out", node.name);
            problems.push(Problem::error(node.at, "unreachable", message).with_hint(hint));
        }
    }
    reached
}

/// Every node that is reached leads to one where a run can end.
fn ways_out(graph: &Graph, reached: &[bool], problems: &mut Vec<Problem>) {
    let mut leads_out: Vec<_> = graph.nodes.iter().map(ends).collect();
    loop {
        let mut changed = false;
        for (index, node) in graph.nodes.iter().enumerate() {
            if !leads_out[index] && ways(node).any(|to| leads_out[to]) {
                leads_out[index] = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let stuck = (0..graph.nodes.len()).filter(|index| reached[*index] && !leads_out[*index]);
    // Those that lead into a loop are not in it.
    let mut stuck: Vec<_> = stuck.filter(|it| resolve_path(graph, *it)[*it]).collect();
    while let Some(first) = stuck.first().copied() {
        let from_first = resolve_path(graph, first);
        let is_in_it = |it: usize| from_first[it] && resolve_path(graph, it)[first];
        let (names, others): (Vec<_>, _) = stuck.into_iter().partition(|it| is_in_it(*it));
        stuck = others;
        let names = names.iter().map(|it| graph.nodes[*it].name.as_str());
        let names = names.collect::<Vec<_>>().join(" → ");
        let message = format!("no way leads out of the loop {names} → …");
        let hint = "an edge with a `when` to a node outside of it";
        problems
            .push(Problem::error(graph.nodes[first].at, "endless_loop", message).with_hint(hint));
    }
}

/// Which nodes a way leads to from one.
fn resolve_path(graph: &Graph, index: usize) -> Vec<bool> {
    let mut seen = vec![false; graph.nodes.len()];
    let mut open: Vec<_> = ways(&graph.nodes[index]).collect();
    while let Some(other) = open.pop() {
        if !std::mem::replace(&mut seen[other], true) {
            open.extend(ways(&graph.nodes[other]));
        }
    }
    seen
}

/// What is read of the state is put there somewhere, and the other way round.
fn state(graph: &Graph, problems: &mut Vec<Problem>) {
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
            Kind::Action(action) => of_action(action, &mut read),
            Kind::Foreach(foreach) => {
                foreach.over.paths(&mut read);
                of_action(&foreach.action, &mut read);
                if let Some((name, at)) = &foreach.collect {
                    written.entry(name).or_insert(*at);
                }
            }
            Kind::Return(Some(output)) => output.paths(&mut read),
            Kind::Decision(decision) => {
                decision.title.paths(&mut read);
                decision.body.paths(&mut read);
            }
            Kind::Gate | Kind::Return(None) => {}
        }
    }
    for hook in &graph.hooks {
        if let Some(condition) = &hook.condition {
            condition.paths(&mut read);
        }
        of_action(&hook.action, &mut read);
    }
    let mut used = BTreeSet::new();
    // Whoever takes the whole state reads all of it.
    let gives_all = graph.nodes.iter().any(|node| match &node.kind {
        Kind::Return(output) => output.is_none(),
        _ => node.next.is_empty(),
    });
    let reads_all = read.iter().any(|(_, path)| path.text == "state");
    for (at, path) in read {
        let Some(key) = path.state_key() else {
            continue;
        };
        used.insert(key);
        if !written.contains_key(key) && key != LAST_ERROR {
            let message = format!("`{}` is read, and nothing assigns `{key}`", path.text);
            let near = nearest(key, written.keys().copied().chain([LAST_ERROR]));
            let problem = Problem::warning(at, "never_assigned", message);
            problems.push(match near {
                Some(near) => problem.with_hint(format!("did you mean `state.{near}`?")),
                None => problem,
            });
        }
    }
    if reads_all || gives_all {
        return;
    }
    for (name, at) in written {
        if !used.contains(name) {
            let message = format!("`{name}` is assigned, and nothing reads it");
            problems.push(Problem::warning(at, "never_read", message));
        }
    }
}

fn of_action<'g>(action: &'g Action, read: &mut Vec<(usize, &'g Path)>) {
    action.item.paths(read);
    action.params.paths(read);
}

/// All actions of a graph.
pub(crate) fn actions(graph: &Graph) -> impl Iterator<Item = &Action> {
    let nodes = graph.nodes.iter().filter_map(|node| match &node.kind {
        Kind::Action(action) => Some(action),
        Kind::Foreach(foreach) => Some(&foreach.action),
        _ => None,
    });
    nodes.chain(graph.hooks.iter().map(|hook| &hook.action))
}

fn permissions(graph: &Graph, is_whole: bool, problems: &mut Vec<Problem>) {
    let mut used = vec![false; graph.permissions.len()];
    for action in actions(graph) {
        let Some(item) = fixed_item(action) else {
            // What is only known at the run is checked there; any may be for it.
            used.fill(true);
            continue;
        };
        if item.parse::<ItemId>().is_err() {
            // That is told already.
            continue;
        }
        let needed = permission::needed(item);
        let mut covered = false;
        for (permission, used) in graph.permissions.iter().zip(&mut used) {
            if permission.covers(&needed) {
                (*used, covered) = (true, true);
            }
        }
        if !covered {
            let message = format!("no permission covers the call of {item}");
            let hint = format!("permissions: [\"{needed}\"]");
            problems.push(Problem::error(action.at, "not_permitted", message).with_hint(hint));
        }
    }
    let unused = graph.permissions.iter().zip(used).filter(|(_, used)| !used);
    for (permission, _) in unused.filter(|_| is_whole) {
        let message = format!("no action needs the permission `{}`", permission.pattern);
        problems.push(Problem::warning(
            permission.at,
            "unused_permission",
            message,
        ));
    }
}

#[cfg(test)]
mod tests;
