//! Changes of files: what a session changed, and how to undo it.
//!
//! Before a tool changes a file, its content goes to the blob store and the change is committed as
//! an event; around a command, the engine compares the workspace. The record is therefore complete
//! after a crash: of a command that was interrupted it has the state before, and
//! [`Engine::session_changes`] compares it with what followed.

mod record;
mod restore;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use rye_protocol::{
    Archive, CallId, EntryKind, EventKind, FileChange, FileContent, Millis, Part, PromptId,
    ResultStatus, Role, SessionId,
};

pub(crate) use record::Workspaces;
pub use restore::{
    ChangeError, ComparedFile, Conflict, Contents, FileStatus, UndoFailure, UndoOutcome,
};
use snapshot::{CLOCK_STEP_NANOS, Snapshot};

use crate::blob::BlobError;
use crate::child;
use crate::engine::Engine;
use crate::store::StoreError;

/// What a session and its tasks changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionChanges {
    /// The turns of the session, in order; the number of a turn is its position, from 1.
    pub turns: Vec<Turn>,
    /// The changes, in order.
    pub records: Vec<RecordedChange>,
    /// Number of commands whose changes are unknown, because they ran in the background or the
    /// workspace has too many files.
    pub unknown: usize,
}

/// A turn of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Its prompt.
    pub prompt: PromptId,
    /// The text of the prompt.
    pub text: String,
}

/// Changes that were recorded at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedChange {
    /// Number of the turn, from 1; none if a person undid changes.
    pub turn: Option<usize>,
    /// The tool call.
    pub call: Option<CallId>,
    /// The changes.
    pub changes: Vec<FileChange>,
}

/// Selects changes of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only those of this turn, from 1.
    pub turn: Option<usize>,
    /// Only those of this file, or of the files in this directory.
    pub path: Option<String>,
}

/// What a session changed in a file, from the first to the last selected change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Path, relative to the workspace if it is inside.
    pub path: String,
    /// The file before; none if it did not exist.
    pub before: Option<FileContent>,
    /// The file after; none if it was deleted.
    pub after: Option<FileContent>,
    /// The topmost directory that was created for a new file.
    pub created_dir: Option<String>,
    /// Numbers of the turns that changed it.
    pub turns: Vec<usize>,
    /// Whether something else changed it between the selected changes.
    pub is_interleaved: bool,
}

impl SessionChanges {
    /// The selected changes, one per file, sorted by path. Files that were changed back are
    /// omitted.
    pub fn files(&self, selection: &Selection) -> Vec<ChangedFile> {
        let mut files: BTreeMap<&str, Vec<(&RecordedChange, &FileChange)>> = BTreeMap::new();
        for record in &self.records {
            for change in &record.changes {
                files
                    .entry(&change.path)
                    .or_default()
                    .push((record, change));
            }
        }
        let selected = files
            .into_iter()
            .filter(|(path, _)| selection.has_path(path))
            .filter_map(|(path, changes)| selection.file(path, &changes));
        selected
            .filter(|file| !is_same(file.before.as_ref(), file.after.as_ref()))
            .collect()
    }
}

impl Selection {
    /// Parses `[TURN] [FILE]`, with a file as in a prompt: `name`, `@name` or `@"a name"`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (first, after) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let (turn, file) = match first.parse::<usize>() {
            Ok(0) => return None,
            Ok(turn) => (Some(turn), after.trim()),
            Err(_) => (None, text),
        };
        if file.starts_with("--") {
            return None;
        }
        let file = file.strip_prefix('@').unwrap_or(file);
        let quoted = file.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        let file = quoted.unwrap_or(file);
        let path = (!file.is_empty()).then(|| file.to_owned());
        Some(Self { turn, path })
    }

    fn has_path(&self, path: &str) -> bool {
        self.path.as_deref().is_none_or(|selected| {
            let selected = selected.trim_end_matches('/');
            let below = path.strip_prefix(selected);
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        })
    }

    /// An undone change belongs to no turn.
    fn has_turn(&self, turn: Option<usize>) -> bool {
        self.turn.is_none() || self.turn == turn
    }

    /// The selected changes of one file.
    fn file(&self, path: &str, changes: &[(&RecordedChange, &FileChange)]) -> Option<ChangedFile> {
        let is_selected = |(record, _): &(&RecordedChange, &FileChange)| self.has_turn(record.turn);
        let first = changes.iter().position(is_selected)?;
        let last = changes.iter().rposition(is_selected)?;
        let changes = changes.get(first..=last)?;
        let (before, after) = (changes.first()?.1, changes.last()?.1);
        let mut turns: Vec<_> = changes
            .iter()
            .filter_map(|(record, _)| record.turn)
            .collect();
        turns.sort_unstable();
        turns.dedup();
        turns.retain(|turn| self.has_turn(Some(*turn)));
        let is_continuous = changes.windows(2).all(|pair| match pair {
            [(_, one), (_, next)] => is_same(one.after.as_ref(), next.before.as_ref()),
            _ => true,
        });
        let is_own = |(record, _): &(&RecordedChange, &FileChange)| {
            record.turn.is_none() || self.has_turn(record.turn)
        };
        Some(ChangedFile {
            path: path.to_owned(),
            before: before.before.clone(),
            after: after.after.clone(),
            created_dir: before.created_dir.clone(),
            turns,
            is_interleaved: !is_continuous || !changes.iter().all(is_own),
        })
    }
}

/// Whether a file is the same at two moments; both may be without it.
fn is_same(one: Option<&FileContent>, other: Option<&FileContent>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is_same(other),
        (None, None) => true,
        _ => false,
    }
}

/// A path without `.` and `..`, relative to the workspace if it is inside.
fn relative_path(path: &str, workspace: Option<&str>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." if names.last().is_some_and(|last| *last != "..") => drop(names.pop()),
            // There is nothing above the root.
            ".." if path.starts_with('/') => {}
            name => names.push(name),
        }
    }
    let start = if path.starts_with('/') { "/" } else { "" };
    let clean = format!("{start}{}", names.join("/"));
    let inside = workspace.and_then(|dir| clean.strip_prefix(dir)?.strip_prefix('/'));
    inside.map_or_else(|| clean.clone(), str::to_owned)
}

/// A change, or a command whose changes are not recorded.
enum Found {
    Change(RecordedChange),
    Interrupted(InterruptedCommand),
}

/// A command that did not end normally. What it changed is the difference between the state before
/// it and the next state that is known.
struct InterruptedCommand {
    turn: Option<usize>,
    call: CallId,
    /// The state before.
    source: Option<String>,
    at: Millis,
}

/// The recorded changes of a session and its tasks, in order.
#[derive(Default)]
struct Record {
    turns: Vec<Turn>,
    unknown: usize,
    found: Vec<(Millis, Found)>,
    /// The states of the workspace before commands.
    snapshots: Vec<(Millis, CallId, Option<String>)>,
}

impl Record {
    /// Reads exported sessions, the one at the top first.
    fn new(archives: &[Archive]) -> Self {
        let mut record = Self::default();
        // The turn of the top session that a task belongs to.
        let mut turn_of_task: HashMap<SessionId, usize> = HashMap::new();
        for (depth, archive) in archives.iter().enumerate() {
            let own = turn_of_task.get(&archive.session.id).copied();
            let mut numbers: HashMap<&PromptId, usize> = HashMap::new();
            for entry in &archive.entries {
                let (Some(prompt), EntryKind::Message(message)) = (&entry.prompt, &entry.kind)
                else {
                    continue;
                };
                if depth == 0 && message.role == Role::User && !numbers.contains_key(prompt) {
                    record.turns.push(Turn {
                        prompt: prompt.clone(),
                        text: message.content(),
                    });
                    numbers.insert(prompt, record.turns.len());
                }
                let Some(turn) = own.or_else(|| numbers.get(prompt).copied()) else {
                    continue;
                };
                for part in &message.parts {
                    if let Part::ToolCall { call_id, .. } = part {
                        let task = child::id(&archive.session.id, &entry.thread, prompt, call_id);
                        turn_of_task.insert(task, turn);
                    }
                }
            }
            let turn = |prompt: &PromptId| own.or_else(|| numbers.get(prompt).copied());
            record.read_events(archive, turn);
        }
        record.found.sort_by_key(|(at, _)| *at);
        record.snapshots.sort_by_key(|(at, ..)| *at);
        record
    }

    fn read_events(&mut self, archive: &Archive, turn: impl Fn(&PromptId) -> Option<usize>) {
        let mut open: HashMap<&CallId, (Millis, InterruptedCommand)> = HashMap::new();
        for event in &archive.events {
            match &event.kind {
                EventKind::WorkspaceSnapshot {
                    call,
                    prompt,
                    source,
                    incomplete: false,
                } => {
                    self.snapshots
                        .push((event.at, call.clone(), source.clone()));
                    let command = InterruptedCommand {
                        turn: turn(prompt),
                        call: call.clone(),
                        source: source.clone(),
                        at: event.at,
                    };
                    // A repeated call was interrupted before.
                    if let Some((at, earlier)) = open.insert(call, (event.at, command)) {
                        self.found.push((at, Found::Interrupted(earlier)));
                    }
                }
                EventKind::WorkspaceSnapshot { .. } => self.unknown += 1,
                EventKind::FilesChanged {
                    call,
                    prompt,
                    changes,
                    incomplete,
                    ..
                } => {
                    if let Some(call) = call {
                        open.remove(call);
                    }
                    self.unknown += usize::from(*incomplete);
                    let change = RecordedChange {
                        turn: prompt.as_ref().and_then(&turn),
                        call: call.clone(),
                        changes: changes.clone(),
                    };
                    if !changes.is_empty() {
                        self.found.push((event.at, Found::Change(change)));
                    }
                }
                EventKind::ToolEnd {
                    call,
                    status: ResultStatus::Success,
                } => drop(open.remove(call)),
                _ => {}
            }
        }
        let interrupted = open.into_values();
        self.found
            .extend(interrupted.map(|(at, command)| (at, Found::Interrupted(command))));
    }

    /// The state of the workspace before the command that followed, and when it was kept.
    fn snapshot_after(&self, command: &InterruptedCommand) -> Option<(Millis, Option<&String>)> {
        let mut later = self.snapshots.iter();
        later.find(|(at, call, _)| *at == command.at && *call == command.call)?;
        let (at, _, source) = later.next()?;
        Some((*at, source.as_ref()))
    }

    /// The files that were changed after a command and until a moment, each as it was before the
    /// first of these changes.
    fn files_after(
        &self,
        command: &InterruptedCommand,
        until: Option<Millis>,
    ) -> BTreeMap<&str, Option<&FileContent>> {
        let mut files = BTreeMap::new();
        for (at, found) in &self.found {
            let is_later = *at >= command.at && until.is_none_or(|until| *at <= until);
            if let Found::Change(record) = found
                && is_later
            {
                for change in &record.changes {
                    files.entry(&*change.path).or_insert(change.before.as_ref());
                }
            }
        }
        files
    }
}

impl Engine {
    /// What a session and its tasks changed. For a command that was interrupted, this reads the
    /// workspace, unless another command followed.
    pub async fn session_changes(&self, id: &SessionId) -> Result<SessionChanges, ChangeError> {
        let archives = self.export(id).await?;
        let mut record = Record::new(&archives);
        let mut changes = SessionChanges {
            turns: std::mem::take(&mut record.turns),
            unknown: record.unknown,
            records: Vec::new(),
        };
        for (_, found) in &record.found {
            match found {
                Found::Change(change) => changes.records.push(change.clone()),
                Found::Interrupted(command) => {
                    match self.changes_of_interrupted(id, command, &record).await? {
                        Some(found) if found.is_empty() => {}
                        Some(found) => changes.records.push(RecordedChange {
                            turn: command.turn,
                            call: Some(command.call.clone()),
                            changes: found,
                        }),
                        None => changes.unknown += 1,
                    }
                }
            }
        }
        Ok(changes)
    }

    /// What an interrupted command changed; `None` if it is unknown.
    async fn changes_of_interrupted(
        &self,
        session: &SessionId,
        command: &InterruptedCommand,
        record: &Record,
    ) -> Result<Option<Vec<FileChange>>, ChangeError> {
        const NANOS_PER_MILLI: u64 = 1_000_000;
        let Some(blobs) = self.blob_store() else {
            return Ok(None);
        };
        let load = async |source: Option<&String>| match source {
            Some(source) => Snapshot::load(source, &*blobs).await,
            None => Ok(Snapshot::default()),
        };
        let Ok(before) = load(command.source.as_ref()).await else {
            return Ok(None);
        };
        let next = record.snapshot_after(command);
        let after = if let Some((_, source)) = next {
            load(source).await.ok()
        } else {
            let Some(sandbox) = self.sandbox_with_files(session).await? else {
                return Ok(None);
            };
            let updated = before.update(&*sandbox, &*blobs, self.redactor()).await;
            updated.map_err(|error| BlobError(error.to_string()))?
        };
        let since = command.at.0.saturating_mul(NANOS_PER_MILLI);
        let since = since.saturating_sub(CLOCK_STEP_NANOS);
        let Some(after) = after else {
            return Ok(None);
        };
        let changes = before.changes(&after, since).into_iter();
        let mut changes: BTreeMap<_, _> = changes.map(|it| (it.path.clone(), it)).collect();
        // What followed is recorded; it shows how the command left the file.
        let later = record.files_after(command, next.map(|(at, _)| at));
        for (path, left) in later {
            let change = FileChange {
                path: path.to_owned(),
                before: before.content(path).cloned(),
                after: left.cloned(),
                created_dir: None,
            };
            if is_same(change.before.as_ref(), left) {
                changes.remove(path);
            } else {
                changes.insert(path.to_owned(), change);
            }
        }
        Ok(Some(changes.into_values().collect()))
    }
}

impl From<StoreError> for ChangeError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<BlobError> for ChangeError {
    fn from(error: BlobError) -> Self {
        Self::Content(error.to_string())
    }
}
