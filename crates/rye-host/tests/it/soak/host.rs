//! A host: several people who do what comes into their minds, until it is killed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rye_engine::protocol::{
    EventKind, Millis, PromptId, PromptStatus, QueueMode, QueuedPrompt, Session as SessionData,
    SessionId,
};
use rye_engine::store::{
    Claim, CommandKind, InboxMessage, PostOutcome, SessionCommand, SessionStore as _, StoreError,
};
use rye_engine::{DecideError, Decision, Engine, NewSession, Prompt, Session};
use rye_sandbox::Virtual;
use rye_store::SqliteStore;
use serde_json::{Map, Value};

use super::dice::Dice;
use super::tools::{append, model, models, tools};

/// What was acknowledged, and what should never have happened.
pub(crate) const ACKNOWLEDGED: &str = "acknowledged.log";
pub(crate) const WRONG: &str = "wrong.log";

pub(crate) const SESSIONS: u64 = 200;
const PEOPLE: u64 = 6;
const THREADS: [&str; 2] = ["default", "side"];
const MODES: [QueueMode; 3] = [QueueMode::Followup, QueueMode::Steer, QueueMode::Collect];
const COLLECT: Duration = Duration::from_millis(30);

/// How long the last host may take to bring all to an end.
const PATIENCE: Duration = Duration::from_secs(40);

/// What a process has at hand.
pub(crate) struct World {
    engine: Engine,
    /// The same file, as those have it who do not hold a session.
    stranger: SqliteStore,
    folder: PathBuf,
}

impl World {
    fn open(folder: &Path, seed: u64) -> Self {
        let file = folder.join("sessions.db");
        let engine = Engine::builder()
            .store(SqliteStore::open(&file).unwrap())
            .models(models(folder, seed))
            .sandbox(Arc::new(Virtual::new()))
            .collect_window(COLLECT)
            .tools(tools(folder))
            .build()
            .unwrap();
        Self {
            engine,
            stranger: SqliteStore::open(&file).unwrap(),
            folder: folder.to_owned(),
        }
    }

    fn acknowledge(&self, line: &str) {
        append(&self.folder.join(ACKNOWLEDGED), line);
    }

    fn wrong(&self, line: &str) {
        append(&self.folder.join(WRONG), line);
    }
}

/// Lives for so many steps each, or until somebody kills it.
pub(crate) async fn live(folder: &Path, seed: u64, life: u64, steps: u64) {
    let world = Arc::new(World::open(folder, seed));
    let people = (0..PEOPLE).map(|person| {
        let world = Arc::clone(&world);
        let mut dice = Dice::of(seed, 1_000 + life * PEOPLE + person);
        tokio::spawn(async move {
            for step in 0..steps {
                let outcome = act(&world, &mut dice, life, person, step).await;
                if let Err(error) = outcome.or_else(expected) {
                    world.wrong(&format!("life {life}: {error}"));
                }
            }
        })
    });
    for person in people.collect::<Vec<_>>() {
        person.await.unwrap();
    }
    world.engine.shutdown().await.unwrap();
}

/// What happens when several hosts and people work on the same things.
fn expected(error: StoreError) -> Result<(), StoreError> {
    match error {
        StoreError::InUse { .. } | StoreError::Fenced(_) | StoreError::NotFound { .. } => Ok(()),
        other => Err(other),
    }
}

async fn act(
    world: &Arc<World>,
    dice: &mut Dice,
    life: u64,
    person: u64,
    step: u64,
) -> Result<(), StoreError> {
    let id: SessionId = format!("s{}", dice.below(SESSIONS)).parse().unwrap();
    let thread = *dice.pick(&THREADS);
    let whole = dice.below(4) == 0;
    let place = if whole { None } else { Some(thread) };
    let prompt = Prompt {
        id: (dice.below(2) == 0).then(|| format!("p{life}-{person}-{step}").parse().unwrap()),
        mode: Some(*dice.pick(&MODES)),
        thread: Some(thread.to_owned()),
        model: (dice.below(3) == 0).then(|| model(dice)),
        ..Prompt::from(format!("prompt {life}-{person}-{step}"))
    };
    match dice.below(100) {
        0..50 => {
            let prompt = open(world, dice, &id).await?.prompt(prompt).await?;
            world.acknowledge(&format!("prompt {id} {prompt}"));
        }
        50..60 => post_prompt(world, &id, prompt).await?,
        60..78 => decide(world, dice).await?,
        78..83 => open(world, dice, &id).await?.abort(place).await?,
        83..87 => open(world, dice, &id).await?.pause(place).await?,
        87..93 => open(world, dice, &id).await?.resume(place).await?,
        93..95 => {
            let order = *dice.pick(&[CommandKind::Abort, CommandKind::Pause, CommandKind::Resume]);
            let control = SessionCommand::new(None, order);
            world
                .stranger
                .post(&id, InboxMessage::Command(control))
                .await?;
        }
        95..97 => drop(world.engine.open_session(&id, Claim::TakeOver).await?),
        _ => open(world, dice, &id).await?.close().await?,
    }
    Ok(())
}

async fn open(world: &Arc<World>, dice: &mut Dice, id: &SessionId) -> Result<Session, StoreError> {
    let new = NewSession {
        id: Some(id.clone()),
        model: Some(model(dice)),
        ..NewSession::default()
    };
    let session = world.engine.create_session(new).await?;
    if dice.below(8) == 0 {
        tokio::spawn(listen(Arc::clone(world), session.clone()));
    }
    Ok(session)
}

/// Whoever listens hears every number once and in order.
async fn listen(world: Arc<World>, session: Session) {
    let mut events = session.subscribe(0);
    let mut last = 0;
    while let Ok(Some(notice)) = events.next().await {
        if let Some(number) = notice.event.sequence {
            if number != last + 1 {
                world.wrong(&format!("{}: heard {number} after {last}", session.id()));
            }
            last = number;
        }
    }
}

/// A prompt from somebody who does not hold the session.
async fn post_prompt(world: &World, id: &SessionId, prompt: Prompt) -> Result<(), StoreError> {
    let Some(record) = world.stranger.snapshot(id).await? else {
        return Ok(());
    };
    let Some(thread) = record.threads.first() else {
        return Ok(());
    };
    let prompt = QueuedPrompt {
        id: prompt.id.unwrap_or_else(PromptId::new),
        session: id.clone(),
        thread: thread.id.clone(),
        order: 0,
        content: prompt.content,
        attachments: Vec::new(),
        author: None,
        reply_to: None,
        model: prompt.model,
        role: None,
        limits: rye_engine::protocol::Limits::default(),
        mode: prompt.mode.unwrap_or_default(),
        status: PromptStatus::Waiting,
        collect_until: None,
        metadata: Map::new(),
        created_at: Millis(1),
    };
    let name = prompt.id.clone();
    let post = InboxMessage::Prompt(Box::new(prompt));
    world.stranger.post(id, post).await?;
    world.acknowledge(&format!("prompt {id} {name}"));
    Ok(())
}

/// Somebody decides at any gate, whoever has it.
async fn decide(world: &World, dice: &mut Dice) -> Result<(), StoreError> {
    let gates = world.stranger.pending_gates(None).await?;
    if gates.is_empty() {
        return Ok(());
    }
    let gate = dice.pick(&gates);
    let actions: Vec<_> = gate.actions.iter().map(|it| it.id.clone()).collect();
    let action = dice.pick(&actions).clone();
    let decision = Decision {
        action: action.clone(),
        value: Value::Null,
        by: "ada".to_owned(),
        source: "soak".to_owned(),
    };
    match world.engine.decide(&gate.id, decision).await {
        Ok(PostOutcome::Written) => world.acknowledge(&format!("decision {} {action}", gate.id)),
        Ok(_) | Err(DecideError::GateNotFound(_)) => {}
        Err(DecideError::Store(error)) => return Err(error),
        Err(error) => world.wrong(&error.to_string()),
    }
    Ok(())
}

/// The last host: opens all, lets them go on, and says yes until nothing waits.
pub(crate) async fn finish(folder: &Path, seed: u64) {
    let world = Arc::new(World::open(folder, seed));
    let filter = rye_engine::store::SessionFilter {
        limit: usize::MAX,
        ..rye_engine::store::SessionFilter::default()
    };
    let all = world.stranger.sessions(filter).await.unwrap();
    let ends = all.into_iter().map(|session| {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            let id = session.id.clone();
            let end = tokio::time::timeout(PATIENCE, to_its_end(&world, session)).await;
            match end {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    world.wrong(&format!("{id} cannot be brought to an end: {error}"));
                }
                Err(_) => world.wrong(&format!("{id} is stuck")),
            }
        })
    });
    for end in ends.collect::<Vec<_>>() {
        end.await.unwrap();
    }
    world.engine.shutdown().await.unwrap();
}

async fn to_its_end(world: &World, data: SessionData) -> Result<(), StoreError> {
    // Whoever had it is dead, and known to be.
    let session = world.engine.open_session(&data.id, Claim::IfFree).await?;
    session.resume(None).await?;
    for thread in session.threads() {
        session.resume(Some(&thread.key)).await?;
    }
    let before = world.stranger.snapshot(&data.id).await?;
    let mut events = session.subscribe(before.map_or(0, |record| record.sequence));
    loop {
        let record = world.stranger.snapshot(&data.id).await?;
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
                action: action.unwrap_or_default(),
                value: Value::Null,
                by: "ada".to_owned(),
                source: "soak".to_owned(),
            };
            // It may have ended since.
            let _ = world.engine.decide(&gate.id, decision).await;
        }
        while let Some(notice) = events.next().await? {
            let told = matches!(
                notice.event.kind,
                EventKind::TurnEnd { .. }
                    | EventKind::DecisionGate { .. }
                    | EventKind::QueueState { .. }
            );
            if told {
                break;
            }
        }
    }
}
