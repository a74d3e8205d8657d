//! Verifies that the child sessions of tasks are present.

use std::collections::HashSet;

use lillux::keys::PublicKey;
use rye_protocol::{Archive, EntryKind, Part, SessionId};
use serde_json::Value;

use super::{Finding, FindingKind, Verdict, check};

/// Verifies a session together with its descendants. `key` returns the public key of a
/// fingerprint if it is trusted.
pub fn check_all(archives: &[Archive], key: impl Fn(&str) -> Option<PublicKey>) -> Vec<Verdict> {
    let present: HashSet<_> = archives.iter().map(|it| &it.session.id).collect();
    let verdicts = archives.iter().map(|archive| {
        let mut verdict = check(archive, &key);
        let tasks = tasks(archive).into_iter();
        let missing = tasks.filter(|task| !present.contains(task));
        verdict.findings.extend(missing.map(|task| Finding {
            kind: FindingKind::Missing,
            location: task.to_string(),
            reason: "the child session of a task is missing".to_owned(),
        }));
        verdict
    });
    verdicts.collect()
}

/// The child sessions of tasks that have a result. Results in the shared history of a fork belong
/// to another session.
fn tasks(archive: &Archive) -> Vec<SessionId> {
    let mut tasks = Vec::new();
    for entry in &archive.entries {
        let (EntryKind::Message(message), Some(prompt)) = (&entry.kind, &entry.prompt) else {
            continue;
        };
        for part in &message.parts {
            if let Part::ToolResult { call_id, data, .. } = part
                && let Some(named) = data.get("session").and_then(Value::as_str)
            {
                let child = crate::child::id(&archive.session.id, &entry.thread, prompt, call_id);
                if child.as_str() == named {
                    tasks.push(child);
                }
            }
        }
    }
    tasks
}
