//! The process that is killed: it opens the session, asks what is to be asked, and does
//! what a person would, until all is answered.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lillux::process::Supervisor;
use rye_engine::builtin::{Bash, Task};
use rye_engine::clock::{Clock, SystemClock};
use rye_engine::protocol::{
    EntryKind, ErrorCode, EventKind, Gate, GateKind, Message, Millis, Part, PromptId, QueueMode,
    ResultStatus, Role, SessionId, ThreadId,
};
use rye_engine::store::{
    Claim, CommandKind, InboxMessage, SessionCommand, SessionFilter, SessionStore as _,
};
use rye_engine::tool::Effect;
use rye_engine::{Decision, Engine, NewSession, Prompt, Session};
use rye_model::{Catalogue, Config, ConfigFile, Script, Step};
use rye_sandbox::{Local, Virtual};
use rye_store::SqliteStore;
use serde_json::{Value, json};

use super::killer::Killer;
use super::project;
use super::scenarios::{ALL, Person, Scenario};
use super::tools::Append;

pub(crate) const SCENARIO: &str = "RYE_CRASH_SCENARIO";
pub(crate) const FOLDER: &str = "RYE_CRASH_FOLDER";
pub(crate) const LATER: &str = "RYE_CRASH_LATER";
/// What stands before each line of the story.
pub(crate) const TOLD: &str = "told> ";

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long prompts are collected: longer than anything here takes, by the clock.
const WINDOW: Duration = Duration::from_hours(1);

/// A clock that can be put on.
struct Ahead {
    clock: SystemClock,
    by: Arc<AtomicU64>,
}

impl Clock for Ahead {
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
        let story = tokio::time::timeout(PATIENCE, live(scenario)).await;
        // The harness has begun a line.
        println!();
        for line in story.expect("it is stuck") {
            println!("{TOLD}{line}");
        }
    });
    runtime.shutdown_background();
}

/// An engine with tools that leave traces, and with what the scenario needs beside them.
fn engine(scenario: &Scenario, folder: &Path, store: SqliteStore, clock: Ahead) -> Engine {
    let tool =
        |name: &str, effect, gates: &[&'static str]| Append::new(folder, name, effect, gates);
    let once = Effect::AtMostOnce;
    let mut builder = Engine::builder()
        .store(Killer(store))
        .models(models(folder, scenario))
        .sandbox(Arc::new(Virtual::new()))
        .clock(clock)
        .collect_window(WINDOW)
        .tool(tool("once", once, &[]))
        .tool(tool("pure", Effect::Pure, &[]))
        .tool(tool("idempotent", Effect::Idempotent, &[]))
        .tool(tool("ask", Effect::Ask, &[]))
        .tool(tool("gated", once, &["first"]))
        .tool(tool("gated_again", Effect::Idempotent, &["first"]))
        .tool(tool("gated_twice", once, &["first", "second"]))
        .tool(tool("expiring", once, &["first"]).expires_in(Duration::from_millis(300)))
        .tool(Task::default())
        .prompt_on_limit(scenario.prompt_on_limit);
    if scenario.in_project {
        let supervisor = Arc::new(Supervisor::start().unwrap());
        // The local sandbox: commands are programs.
        let local = Local::new(folder, Arc::clone(&supervisor)).unwrap();
        builder = builder.sandbox(Arc::new(local)).tool(Bash::default());
        builder = project::reached(builder, folder, supervisor);
    }
    builder.build().unwrap()
}

async fn live(scenario: &Scenario) -> Vec<String> {
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let later: u64 = std::env::var(LATER).unwrap().parse().unwrap();
    let ahead = Arc::new(AtomicU64::new(later));
    let clock = || Ahead {
        clock: SystemClock::default(),
        by: Arc::clone(&ahead),
    };
    let file = folder.join("sessions.db");
    let store = SqliteStore::open_with_clock(&file, Arc::new(clock())).unwrap();
    let stranger = Stranger {
        store: Killer(SqliteStore::open_with_clock(&file, Arc::new(clock())).unwrap()),
        ordered: folder.join("ordered"),
    };
    let engine = engine(scenario, &folder, store, clock());
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
    let mut wanted = ask_all(&session, scenario).await;
    if scenario.person == (Person::Orders { all: true }) {
        let beside = Prompt {
            id: Some("beside".parse().unwrap()),
            thread: Some("side".to_owned()),
            model: Some("scripted:other".to_owned()),
            ..Prompt::from("hello")
        };
        session.prompt(beside).await.unwrap();
    }
    if scenario.prompts[0].2 == QueueMode::Collect {
        // A host that is killed after this finds the clock put back.
        ahead.fetch_add(2 * WINDOW.as_secs() * 1000, Ordering::Relaxed);
        session.resume(None).await.unwrap();
    }
    let mut events = session.subscribe(0);
    for gate in engine.pending_gates(None).await.unwrap() {
        act(scenario.person, &engine, &session, &stranger, &gate).await;
    }
    let mut ended = BTreeSet::new();
    while !wanted.is_empty() || ended.len() < scenario.ends {
        tokio::select! {
            notice = events.next() => {
                let notice = notice.unwrap().expect("the session is closed");
                if let EventKind::TurnEnd { prompt, .. } = notice.event.kind {
                    ended.insert(prompt.clone());
                    let first = wanted.remove(&prompt) && prompt.as_str() == "p1";
                    if first && matches!(scenario.person, Person::Orders { .. }) {
                        ask(&session, "p2", "and now?", QueueMode::Followup).await;
                        wanted.insert("p2".parse().unwrap());
                    }
                }
            }
            notice = feed.next() => {
                let notice = notice.unwrap().expect("the engine is gone");
                if let EventKind::DecisionGate { gate } = notice.event.kind {
                    act(scenario.person, &engine, &session, &stranger, &gate).await;
                }
            }
        }
    }
    let id = session.id().clone();
    engine.shutdown().await.unwrap();
    // What was left to do for a child is done by whoever opens its parent.
    let session = engine.open_session(&id, Claim::IfFree).await.unwrap();
    let mut told = story(&engine, session.id()).await;
    if scenario.in_project {
        told.push(project::proven(&engine, session.id(), &folder).await);
    }
    let filter = SessionFilter {
        parent: Some(id),
        limit: 10,
        ..SessionFilter::default()
    };
    for child in engine.sessions(filter).await.unwrap() {
        told.push(format!("child: {:?}", child.status));
        told.extend(story(&engine, &child.id).await);
    }
    told.push(format!(
        "waiting gates: {}",
        engine.pending_gates(None).await.unwrap().len()
    ));
    told
}

/// Asks what is to be asked, and gives the prompts whose ends are to be waited for.
async fn ask_all(session: &Session, scenario: &Scenario) -> BTreeSet<PromptId> {
    let mut wanted = BTreeSet::new();
    for (id, content, mode) in scenario.prompts {
        ask(session, id, content, *mode).await;
        // What is collected ends as one.
        if *mode != QueueMode::Collect || wanted.is_empty() {
            wanted.insert(id.parse::<PromptId>().unwrap());
        }
    }
    if scenario.person == Person::Steers {
        wanted.insert("steer".parse().unwrap());
    }
    wanted
}

async fn ask(session: &Session, id: &str, content: &str, mode: QueueMode) {
    let prompt = Prompt {
        id: Some(id.parse().unwrap()),
        mode: Some(mode),
        ..Prompt::from(content)
    };
    session.prompt(prompt).await.unwrap();
}

/// Somebody who does not hold the session.
struct Stranger {
    store: Killer,
    /// There once an order was acknowledged: nobody gives it again then.
    ordered: PathBuf,
}

impl Stranger {
    async fn order(&self, session: &SessionId, thread: Option<ThreadId>) {
        if self.ordered.exists() {
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
        std::fs::write(&self.ordered, "").unwrap();
    }
}

/// A person who is asked, perhaps for the second time: a gate that has ended tells so.
async fn act(person: Person, engine: &Engine, session: &Session, stranger: &Stranger, gate: &Gate) {
    let action = match person {
        _ if gate.kind == GateKind::CredentialRequest => {
            project::give(&PathBuf::from(std::env::var(FOLDER).unwrap()));
            "provided"
        }
        Person::Sleeps => return,
        Person::Steers => return ask(session, "steer", "never mind", QueueMode::Steer).await,
        Person::Orders { all } => {
            let mut threads = session.threads();
            threads.retain(|thread| thread.key == "default");
            let thread = threads.pop().map(|thread| thread.id);
            let named = thread.filter(|_| !all);
            return stranger.order(session.id(), named).await;
        }
        Person::Approves | Person::Edits => "approve",
        Person::RunsAgain => "run_again",
    };
    let decision = Decision {
        action: action.to_owned(),
        value: match person {
            Person::Edits => json!({ "arguments": { "note": "slowly" } }),
            _ => Value::Null,
        },
        by: "ada".to_owned(),
        source: "test".to_owned(),
    };
    engine.decide(&gate.id, decision).await.unwrap();
}

async fn story(engine: &Engine, session: &SessionId) -> Vec<String> {
    let (_, entries) = engine.history(session).await.unwrap().remove(0);
    let lines = entries.iter().map(|entry| match &entry.kind {
        EntryKind::Message(message) => line(message),
        EntryKind::DecisionGate { title, .. } => format!("gate: {title}"),
        EntryKind::Compaction {
            summary, covered, ..
        } => {
            let first = summary.lines().nth(1).unwrap_or_default();
            format!("summed up: {} entries, {first}", covered.len())
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

/// The scenario's script, and one that answers in its place.
fn models(folder: &Path, scenario: &Scenario) -> Catalogue {
    let file = ConfigFile {
        path: "models.yaml".into(),
        text: "failover: ['scripted:other']\nretry: { max_attempts: 2, initial_delay_ms: 1 }\n"
            .to_owned(),
    };
    let other = Script {
        after_last: Step::text("I do it"),
        ..Script::default()
    };
    Catalogue::new(folder)
        .with_config(Config::merge(&[file]).unwrap())
        .with("scripted:test", (scenario.script)())
        .with("scripted:child", (scenario.child)())
        .with("scripted:other", other)
}
