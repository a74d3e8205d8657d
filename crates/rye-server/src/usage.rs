//! Tokens and cost by hour and model, from the events of sessions.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use rye_engine::Engine;
use rye_engine::store::StoreError;
use rye_protocol::{Event, EventKind, Millis, Session, SessionId, ThreadId, Usage};

/// Length of an hour, in milliseconds.
const HOUR: u64 = 3_600_000;

/// How many events are read at once.
const PAGE: usize = 1000;

/// Name for calls whose model is not known.
const UNKNOWN_MODEL: &str = "unknown";

/// Usage by start of the hour and model.
pub(crate) type Hours = BTreeMap<(u64, String), Usage>;

/// What has been read of the events of sessions, so that each event is read once per process.
#[derive(Default)]
pub(crate) struct UsageLedger {
    sessions: Mutex<HashMap<SessionId, SessionUsage>>,
}

/// The model calls of a session, without its tasks.
#[derive(Default)]
struct SessionUsage {
    /// Distinguishes sessions that had the same id one after the other.
    created: (Millis, Option<Millis>),
    /// Sequence number of the last event that was read.
    last: u64,
    models: HashMap<ThreadId, String>,
    hours: Hours,
}

impl UsageLedger {
    /// Adds the usage of a session since a time. `tasks` is the usage of its tasks, which the
    /// session's own sum includes.
    pub(crate) async fn add(
        &self,
        engine: &Engine,
        session: &Session,
        tasks: Usage,
        since: u64,
        sums: &mut Hours,
    ) -> Result<(), StoreError> {
        let known = self.sessions.lock().remove(&session.id);
        let created = (session.created_at, session.imported_at);
        let known = known.filter(|it| it.created == created);
        let mut own = known.unwrap_or_else(|| SessionUsage {
            created,
            ..SessionUsage::default()
        });
        loop {
            let events = engine.store().events(&session.id, own.last, PAGE).await?;
            let is_last = events.len() < PAGE;
            for event in events {
                own.read(event);
            }
            if is_last {
                break;
            }
        }
        for ((hour, model), usage) in &own.hours {
            if *hour >= since {
                add(sums, *hour, model, *usage);
            }
        }
        // Compaction and failed attempts have no events of their own.
        let counted = own.hours.values().copied().fold(tasks, Usage::plus);
        let rest = minus(session.usage, counted);
        let hour = start_of_hour(session.updated_at);
        if !rest.is_zero() && hour >= since {
            let last = own.hours.keys().next_back().map(|(_, model)| model);
            let model = last.or(session.model.as_ref()).cloned();
            add(sums, hour, &model.unwrap_or_else(unknown), rest);
        }
        self.sessions.lock().insert(session.id.clone(), own);
        Ok(())
    }
}

impl SessionUsage {
    fn read(&mut self, event: Event) {
        self.last = event.sequence.unwrap_or(self.last);
        let Some(thread) = event.thread else { return };
        match event.kind {
            EventKind::ContextChanged { context } => {
                self.models.insert(thread, context.model);
            }
            EventKind::Usage { usage } => {
                let model = self.models.get(&thread).cloned();
                let hour = start_of_hour(event.at);
                add(&mut self.hours, hour, &model.unwrap_or_else(unknown), usage);
            }
            _ => {}
        }
    }
}

fn unknown() -> String {
    UNKNOWN_MODEL.to_owned()
}

fn start_of_hour(at: Millis) -> u64 {
    at.0 - at.0 % HOUR
}

fn add(sums: &mut Hours, hour: u64, model: &str, usage: Usage) {
    let sum = sums.entry((hour, model.to_owned())).or_default();
    *sum = sum.plus(usage);
}

/// The difference; no part is negative.
fn minus(all: Usage, part: Usage) -> Usage {
    Usage {
        turns: all.turns.saturating_sub(part.turns),
        input_tokens: all.input_tokens.saturating_sub(part.input_tokens),
        cached_tokens: all.cached_tokens.saturating_sub(part.cached_tokens),
        cache_write_tokens: all
            .cache_write_tokens
            .saturating_sub(part.cache_write_tokens),
        output_tokens: all.output_tokens.saturating_sub(part.output_tokens),
        micro_dollars: all.micro_dollars.saturating_sub(part.micro_dollars),
    }
}
