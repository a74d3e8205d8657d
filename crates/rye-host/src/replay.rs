//! A session that is replayed: the same prompts, answers and results go through the engine
//! again, in memory and offline, and what comes of it is compared with the record. What a
//! model is told today beside the history is compared with what it was told then.
//!
//! Ids and times are other ones. What was done to a prompt from outside is done again where
//! it was: somebody ended it or spoke in its place, its time was up, its host died. Only
//! what is still under way is where a thread's replay stops.

mod compare;
mod guides;
mod recorded;
mod stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rye_engine::clock::{Clock, SystemClock};
use rye_engine::guides::Guides;
use rye_engine::protocol::{
    Archive, EventKind, Limits, Millis, ModelContext, PromptId, QueueMode, Thread,
};
use rye_engine::sandbox::Sandbox;
use rye_engine::store::{Claim, StoreError};
use rye_engine::tool::Tool;
use rye_engine::{BuildError, Engine, NewSession, Prompt, Session};
use rye_sandbox::Virtual;
use rye_store::MemoryStore;
use tokio::sync::mpsc;

pub use compare::Difference;
pub(crate) use recorded::{Did, path, steps};
use recorded::{Ending, Recorded, RecordedPrompt};
use stage::{Answers, Cue, RecordedTool, Stage};

/// What a replay is done with: what there is today.
pub struct Today {
    /// Tools, of which only what models see of them is used.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Roles, skills and rules.
    pub guides: Arc<dyn Guides>,
    /// When and how histories are summed up.
    pub compaction: rye_engine::compaction::Settings,
    /// Which models there are, and in words why one is not.
    pub models: Arc<dyn rye_engine::model::Models>,
}

/// What came of a replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replayed {
    /// How many prompts were asked again.
    pub prompts: usize,
    /// How many entries came of them.
    pub entries: usize,
    /// Where threads stopped, and why.
    pub stopped: Vec<String>,
    /// What is not as it was.
    pub differences: Vec<Difference>,
}

/// Why there is no replay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The engine does not go.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// What it writes in memory is refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Replays a session. Must be called within a Tokio runtime.
pub async fn replay(archive: &Archive, today: &Today) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed::default();
    for thread in &archive.threads {
        let (stage, cues) = Stage::new(Recorded::of(archive, thread));
        let mut again = Again::begin(archive, thread, today, &stage, cues).await?;
        let mut stops = false;
        for prompt in &stage.recorded.prompts {
            if let Some(why) = &prompt.stops {
                replayed.stopped.push(format!("{}: {why}", thread.key));
                stops = true;
                break;
            }
            again.ask(prompt).await?;
            replayed.prompts += 1;
        }
        let found = again.end().await?;
        for found in found.iter().take(1) {
            compare::entries(archive, thread, found, stops, &mut replayed);
            compare::prompts(&told(archive, thread), &told(found, thread), &mut replayed);
        }
        for (model, why) in stage.recorded.missing_models(&*today.models) {
            replayed.differences.push(Difference {
                what: format!("the model {model}"),
                lines: vec!["- it answered then".to_owned(), format!("+ {why}")],
            });
        }
    }
    replayed.differences.dedup();
    Ok(replayed)
}

/// A thread that is replayed.
struct Again<'a> {
    thread: &'a Thread,
    stage: &'a Arc<Stage>,
    cues: mpsc::UnboundedReceiver<Cue>,
    clock: Arc<Ahead>,
    engine: Engine,
    session: Session,
    /// Whether the next prompt takes the place of the one that is under way.
    steers: bool,
}

impl<'a> Again<'a> {
    async fn begin(
        archive: &Archive,
        thread: &'a Thread,
        today: &Today,
        stage: &'a Arc<Stage>,
        cues: mpsc::UnboundedReceiver<Cue>,
    ) -> Result<Self, ReplayError> {
        let clock = Arc::<Ahead>::default();
        let engine = engine(stage, &clock, today)?;
        let new = NewSession {
            user_id: archive.session.user_id.clone(),
            model: archive.session.model.clone(),
            role: role(archive),
            ..NewSession::default()
        };
        let session = engine.create_session(new).await?;
        stage.play_in(&session);
        Ok(Self {
            thread,
            stage,
            cues,
            clock,
            engine,
            session,
            steers: false,
        })
    }

    /// Asks again, and waits until all that comes of it is done, or until the next prompt
    /// takes its place.
    async fn ask(&mut self, recorded: &RecordedPrompt) -> Result<(), StoreError> {
        const LONG: Duration = Duration::from_hours(1);
        let now = self.clock.now();
        let prompt = Prompt {
            attachments: recorded.attachments.clone(),
            author: recorded.author.clone(),
            model: recorded.model.clone(),
            role: recorded.role.clone(),
            schema: recorded.schema.clone(),
            thread: Some(self.thread.key.clone()),
            mode: std::mem::take(&mut self.steers).then_some(QueueMode::Steer),
            limits: Limits {
                until: recorded.runs_out_of_time.then(|| now.after(LONG)),
                ..Limits::default()
            },
            ..Prompt::from(recorded.content.clone())
        };
        self.stage.begin(&recorded.id);
        let id = self.session.prompt(prompt).await?;
        while let Some(ending) = self.cue(recorded, &id).await? {
            match ending {
                Ending::Abort => self.session.abort(Some(&self.thread.key)).await?,
                Ending::Steer => {
                    self.steers = true;
                    return Ok(());
                }
                Ending::OutOfTime => {
                    self.clock.skip(LONG * 2);
                    // It looks at the time when somebody speaks to it.
                    self.session.resume(Some(&self.thread.key)).await?;
                }
                Ending::Death => self.open_anew().await?,
            }
        }
        // A history that is full is summed up now, and then the agent goes on.
        self.session.wait_idle(&self.thread.key).await
    }

    /// What is done to a prompt from outside; none once it has ended.
    async fn cue(
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
                Some(cue) = self.cues.recv() => {
                    // What an earlier one still had to say is over.
                    if cue.prompt == prompt.id {
                        return Ok(Some(cue.ending));
                    }
                }
            }
        }
    }

    /// As after a host has died: nothing runs, and what is written down is all there is.
    async fn open_anew(&mut self) -> Result<(), StoreError> {
        let id = self.session.id().clone();
        self.session.close().await?;
        // Calls that are made again wait until they can hear of each other.
        self.stage.leave();
        self.session = self.engine.open_session(&id, Claim::IfFree).await?;
        self.stage.play_in(&self.session);
        Ok(())
    }

    /// What came of it.
    async fn end(self) -> Result<Vec<Archive>, StoreError> {
        if self.steers {
            // Nobody took its place after all.
            self.session.abort(Some(&self.thread.key)).await?;
        }
        let found = self.engine.export(self.session.id()).await?;
        self.stage.leave();
        self.engine.shutdown().await?;
        Ok(found)
    }
}

/// A clock that can be set forward.
#[derive(Debug, Default)]
struct Ahead {
    real: SystemClock,
    by: AtomicU64,
}

impl Ahead {
    fn skip(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or_default();
        self.by.fetch_add(time, Ordering::Relaxed);
    }

    fn now(&self) -> Millis {
        let ahead = Duration::from_millis(self.by.load(Ordering::Relaxed));
        self.real.now().after(ahead)
    }
}

struct Shared(Arc<Ahead>);

impl Clock for Shared {
    fn now(&self) -> Millis {
        self.0.now()
    }
}

fn role(archive: &Archive) -> Option<String> {
    let role = archive.session.metadata.get("role")?.as_str()?;
    Some(role.to_owned())
}

fn engine(stage: &Arc<Stage>, clock: &Arc<Ahead>, today: &Today) -> Result<Engine, BuildError> {
    let sandbox: Arc<dyn Sandbox> = Arc::new(Virtual::new());
    let mut builder = Engine::builder()
        .store(MemoryStore::new())
        .clock(Shared(Arc::clone(clock)))
        .models(Answers(Arc::clone(stage)))
        .sandbox(sandbox)
        .compaction(today.compaction.clone())
        .guides(guides::Today(Arc::clone(&today.guides)));
    // What came of `skill` is recorded as well.
    let skill = rye_engine::builtin::Skill::new(Arc::clone(&today.guides));
    let skill: Arc<dyn Tool> = Arc::new(skill);
    for tool in today.tools.iter().chain([&skill]) {
        builder = builder.tool(RecordedTool::new(tool.def().clone(), Arc::clone(stage)));
    }
    builder.build()
}

/// What models were told beside the history, in order.
fn told(archive: &Archive, thread: &Thread) -> Vec<ModelContext> {
    let own = archive.threads.iter().find(|it| it.key == thread.key);
    let events = archive.events.iter();
    let own = events.filter(|event| event.thread.as_ref() == own.map(|it| &it.id));
    let prompts = own.filter_map(|event| match &event.kind {
        EventKind::ContextChanged { context } => Some((**context).clone()),
        _ => None,
    });
    prompts.collect()
}
