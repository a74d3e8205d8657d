//! The child process: opens the session, sends the prompts and decides gates until all prompts are
//! finished.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lillux::process::Supervisor;
use rye_engine::clock::{Clock, SystemClock};
use rye_engine::protocol::{
    EntryKind, ErrorCode, EventKind, Gate, GateKind, Message, Millis, Part, PromptId, QueueMode,
    ResultStatus, Role, SessionId, ThreadId,
};
use rye_engine::store::{
    Claim, CommandKind, InboxMessage, SessionCommand, SessionFilter, SessionStore as _,
};
use rye_engine::tool::EffectClass;
use rye_engine::{Decision, Engine, NewSession, Prompt, Session};
use rye_model::{Catalogue, Config, ConfigFile, Script, Step};
use rye_sandbox::{LocalSandbox, VirtualSandbox};
use rye_store::SqliteStore;
use rye_testkit::wrapped_store::{Killer, WrappedStore};
use rye_tools::{Bash, task};
use serde_json::{Value, json};

use super::project;
use super::scenarios::{ALL, LIMIT_GATE, Person, RERUN_GATE, Scenario};
use super::tools::Append;

pub(crate) const SCENARIO: &str = "RYE_CRASH_SCENARIO";
pub(crate) const DIR: &str = "RYE_CRASH_DIR";
pub(crate) const CLOCK_OFFSET: &str = "RYE_CRASH_CLOCK_OFFSET";
/// Prefix of each line of the transcript.
pub(crate) const REPORT_PREFIX: &str = "report> ";

/// Time limit for all waits.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Collection window, longer than the whole scenario.
const WINDOW: Duration = Duration::from_hours(1);

/// A clock that can be moved forward.
struct SkippableClock {
    clock: SystemClock,
    by: Arc<AtomicU64>,
}

impl Clock for SkippableClock {
    fn now(&self) -> Millis {
        let by = self.by.load(Ordering::Relaxed);
        self.clock.now().after(Duration::from_millis(by))
    }
}

pub(crate) fn main(name: &str) {
    let scenario = ALL.iter().find(|scenario| scenario.name == name).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let story = tokio::time::timeout(TIMEOUT, run(scenario)).await;
        // The test harness has started a line.
        println!();
        for line in story.expect("it is stuck") {
            println!("{REPORT_PREFIX}{line}");
        }
    });
    runtime.shutdown_background();
}

/// A store that is killed at its commits.
fn killing(store: SqliteStore) -> WrappedStore<Killer> {
    WrappedStore::new(store, Killer::default())
}

/// An engine with the tools and settings of the scenario.
fn engine(scenario: &Scenario, dir: &Path, store: SqliteStore, clock: SkippableClock) -> Engine {
    let tool = |name: &str, effect, gates: &[&'static str]| Append::new(dir, name, effect, gates);
    let once = EffectClass::AtMostOnce;
    let mut builder = Engine::builder()
        .store(killing(store))
        .models(models(dir, scenario))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .clock(clock)
        .collect_window(WINDOW)
        .tool(tool("once", once, &[]))
        .tool(tool("pure", EffectClass::Pure, &[]))
        .tool(tool("idempotent", EffectClass::Idempotent, &[]))
        .tool(tool("ask", EffectClass::Ask, &[]))
        .tool(tool("gated", once, &["first"]))
        .tool(tool("gated_again", EffectClass::Idempotent, &["first"]))
        .tool(tool("gated_twice", once, &["first", "second"]))
        .tool(tool("expiring", once, &["first"]).expires_in(Duration::from_millis(300)))
        .tool(task())
        .prompt_on_limit(scenario.prompt_on_limit);
    if scenario.in_project {
        let supervisor = Arc::new(Supervisor::start().unwrap());
        // A local sandbox, where commands are processes.
        let local = LocalSandbox::new(dir, Arc::clone(&supervisor)).unwrap();
        builder = builder.sandbox(Arc::new(local)).tool(Bash::default());
        builder = project::connect(builder, dir, supervisor);
    }
    builder.build().unwrap()
}

async fn run(scenario: &Scenario) -> Vec<String> {
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    let later: u64 = std::env::var(CLOCK_OFFSET).unwrap().parse().unwrap();
    let ahead = Arc::new(AtomicU64::new(later));
    let clock = || SkippableClock {
        clock: SystemClock::default(),
        by: Arc::clone(&ahead),
    };
    let file = dir.join("sessions.db");
    let store = SqliteStore::open_with_clock(&file, Arc::new(clock())).unwrap();
    let other_process = OtherProcess {
        store: killing(SqliteStore::open_with_clock(&file, Arc::new(clock())).unwrap()),
        marker: dir.join("marker"),
    };
    let engine = engine(scenario, &dir, store, clock());
    let mut feed = engine.feed();
    let id = Some("session".parse().unwrap());
    let session = engine
        .create_session(NewSession {
            id,
            limits: scenario.limits,
            ..NewSession::default()
        })
        .await
        .unwrap();
    let mut pending = send_prompts(&session, scenario).await;
    if scenario.person == (Person::Commands { all: true }) {
        let parallel = Prompt {
            id: Some("parallel".parse().unwrap()),
            thread: Some("side".to_owned()),
            model: Some("scripted:other".to_owned()),
            ..Prompt::from("hello")
        };
        session.prompt(parallel).await.unwrap();
    }
    if scenario.prompts[0].2 == QueueMode::Collect {
        // The next process starts with the original clock.
        ahead.fetch_add(2 * WINDOW.as_secs() * 1000, Ordering::Relaxed);
        session.resume(None).await.unwrap();
    }
    let mut events = session.subscribe(0);
    for gate in engine.pending_gates(None).await.unwrap() {
        respond(scenario.person, &engine, &session, &other_process, &gate).await;
    }
    let mut ended = BTreeSet::new();
    while !pending.is_empty() || ended.len() < scenario.ends {
        tokio::select! {
            notice = events.next() => {
                let notice = notice.unwrap().expect("the session is closed");
                if let EventKind::TurnEnd { prompt, .. } = notice.event.kind {
                    ended.insert(prompt.clone());
                    let first = pending.remove(&prompt) && prompt.as_str() == "p1";
                    if first && matches!(scenario.person, Person::Commands { .. }) {
                        send_prompt(&session, "p2", "and now?", QueueMode::Followup).await;
                        pending.insert("p2".parse().unwrap());
                    }
                }
            }
            notice = feed.next() => {
                let notice = notice.unwrap().expect("the engine is gone");
                if let EventKind::DecisionGate { gate } = notice.event.kind {
                    respond(scenario.person, &engine, &session, &other_process, &gate).await;
                }
            }
        }
    }
    let id = session.id().clone();
    engine.shutdown().await.unwrap();
    // Opening the parent also continues its child sessions.
    let session = engine.open_session(&id, Claim::IfFree).await.unwrap();
    let mut lines = transcript(&engine, session.id()).await;
    if scenario.in_project {
        lines.push(project::verify(&engine, session.id(), &dir).await);
    }
    let filter = SessionFilter {
        parent: Some(id),
        limit: 10,
        ..SessionFilter::default()
    };
    for child in engine.sessions(filter).await.unwrap() {
        lines.push(format!("child: {:?}", child.status));
        lines.extend(transcript(&engine, &child.id).await);
    }
    lines.push(format!(
        "waiting gates: {}",
        engine.pending_gates(None).await.unwrap().len()
    ));
    lines
}

/// Sends the prompts of the scenario, and returns those to wait for.
async fn send_prompts(session: &Session, scenario: &Scenario) -> BTreeSet<PromptId> {
    let mut pending = BTreeSet::new();
    for (id, content, mode) in scenario.prompts {
        send_prompt(session, id, content, *mode).await;
        // Collected prompts end together.
        if *mode != QueueMode::Collect || pending.is_empty() {
            pending.insert(id.parse::<PromptId>().unwrap());
        }
    }
    if scenario.person == Person::Steers {
        pending.insert("steer".parse().unwrap());
    }
    pending
}

async fn send_prompt(session: &Session, id: &str, content: &str, mode: QueueMode) {
    let prompt = Prompt {
        id: Some(id.parse().unwrap()),
        mode: Some(mode),
        ..Prompt::from(content)
    };
    session.prompt(prompt).await.unwrap();
}

/// A process that does not hold the session.
struct OtherProcess {
    store: WrappedStore<Killer>,
    /// Exists once a command was acknowledged, so that it is not repeated.
    marker: PathBuf,
}

impl OtherProcess {
    async fn send_command(&self, session: &SessionId, thread: Option<ThreadId>) {
        if self.marker.exists() {
            return;
        }
        let control = SessionCommand {
            id: "stop".parse().unwrap(),
            thread,
            kind: CommandKind::Abort,
        };
        let posted = self
            .store
            .post(session, InboxMessage::Command(control))
            .await;
        posted.unwrap();
        std::fs::write(&self.marker, "").unwrap();
    }
}

/// Decides a gate, possibly for the second time.
async fn respond(
    person: Person,
    engine: &Engine,
    session: &Session,
    other_process: &OtherProcess,
    gate: &Gate,
) {
    let action = match person {
        _ if gate.kind == GateKind::CredentialRequest => {
            project::store_secret(&PathBuf::from(std::env::var(DIR).unwrap()));
            "provided"
        }
        Person::Ignores => return,
        Person::Steers => {
            return send_prompt(session, "steer", "never mind", QueueMode::Steer).await;
        }
        Person::Commands { all } => {
            let mut threads = session.threads();
            threads.retain(|thread| thread.key == "default");
            let thread = threads.pop().map(|thread| thread.id);
            let named = thread.filter(|_| !all);
            return other_process.send_command(session.id(), named).await;
        }
        Person::Approves | Person::Edits => "approve",
        Person::RunsAgain => "run_again",
    };
    let decision = Decision {
        action: action.into(),
        value: match person {
            Person::Edits => json!({ "arguments": { "note": "slowly" } }),
            _ => Value::Null,
        },
        by: "ada".to_owned(),
        source: "test".to_owned(),
    };
    engine.decide(&gate.id, decision).await.unwrap();
}

async fn transcript(engine: &Engine, session: &SessionId) -> Vec<String> {
    let (_, entries) = engine.history(session).await.unwrap().remove(0);
    let lines = entries.iter().map(|entry| match &entry.kind {
        EntryKind::Message(message) => line(message),
        EntryKind::DecisionGate { gate, title, .. } => {
            // The id is `gate:SESSION:THREAD:PROMPT:KEY`.
            let key = gate.as_str().splitn(5, ':').nth(4).unwrap_or_default();
            match key.split(':').next() {
                Some("limit") => LIMIT_GATE.to_owned(),
                Some("rerun") => RERUN_GATE.to_owned(),
                _ => format!("gate: {title}"),
            }
        }
        EntryKind::Compaction {
            summary, covered, ..
        } => {
            let first = summary.lines().nth(1).unwrap_or_default();
            format!("compacted: {} entries, {first}", covered.len())
        }
        other => format!("{other:?}"),
    });
    lines.collect()
}

fn line(message: &Message) -> String {
    let parts = message.parts.iter().map(|part| match part {
        Part::Text { text } => text.replace('\n', " "),
        Part::ToolCall { tool, args, .. } => format!("→{tool} {:.20}", args["line"].to_string()),
        Part::ToolResult { status, text, .. } => match status {
            ResultStatus::Success => text.clone(),
            ResultStatus::Interrupted => "interrupted".to_owned(),
            ResultStatus::Aborted => "aborted".to_owned(),
            ResultStatus::Error => format!("error: {text}"),
        },
        Part::Error { error } if error.code == ErrorCode::Limit => "limit".to_owned(),
        other => format!("{other:?}"),
    });
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "model",
        Role::Tool => "tool",
        Role::System => "system",
    };
    format!("{role}: {}", parts.collect::<Vec<_>>().join(" "))
}

/// The scenario's script, and a second model for failover.
fn models(dir: &Path, scenario: &Scenario) -> Catalogue {
    let file = ConfigFile {
        path: "models.yaml".into(),
        text: "failover: ['scripted:other']\nretry: { max_attempts: 2, initial_delay_ms: 1 }\n"
            .to_owned(),
    };
    let other = Script {
        after_last: Step::text("I do it"),
        ..Script::default()
    };
    Catalogue::new(dir)
        .with_config(Config::merge(&[file]).unwrap())
        .with("scripted:test", (scenario.script)())
        .with("scripted:child", (scenario.child)())
        .with("scripted:other", other)
}
