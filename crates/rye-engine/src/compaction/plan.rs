//! What is to be done about a history that is too long. Pure: the same path, the same plan.

use std::collections::BTreeSet;

use rye_protocol::{CallId, CompactionReason, Entry, EntryId, EntryKind, Message, Part, Role};
use serde_json::Value;

use super::{Settings, View};
use crate::text::without_middle;
use crate::tokens;

/// How many files are told of, of each kind.
const FILES: usize = 100;

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// Nothing: there is room, or nothing that could make any.
    Nothing,
    /// Output of these tools' entries is left out, and that makes room enough.
    Prune(Vec<EntryId>),
    /// What comes before a boundary is summed up.
    Summarise(Box<Head>),
}

/// What is summed up.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// The place in the path where the tail begins, which is kept as it is.
    pub boundary: usize,
    /// All that the sum will cover, sums that it takes the place of among it.
    pub covered: Vec<EntryId>,
    /// The sum so far.
    pub previous_summary: Option<String>,
    /// Files that were read.
    pub files_read: Vec<String>,
    /// Files that were changed.
    pub files_modified: Vec<String>,
    /// What was asked, word for word, where it is covered.
    pub verbatim: Vec<String>,
}

/// Plans what to do about a path, for a model that can use so many tokens.
///
/// `tokens` is how many the context has, as far as anybody knows; that it is more than what
/// is usable is what `Full` is for.
pub fn plan(
    path: &[Entry],
    why: CompactionReason,
    tokens: u64,
    usable: u64,
    settings: &Settings,
) -> Plan {
    if why == CompactionReason::Threshold && tokens < usable {
        return Plan::Nothing;
    }
    let view = View::new(path);
    let open: Vec<usize> = view.uncovered().collect();
    let prune = || prunable(path, &open, settings);
    if why == CompactionReason::Threshold
        && let Some((entries, saved)) = prune()
        && tokens.saturating_sub(saved) < usable
    {
        return Plan::Prune(entries);
    }
    let tail = tail(
        path,
        &open,
        settings.tail_tokens(usable),
        settings.tail_turns,
    );
    if let Some(head) = head(path, &view, &open[..tail], settings) {
        return Plan::Summarise(Box::new(Head {
            boundary: open.get(tail).copied().unwrap_or(path.len()),
            ..head
        }));
    }
    match prune() {
        Some((entries, _)) if why != CompactionReason::Requested => Plan::Prune(entries),
        _ => Plan::Nothing,
    }
}

/// Entries whose output is left out, and what that saves, if it is worth the while.
fn prunable(path: &[Entry], open: &[usize], settings: &Settings) -> Option<(Vec<EntryId>, u64)> {
    if !settings.prune {
        return None;
    }
    let (mut kept, mut saved, mut entries) = (0_u64, 0_u64, Vec::new());
    for at in open.iter().rev() {
        let entry = &path[*at];
        let EntryKind::Message(message) = &entry.kind else {
            continue;
        };
        let prunes = |part: &&Part| match part {
            Part::ToolResult { tool, elided, .. } => {
                !elided && !settings.protected_tools.contains(tool)
            }
            _ => false,
        };
        let output: u64 = message
            .parts
            .iter()
            .filter(prunes)
            .map(tokens::of_part)
            .sum();
        if output == 0 {
            continue;
        }
        kept = kept.saturating_add(output);
        if kept > settings.prune_keep_tokens {
            saved += output;
            entries.push(entry.id.clone());
        }
    }
    entries.reverse();
    (saved >= settings.prune_save_tokens && saved > 0).then_some((entries, saved))
}

/// An entry with its output left out.
pub(crate) fn elided(entry: &Entry, settings: &Settings) -> Entry {
    let mut entry = entry.clone();
    if let EntryKind::Message(message) = &mut entry.kind {
        for part in &mut message.parts {
            if let Part::ToolResult { tool, elided, .. } = part
                && !settings.protected_tools.contains(tool)
            {
                *elided = true;
            }
        }
    }
    entry
}

/// Where among what is open the tail begins: the last turns, or as many of them as fit, or
/// of the last one as much as fits; and of that never less than its last step.
fn tail(path: &[Entry], open: &[usize], budget: u64, turns: usize) -> usize {
    let mut after: Vec<u64> = open.iter().map(|at| tokens::of_entry(&path[*at])).collect();
    for at in (0..after.len().saturating_sub(1)).rev() {
        after[at] = after[at].saturating_add(after[at + 1]);
    }
    let seams = seams(path, open);
    let starts: Vec<usize> = (0..open.len())
        .filter(|at| spoken_by(&path[open[*at]], Role::User))
        .collect();
    let last_turns = &starts[starts.len().saturating_sub(turns.max(1))..];
    let fits = |at: &usize| after.get(*at).is_none_or(|tokens| *tokens <= budget);
    if let Some(whole) = last_turns.iter().copied().find(fits) {
        return whole;
    }
    let last = last_turns.last().copied().unwrap_or(0);
    // A tail in which nobody speaks would be none.
    let speaks = |at: &usize| *at >= last && after[*at] > 0;
    let within: Vec<usize> = seams.into_iter().filter(speaks).collect();
    let part = within.iter().copied().find(fits);
    part.or(within.last().copied()).unwrap_or(last)
}

/// Places among what is open where no call stands without its result before.
fn seams(path: &[Entry], open: &[usize]) -> Vec<usize> {
    let (mut calls, mut seams): (BTreeSet<&CallId>, Vec<usize>) = (BTreeSet::new(), Vec::new());
    for (number, at) in open.iter().enumerate() {
        let message = match &path[*at].kind {
            EntryKind::Message(message) => Some(message),
            _ => None,
        };
        // Whoever speaks after a call that has no result has ended it.
        let speaks = message.is_some_and(|message| message.role != Role::Tool);
        if speaks || calls.is_empty() {
            seams.push(number);
        }
        let Some(message) = message else { continue };
        if speaks {
            calls.clear();
        }
        for part in &message.parts {
            match part {
                Part::ToolCall { call_id, .. } => drop(calls.insert(call_id)),
                Part::ToolResult { call_id, .. } => drop(calls.remove(call_id)),
                _ => {}
            }
        }
    }
    seams
}

fn spoken_by(entry: &Entry, role: Role) -> bool {
    matches!(&entry.kind, EntryKind::Message(message) if message.role == role)
}

/// What is summed up, if there is anything to be.
fn head(path: &[Entry], view: &View<'_>, open: &[usize], settings: &Settings) -> Option<Head> {
    let speaks = |at: &&usize| tokens::of_entry(&path[**at]) > 0;
    open.iter().find(speaks)?;
    let is_sum = |entry: &&Entry| {
        let sum = matches!(
            entry.kind,
            EntryKind::Compaction { .. } | EntryKind::CompactionUndone { .. }
        );
        sum && !view.is_covered(entry)
    };
    let sums = path.iter().filter(is_sum).map(|entry| entry.id.clone());
    let own = open.iter().map(|at| path[*at].id.clone());
    let (mut read, mut modified, mut previous_summary) = (Vec::new(), Vec::new(), None);
    if let Some(EntryKind::Compaction {
        summary,
        files_read,
        files_modified,
        ..
    }) = view.summary().map(|sum| &sum.kind)
    {
        previous_summary = Some(summary.clone());
        read.clone_from(files_read);
        modified.clone_from(files_modified);
    }
    for at in open {
        if let EntryKind::Message(message) = &path[*at].kind {
            files(message, &mut read, &mut modified);
        }
    }
    Some(Head {
        boundary: 0,
        covered: own.chain(sums).collect(),
        previous_summary,
        files_read: newest(read),
        files_modified: newest(modified),
        verbatim: asked(path, view, open, settings),
    })
}

/// Files that tools have read and changed, each once.
fn files(message: &Message, read: &mut Vec<String>, modified: &mut Vec<String>) {
    for part in &message.parts {
        let Part::ToolCall { tool, args, .. } = part else {
            continue;
        };
        let list = match tool.as_str() {
            "read" => &mut *read,
            "write" | "edit" => &mut *modified,
            _ => continue,
        };
        if let Some(path) = args.get("path").and_then(Value::as_str) {
            list.retain(|known| known != path);
            list.push(path.to_owned());
        }
    }
}

fn newest(mut files: Vec<String>) -> Vec<String> {
    files.drain(..files.len().saturating_sub(FILES));
    files
}

/// What was asked first, and what was asked last, where it is covered by now.
fn asked(path: &[Entry], view: &View<'_>, open: &[usize], settings: &Settings) -> Vec<String> {
    let covered = |at: usize| view.is_covered(&path[at]) || open.contains(&at);
    let is_user = |at: &usize| spoken_by(&path[*at], Role::User);
    let first = (0..path.len()).find(is_user).filter(|at| covered(*at));
    let last = (0..path.len()).rev().find(is_user);
    let last = last.filter(|at| covered(*at) && Some(*at) != first);
    let words = |title: &str, at: Option<usize>| {
        let EntryKind::Message(message) = &path[at?].kind else {
            return None;
        };
        let text = without_middle(message.content().trim(), settings.keep_chars, None);
        (!text.is_empty()).then(|| format!("{title}, word for word:\n{text}"))
    };
    [words("First asked", first), words("Asked last", last)]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests;
