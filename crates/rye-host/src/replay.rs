//! A session that is replayed: the same prompts, answers and results go through the engine
//! again, in memory and offline, and what comes of it is compared with the record. What a
//! model is told today beside the history is compared with what it was told then.
//!
//! Ids and times are other ones, and what happened to a host is not replayed: a turn that
//! somebody ended, or that a limit or a failing model ended, is where a thread's replay
//! stops.

mod compare;
mod recorded;

use std::sync::Arc;

use rye_engine::guides::Guides;
use rye_engine::protocol::{Archive, EventKind, Prompted, Thread};
use rye_engine::sandbox::Sandbox;
use rye_engine::store::StoreError;
use rye_engine::tool::Tool;
use rye_engine::{BuildError, Engine, NewSession, Prompt, Session};
use rye_sandbox::Virtual;
use rye_store::Memory;

pub use compare::Difference;
pub(crate) use recorded::path;
use recorded::{Item, Recorded, RecordedTool};

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
        let recorded = Arc::new(Recorded::of(archive, thread));
        let engine = engine(&recorded, today)?;
        let new = NewSession {
            user_id: archive.session.user_id.clone(),
            model: archive.session.model.clone(),
            role: role(archive),
            ..NewSession::default()
        };
        let session = engine.create_session(new).await?;
        for item in &recorded.items {
            if let Some(why) = &item.stops {
                replayed.stopped.push(format!("{}: {why}", thread.key));
                break;
            }
            ask(&session, thread, item).await?;
            replayed.prompts += 1;
        }
        let found = engine.export(session.id()).await?;
        for found in found.iter().take(1) {
            compare::entries(archive, thread, found, &mut replayed);
            compare::prompts(&told(archive, thread), &told(found, thread), &mut replayed);
        }
        for (model, why) in recorded.missing_models(&*today.models) {
            replayed.differences.push(Difference {
                what: format!("the model {model}"),
                lines: vec!["- it answered then".to_owned(), format!("+ {why}")],
            });
        }
        engine.shutdown().await?;
    }
    replayed.differences.dedup();
    Ok(replayed)
}

fn role(archive: &Archive) -> Option<String> {
    let role = archive.session.metadata.get("role")?.as_str()?;
    Some(role.to_owned())
}

fn engine(recorded: &Arc<Recorded>, today: &Today) -> Result<Engine, BuildError> {
    let sandbox: Arc<dyn Sandbox> = Arc::new(Virtual::new());
    let mut builder = Engine::builder()
        .store(Memory::new())
        .models(recorded::Answers(Arc::clone(recorded)))
        .sandbox(sandbox)
        .compaction(today.compaction.clone())
        .guides(recorded::Today(Arc::clone(&today.guides)));
    // What came of `skill` is recorded as well.
    let skill = rye_engine::builtin::Skill::new(Arc::clone(&today.guides));
    let skill: Arc<dyn Tool> = Arc::new(skill);
    for tool in today.tools.iter().chain([&skill]) {
        builder = builder.tool(RecordedTool::new(tool.def().clone(), Arc::clone(recorded)));
    }
    builder.build()
}

/// Asks again, and waits until all that comes of it is done.
async fn ask(session: &Session, thread: &Thread, item: &Item) -> Result<(), StoreError> {
    let prompt = Prompt {
        attachments: item.attachments.clone(),
        author: item.author.clone(),
        model: item.model.clone(),
        role: item.role.clone(),
        schema: item.schema.clone(),
        thread: Some(thread.key.clone()),
        ..Prompt::from(item.content.clone())
    };
    let id = session.prompt(prompt).await?;
    session.answer(&id).await?;
    // A history that is full is summed up now, and then the agent goes on.
    session.settled(&thread.key).await
}

/// What models were told beside the history, in order.
fn told(archive: &Archive, thread: &Thread) -> Vec<Prompted> {
    let own = archive.threads.iter().find(|it| it.key == thread.key);
    let events = archive.events.iter();
    let own = events.filter(|event| event.thread.as_ref() == own.map(|it| &it.id));
    let prompts = own.filter_map(|event| match &event.kind {
        EventKind::Prompted { prompted } => Some((**prompted).clone()),
        _ => None,
    });
    prompts.collect()
}
