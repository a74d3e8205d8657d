//! Plans the compaction of a history. A pure function of the path.

use std::collections::BTreeSet;

use rye_protocol::{CallId, CompactionReason, Entry, EntryId, EntryKind, Message, Part, Role};
use serde_json::Value;

use super::{Settings, View};
use crate::text::truncate_middle;
use crate::tokens;

/// Maximum number of files to list as read and as modified.
const MAX_FILES: usize = 100;

/// How to compact a history.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// There is enough room, or nothing can be compacted.
    Nothing,
    /// Prune the tool output of these entries, which saves enough.
    Prune(Vec<EntryId>),
    /// Replace the entries before the tail by a summary.
    Summarise(Box<Head>),
}

/// The part of the history to summarise.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// Index in the path at which the tail starts.
    pub boundary: usize,
    /// Entries that the summary covers, including earlier summaries.
    pub covered: Vec<EntryId>,
    /// Text of the current summary.
    pub previous_summary: Option<String>,
    /// Files that tools have read.
    pub files_read: Vec<String>,
    /// Files that tools have changed.
    pub files_modified: Vec<String>,
    /// Covered prompts to preserve verbatim.
    pub verbatim: Vec<String>,
}

/// Plans the compaction of a path for a model with `usable` context tokens. `tokens` is the
/// estimated size of the context.
pub fn plan(
    path: &[Entry],
    reason: CompactionReason,
    tokens: u64,
    usable: u64,
    settings: &Settings,
) -> Plan {
    if reason == CompactionReason::Threshold && tokens < usable {
        return Plan::Nothing;
    }
    let view = View::new(path);
    let uncovered: Vec<usize> = view.uncovered().collect();
    let prune = || prunable(path, &uncovered, settings);
    if reason == CompactionReason::Threshold
        && let Some((entries, saved)) = prune()
        && tokens.saturating_sub(saved) < usable
    {
        return Plan::Prune(entries);
    }
    let tail = tail_start(
        path,
        &uncovered,
        settings.tail_tokens(usable),
        settings.tail_turns,
    );
    if let Some(head) = head(path, &view, &uncovered[..tail], settings) {
        return Plan::Summarise(Box::new(Head {
            boundary: uncovered.get(tail).copied().unwrap_or(path.len()),
            ..head
        }));
    }
    match prune() {
        Some((entries, _)) if reason != CompactionReason::Requested => Plan::Prune(entries),
        _ => Plan::Nothing,
    }
}

/// Entries whose output to prune and the tokens saved, if it is worthwhile.
fn prunable(
    path: &[Entry],
    uncovered: &[usize],
    settings: &Settings,
) -> Option<(Vec<EntryId>, u64)> {
    if !settings.prune {
        return None;
    }
    let (mut kept, mut saved, mut entries) = (0_u64, 0_u64, Vec::new());
    for index in uncovered.iter().rev() {
        let entry = &path[*index];
        let EntryKind::Message(message) = &entry.kind else {
            continue;
        };
        let is_prunable = |part: &&Part| match part {
            Part::ToolResult { tool, elided, .. } => {
                !elided && !settings.protected_tools.contains(tool)
            }
            _ => false,
        };
        let output: u64 = message
            .parts
            .iter()
            .filter(is_prunable)
            .map(tokens::estimate_part)
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

/// The entry with its output marked as pruned.
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

/// Index among the uncovered entries at which the tail starts: the last turns that fit, or part
/// of the last turn, but at least its last step.
fn tail_start(path: &[Entry], uncovered: &[usize], budget: u64, turns: usize) -> usize {
    let mut tokens_from: Vec<u64> = uncovered
        .iter()
        .map(|index| tokens::estimate_entry(&path[*index]))
        .collect();
    for index in (0..tokens_from.len().saturating_sub(1)).rev() {
        tokens_from[index] = tokens_from[index].saturating_add(tokens_from[index + 1]);
    }
    let cut_points = cut_points(path, uncovered);
    let starts: Vec<usize> = (0..uncovered.len())
        .filter(|index| has_role(&path[uncovered[*index]], Role::User))
        .collect();
    let last_turns = &starts[starts.len().saturating_sub(turns.max(1))..];
    let fits_budget = |index: &usize| {
        tokens_from
            .get(*index)
            .is_none_or(|tokens| *tokens <= budget)
    };
    if let Some(start) = last_turns.iter().copied().find(fits_budget) {
        return start;
    }
    let last = last_turns.last().copied().unwrap_or(0);
    // The tail must contain a message that the model sees.
    let has_content = |index: &usize| *index >= last && tokens_from[*index] > 0;
    let in_last_turn: Vec<usize> = cut_points.into_iter().filter(has_content).collect();
    let part = in_last_turn.iter().copied().find(fits_budget);
    part.or(in_last_turn.last().copied()).unwrap_or(last)
}

/// Indexes among the uncovered entries that do not separate a call from its result.
fn cut_points(path: &[Entry], uncovered: &[usize]) -> Vec<usize> {
    let (mut calls, mut cut_points): (BTreeSet<&CallId>, Vec<usize>) =
        (BTreeSet::new(), Vec::new());
    for (number, index) in uncovered.iter().enumerate() {
        let message = match &path[*index].kind {
            EntryKind::Message(message) => Some(message),
            _ => None,
        };
        // A message other than a result ends the calls before it.
        let has_content = message.is_some_and(|message| message.role != Role::Tool);
        if has_content || calls.is_empty() {
            cut_points.push(number);
        }
        let Some(message) = message else { continue };
        if has_content {
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
    cut_points
}

fn has_role(entry: &Entry, role: Role) -> bool {
    matches!(&entry.kind, EntryKind::Message(message) if message.role == role)
}

/// The part to summarise, if it has any content.
fn head(path: &[Entry], view: &View<'_>, uncovered: &[usize], settings: &Settings) -> Option<Head> {
    let has_content = |index: &&usize| tokens::estimate_entry(&path[**index]) > 0;
    uncovered.iter().find(has_content)?;
    let is_compaction = |entry: &&Entry| {
        let sum = matches!(
            entry.kind,
            EntryKind::Compaction { .. } | EntryKind::CompactionUndone { .. }
        );
        sum && !view.is_covered(entry)
    };
    let compactions = path
        .iter()
        .filter(is_compaction)
        .map(|entry| entry.id.clone());
    let entries = uncovered.iter().map(|index| path[*index].id.clone());
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
    for index in uncovered {
        if let EntryKind::Message(message) = &path[*index].kind {
            collect_files(message, &mut read, &mut modified);
        }
    }
    Some(Head {
        boundary: 0,
        covered: entries.chain(compactions).collect(),
        previous_summary,
        files_read: newest(read),
        files_modified: newest(modified),
        verbatim: verbatim_prompts(path, view, uncovered, settings),
    })
}

/// Collects the files of tool calls, each once.
fn collect_files(message: &Message, read: &mut Vec<String>, modified: &mut Vec<String>) {
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
    files.drain(..files.len().saturating_sub(MAX_FILES));
    files
}

/// The first and the last prompt, if they are covered.
fn verbatim_prompts(
    path: &[Entry],
    view: &View<'_>,
    uncovered: &[usize],
    settings: &Settings,
) -> Vec<String> {
    let covered = |index: usize| view.is_covered(&path[index]) || uncovered.contains(&index);
    let is_user = |index: &usize| has_role(&path[*index], Role::User);
    let first = (0..path.len())
        .find(is_user)
        .filter(|index| covered(*index));
    let last = (0..path.len()).rev().find(is_user);
    let last = last.filter(|index| covered(*index) && Some(*index) != first);
    let quote = |title: &str, index: Option<usize>| {
        let EntryKind::Message(message) = &path[index?].kind else {
            return None;
        };
        let text = truncate_middle(message.content().trim(), settings.keep_chars, None);
        (!text.is_empty()).then(|| format!("{title}, verbatim:\n{text}"))
    };
    [quote("First prompt", first), quote("Last prompt", last)]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests;
