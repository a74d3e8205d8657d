//! `rye session list`: the sessions with their state, model and cost.

use std::time::Duration;

use rye_engine::Engine;
use rye_engine::protocol::{Gate, Millis, QueuedPrompt, Session};
use rye_engine::store::{SessionFilter, StoreError};
use rye_host::engine::{EngineOptions, with_engine};
use rye_host::lookup::unique_short_id;
use serde_json::{Value, json};

use super::state::State;
use super::{MAX_LISTED, now};
use crate::cli::context::Context;
use crate::cli::page::{DIM, Page};
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
            let state = State::new(session, &sessions, &list.gates, &holders, unfinished.len());
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
            let mut json = listed.state.session_json(&listed.session);
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
