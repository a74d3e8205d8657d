//! Checks the invariants with plain SQL, independently of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rye_engine::protocol::{
    Entry, EntryKind, EventKind, Gate, GateStatus, Part, PromptStatus, QueuedPrompt, ResultStatus,
    Role, Thread,
};
use serde_json::Value;

use super::host::{ACKNOWLEDGED, UNEXPECTED};
use super::tools::EFFECTS;

/// Statistics and violations.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) sessions: usize,
    pub(crate) entries: usize,
    pub(crate) events: usize,
    pub(crate) calls: usize,
    pub(crate) gates: BTreeMap<&'static str, usize>,
    pub(crate) prompts: BTreeMap<&'static str, usize>,
    pub(crate) interrupted: usize,
    pub(crate) effects: usize,
    pub(crate) acknowledged: usize,
    /// Violated invariants.
    pub(crate) broken: Vec<String>,
}

pub(crate) fn check(dir: &Path) -> Findings {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = Connection::open_with_flags(dir.join("sessions.db"), flags).unwrap();
    let mut found = Findings::default();
    found.broken.extend(lines(&dir.join(UNEXPECTED)));
    let whole: String = db
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    found.expect(whole == "ok", || format!("the file is damaged: {whole}"));
    let threads: Vec<(String, Thread)> = documents(&db, "engine_threads");
    let entries: Vec<(String, Entry)> = documents(&db, "engine_entries");
    let prompts: Vec<(String, QueuedPrompt)> = documents(&db, "engine_queue_items");
    let gates: Vec<(String, Gate)> = documents(&db, "engine_decision_gates");
    let events = events(&db);
    found.sessions = count(&db, "engine_sessions");
    found.entries = entries.len();
    found.numbers(&events);
    found.parents(&threads, &entries);
    let calls = found.calls(&entries);
    found.gates(&gates, &events);
    found.prompts(&prompts, &entries, &events);
    found.acknowledged(dir, &prompts, &gates);
    found.effects(dir, &calls);
    // A host that is killed before it creates a session leaves a lease.
    let leases = "engine_leases WHERE session IN (SELECT id FROM engine_sessions)";
    for table in ["engine_inbox", leases] {
        let left = count(&db, table);
        found.expect(left == 0, || format!("{left} rows are left in {table}"));
    }
    found
}

/// Events per session, with their sequence numbers.
type Events = BTreeMap<String, Vec<(i64, EventKind)>>;

/// Outcome of each call, by session, thread and id.
type Calls = BTreeMap<(String, String, String), (String, ResultStatus)>;

impl Findings {
    /// A short summary.
    pub(crate) fn summary(&self, killed: u32, time: Duration) -> String {
        let Self {
            sessions,
            entries,
            events,
            calls,
            gates,
            prompts,
            interrupted,
            effects,
            acknowledged,
            broken,
        } = self;
        let broken = broken.len();
        let time = time.as_secs_f64();
        format!(
            "soak: {sessions} sessions, {killed} hosts killed, {time:.1} s\n\
             prompts {prompts:?}\n\
             gates {gates:?}\n\
             {calls} calls, {interrupted} interrupted; {effects} effects at most once\n\
             {entries} entries, {events} events, {acknowledged} acknowledgements; {broken} broken"
        )
    }

    fn expect(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(message());
        }
    }

    /// Sequence numbers have no gaps.
    fn numbers(&mut self, events: &Events) {
        for (session, events) in events {
            self.events += events.len();
            for (place, (number, _)) in (1..).zip(events) {
                self.expect(place == *number, || {
                    format!("{session}: event {number} stands in place {place}")
                });
            }
        }
    }

    /// Every entry has its parent in the same thread, and every leaf exists.
    fn parents(&mut self, threads: &[(String, Thread)], entries: &[(String, Entry)]) {
        let mut known = BTreeSet::new();
        let mut last = BTreeMap::new();
        for (_, entry) in entries {
            let place = (entry.session.clone(), entry.thread.clone());
            let parent = entry.parent.clone();
            self.expect(last.get(&place) == parent.as_ref(), || {
                format!("entry {} does not follow the one before it", entry.id)
            });
            self.expect(known.insert(entry.id.clone()), || {
                format!("entry {} is there twice", entry.id)
            });
            last.insert(place, entry.id.clone());
        }
        for (_, thread) in threads {
            let place = (thread.session.clone(), thread.id.clone());
            self.expect(last.get(&place) == thread.leaf.as_ref(), || {
                format!("thread {} ends elsewhere than its entries", thread.id)
            });
            self.expect(thread.turn.is_none(), || {
                format!("thread {} is still in a turn", thread.id)
            });
        }
    }

    /// Every call has one result before the next message.
    fn calls(&mut self, entries: &[(String, Entry)]) -> Calls {
        let mut ends = Calls::new();
        let mut open: BTreeMap<_, BTreeMap<String, String>> = BTreeMap::new();
        for (_, entry) in entries {
            let EntryKind::Message(message) = &entry.kind else {
                continue;
            };
            let place = (entry.session.to_string(), entry.thread.to_string());
            let open = open.entry(place.clone()).or_default();
            if matches!(message.role, Role::User | Role::Assistant) {
                self.expect(open.is_empty(), || {
                    format!("{place:?}: {open:?} have no end before {}", entry.id)
                });
            }
            for part in &message.parts {
                match part {
                    Part::ToolCall { call_id, tool, .. } => {
                        open.insert(call_id.to_string(), tool.clone());
                        self.calls += 1;
                    }
                    Part::ToolResult {
                        call_id, status, ..
                    } => {
                        let tool = open.remove(call_id.as_str());
                        self.expect(tool.is_some(), || {
                            format!("{place:?}: {call_id} has an end and is not open")
                        });
                        let key = (place.0.clone(), place.1.clone(), call_id.to_string());
                        ends.insert(key, (tool.unwrap_or_default(), *status));
                        self.interrupted += usize::from(*status == ResultStatus::Interrupted);
                    }
                    _ => {}
                }
            }
        }
        for (place, open) in open {
            self.expect(open.is_empty(), || {
                format!("{place:?}: {open:?} have no end")
            });
        }
        ends
    }

    /// A gate opens and closes once, according to its events.
    fn gates(&mut self, gates: &[(String, Gate)], events: &Events) {
        let mut by_gate: BTreeMap<String, (usize, Vec<&str>)> = BTreeMap::new();
        for (_, event) in events.values().flatten() {
            let (gate, end) = match event {
                EventKind::DecisionGate { gate } => (&gate.id, None),
                EventKind::DecisionGateResolved { gate, .. } => (gate, Some("resolved")),
                EventKind::DecisionGateWithdrawn { gate, .. } => (gate, Some("withdrawn")),
                EventKind::DecisionGateExpired { gate } => (gate, Some("expired")),
                _ => continue,
            };
            let seen = by_gate.entry(gate.to_string()).or_default();
            seen.0 += usize::from(end.is_none());
            seen.1.extend(end);
        }
        for (_, gate) in gates {
            let end = match &gate.status {
                GateStatus::Pending => "pending",
                GateStatus::Resolved { .. } => "resolved",
                GateStatus::Withdrawn { .. } => "withdrawn",
                GateStatus::Expired { .. } => "expired",
            };
            *self.gates.entry(end).or_default() += 1;
            let seen = by_gate.remove(gate.id.as_str()).unwrap_or_default();
            self.expect(seen == (1, vec![end]), || {
                format!("gate {} is {end}, but its events are {seen:?}", gate.id)
            });
        }
        self.expect(by_gate.is_empty(), || {
            format!("events of unknown gates: {by_gate:?}")
        });
    }

    /// Every prompt has ended, or was merged with one that has.
    fn prompts(
        &mut self,
        prompts: &[(String, QueuedPrompt)],
        entries: &[(String, Entry)],
        events: &Events,
    ) {
        let mut ends: BTreeMap<(String, String), usize> = BTreeMap::new();
        for (session, events) in events {
            for (_, event) in events {
                if let EventKind::TurnEnd { prompt, .. } = event {
                    *ends
                        .entry((session.clone(), prompt.to_string()))
                        .or_default() += 1;
                }
            }
        }
        let mut last: BTreeMap<(String, String), &Entry> = BTreeMap::new();
        for (session, entry) in entries {
            if let Some(prompt) = &entry.prompt {
                last.insert((session.clone(), prompt.to_string()), entry);
            }
        }
        for (session, prompt) in prompts {
            let key = (session.clone(), prompt.id.to_string());
            let ends = ends.get(&key).copied().unwrap_or(0);
            let collected = prompt.collected_in.is_some();
            let (name, fits) = match prompt.status {
                PromptStatus::Waiting => ("waiting", false),
                PromptStatus::Running => ("running", false),
                PromptStatus::Done if collected => ("collected", ends == 1),
                PromptStatus::Done => (
                    "answered",
                    ends == 1 && last.get(&key).is_some_and(|it| is_message(it)),
                ),
                PromptStatus::Failed => ("failed", ends == 1),
                PromptStatus::Aborted => ("aborted", ends == 1),
            };
            *self.prompts.entry(name).or_default() += 1;
            self.expect(fits, || {
                format!("{session}: prompt {} is {name} with {ends} ends", prompt.id)
            });
        }
    }

    /// Acknowledged writes are stored.
    fn acknowledged(
        &mut self,
        dir: &Path,
        prompts: &[(String, QueuedPrompt)],
        gates: &[(String, Gate)],
    ) {
        let prompts: BTreeSet<_> = prompts
            .iter()
            .map(|(s, it)| (s.as_str(), it.id.as_str()))
            .collect();
        let gates: BTreeMap<_, _> = gates
            .iter()
            .map(|(_, it)| (it.id.as_str(), &it.status))
            .collect();
        for line in lines(&dir.join(ACKNOWLEDGED)) {
            self.acknowledged += 1;
            let holds = match line.split(' ').collect::<Vec<_>>()[..] {
                ["prompt", session, prompt] => prompts.contains(&(session, prompt)),
                ["decision", gate, action] => matches!(
                    gates.get(gate),
                    Some(GateStatus::Resolved { resolution }) if resolution.action == *action
                ),
                _ => false,
            };
            self.expect(holds, || format!("acknowledged, and not there: {line}"));
        }
    }

    /// Effects happened at most once, and exactly once if the call succeeded.
    fn effects(&mut self, dir: &Path, calls: &Calls) {
        let mut done = BTreeSet::new();
        for line in lines(&dir.join(EFFECTS)) {
            self.effects += 1;
            let (key, again) = (line.clone(), !done.insert(line));
            self.expect(!again, || format!("done twice: {key}"));
        }
        for ((session, thread, call), (tool, status)) in calls {
            let counted = matches!(tool.as_str(), "once" | "gated" | "gated_twice" | "expiring");
            if counted && *status == ResultStatus::Success {
                let key = format!("{session} {thread} {call}");
                self.expect(done.contains(&key), || {
                    format!("missing effect of a successful call: {key}")
                });
            }
        }
    }
}

fn is_message(entry: &Entry) -> bool {
    matches!(&entry.kind, EntryKind::Message(message) if message.role == Role::Assistant)
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn count(db: &Connection, table: &str) -> usize {
    let count = db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
        row.get::<_, i64>(0)
    });
    usize::try_from(count.unwrap()).unwrap()
}

/// The documents of a table in order of creation, with their session ids.
fn documents<T: serde::de::DeserializeOwned>(db: &Connection, table: &str) -> Vec<(String, T)> {
    let question = format!(
        "SELECT engine_sessions.id, {table}.doc FROM {table}
         JOIN engine_sessions ON engine_sessions.number = {table}.session ORDER BY {table}.number"
    );
    let mut find = db.prepare(&question).unwrap();
    let rows = find.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)));
    let read = |row: rusqlite::Result<(String, String)>| {
        let (session, doc) = row.unwrap();
        (session, serde_json::from_str(&doc).unwrap())
    };
    rows.unwrap().map(read).collect()
}

fn events(db: &Connection) -> Events {
    let mut find = db
        .prepare(
            "SELECT engine_sessions.id, sequence, engine_events.doc FROM engine_events
             JOIN engine_sessions ON engine_sessions.number = engine_events.session
             ORDER BY engine_events.session, sequence",
        )
        .unwrap();
    let rows = find.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))
    });
    let mut events = Events::new();
    for row in rows.unwrap() {
        let (session, last, doc): (String, i64, String) = row.unwrap();
        let stored: Vec<Value> = serde_json::from_str(&doc).unwrap();
        let first = last + 1 - i64::try_from(stored.len()).unwrap();
        for (number, stored) in (first..).zip(stored) {
            let kind = serde_json::from_value(stored["kind"].clone()).unwrap();
            let events = events.entry(session.clone()).or_default();
            events.push((number, kind));
        }
    }
    events
}
