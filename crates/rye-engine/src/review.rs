//! Review of changes: a sandbox that keeps changes apart from the real files asks for approval of
//! the changes at the end of a turn, instead of for each command.
//!
//! The review is a tool call that the engine itself makes. It opens a gate that is bound to the
//! [hash](set_hash) of the change set, and settles the changes as the person decided. If anything
//! changes while the gate is open, its approval is void and a new gate opens.

use std::fmt::Write as _;

use lillux::{Hash, sanitize_line};
use rye_protocol::policy::RISK;
use rye_protocol::{
    Action, ActionId, CHANGE_SET, Call, Change, ChangeSet, ChangeSetSummary, ErrorCode, ErrorInfo,
    FileKind, GateKind, Risk, Selection, Settlement,
};
use serde_json::{Map, Value, json};

use crate::BoxFuture;
use crate::blob::SCHEME;
use crate::sandbox::{SandboxError, SandboxFuture};
use crate::text::quote_truncated;
use crate::tool::{
    DecisionRequest, EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};

/// Name of the tool, and id of its call. No model can call a tool of this name.
pub(crate) const REVIEW: &str = "(review)";

/// Whether this is the engine's own call. A model may name the tool, but gets an error.
pub(crate) fn is_review(call: &Call) -> bool {
    call.tool == REVIEW && call.id.as_str() == REVIEW
}

/// Maximum number of paths that a gate lists.
const MAX_LISTED: usize = 200;
/// Maximum number of conflicts in the summary.
const MAX_CONFLICTS: usize = 100;
/// Maximum size of the diff in a gate, in bytes. The complete diff is stored as a blob.
const MAX_DIFF: usize = 32_000;
/// Maximum number of paths in the message to the model.
const MAX_TOLD: usize = 50;

/// The differences between the files that commands see and the real ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// The changed paths.
    pub set: ChangeSet,
    /// A unified diff of them.
    pub diff: String,
}

/// The result of [`ChangeReview::settle`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The decision has taken effect.
    Done(Settlement),
    /// Nothing was done: the changes or the workspace differ from what was decided about.
    Outdated,
}

/// What to do with a change set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewDecision {
    /// Identifies the decision, so that it takes effect once.
    pub key: String,
    /// [Hash](set_hash) of the change set.
    pub hash: String,
    /// The changes to apply; `None` discards all. All other changes are discarded.
    pub apply: Option<Selection>,
    /// Contents that replace those of changed files, by path.
    pub contents: Vec<(String, Vec<u8>)>,
}

/// A sandbox whose changes reach the real files only after a review.
pub trait ChangeReview: Send + Sync {
    /// Compares the files.
    fn changes(&self) -> SandboxFuture<'_, Changes>;

    /// Applies or discards the changes, atomically: after a crash, calling it again completes it.
    fn settle<'a>(&'a self, decision: &'a ReviewDecision) -> SandboxFuture<'a, Settled>;

    /// The settlement of an earlier decision with this key.
    fn settlement<'a>(&'a self, key: &'a str) -> SandboxFuture<'a, Option<Settlement>>;
}

/// The hash that an approval of a change set is bound to: over path, type, mode, old and new
/// content of each change.
pub fn set_hash(set: &ChangeSet) -> String {
    let version = |it: &rye_protocol::FileVersion| json!([it.kind, it.mode, it.hash]);
    let changes = set.changes.iter().map(|change| {
        json!([
            change.path,
            change.old.as_ref().map(version),
            change.new.as_ref().map(version)
        ])
    });
    let changes: Vec<_> = changes.collect();
    // Strings and small numbers always have a canonical form.
    Hash::digest(lillux::canonical::to_vec(&changes).unwrap_or_default()).to_hex()
}

/// The selection in the value of a decision about a change set; the error says what is wrong.
pub fn parse_selection(value: &Value) -> Result<Selection, String> {
    if value.is_null() {
        return Ok(Selection::default());
    }
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

/// The tool that asks for a review.
pub(crate) struct ReviewTool(ToolDef);

impl Default for ReviewTool {
    fn default() -> Self {
        let def = ToolDef::new(REVIEW, "", json!({}));
        Self(def.effect(EffectClass::Idempotent))
    }
}

impl Tool for ReviewTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    /// Returns the text for the model; empty if there are no changes.
    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let Some(review) = context.sandbox.review() else {
                return Ok(ToolOutput::default());
            };
            let key = context.prompt.to_string();
            let settled = review
                .settlement(&key)
                .await
                .map_err(|error| failed(&error))?;
            if let Some(settlement) = settled {
                return Ok(report(&settlement));
            }
            let mut outdated = None;
            loop {
                let changes = review.changes().await.map_err(|error| failed(&error))?;
                if changes.set.changes.is_empty() {
                    return Ok(ToolOutput::default());
                }
                let hash = set_hash(&changes.set);
                if outdated.as_ref() == Some(&hash) {
                    let message = "the selected changes cannot be applied without the others";
                    return Err(ToolError::failed(message));
                }
                let request = request(&changes, &hash, &context).await;
                let resolution = context.request_decision(request).await?;
                let mut decision = ReviewDecision {
                    key: key.clone(),
                    hash: hash.clone(),
                    ..ReviewDecision::default()
                };
                if resolution.action == ActionId::Approve {
                    let selection =
                        parse_selection(&resolution.value).map_err(ToolError::failed)?;
                    decision.contents = edited_contents(&selection, &context).await?;
                    decision.apply = Some(selection);
                }
                match review
                    .settle(&decision)
                    .await
                    .map_err(|error| failed(&error))?
                {
                    Settled::Done(settlement) => return Ok(report(&settlement)),
                    Settled::Outdated => outdated = Some(hash),
                }
            }
        })
    }
}

fn failed(error: &SandboxError) -> ToolError {
    let message = format!("the changes could not be reviewed: {error}");
    ToolError(ErrorInfo::new(ErrorCode::ToolFailed, message))
}

/// Loads the contents that the person edited.
async fn edited_contents(
    selection: &Selection,
    context: &ToolContext,
) -> Result<Vec<(String, Vec<u8>)>, ToolError> {
    let mut contents = Vec::new();
    for (path, address) in &selection.edits {
        let missing = || ToolError::failed(format!("the edited content of {path} is missing"));
        let hash = address.strip_prefix(SCHEME).and_then(|it| it.parse().ok());
        let (hash, blobs): (Hash, _) = hash.zip(context.blobs()).ok_or_else(missing)?;
        let bytes = blobs.get(&hash).await;
        let bytes = bytes.map_err(|error| ToolError::failed(error.to_string()))?;
        contents.push((path.clone(), bytes.ok_or_else(missing)?));
    }
    Ok(contents)
}

/// The question about a change set.
async fn request(changes: &Changes, hash: &str, context: &ToolContext) -> DecisionRequest {
    let set = &changes.set;
    let count = |is: fn(&Change) -> bool| set.changes.iter().filter(|it| is(it)).count();
    let conflicts = set.changes.iter().filter(|it| it.conflict);
    let mut summary = ChangeSetSummary {
        hash: hash.to_owned(),
        added: count(|it| it.old.is_none()),
        changed: count(|it| it.old.is_some() && it.new.is_some()),
        removed: count(|it| it.new.is_none()),
        paths: match set.changes.len() {
            0..=MAX_LISTED => set.changes.iter().map(|it| it.path.clone()).collect(),
            _ => Vec::new(),
        },
        conflicts: conflicts
            .take(MAX_CONFLICTS)
            .map(|it| it.path.clone())
            .collect(),
        manifest: None,
        diff: None,
    };
    let diff = context.redactor.redact(&changes.diff).into_owned();
    let body = body(set, &diff, &summary, context);
    if let Some(blobs) = context.blobs() {
        let manifest = serde_json::to_vec(set).unwrap_or_default();
        let address = |hash: Hash| format!("{SCHEME}{hash}");
        summary.manifest = blobs.put(manifest).await.ok().map(address);
        summary.diff = blobs.put(diff.into_bytes()).await.ok().map(address);
    }
    let mut gate_context = Map::new();
    gate_context.insert(CHANGE_SET.to_owned(), json!(summary));
    gate_context.insert(RISK.to_owned(), json!(Risk::High));
    let mut request = DecisionRequest {
        kind: GateKind::Approval,
        title: title(&summary),
        body,
        actions: vec![
            Action::new(ActionId::Approve, "Apply"),
            Action::new(ActionId::Deny, "Discard"),
        ],
        resume_key: format!("review:{hash}"),
        expires_in: None,
        context: gate_context,
    };
    request.add_sandbox(&*context.sandbox);
    request
}

fn title(summary: &ChangeSetSummary) -> String {
    let counts = [
        (summary.added, "added"),
        (summary.changed, "changed"),
        (summary.removed, "removed"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    format!("apply the changes: {}", counts.join(", "))
}

fn body(set: &ChangeSet, diff: &str, summary: &ChangeSetSummary, context: &ToolContext) -> String {
    let mut body = String::new();
    if let Some(dir) = context.sandbox.working_dir() {
        let _ = writeln!(body, "workspace: {}", sanitize_line(&dir));
    }
    let _ = writeln!(body, "change set: {:.12}", summary.hash);
    if !summary.conflicts.is_empty() {
        body += "conflict: files marked with ! also changed in the workspace. Approving replaces \
                 the workspace's version.\n";
    }
    if set.changes.iter().any(|it| it.protected) {
        body += "Files marked with * decide what programs do later.\n";
    }
    if set.changes.iter().any(leads_outside) {
        body += "Links marked with > lead out of the workspace.\n";
    }
    let mut list: Vec<_> = set.changes.iter().take(MAX_LISTED).map(line).collect();
    if let Some(more) = set.changes.len().checked_sub(MAX_LISTED + 1) {
        list.push(format!("… {} more", more + 1));
    }
    for omitted in set.omitted.iter().take(MAX_LISTED) {
        list.push(format!("not applied: {omitted}"));
    }
    body += &lillux::quote_block(&list.join("\n"));
    if !diff.is_empty() {
        body.push('\n');
        body += &quote_truncated(diff.trim_end(), MAX_DIFF);
    }
    body
}

/// The line of a change in a list: `M! src/main.rs`.
fn line(change: &Change) -> String {
    let letter = match (&change.old, &change.new) {
        (None, _) => 'A',
        (_, None) => 'D',
        (Some(_), Some(_)) => 'M',
    };
    let mut marks = String::new();
    for (is, mark) in [
        (change.conflict, '!'),
        (change.protected, '*'),
        (leads_outside(change), '>'),
    ] {
        if is {
            marks.push(mark);
        }
    }
    let is_dir = |it: &rye_protocol::FileVersion| it.kind == FileKind::Directory;
    let version = change.new.as_ref().or(change.old.as_ref());
    let slash = if version.is_some_and(is_dir) { "/" } else { "" };
    let mut line = format!("{letter}{marks} {}{slash}", change.path);
    let old_mode = change.old.as_ref().map(|it| it.mode);
    match &change.new {
        Some(new) if new.kind == FileKind::Link => {
            let _ = write!(line, " -> {}", new.target.as_deref().unwrap_or_default());
        }
        Some(new) if old_mode.is_some_and(|old| old != new.mode) => {
            let _ = write!(
                line,
                " (mode {:o} -> {:o})",
                old_mode.unwrap_or(0),
                new.mode
            );
        }
        Some(new) if old_mode.is_none() && new.mode & 0o111 != 0 && !is_dir(new) => {
            line += " (executable)";
        }
        _ => {}
    }
    line
}

/// Whether a new link leads out of the workspace.
fn leads_outside(change: &Change) -> bool {
    let target = change.new.as_ref().and_then(|new| new.target.as_deref());
    let Some(target) = target else {
        return false;
    };
    if target.starts_with('/') {
        return true;
    }
    let mut depth = change.path.matches('/').count();
    for part in target.split('/') {
        match part {
            ".." if depth == 0 => return true,
            ".." => depth -= 1,
            "" | "." => {}
            _ => depth += 1,
        }
    }
    false
}

/// The note for the model.
fn report(settlement: &Settlement) -> ToolOutput {
    let list = |paths: &[String]| {
        let shown: Vec<_> = paths.iter().take(MAX_TOLD).map(String::as_str).collect();
        let more = match paths.len().saturating_sub(MAX_TOLD) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{}{more}", shown.join(", "))
    };
    let Settlement {
        applied,
        edited,
        rejected,
    } = settlement;
    let mut text = String::from("[Review of your changes. ");
    if !applied.is_empty() {
        let _ = write!(text, "Applied to the workspace: {}. ", list(applied));
    }
    if !edited.is_empty() {
        let _ = write!(text, "Edited by the user before that: {}. ", list(edited));
    }
    if !rejected.is_empty() {
        let _ = write!(
            text,
            "Rejected and undone, so these files are as before your changes: {}. ",
            list(rejected)
        );
    }
    let text = format!("{}]", text.trim_end());
    ToolOutput::new(text, json!(settlement))
}

#[cfg(test)]
mod tests {
    use rye_protocol::FileVersion;

    use super::*;

    fn version(kind: FileKind, mode: u32, content: &str) -> FileVersion {
        FileVersion {
            kind,
            mode,
            hash: Hash::digest(content).to_hex(),
            size: content.len() as u64,
            target: (kind == FileKind::Link).then(|| content.to_owned()),
        }
    }

    fn change(path: &str, old: Option<FileVersion>, new: Option<FileVersion>) -> Change {
        Change {
            path: path.to_owned(),
            old,
            new,
            conflict: false,
            protected: false,
        }
    }

    #[test]
    fn hash_covers_paths_types_modes_and_both_contents() {
        let file = |mode, content| Some(version(FileKind::File, mode, content));
        let hash = |change: Change| {
            let changes = vec![change];
            set_hash(&ChangeSet {
                changes,
                omitted: Vec::new(),
            })
        };
        let base = hash(change("a", file(0o644, "x"), file(0o644, "y")));
        for other in [
            change("b", file(0o644, "x"), file(0o644, "y")),
            change("a", file(0o644, "z"), file(0o644, "y")),
            change("a", file(0o644, "x"), file(0o644, "z")),
            change("a", file(0o644, "x"), file(0o755, "y")),
            change("a", None, file(0o644, "y")),
            change("a", file(0o644, "x"), None),
            change(
                "a",
                file(0o644, "x"),
                Some(version(FileKind::Link, 0o644, "y")),
            ),
        ] {
            assert_ne!(hash(other.clone()), base, "{other:?}");
        }
        // Whether a file was touched without a difference doesn't matter.
        let touched = Change {
            conflict: true,
            ..change("a", file(0o644, "x"), file(0o644, "y"))
        };
        assert_eq!(hash(touched), base);
    }

    #[test]
    fn links_out_of_the_workspace_are_marked() {
        for (path, target, outside) in [
            ("a", "/etc/passwd", true),
            ("a", "../b", true),
            ("d/a", "../b", false),
            ("d/a", "x/../../../b", true),
            ("d/a", "./x", false),
        ] {
            let link = change(path, None, Some(version(FileKind::Link, 0o777, target)));
            assert_eq!(leads_outside(&link), outside, "{path} -> {target}");
        }
    }
}
