//! Replays a recorded session: runs the same prompts with the recorded model answers and tool
//! results through the engine, in memory and offline, and compares the new history with the
//! recorded one. Also compares system prompts and tools.
//!
//! Ids and times differ. External actions on a prompt are repeated at the same point: an abort, a
//! steering prompt, a reached time limit, or a host that died. The replay of a thread stops at a
//! prompt that is not finished.

mod compare;
mod harness;
mod recording;
mod run;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rye_engine::clock::{Clock, SystemClock};
use rye_engine::guides::Guides;
use rye_engine::protocol::{
    self, Archive, EventKind, Limits, Millis, ModelContext, PromptId, QueueMode, SessionStatus,
    Thread, Usage,
};
use rye_engine::sandbox::Sandbox;
use rye_engine::store::{Claim, StoreError};
use rye_engine::tool::Tool;
use rye_engine::{BuildError, Engine, NewSession, Prompt, Session};
use rye_sandbox::VirtualSandbox;
use rye_store::MemoryStore;
use tokio::sync::mpsc;

pub use compare::Difference;
use harness::{ExternalAction, Harness, RecordedModels, RecordedTool};
use recording::{Ending, RecordedPrompt, ThreadRecording, shared_entries};
pub(crate) use recording::{StepKind, path, steps};
pub use run::{RunReplay, replay_run};

/// The current configuration, which the replay uses.
pub struct CurrentSetup {
    /// Tools. Only their definitions are used; they do not run.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Roles, skills and rules.
    pub guides: Arc<dyn Guides>,
    /// Compaction settings.
    pub compaction: rye_engine::compaction::Settings,
    /// The available models.
    pub models: Arc<dyn rye_engine::model::Models>,
}

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReplayOutcome {
    /// Number of repeated prompts.
    pub prompts: usize,
    /// Number of new entries.
    pub entries: usize,
    /// Threads whose replay stopped early, with the reason.
    pub stopped: Vec<String>,
    /// Differences from the recorded session.
    pub differences: Vec<Difference>,
}

/// Why a session cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The engine cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The memory store reported an error.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Replays a session. Must be called within a Tokio runtime.
pub async fn replay(archive: &Archive, setup: &CurrentSetup) -> Result<ReplayOutcome, ReplayError> {
    let mut outcome = ReplayOutcome::default();
    for thread in &archive.threads {
        let (harness, actions) = Harness::new(ThreadRecording::new(archive, thread));
        let mut replay = ThreadReplay::begin(archive, thread, setup, &harness, actions).await?;
        let mut stops = false;
        for prompt in &harness.recording.prompts {
            if let Some(reason) = &prompt.stops {
                outcome.stopped.push(format!("{}: {reason}", thread.key));
                stops = true;
                break;
            }
            replay.run_prompt(prompt).await?;
            outcome.prompts += 1;
        }
        let found = replay.end().await?;
        for found in found.iter().take(1) {
            compare::entries(archive, thread, found, stops, &mut outcome);
            compare::contexts(
                &model_contexts(archive, thread),
                &model_contexts(found, thread),
                &mut outcome,
            );
        }
        for (model, error) in harness.recording.missing_models(&*setup.models) {
            outcome.differences.push(Difference {
                subject: format!("model {model}"),
                lines: vec![
                    "- answered in the recording".to_owned(),
                    format!("+ {error}"),
                ],
            });
        }
    }
    outcome.differences.dedup();
    Ok(outcome)
}

/// The replay of one thread.
struct ThreadReplay<'a> {
    thread: &'a Thread,
    harness: &'a Arc<Harness>,
    actions: mpsc::UnboundedReceiver<ExternalAction>,
    clock: Arc<SkippableClock>,
    engine: Engine,
    session: Session,
    /// Whether the next prompt steers the running one.
    steer_next: bool,
}

impl<'a> ThreadReplay<'a> {
    async fn begin(
        archive: &Archive,
        thread: &'a Thread,
        setup: &CurrentSetup,
        harness: &'a Arc<Harness>,
        actions: mpsc::UnboundedReceiver<ExternalAction>,
    ) -> Result<Self, ReplayError> {
        let clock = Arc::<SkippableClock>::default();
        let engine = engine(harness, &clock, setup)?;
        let session = if let Some(shared) = shared_history(archive, thread) {
            let id = shared.session.id.clone();
            engine.import(shared, |_| None).await?;
            engine.open_session(&id, Claim::IfFree).await?
        } else {
            let new = NewSession {
                user_id: archive.session.user_id.clone(),
                model: archive.session.model.clone(),
                role: archive.session.role.clone(),
                system: archive.session.system.clone(),
                ..NewSession::default()
            };
            engine.create_session(new).await?
        };
        harness.attach(&session);
        Ok(Self {
            thread,
            harness,
            actions,
            clock,
            engine,
            session,
            steer_next: false,
        })
    }

    /// Runs a prompt, and waits until the thread is idle or the next prompt steers it.
    async fn run_prompt(&mut self, recorded: &RecordedPrompt) -> Result<(), StoreError> {
        const TIME_LIMIT: Duration = Duration::from_hours(1);
        let now = self.clock.now();
        let prompt = Prompt {
            attachments: recorded.attachments.clone(),
            author: recorded.author.clone(),
            model: recorded.model.clone(),
            role: recorded.role.clone(),
            schema: recorded.schema.clone(),
            review: recorded.review,
            thread: Some(self.thread.key.clone()),
            mode: std::mem::take(&mut self.steer_next).then_some(QueueMode::Steer),
            limits: Limits {
                until: recorded.reaches_time_limit.then(|| now.after(TIME_LIMIT)),
                ..Limits::default()
            },
            ..Prompt::from(recorded.content.clone())
        };
        self.harness.begin(&recorded.id);
        let id = self.session.prompt(prompt).await?;
        while let Some(ending) = self.next_action(recorded, &id).await? {
            match ending {
                Ending::Abort => self.session.abort(Some(&self.thread.key)).await?,
                Ending::Steer => {
                    self.steer_next = true;
                    return Ok(());
                }
                Ending::TimeLimit => {
                    self.clock.skip(TIME_LIMIT * 2);
                    // The engine checks the deadline at the next input.
                    self.session.resume(Some(&self.thread.key)).await?;
                }
                Ending::HostDied => self.reopen().await?,
            }
        }
        // Includes a compaction and the continuation after it.
        self.session.wait_idle(&self.thread.key).await
    }

    /// The next external action on a prompt; none once the prompt has ended.
    async fn next_action(
        &mut self,
        prompt: &RecordedPrompt,
        id: &PromptId,
    ) -> Result<Option<Ending>, StoreError> {
        let answer = self.session.wait_for_answer(id);
        let mut answer = std::pin::pin!(answer);
        loop {
            tokio::select! {
                biased;
                ended = &mut answer => return ended.map(|_| None),
                Some(action) = self.actions.recv() => {
                    // Ignores actions on earlier prompts.
                    if action.prompt == prompt.id {
                        return Ok(Some(action.ending));
                    }
                }
            }
        }
    }

    /// Closes and reopens the session, as after the death of a host.
    async fn reopen(&mut self) -> Result<(), StoreError> {
        let id = self.session.id().clone();
        self.session.close().await?;
        // Repeated calls wait until the harness is attached again.
        self.harness.detach();
        self.session = self.engine.open_session(&id, Claim::IfFree).await?;
        self.harness.attach(&self.session);
        Ok(())
    }

    /// Ends the replay and returns the new session.
    async fn end(self) -> Result<Vec<Archive>, StoreError> {
        if self.steer_next {
            // There was no further prompt.
            self.session.abort(Some(&self.thread.key)).await?;
        }
        let found = self.engine.export(self.session.id()).await?;
        self.harness.detach();
        self.engine.shutdown().await?;
        Ok(found)
    }
}

/// The history that the thread of a fork shares with the session it was forked from, as a session
/// to start from; `None` if it shares none.
fn shared_history(archive: &Archive, thread: &Thread) -> Option<Archive> {
    let mut entries = path(archive, thread);
    entries.truncate(shared_entries(archive, &entries));
    let last = entries.last()?;
    let session = &archive.session;
    Some(Archive {
        threads: vec![Thread {
            id: thread.id.clone(),
            leaf: Some(last.id.clone()),
            leaf_hash: last.hash.clone(),
            ..Thread::new(session.id.clone(), &thread.key, thread.created_at)
        }],
        session: protocol::Session {
            status: SessionStatus::Running,
            usage: Usage::default(),
            limits: Limits::default(),
            ..session.clone()
        },
        entries,
        prompts: Vec::new(),
        gates: Vec::new(),
        gate_refs: Vec::new(),
        events: Vec::new(),
    })
}

/// A clock that can be moved forward.
#[derive(Debug, Default)]
struct SkippableClock {
    real: SystemClock,
    offset_ms: AtomicU64,
}

impl SkippableClock {
    fn skip(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or_default();
        self.offset_ms.fetch_add(time, Ordering::Relaxed);
    }

    fn now(&self) -> Millis {
        let offset = Duration::from_millis(self.offset_ms.load(Ordering::Relaxed));
        self.real.now().after(offset)
    }
}

/// Implements the engine's trait for a shared clock.
struct SharedClock(Arc<SkippableClock>);

impl Clock for SharedClock {
    fn now(&self) -> Millis {
        self.0.now()
    }
}

fn engine(
    harness: &Arc<Harness>,
    clock: &Arc<SkippableClock>,
    setup: &CurrentSetup,
) -> Result<Engine, BuildError> {
    let sandbox: Arc<dyn Sandbox> = Arc::new(VirtualSandbox::new());
    let mut builder = Engine::builder()
        .store(MemoryStore::new())
        .clock(SharedClock(Arc::clone(clock)))
        .models(RecordedModels {
            harness: Arc::clone(harness),
            models: Arc::clone(&setup.models),
        })
        .sandbox(sandbox)
        .compaction(setup.compaction.clone())
        .guides(Arc::clone(&setup.guides));
    // Results of `skill` are recorded as well.
    let skill = rye_tools::skill(Arc::clone(&setup.guides));
    let skill: Arc<dyn Tool> = Arc::new(skill);
    for tool in setup.tools.iter().chain([&skill]) {
        builder = builder.tool(RecordedTool::new(tool.def().clone(), Arc::clone(harness)));
    }
    builder.build()
}

/// The recorded system prompts and tools of a thread, in order.
fn model_contexts(archive: &Archive, thread: &Thread) -> Vec<ModelContext> {
    let own = archive.threads.iter().find(|it| it.key == thread.key);
    let events = archive.events.iter();
    let own = events.filter(|event| event.thread.as_ref() == own.map(|it| &it.id));
    let contexts = own.filter_map(|event| match &event.kind {
        EventKind::ContextChanged { context } => Some((**context).clone()),
        _ => None,
    });
    contexts.collect()
}
