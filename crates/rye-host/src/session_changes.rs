//! What a session changed in files, as diffs, and undoing it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_engine::Engine;
use rye_engine::changes::{
    ChangeError, ChangedFile, ComparedFile, Conflict, Contents, FileStatus, Selection,
    SessionChanges,
};
use rye_engine::protocol::{FileContent, SessionId};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use crate::failure::Failure;

/// Maximum size of a file for which a diff is computed, in bytes.
const MAX_DIFFED: usize = 4 * 1024 * 1024;
/// Code of the failure to undo changes because files are in conflict.
pub const CONFLICT: &str = "conflict";
/// Detail of that failure: the files, each with the `reason`.
pub const CONFLICTS: &str = "conflicts";

/// Time limit for computing a minimal diff.
const DIFF_TIMEOUT: Duration = Duration::from_millis(200);

/// What a session changed.
#[derive(Debug)]
pub struct SessionDiff {
    /// The session.
    pub session: SessionId,
    /// Which changes these are.
    pub selection: Selection,
    /// Changed files, sorted by path.
    pub files: Vec<FileDiff>,
    /// Number of commands whose changes are unknown, because they ran in the background or the
    /// workspace has too many files.
    pub unknown: usize,
}

/// What a session changed in a file.
#[derive(Debug)]
pub struct FileDiff {
    /// The change, and how the file is now.
    pub compared: ComparedFile,
    /// Unified diff; none if a version is not text, too long or not kept.
    pub diff: Option<String>,
    /// Number of added lines.
    pub added: usize,
    /// Number of removed lines.
    pub removed: usize,
}

impl FileDiff {
    /// What happened to the file: `created`, `modified` or `deleted`.
    pub fn kind(&self) -> &'static str {
        change_kind(&self.compared.file)
    }

    /// How the file is now: `unchanged` since the session changed it, `restored`, or the conflict
    /// that undoing it would have.
    pub fn status(&self) -> &'static str {
        status_name(self.compared.status)
    }

    /// The diff as JSON.
    pub fn json(&self) -> Value {
        let file = &self.compared.file;
        json!({
            "path": file.path,
            "change": self.kind(),
            "status": self.status(),
            "turns": file.turns,
            "added": self.added,
            "removed": self.removed,
            "diff": self.diff,
        })
    }
}

impl SessionDiff {
    /// The diff as JSON.
    pub fn json(&self) -> Value {
        let files: Vec<_> = self.files.iter().map(FileDiff::json).collect();
        json!({ "session": self.session, "files": files, "unknown_commands": self.unknown })
    }
}

/// Result of undoing changes.
#[derive(Debug)]
pub struct UndoReport {
    /// The session.
    pub session: SessionId,
    /// Files that were restored, with what had happened to them.
    pub restored: Vec<(String, &'static str)>,
    /// Files that were restored before.
    pub already_restored: Vec<String>,
    /// Number of commands whose changes are unknown.
    pub unknown: usize,
    /// Why files could not be restored.
    pub failure: Option<Failure>,
}

impl UndoReport {
    /// The report as JSON.
    pub fn json(&self) -> Value {
        let restored = self.restored.iter().map(|(path, _)| path);
        json!({
            "session": self.session,
            "restored": restored.collect::<Vec<_>>(),
            "already_restored": self.already_restored,
            "unknown_commands": self.unknown,
        })
    }
}

/// What the selected changes of a session are.
pub async fn diff(
    engine: &Engine,
    session: &SessionId,
    selection: &Selection,
) -> Result<SessionDiff, Failure> {
    let (changes, files) = selected(engine, session, selection).await?;
    let compared = match engine.compare_files(session, files.clone()).await {
        // The record shows the changes all the same.
        Err(ChangeError::Gone(_)) => files.into_iter().map(ComparedFile::unreadable).collect(),
        compared => compared?,
    };
    let contents = engine.contents();
    let mut files = Vec::new();
    for compared in compared {
        files.push(file_diff(compared, &contents).await);
    }
    Ok(SessionDiff {
        session: session.clone(),
        selection: selection.clone(),
        files,
        unknown: changes.unknown,
    })
}

/// The command that undoes the selected changes of a session.
pub fn undo_command(session: &SessionId, selection: &Selection) -> String {
    let turn = selection.turn.map(|turn| format!(" --turn {turn}"));
    let path = selection.path.as_ref();
    let path = path.map(|path| format!(" --file {}", lillux::shell_word(Path::new(path))));
    let (turn, path) = (turn.unwrap_or_default(), path.unwrap_or_default());
    format!("rye session undo {}{turn}{path}", session.short())
}

/// Undoes the selected changes of a session. If a file is in conflict, changes nothing, unless
/// `force` is set.
pub async fn undo(
    engine: &Engine,
    session: &SessionId,
    selection: &Selection,
    force: bool,
) -> Result<UndoReport, Failure> {
    let (changes, files) = selected(engine, session, selection).await?;
    let compared = engine.compare_files(session, files).await?;
    let conflicts: Vec<_> = compared
        .iter()
        .filter_map(|it| match it.status {
            FileStatus::Conflict(conflict) if !(force && conflict.can_be_forced()) => {
                Some((it, conflict))
            }
            _ => None,
        })
        .collect();
    if !conflicts.is_empty() {
        return Err(conflict_failure(session, selection, &conflicts));
    }
    let outcome = engine.undo_changes(session, &compared, force).await?;
    let is_restored = |it: &&ComparedFile| outcome.restored.contains(&it.file.path);
    let already = |it: &&ComparedFile| it.status == FileStatus::Restored;
    let failure = outcome.failed.first().map(|first| {
        let (count, why) = (outcome.failed.len(), &first.error);
        let message = match count {
            1 => format!("{}: cannot be restored: {why}", first.path),
            _ => format!("{count} files cannot be restored; {}: {why}", first.path),
        };
        let failed: Vec<_> = outcome.failed.iter().map(|it| &*it.path).collect();
        Failure::failed("not_restored", message)
            .detail("files", json!(failed))
            .hint(format!("rye session diff {}", session.short()))
    });
    Ok(UndoReport {
        session: session.clone(),
        restored: compared
            .iter()
            .filter(is_restored)
            .map(|it| (it.file.path.clone(), change_kind(&it.file)))
            .collect(),
        already_restored: compared
            .iter()
            .filter(already)
            .map(|it| it.file.path.clone())
            .collect(),
        unknown: changes.unknown,
        failure,
    })
}

/// The changes of a session, and the selected files.
async fn selected(
    engine: &Engine,
    session: &SessionId,
    selection: &Selection,
) -> Result<(SessionChanges, Vec<ChangedFile>), Failure> {
    let changes = engine.session_changes(session).await?;
    let short = session.short();
    if let Some(turn) = selection.turn
        && (turn == 0 || turn > changes.turns.len())
    {
        let count = changes.turns.len();
        let message = format!("session {short} has no turn {turn}: it has {count}");
        return Err(Failure::usage(message).hint(format!("rye session diff {short}")));
    }
    let Some(given) = &selection.path else {
        let files = changes.files(selection);
        return Ok((changes, files));
    };
    let workspace = engine.session_data(session).await?.and_then(|data| {
        let sandbox = data.sandbox.and_then(|it| it.workspace);
        sandbox.or(data.workspace)
    });
    for path in candidates(given, workspace.as_deref()) {
        let path = Some(path);
        let turn = selection.turn;
        let files = changes.files(&Selection { turn, path });
        if !files.is_empty() {
            return Ok((changes, files));
        }
    }
    let message = format!("session {short} has no change of {given} to show or to undo");
    let failure = Failure::failed("not_found", message);
    Err(failure.hint(format!("rye session diff {short}")))
}

/// What a path on the command line can mean: relative to the workspace, or to the current
/// directory.
fn candidates(given: &str, workspace: Option<&str>) -> Vec<String> {
    let plain = given.strip_prefix("./").unwrap_or(given);
    let mut all = vec![plain.to_owned()];
    let absolute = std::path::absolute(given).ok();
    let workspace = workspace.map(PathBuf::from);
    let inside = absolute
        .as_deref()
        .zip(workspace.as_deref())
        .and_then(|(path, dir)| path.strip_prefix(dir).ok())
        .and_then(Path::to_str);
    all.extend(inside.map(str::to_owned));
    all
}

fn change_kind(file: &ChangedFile) -> &'static str {
    match (&file.before, &file.after) {
        (None, _) => "created",
        (_, None) => "deleted",
        _ => "modified",
    }
}

fn status_name(status: FileStatus) -> &'static str {
    match status {
        FileStatus::Unchanged => "unchanged",
        FileStatus::Restored => "restored",
        FileStatus::Conflict(conflict) => conflict.into(),
    }
}

/// Why a change is not undone, for people.
pub fn conflict_reason(conflict: Conflict) -> &'static str {
    match conflict {
        Conflict::ChangedSince => "it changed after the session did",
        Conflict::ChangedBetween => "something else changed it between the changes of the session",
        Conflict::NotKept => "its previous content was too long to keep",
        Conflict::Link => "its path is a link now",
        Conflict::Unreadable => "it cannot be read",
    }
}

fn conflict_failure(
    session: &SessionId,
    selection: &Selection,
    conflicts: &[(&ComparedFile, Conflict)],
) -> Failure {
    let command = undo_command(session, selection);
    let lines = conflicts.iter().map(|(it, conflict)| {
        let (path, reason) = (&it.file.path, conflict_reason(*conflict));
        format!("{path}: {reason}")
    });
    let message = match conflicts {
        [(it, conflict)] => {
            let (path, reason) = (&it.file.path, conflict_reason(*conflict));
            format!("nothing was undone: {path}: {reason}")
        }
        several => format!(
            "nothing was undone: {} files are in conflict",
            several.len()
        ),
    };
    let can_be_forced = conflicts.iter().all(|(_, it)| it.can_be_forced());
    let hint = if can_be_forced {
        format!("{command} --force")
    } else {
        format!("{command} --file PATH")
    };
    let files = conflicts.iter().map(|(it, conflict)| {
        json!({
            "path": it.file.path,
            "conflict": status_name(it.status),
            "reason": conflict_reason(*conflict),
            "can_be_forced": conflict.can_be_forced(),
        })
    });
    let failure = Failure::failed(CONFLICT, message)
        .hint(hint)
        .detail(CONFLICTS, files.collect::<Vec<_>>());
    match conflicts {
        [_] => failure,
        _ => failure.violations(lines),
    }
}

/// The diff of one file.
async fn file_diff(compared: ComparedFile, contents: &Contents) -> FileDiff {
    let text = async |content: Option<&FileContent>| match content {
        None => Some(String::new()),
        Some(content) => {
            let bytes = contents.read(content).await.ok()?;
            let is_text = bytes.len() <= MAX_DIFFED && !bytes.contains(&0);
            String::from_utf8(bytes).ok().filter(|_| is_text)
        }
    };
    let before = text(compared.file.before.as_ref()).await;
    let after = text(compared.file.after.as_ref()).await;
    let (Some(before), Some(after)) = (before, after) else {
        return FileDiff {
            compared,
            diff: None,
            added: 0,
            removed: 0,
        };
    };
    let diff = TextDiff::configure()
        .timeout(DIFF_TIMEOUT)
        .diff_lines(&*before, &*after);
    let count = |tag| diff.iter_all_changes().filter(|it| it.tag() == tag).count();
    let (added, removed) = (count(ChangeTag::Insert), count(ChangeTag::Delete));
    let path = &compared.file.path;
    let name = |prefix: &str, content: Option<&FileContent>| match content {
        Some(_) => format!("{prefix}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let (old, new) = (
        name("a", compared.file.before.as_ref()),
        name("b", compared.file.after.as_ref()),
    );
    let mut unified = diff.unified_diff();
    let unified = unified.context_radius(3).header(&old, &new).to_string();
    FileDiff {
        diff: Some(unified),
        added,
        removed,
        compared,
    }
}

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Store(error) => error.into(),
            ChangeError::Gone(_) => Self::failed("gone", error),
            error => Self::failed("content", error),
        }
    }
}
