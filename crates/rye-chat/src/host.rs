//! What the embedding program provides.

use rye_engine::changes::Selection;
use rye_engine::protocol::SessionId;
use rye_engine::{BoxFuture, Engine};

/// What a chat needs from the program that embeds it, beyond the engine.
pub trait ChatHost: Send + Sync {
    /// The models that the user can choose: name, and what to know before choosing it.
    fn models(&self) -> Vec<(String, String)>;

    /// Name of the model to use if the user chose none.
    fn default_model(&self) -> String;

    /// Context window of a model, in tokens.
    fn context_window(&self, model: &str) -> Option<u64>;

    /// Runs a host command such as `session verify ID` and returns what it prints.
    fn run_command(&self, args: Vec<String>) -> BoxFuture<'static, Result<String, String>>;

    /// What a session changed in files.
    fn diff(
        &self,
        engine: Engine,
        session: SessionId,
        selection: Selection,
    ) -> BoxFuture<'static, Result<ChangeSummary, String>>;

    /// Undoes what a session changed in files.
    fn undo(
        &self,
        engine: Engine,
        session: SessionId,
        selection: Selection,
        force: bool,
    ) -> BoxFuture<'static, Result<UndoSummary, UndoError>>;
}

/// What a session changed in files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeSummary {
    /// The files, sorted by path.
    pub files: Vec<FileChange>,
    /// Number of commands whose changes are unknown.
    pub unknown: usize,
}

/// What a session changed in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file.
    pub path: String,
    /// `created`, `modified` or `deleted`.
    pub kind: &'static str,
    /// Numbers of the turns that changed it.
    pub turns: Vec<usize>,
    /// Number of added lines.
    pub added: usize,
    /// Number of removed lines.
    pub removed: usize,
    /// What happened to the file since, or why the change cannot be undone.
    pub note: Option<&'static str>,
    /// Unified diff; none if a version is not text, too long or not kept.
    pub diff: Option<String>,
}

/// Result of undoing changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoSummary {
    /// The restored files, and whether the file was removed because the session had created it.
    pub files: Vec<(String, bool)>,
    /// Number of commands whose changes are unknown.
    pub unknown: usize,
    /// Why other files could not be restored.
    pub error: Option<String>,
}

/// Why changes were not undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoError {
    /// Undoing would lose something, or is impossible.
    Conflict(Vec<FileConflict>),
    /// Any other error.
    Other(String),
}

/// Why a change is not undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileConflict {
    /// The file.
    pub path: String,
    /// The reason.
    pub reason: String,
    /// Whether the user can choose to undo it anyway.
    pub can_be_forced: bool,
}
