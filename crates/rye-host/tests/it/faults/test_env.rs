//! An engine with a database file, test tools and a manual clock.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rye_engine::clock::Clock;
use rye_engine::protocol::{
    EntryKind, ErrorInfo, EventKind, GateId, Message, Millis, Part, PromptId, ResultStatus,
};
use rye_engine::store::{SessionFilter, SessionStore as _, StoreError};
use rye_engine::{Decision, Engine, NewSession, Session};
use rye_model::Catalogue;
use rye_sandbox::VirtualSandbox;
use rye_store::SqliteStore;
use serde_json::Value;

use super::store::{Faults, FaultyStore};
use super::tools::{Behaviour, test_tool};

/// Directory of a child process.
pub(crate) const DIR: &str = "RYE_FAULTS_DIR";

/// A script for any number of prompts.
pub(crate) const ENDLESS: &str = "{ steps: [], after_last: { text: noted } }";

/// Time limit for all waits.
const TIMEOUT: Duration = Duration::from_mins(2);
const COLLECT: Duration = Duration::from_millis(50);

/// A clock that can be set, and can run from there.
#[derive(Clone, Default)]
pub(crate) struct ManualClock {
    shows: Arc<AtomicU64>,
    runs: Arc<AtomicBool>,
    since: Option<Instant>,
}

impl ManualClock {
    pub(crate) fn at(millis: u64) -> Self {
        let clock = Self {
            since: Some(Instant::now()),
            ..Self::default()
        };
        clock.set(millis);
        clock
    }

    pub(crate) fn set(&self, millis: u64) {
        self.shows.store(millis, Ordering::SeqCst);
    }

    pub(crate) fn run(&self) {
        self.runs.store(true, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        let shows = Millis(self.shows.load(Ordering::SeqCst));
        match self.since {
            Some(since) if self.runs.load(Ordering::SeqCst) => shows.after(since.elapsed()),
            _ => shows,
        }
    }
}

pub(crate) struct TestEnv {
    /// Removed on drop, unless it belongs to another process.
    dir: Option<tempfile::TempDir>,
    path: PathBuf,
    script: String,
    tools: Vec<(String, Behaviour)>,
    pub(crate) faults: Faults,
    pub(crate) clock: ManualClock,
}

impl TestEnv {
    pub(crate) fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut env = Self::at(dir.path(), script);
        env.dir = Some(dir);
        env
    }

    pub(crate) fn at(path: &Path, script: &str) -> Self {
        Self {
            dir: None,
            path: path.to_owned(),
            script: script.to_owned(),
            tools: Vec::new(),
            faults: Faults::default(),
            clock: ManualClock::at(1),
        }
    }

    pub(crate) fn with(mut self, name: &str, behaviour: Behaviour) -> Self {
        self.tools.push((name.to_owned(), behaviour));
        self
    }

    pub(crate) fn store(&self) -> SqliteStore {
        let clock = Arc::new(self.clock.clone());
        SqliteStore::open_with_clock(self.path.join("sessions.db"), clock).unwrap()
    }

    pub(crate) fn engine(&self) -> Engine {
        let mut builder = Engine::builder()
            .store(FaultyStore::new(self.store(), self.faults.clone()))
            .models(Catalogue::new(".").with("scripted:test", self.script.parse().unwrap()))
            .sandbox(Arc::new(VirtualSandbox::new()))
            .clock(self.clock.clone())
            .collect_window(COLLECT);
        for (name, behaviour) in &self.tools {
            builder = builder.tool(test_tool(name, *behaviour));
        }
        builder.build().unwrap()
    }

    /// The session of the engine.
    pub(crate) async fn session(&self, engine: &Engine) -> Session {
        let id = Some("s".parse().unwrap());
        let new = NewSession {
            id,
            ..NewSession::default()
        };
        engine.create_session(new).await.unwrap()
    }

    /// The complete content of the store as text.
    pub(crate) async fn dump(&self) -> String {
        let (store, mut text) = (self.store(), String::new());
        let filter = SessionFilter {
            limit: usize::MAX,
            ..SessionFilter::default()
        };
        for session in store.sessions(filter).await.unwrap() {
            let record = store.snapshot(&session.id).await.unwrap().unwrap();
            let events = store.events(&session.id, 0, usize::MAX).await.unwrap();
            let _ = write!(text, "{record:?}{events:?}");
            for thread in &record.threads {
                let entries = store.entries(&session.id, &thread.id, None, usize::MAX);
                let _ = write!(text, "{:?}", entries.await.unwrap());
            }
        }
        text
    }

    /// Messages and events, one per line.
    pub(crate) async fn transcript(&self) -> String {
        let (store, mut text) = (self.store(), String::new());
        let id = "s".parse().unwrap();
        let record = store.snapshot(&id).await.unwrap().unwrap();
        for thread in &record.threads {
            let entries = store.entries(&id, &thread.id, None, usize::MAX).await;
            for entry in entries.unwrap() {
                if let EntryKind::Message(message) = entry.kind {
                    let role = format!("{:?}", message.role).to_lowercase();
                    let _ = writeln!(text, "{role}: {}", message.content());
                }
            }
        }
        for event in store.events(&id, 0, usize::MAX).await.unwrap() {
            let kind = serde_json::to_value(&event.kind).unwrap();
            let _ = writeln!(text, "{}", kind["type"]);
        }
        text
    }

    /// Runs a test in a child process, after a shell command.
    pub(crate) fn run_child(&self, setup: &str, test: &str) -> String {
        run_test_process(setup, test, &self.path)
    }

    pub(crate) fn acknowledge(&self) {
        let file = self.path.join("acknowledged");
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        std::fs::write(&file, before + ".").unwrap();
    }

    pub(crate) fn acknowledged(&self) -> usize {
        let file = self.path.join("acknowledged");
        std::fs::read_to_string(file).unwrap_or_default().len()
    }
}

fn run_test_process(setup: &str, test: &str, dir: &Path) -> String {
    let script = format!("{setup} && exec \"$0\" --exact faults::{test} --nocapture");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(DIR, dir)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    format!("{stdout}{}", String::from_utf8_lossy(&output.stderr))
}

/// A memory figure of this process in bytes.
pub(crate) fn memory(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let figure = line.and_then(|line| line.split_whitespace().next());
    figure.unwrap().parse::<usize>().unwrap() * 1024
}

pub(crate) fn decision(action: &str) -> Decision {
    Decision {
        action: action.into(),
        value: Value::Null,
        by: "ada".to_owned(),
        source: "test".to_owned(),
    }
}

/// The first event that matches.
async fn find<T>(session: &Session, look: impl Fn(EventKind) -> Option<T>) -> T {
    let mut events = session.subscribe(0);
    let find = async {
        loop {
            let notice = match events.next().await {
                // Subscribes again after a lag.
                Err(StoreError::Unavailable(_)) => continue,
                notice => notice.unwrap().expect("the session is closed"),
            };
            if let Some(found) = look(notice.event.kind) {
                return found;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, find).await.expect("stuck")
}

/// Waits for the end of a turn.
pub(crate) async fn wait_for_turn_end(session: &Session, prompt: &PromptId) {
    find(session, |kind| match kind {
        EventKind::TurnEnd { prompt: ended, .. } if ended == *prompt => Some(()),
        _ => None,
    })
    .await;
}

/// Waits for the first gate.
pub(crate) async fn first_gate(session: &Session) -> GateId {
    find(session, |kind| match kind {
        EventKind::DecisionGate { gate } => Some(gate.id),
        _ => None,
    })
    .await
}

async fn messages(session: &Session) -> Vec<Message> {
    let thread = session.threads().remove(0).id;
    let entries = session.entries(&thread, None, usize::MAX).await.unwrap();
    let message = |entry: rye_engine::protocol::Entry| match entry.kind {
        EntryKind::Message(message) => Some(message),
        _ => None,
    };
    entries.into_iter().filter_map(message).collect()
}

/// Text of the last message.
pub(crate) async fn last_text(session: &Session) -> String {
    messages(session).await.pop().unwrap().content()
}

/// Outcomes of all tool calls.
pub(crate) async fn results(session: &Session) -> Vec<(ResultStatus, Option<ErrorInfo>)> {
    let parts = messages(session).await.into_iter().flat_map(|it| it.parts);
    let result = |part| match part {
        Part::ToolResult { status, error, .. } => Some((status, error)),
        _ => None,
    };
    parts.filter_map(result).collect()
}
