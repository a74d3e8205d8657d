//! Whether the sessions of tasks are there that a record names.

use std::collections::HashSet;

use lillux::keys::PublicKey;
use rye_protocol::{Archive, EntryKind, Part, SessionId};
use serde_json::Value;

use super::{Finding, FindingKind, Verdict, check};
use crate::child;

/// Checks a session and those below it, which are all there. `key` gives the public key of a
/// fingerprint, if it is trusted.
pub fn check_all(archives: &[Archive], key: impl Fn(&str) -> Option<PublicKey>) -> Vec<Verdict> {
    let there: HashSet<_> = archives.iter().map(|it| &it.session.id).collect();
    let verdicts = archives.iter().map(|archive| {
        let mut verdict = check(archive, &key);
        let tasks = tasks(archive).into_iter();
        let gone = tasks.filter(|task| !there.contains(task));
        verdict.findings.extend(gone.map(|task| Finding {
            kind: FindingKind::Missing,
            location: task.to_string(),
            reason: "a task was given to it, and it is not there".to_owned(),
        }));
        verdict
    });
    verdicts.collect()
}

/// The tasks that have a result. One of a branch's shared past is another session's.
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
                let own = child::id(&archive.session.id, &entry.thread, prompt, call_id);
                if own.as_str() == named {
                    tasks.push(own);
                }
            }
        }
    }
    tasks
}
