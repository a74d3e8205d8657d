//! Replays sessions that record a run: a graph, or a single call.

use rye_engine::audit::{ARGS_HASH, args_hash, entry_hash};
use rye_engine::protocol::{Archive, EntryKind, Part, Purpose, Thread};
use serde_json::Value;

use super::compare::{Difference, lines};
use super::recording::path;

/// The result of the replay of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReplay {
    /// What was compared, in one sentence.
    pub compared: String,
    /// Number of compared steps or entries.
    pub steps: usize,
    /// Differences from the recorded session.
    pub differences: Vec<Difference>,
}

/// Replays a run with its nested runs. `None` if a graph has not started.
pub fn replay_run(archives: &[Archive]) -> Option<RunReplay> {
    let root = archives.first()?;
    if root.session.purpose == Purpose::Workflow {
        replay_graphs(archives)
    } else {
        Some(check_call(root))
    }
}

fn main_thread(archive: &Archive) -> Option<&Thread> {
    archive.threads.first()
}

fn replay_graphs(archives: &[Archive]) -> Option<RunReplay> {
    let (mut steps, mut not_computed, mut runs) = (0, 0, 0);
    let mut differences = Vec::new();
    for archive in archives {
        let replayed = main_thread(archive);
        let replayed = replayed.and_then(|thread| rye_graph::replay(&path(archive, thread)));
        let Some(replayed) = replayed else {
            continue;
        };
        runs += 1;
        steps += replayed.steps;
        not_computed += replayed.not_computed;
        let text = |value: &Value| match value {
            Value::Null => String::new(),
            value => format!("{value:#}"),
        };
        differences.extend(replayed.differences.iter().map(|it| Difference {
            subject: format!(
                "run {}, step {}, node {}: {}",
                archive.session.id.short(),
                it.step,
                it.node,
                it.subject
            ),
            lines: lines(&text(&it.recorded), &text(&it.computed)),
        }));
    }
    if runs == 0 {
        return None;
    }
    let mut compared = format!(
        "walked through the graph again with the recorded results, and compared the state and the \
         next node after each of {steps} steps"
    );
    if not_computed > 0 {
        let recorded = format!(
            "; took the recorded state of {not_computed} steps, which depend on the time or on a \
             result that was too long to record"
        );
        compared.push_str(&recorded);
    }
    Some(RunReplay {
        compared,
        steps,
        differences,
    })
}

/// Compares the recorded hashes of a single call and its result with their content.
fn check_call(archive: &Archive) -> RunReplay {
    let entries = main_thread(archive).map(|thread| path(archive, thread));
    let entries = entries.unwrap_or_default();
    let mut differences = Vec::new();
    let mut check = |subject: String, recorded: &str, computed: &str| {
        if recorded != computed {
            let lines = lines(recorded, computed);
            differences.push(Difference { subject, lines });
        }
    };
    let mut before = String::new();
    for entry in &entries {
        let computed = entry_hash(entry, &before);
        check(
            format!("entry {}", entry.id.short()),
            &entry.hash,
            &computed,
        );
        before.clone_from(&entry.hash);
        let EntryKind::Message(message) = &entry.kind else {
            continue;
        };
        for part in &message.parts {
            let Part::ToolCall { tool, args, .. } = part else {
                continue;
            };
            // What was approved.
            let gates = archive.gates.iter();
            let hashes = gates.filter_map(|gate| gate.context.get(ARGS_HASH)?.as_str());
            for hash in hashes {
                check(format!("arguments of {tool}"), hash, &args_hash(args));
            }
        }
    }
    RunReplay {
        compared: "compared the recorded hashes of the call and its result with their content; \
                   the call was not repeated"
            .to_owned(),
        steps: entries.len(),
        differences,
    }
}
