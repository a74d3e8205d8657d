//! `rye session list`: the sessions with their state, model and cost.

use std::time::Duration;

use rye_engine::Engine;
use rye_engine::protocol::{Gate, Millis, QueuedPrompt, Session, SessionId, SessionStatus};
use rye_engine::store::{Holder, SessionFilter, StoreError};
use rye_host::engine::{EngineOptions, with_engine};
use rye_host::lookup::unique_short_id;
use rye_host::runs::{RunState, RunView};
use serde_json::{Value, json};

use super::{MAX_LISTED, now};
use crate::cli::context::Context;
use crate::cli::page::{BAD, DIM, HELP, Page, WARN};
use crate::cli::printer::{Outcome, Report};
use crate::cli::table::{Cell, Table};

pub(super) fn run(context: &Context) -> Outcome {
    with_engine(context, EngineOptions::default(), async |engine| {
        Ok(Box::new(List::load(engine).await?) as Box<dyn Report>)
    })
}

struct List {
    sessions: Vec<Listed>,
    gates: Vec<Gate>,
    /// Unfinished prompts.
    queue: Vec<QueuedPrompt>,
}

struct Listed {
    session: Session,
    state: State,
    model: Option<String>,
}

/// What a session does.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
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
    /// The name in JSON.
    fn name(&self) -> &'static str {
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

    fn cell(&self) -> Cell {
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

impl List {
    async fn load(engine: &Engine) -> Result<Self, StoreError> {
        let filter = SessionFilter {
            limit: MAX_LISTED,
            ..SessionFilter::default()
        };
        let sessions = engine.sessions(filter).await?;
        let gates = engine.pending_gates(None).await?;
        let holders = engine.holders().await?;
        let mut list = Self {
            sessions: Vec::new(),
            gates,
            queue: Vec::new(),
        };
        for session in &sessions {
            // An unreadable session is marked in the list.
            let id = &session.id;
            let unfinished = engine.unfinished_prompts(id).await.unwrap_or_default();
            let model = engine.current_model(id).await.unwrap_or_default();
            let state = state(session, &sessions, &list.gates, &holders, unfinished.len());
            if session.parent.is_none() {
                list.queue.extend(unfinished);
            }
            list.sessions.push(Listed {
                session: session.clone(),
                state,
                model: model.filter(|_| session.run.is_none()),
            });
        }
        Ok(list)
    }

    /// Tasks are shown with their parent, by `rye session show`.
    fn top_level(&self) -> impl Iterator<Item = &Listed> {
        self.sessions
            .iter()
            .filter(|it| it.session.parent.is_none())
    }

    fn short_id<'a>(&'a self, session: &'a Session) -> &'a str {
        let ids = self.sessions.iter().map(|it| it.session.id.as_str());
        unique_short_id(session.id.as_str(), ids)
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

fn state(
    session: &Session,
    sessions: &[Session],
    gates: &[Gate],
    holders: &[Holder],
    unfinished: usize,
) -> State {
    let pending = pending_gates(&session.id, sessions, gates);
    let is_held = holders.iter().any(|it| it.session == session.id);
    if session.unreadable.is_some() {
        return State::Unreadable;
    }
    if let Some(run) = RunView::of_session(session, holders, gates) {
        return State::Run(run.state_name(), run.state());
    }
    match session.status {
        _ if pending > 0 => State::Waiting(pending),
        _ if session.unverified_import.is_some() => State::Unverified,
        SessionStatus::Error => State::Failed,
        SessionStatus::Paused => State::Paused,
        SessionStatus::Terminated => State::Ended,
        SessionStatus::Running if unfinished == 0 => State::Idle,
        SessionStatus::Running if is_held => State::Working,
        SessionStatus::Running => State::Unfinished(unfinished),
    }
}

/// What a session is about; for a run, what it runs.
fn title(session: &Session) -> &str {
    let run = session.run.as_ref().map(|run| run.item.as_str());
    session.title.as_deref().or(run).unwrap_or_default()
}

/// Time since a session changed, in its largest unit.
fn age(at: Millis, now: Millis) -> String {
    const MINUTE: u64 = 60;
    let seconds = Duration::from_millis(now.0.saturating_sub(at.0)).as_secs();
    match seconds / MINUTE {
        0 => "now".to_owned(),
        minutes @ 1..60 => format!("{minutes} min"),
        minutes @ 60..1440 => format!("{} h", minutes / 60),
        minutes => format!("{} d", minutes / 1440),
    }
}

/// The cost of a session; empty if its models have no price.
fn cost(session: &Session) -> String {
    match session.usage.micro_dollars {
        0 => String::new(),
        some => format!("${:.4}", Duration::from_micros(some).as_secs_f64()),
    }
}

impl Report for List {
    fn json(&self) -> Value {
        let sessions = self.sessions.iter().map(|listed| {
            let mut json = json!(listed.session);
            json["state"] = json!(listed.state.name());
            json["model"] = json!(listed.model);
            json
        });
        let sessions: Vec<_> = sessions.collect();
        json!({ "sessions": sessions, "pending_gates": self.gates, "queue": self.queue })
    }

    fn show(&self, page: &mut Page) {
        if self.sessions.is_empty() {
            page.line("no sessions");
            return;
        }
        let header = ["SESSION", "STATE", "CHANGED", "COST", "MODEL", "TITLE"];
        let mut table = Table::new(header).shorten(4);
        let now = now();
        for Listed {
            session,
            state,
            model,
        } in self.top_level()
        {
            table.row([
                self.short_id(session).into(),
                state.cell(),
                Cell::styled(DIM, age(session.updated_at, now)),
                cost(session).into(),
                Cell::styled(DIM, model.as_deref().unwrap_or_default()),
                title(session).into(),
            ]);
        }
        page.table(&table);
    }

    fn next_command(&self) -> Option<String> {
        let failed = self.top_level().find(|it| it.state == State::Failed)?;
        let id = self.short_id(&failed.session);
        Some(format!("rye session resume {id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_given_in_the_largest_unit() {
        let minute = 60_000;
        let age = |time| age(Millis(0), Millis(time));
        assert_eq!(age(minute - 1), "now");
        assert_eq!(age(59 * minute), "59 min");
        assert_eq!(age(61 * minute), "1 h");
        assert_eq!(age(49 * 60 * minute), "2 d");
    }
}
