//! An engine over a file, with odd tools and clocks, and what is written in that file.

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
use rye_sandbox::Virtual;
use rye_store::SqliteStore;
use serde_json::Value;

use super::store::{Flaky, Trouble};
use super::tools::{Habit, odd};

/// Where a second process works; without it, there is none.
pub(crate) const FOLDER: &str = "RYE_BAD_INPUT_FOLDER";

/// A script for as many prompts as one likes.
pub(crate) const LONG: &str = "{ steps: [], after_last: { text: noted } }";

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_mins(2);
const COLLECT: Duration = Duration::from_millis(50);

/// A clock that shows what it is told to, and may run from there.
#[derive(Clone, Default)]
pub(crate) struct Clockwork {
    shows: Arc<AtomicU64>,
    runs: Arc<AtomicBool>,
    since: Option<Instant>,
}

impl Clockwork {
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

impl Clock for Clockwork {
    fn now(&self) -> Millis {
        let shows = Millis(self.shows.load(Ordering::SeqCst));
        match self.since {
            Some(since) if self.runs.load(Ordering::SeqCst) => shows.after(since.elapsed()),
            _ => shows,
        }
    }
}

pub(crate) struct World {
    /// Goes away with it, unless it is another process's.
    folder: Option<tempfile::TempDir>,
    path: PathBuf,
    script: String,
    tools: Vec<(String, Habit)>,
    pub(crate) trouble: Trouble,
    pub(crate) clock: Clockwork,
}

impl World {
    pub(crate) fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut world = Self::at(folder.path(), script);
        world.folder = Some(folder);
        world
    }

    pub(crate) fn at(path: &Path, script: &str) -> Self {
        Self {
            folder: None,
            path: path.to_owned(),
            script: script.to_owned(),
            tools: Vec::new(),
            trouble: Trouble::default(),
            clock: Clockwork::at(1),
        }
    }

    pub(crate) fn with(mut self, name: &str, habit: Habit) -> Self {
        self.tools.push((name.to_owned(), habit));
        self
    }

    pub(crate) fn store(&self) -> SqliteStore {
        let clock = Arc::new(self.clock.clone());
        SqliteStore::open_with_clock(self.path.join("sessions.db"), clock).unwrap()
    }

    pub(crate) fn engine(&self) -> Engine {
        let mut builder = Engine::builder()
            .store(Flaky::new(self.store(), self.trouble.clone()))
            .models(Catalogue::new(".").with("scripted:test", self.script.parse().unwrap()))
            .sandbox(Arc::new(Virtual::new()))
            .clock(self.clock.clone())
            .collect_window(COLLECT);
        for (name, habit) in &self.tools {
            builder = builder.tool(odd(name, *habit));
        }
        builder.build().unwrap()
    }

    /// The one session of an engine.
    pub(crate) async fn session(&self, engine: &Engine) -> Session {
        let id = Some("s".parse().unwrap());
        let new = NewSession {
            id,
            ..NewSession::default()
        };
        engine.create_session(new).await.unwrap()
    }

    /// All that is written down, in one text.
    pub(crate) async fn everything(&self) -> String {
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

    /// Who said what, and what happened, a line each.
    pub(crate) async fn story(&self) -> String {
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

    /// Runs one of these tests in a process of its own, whose shell sets the scene first.
    pub(crate) fn in_a_scene(&self, scene: &str, test: &str) -> String {
        alone(scene, test, &self.path)
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

fn alone(scene: &str, test: &str, folder: &Path) -> String {
    let script = format!("{scene} && exec \"$0\" --exact bad_input::{test} --nocapture");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER, folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    format!("{said}{}", String::from_utf8_lossy(&output.stderr))
}

/// A figure of this process, in bytes.
pub(crate) fn memory(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let figure = line.and_then(|line| line.split_whitespace().next());
    figure.unwrap().parse::<usize>().unwrap() * 1024
}

pub(crate) fn decision(action: &str) -> Decision {
    Decision {
        action: action.to_owned(),
        value: Value::Null,
        by: "ada".to_owned(),
        source: "test".to_owned(),
    }
}

/// The next event that is looked for, from the first on.
async fn find<T>(session: &Session, look: impl Fn(EventKind) -> Option<T>) -> T {
    let mut events = session.subscribe(0);
    let find = async {
        loop {
            let notice = match events.next().await {
                // Whoever listens may ask again, and misses nothing.
                Err(StoreError::Unavailable(_)) => continue,
                notice => notice.unwrap().expect("the session is closed"),
            };
            if let Some(found) = look(notice.event.kind) {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, find).await.expect("stuck")
}

/// Waits until a prompt has ended.
pub(crate) async fn until_ended(session: &Session, prompt: &PromptId) {
    find(session, |kind| match kind {
        EventKind::TurnEnd { prompt: ended, .. } if ended == *prompt => Some(()),
        _ => None,
    })
    .await;
}

/// The first gate that opens.
pub(crate) async fn gate_of(session: &Session) -> GateId {
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

/// What was said last.
pub(crate) async fn said(session: &Session) -> String {
    messages(session).await.pop().unwrap().content()
}

/// How all calls of tools ended.
pub(crate) async fn results(session: &Session) -> Vec<(ResultStatus, Option<ErrorInfo>)> {
    let parts = messages(session).await.into_iter().flat_map(|it| it.parts);
    let result = |part| match part {
        Part::ToolResult { status, error, .. } => Some((status, error)),
        _ => None,
    };
    parts.filter_map(result).collect()
}
