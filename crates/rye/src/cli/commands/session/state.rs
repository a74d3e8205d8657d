//! What a session does, as lists and details show it.

use rye_engine::protocol::{Gate, Session, SessionId, SessionStatus};
use rye_engine::store::Holder;
use rye_host::runs::{RunState, RunView};
use serde_json::{Value, json};

use crate::cli::page::{BAD, DIM, HELP, WARN};
use crate::cli::table::Cell;

/// What a session does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Its record cannot be read.
    Unreadable,
    /// It was imported although it could not be verified.
    Unverified,
    /// It stopped with an error and can be resumed.
    Failed,
    /// This many gates wait for a decision.
    Waiting(usize),
    /// A process works on a prompt.
    Working,
    /// This many prompts are unfinished, and no process works on them.
    Unfinished(usize),
    Paused,
    Ended,
    /// Everything is done.
    Idle,
    /// The session records a run.
    Run(&'static str, RunState),
}

impl State {
    /// The state of one of `sessions`, which contains its tasks.
    pub(super) fn new(
        session: &Session,
        sessions: &[Session],
        gates: &[Gate],
        holders: &[Holder],
        unfinished: usize,
    ) -> Self {
        let pending = pending_gates(&session.id, sessions, gates);
        let is_held = holders.iter().any(|it| it.session == session.id);
        if session.unreadable.is_some() {
            return Self::Unreadable;
        }
        if let Some(run) = RunView::of_session(session, holders, gates) {
            return Self::Run(run.state_name(), run.state());
        }
        match session.status {
            _ if pending > 0 => Self::Waiting(pending),
            _ if session.unverified_import.is_some() => Self::Unverified,
            SessionStatus::Error => Self::Failed,
            SessionStatus::Paused => Self::Paused,
            SessionStatus::Terminated => Self::Ended,
            SessionStatus::Running if unfinished == 0 => Self::Idle,
            SessionStatus::Running if is_held => Self::Working,
            SessionStatus::Running => Self::Unfinished(unfinished),
        }
    }

    /// The name in JSON.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Unverified => "unverified",
            Self::Failed => "failed",
            Self::Waiting(_) => "waiting",
            Self::Working => "working",
            Self::Unfinished(_) => "unfinished",
            Self::Paused => "paused",
            Self::Ended => "ended",
            Self::Idle => "idle",
            Self::Run(name, _) => name,
        }
    }

    /// A session in JSON. The state replaces the stored status, which only says what the session
    /// accepts: it is `running` for an idle session too.
    pub(super) fn session_json(&self, session: &Session) -> Value {
        let mut json = json!(session);
        if let Some(fields) = json.as_object_mut() {
            fields.remove("status");
            fields.insert("state".into(), self.name().into());
        }
        json
    }

    /// The state in a table.
    pub(super) fn cell(&self) -> Cell {
        let counted = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            many => format!("{many} {what}s"),
        };
        match self {
            Self::Unverified => Cell::styled(BAD, "imported unverified"),
            Self::Waiting(count) => Cell::styled(WARN, counted(*count, "pending gate")),
            Self::Unfinished(count) => Cell::styled(WARN, counted(*count, "unfinished prompt")),
            Self::Unreadable | Self::Failed => Cell::styled(BAD, self.name()),
            Self::Run(name, state) => super::super::run::styled_state(*state, name),
            Self::Working => Cell::styled(HELP, self.name()),
            Self::Paused => Cell::styled(WARN, self.name()),
            Self::Ended | Self::Idle => Cell::styled(DIM, self.name()),
        }
    }
}

/// Number of pending gates of a session and its tasks.
fn pending_gates(id: &SessionId, sessions: &[Session], gates: &[Gate]) -> usize {
    let is_child = |other: &&Session| {
        let parent = other.parent.as_ref();
        parent.is_some_and(|parent| parent.session == *id)
    };
    let children = sessions.iter().filter(is_child);
    let below: usize = children
        .map(|child| pending_gates(&child.id, sessions, gates))
        .sum();
    gates.iter().filter(|it| it.origin.session == *id).count() + below
}
