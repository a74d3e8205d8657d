//! What comes in.

use rye_protocol::{
    CallId, CommandId, EntryId, ErrorInfo, EventKind, Gate, GateId, PromptId, QueuedPrompt, Usage,
};

use super::Compacted;
use crate::engine::ThreadChange;
use crate::model::ModelAnswer;
use crate::tool::{DecisionRequest, Effect as ToolEffect, ToolError, ToolOutput};

/// What happens to a thread.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// Nothing: go on from what is written down.
    Restored,
    /// Somebody asks something.
    Prompt(Box<QueuedPrompt>),
    /// A prompt that waits is not to be asked after all.
    Withdraw(PromptId),
    /// The model has answered.
    Answered(Result<Box<ModelAnswer>, ErrorInfo>),
    /// The model has not answered, and is called again, or another one is: what is told.
    Again(Box<EventKind>),
    /// The model has said that the context is too long.
    Overflow(ErrorInfo),
    /// The role of the prompt wants another model.
    Choose(String),
    /// Somebody wants the history summed up.
    Compact,
    /// It was, or could not be.
    Compacted(Result<Box<Compacted>, (ErrorInfo, Usage)>),
    /// A sum does not stand any more; the context has so many tokens without it.
    UndoCompaction {
        compaction: EntryId,
        tokens: u64,
    },
    /// A limit was reached before the model could be called.
    Limit(&'static str),
    /// A tool has ended.
    Ended(CallId, Result<Box<ToolOutput>, ToolError>),
    /// A tool asks a person.
    Ask(CallId, Box<DecisionRequest>),
    /// A gate has another status now.
    Decided(Box<Gate>),
    /// A tool has started a process.
    Process(CallId, rye_protocol::ProcessRef),
    /// What may be done with a call if its host dies.
    Effect(CallId, ToolEffect),
    /// A tool has made something to keep.
    Artifact(CallId, Artifact),
    /// Time has passed.
    Tick,
    /// End what runs. `partial` is what the model has said so far.
    Abort {
        partial: String,
        clear_queue: bool,
    },
    /// A prompt takes the place of what runs.
    Steer {
        prompt: Box<QueuedPrompt>,
        partial: String,
    },
    Pause,
    Resume,
    /// A gate is not to be decided after all: which, and why.
    WithdrawGate(GateId, String),
    /// The thread is to be otherwise from now on.
    Change(ThreadChange),
    /// One of these, that was ordered by somebody elsewhere.
    Ordered(PostedOrder, Box<Input>),
}

/// Something that a tool has made.
#[derive(Debug, Clone)]
pub(crate) struct Artifact {
    pub(crate) name: String,
    /// Where the blob store has it.
    pub(crate) source: String,
}

/// An order that stands in the record until it is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PostedOrder {
    pub(crate) id: CommandId,
    /// Whether it is for this thread alone.
    pub(crate) alone: bool,
}
