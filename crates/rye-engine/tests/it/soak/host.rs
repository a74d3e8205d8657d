//! A host with several users who perform random actions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rye_engine::protocol::{
    EventKind, Millis, QueueMode, QueuedPrompt, Session as SessionData, SessionId,
};
use rye_engine::store::{
    Claim, CommandKind, InboxMessage, PostOutcome, SessionCommand, SessionStore as _, StoreError,
};
use rye_engine::{DecideError, Decision, Engine, NewSession, Prompt, Session};
use rye_sandbox::VirtualSandbox;
use rye_store::SqliteStore;
use serde_json::Value;

use super::rng::Rng;
use super::tools::{append, model, models, tools};

/// Files with acknowledged writes and with unexpected errors.
pub(crate) const ACKNOWLEDGED: &str = "acknowledged.log";
pub(crate) const UNEXPECTED: &str = "unexpected.log";

pub(crate) const SESSIONS: u64 = 200;
const USERS: u64 = 6;
const THREADS: [&str; 2] = ["default", "side"];
const MODES: [QueueMode; 3] = [QueueMode::Followup, QueueMode::Steer, QueueMode::Collect];
const COLLECT: Duration = Duration::from_millis(30);

/// Time limit for the last host.
const TIMEOUT: Duration = Duration::from_secs(40);

/// State of a host process.
pub(crate) struct TestEnv {
    engine: Engine,
    /// A second handle to the database, without leases.
    stranger: SqliteStore,
    dir: PathBuf,
}

impl TestEnv {
    fn open(dir: &Path, seed: u64) -> Self {
        let file = dir.join("sessions.db");
        let engine = Engine::builder()
            .store(SqliteStore::open(&file).unwrap())
            .models(models(dir, seed))
            .sandbox(Arc::new(VirtualSandbox::new()))
            .collect_window(COLLECT)
            .tools(tools(dir))
            .build()
            .unwrap();
        Self {
            engine,
            stranger: SqliteStore::open(&file).unwrap(),
            dir: dir.to_owned(),
        }
    }

    fn acknowledge(&self, line: &str) {
        append(&self.dir.join(ACKNOWLEDGED), line);
    }

    fn unexpected(&self, line: &str) {
        append(&self.dir.join(UNEXPECTED), line);
    }
}

/// Performs a number of steps per user, or runs until it is killed.
pub(crate) async fn run(dir: &Path, seed: u64, host: u64, steps: u64) {
    let env = Arc::new(TestEnv::open(dir, seed));
    let people = (0..USERS).map(|person| {
        let env = Arc::clone(&env);
        let mut rng = Rng::for_stream(seed, 1_000 + host * USERS + person);
        tokio::spawn(async move {
            for step in 0..steps {
                let outcome = perform_action(&env, &mut rng, host, person, step).await;
                if let Err(error) = outcome.or_else(ignore_expected) {
                    env.unexpected(&format!("host {host}: {error}"));
                }
            }
        })
    });
    for person in people.collect::<Vec<_>>() {
        person.await.unwrap();
    }
    env.engine.shutdown().await.unwrap();
}

/// Ignores errors that are expected with several hosts and users.
fn ignore_expected(error: StoreError) -> Result<(), StoreError> {
    match error {
        StoreError::InUse { .. } | StoreError::Fenced(_) | StoreError::NotFound { .. } => Ok(()),
        other => Err(other),
    }
}

async fn perform_action(
    env: &Arc<TestEnv>,
    rng: &mut Rng,
    host: u64,
    person: u64,
    step: u64,
) -> Result<(), StoreError> {
    let id: SessionId = format!("s{}", rng.below(SESSIONS)).parse().unwrap();
    let thread = *rng.pick(&THREADS);
    let whole = rng.below(4) == 0;
    let place = if whole { None } else { Some(thread) };
    let prompt = Prompt {
        id: (rng.below(2) == 0).then(|| format!("p{host}-{person}-{step}").parse().unwrap()),
        mode: Some(*rng.pick(&MODES)),
        thread: Some(thread.to_owned()),
        model: (rng.below(3) == 0).then(|| model(rng)),
        ..Prompt::from(format!("prompt {host}-{person}-{step}"))
    };
    match rng.below(100) {
        0..50 => {
            let prompt = open(env, rng, &id).await?.prompt(prompt).await?;
            env.acknowledge(&format!("prompt {id} {prompt}"));
        }
        50..60 => post_prompt(env, &id, prompt).await?,
        60..78 => decide(env, rng).await?,
        78..83 => open(env, rng, &id).await?.abort(place).await?,
        83..87 => open(env, rng, &id).await?.pause(place).await?,
        87..93 => open(env, rng, &id).await?.resume(place).await?,
        93..95 => {
            let all = [CommandKind::Abort, CommandKind::Pause, CommandKind::Resume];
            let order = rng.pick(&all).clone();
            let control = SessionCommand::new(None, order);
            env.stranger
                .post(&id, InboxMessage::Command(control))
                .await?;
        }
        95..97 => drop(env.engine.open_session(&id, Claim::TakeOver).await?),
        _ => open(env, rng, &id).await?.close().await?,
    }
    Ok(())
}

async fn open(env: &Arc<TestEnv>, rng: &mut Rng, id: &SessionId) -> Result<Session, StoreError> {
    let new = NewSession {
        id: Some(id.clone()),
        model: Some(model(rng)),
        ..NewSession::default()
    };
    let session = env.engine.create_session(new).await?;
    if rng.below(8) == 0 {
        tokio::spawn(listen(Arc::clone(env), session.clone()));
    }
    Ok(session)
}

/// Checks that a subscriber gets every event once and in order.
async fn listen(env: Arc<TestEnv>, session: Session) {
    let mut events = session.subscribe(0);
    let mut last = 0;
    while let Ok(Some(notice)) = events.next().await {
        if let Some(number) = notice.event.sequence {
            if number != last + 1 {
                env.unexpected(&format!("{}: received {number} after {last}", session.id()));
            }
            last = number;
        }
    }
}

/// Posts a prompt without holding the session.
async fn post_prompt(env: &TestEnv, id: &SessionId, prompt: Prompt) -> Result<(), StoreError> {
    let Some(record) = env.stranger.snapshot(id).await? else {
        return Ok(());
    };
    let Some(thread) = record.threads.first() else {
        return Ok(());
    };
    let new = QueuedPrompt::new(id.clone(), thread.id.clone(), prompt.content, Millis(1));
    let prompt = QueuedPrompt {
        id: prompt.id.unwrap_or_else(|| new.id.clone()),
        model: prompt.model,
        mode: prompt.mode.unwrap_or_default(),
        ..new
    };
    let name = prompt.id.clone();
    let post = InboxMessage::prompt(prompt);
    env.stranger.post(id, post).await?;
    env.acknowledge(&format!("prompt {id} {name}"));
    Ok(())
}

/// Decides a random gate.
async fn decide(env: &TestEnv, rng: &mut Rng) -> Result<(), StoreError> {
    let gates = env.stranger.pending_gates(None).await?;
    if gates.is_empty() {
        return Ok(());
    }
    let gate = rng.pick(&gates);
    let actions: Vec<_> = gate.actions.iter().map(|it| it.id.clone()).collect();
    let action = rng.pick(&actions).clone();
    let decision = Decision {
        action: action.clone(),
        value: Value::Null,
        by: "ada".to_owned(),
        source: "soak".to_owned(),
    };
    match env.engine.decide(&gate.id, decision).await {
        Ok(PostOutcome::Written) => env.acknowledge(&format!("decision {} {action}", gate.id)),
        Ok(_) | Err(DecideError::GateNotFound(_)) => {}
        Err(DecideError::Store(error)) => return Err(error),
        Err(error) => env.unexpected(&error.to_string()),
    }
    Ok(())
}

/// The last host: opens all sessions and approves all gates until no work is left.
pub(crate) async fn finish(dir: &Path, seed: u64) {
    let env = Arc::new(TestEnv::open(dir, seed));
    let filter = rye_engine::store::SessionFilter {
        limit: usize::MAX,
        ..rye_engine::store::SessionFilter::default()
    };
    let all = env.stranger.sessions(filter).await.unwrap();
    let ends = all.into_iter().map(|session| {
        let env = Arc::clone(&env);
        tokio::spawn(async move {
            let id = session.id.clone();
            let end = tokio::time::timeout(TIMEOUT, finish_session(&env, session)).await;
            match end {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    env.unexpected(&format!("{id} cannot be brought to an end: {error}"));
                }
                Err(_) => env.unexpected(&format!("{id} is stuck")),
            }
        })
    });
    for end in ends.collect::<Vec<_>>() {
        end.await.unwrap();
    }
    env.engine.shutdown().await.unwrap();
}

async fn finish_session(env: &TestEnv, data: SessionData) -> Result<(), StoreError> {
    // The previous holder is dead.
    let session = env.engine.open_session(&data.id, Claim::IfFree).await?;
    session.resume(None).await?;
    for thread in session.threads() {
        session.resume(Some(&thread.key)).await?;
    }
    let before = env.stranger.snapshot(&data.id).await?;
    let mut events = session.subscribe(before.map_or(0, |record| record.sequence));
    loop {
        let record = env.stranger.snapshot(&data.id).await?;
        let record = record.ok_or_else(|| StoreError::NotFound {
            kind: "session",
            id: data.id.to_string(),
        })?;
        if record.prompts.is_empty() {
            return Ok(());
        }
        for gate in record.gates.iter().filter(|gate| gate.status.is_pending()) {
            let action = gate.actions.first().map(|it| it.id.clone());
            let decision = Decision {
                action: action.unwrap_or_else(|| "".into()),
                value: Value::Null,
                by: "ada".to_owned(),
                source: "soak".to_owned(),
            };
            // The gate may be closed by now.
            let _ = env.engine.decide(&gate.id, decision).await;
        }
        while let Some(notice) = events.next().await? {
            let is_closed = matches!(
                notice.event.kind,
                EventKind::TurnEnd { .. }
                    | EventKind::DecisionGate { .. }
                    | EventKind::QueueState { .. }
            );
            if is_closed {
                break;
            }
        }
    }
}
