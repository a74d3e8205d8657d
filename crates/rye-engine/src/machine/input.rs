//! Inputs of the state machine.

use rye_protocol::{
    CallId, CommandId, EntryId, ErrorInfo, EventKind, Gate, GateId, LimitKind, PromptId,
    QueuedPrompt, Usage,
};

use super::CompactionResult;
use crate::engine::ThreadChange;
use crate::model::ModelAnswer;
use crate::tool::{DecisionRequest, EffectClass, ToolError, ToolOutput};

/// Something that happened to a thread.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// The thread was restored from the store.
    Restored,
    /// A new prompt.
    Prompt(Box<QueuedPrompt>),
    /// Removes a waiting prompt.
    WithdrawPrompt(PromptId),
    /// The model has answered or finally failed.
    ModelAnswered(Result<Box<ModelAnswer>, ErrorInfo>),
    /// The model call failed; publish this event and call again, or call the model it names.
    RetryModel(Box<EventKind>),
    /// The model rejected the context as too long.
    ContextOverflow(ErrorInfo),
    /// The prompt's role requires another model.
    SwitchModel(String),
    /// Compaction was requested.
    Compact,
    /// The compaction has finished.
    CompactionEnded(Result<Box<CompactionResult>, (ErrorInfo, Usage)>),
    /// Undoes a compaction; `tokens` is the size of the context without it.
    UndoCompaction {
        compaction: EntryId,
        tokens: u64,
    },
    /// A limit was reached before the model could be called.
    LimitReached(LimitKind),
    /// A tool call has finished.
    ToolEnded(CallId, Result<Box<ToolOutput>, ToolError>),
    /// A tool requests a decision.
    RequestDecision(CallId, Box<DecisionRequest>),
    /// A gate was closed.
    GateClosed(Box<Gate>),
    /// A tool has started a process.
    ProcessStarted(CallId, rye_protocol::ProcessRef),
    /// A tool declares what may happen to its call after a crash.
    DeclareEffect(CallId, EffectClass),
    /// A tool has produced or changed something.
    RecordEvent(CallId, Box<EventKind>),
    /// A deadline may have passed.
    Tick,
    /// Ends the running turn. `partial` is the text streamed so far.
    Abort {
        partial: String,
        clear_queue: bool,
    },
    /// Replaces the running turn by a prompt.
    Steer {
        prompt: Box<QueuedPrompt>,
        partial: String,
    },
    Pause,
    Resume,
    /// Withdraws a gate, with a reason.
    WithdrawGate(GateId, String),
    /// Changes the thread's settings.
    ChangeThread(ThreadChange),
    /// An input that came from a command posted to the store.
    PostedCommand(PostedCommand, Box<Input>),
}

/// A stored command, which stays until it is completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PostedCommand {
    pub(crate) id: CommandId,
    /// Whether no other thread has to apply it.
    pub(crate) is_only_thread: bool,
}
