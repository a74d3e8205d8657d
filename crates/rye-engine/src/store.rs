//! The session store interface: leases, commits, posts and queries.

use std::fmt;

use rye_protocol::policy::PermissionMode;
use rye_protocol::{
    Archive, Batch, CommandId, Entry, EntryId, Event, Gate, GateId, GateRef, GateStatus, Millis,
    ProcessRef, PromptId, QueuedPrompt, Resolution, Session, SessionId, Thread, ThreadId,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, watch};

use crate::BoxFuture;
use crate::sandbox::SandboxError;

/// Future of a store operation.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The right to write a session, until another host takes it over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The session it is for.
    pub session: SessionId,
    /// Fencing number, raised by every claim; commits with an older one are refused.
    pub epoch: u64,
}

/// How to claim a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Fails if a live host holds the lease.
    IfFree,
    /// Takes the lease from its holder, whose later commits are refused.
    TakeOver,
}

/// Why a store operation failed. Unless stated otherwise, nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another host has taken over the session.
    #[error("session {0} was taken over by another process")]
    Fenced(SessionId),
    /// A live host holds the lease.
    #[error("session {session} is in use by {holder}")]
    InUse {
        /// The session that is in use.
        session: SessionId,
        /// Description of the lease holder.
        holder: String,
    },
    /// The object does not exist.
    #[error("there is no {kind} {id}")]
    NotFound {
        /// Kind of the object, such as `session`.
        kind: &'static str,
        /// Id of the object.
        id: String,
    },
    /// An object with this id exists and differs.
    #[error("{kind} {id} already exists with different content")]
    Conflict {
        /// Kind of the object, such as `session`.
        kind: &'static str,
        /// Id of the object.
        id: String,
    },
    /// The gate is closed and cannot change.
    #[error("gate {0} is already closed")]
    GateClosed(GateId),
    /// The thread is archived.
    #[error("thread {0} is archived and takes no prompts")]
    Archived(String),
    /// The session records a single tool call.
    #[error("session {0} records a run and takes no prompts")]
    SingleCall(SessionId),
    /// The session is a task, which only its parent prompts.
    #[error("session {0} is a task and takes prompts only from its parent")]
    Task(SessionId),
    /// The session has ended for good.
    #[error("session {0} has ended and takes no prompts")]
    Terminated(SessionId),
    /// The engine runs no sessions, or the process is about to end.
    #[error("session {0} cannot be continued here: this process runs no sessions")]
    NotRunHere(SessionId),
    /// The project of the session cannot be used, or its settings are invalid.
    #[error("session {0} cannot run: {1}")]
    Setup(SessionId, String),
    /// The sandbox of the session cannot be opened.
    #[error("{1}")]
    Sandbox(SessionId, SandboxError),
    /// The disk is full or the database does not respond; a later attempt may succeed.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The database file is damaged, or another program or version wrote it.
    #[error("the store cannot be read: {0}")]
    Damaged(String),
    /// A record cannot be read or written; others can.
    #[error("the store cannot be read: {0}")]
    Unreadable(String),
    /// A bug in the engine or in a supplied part. The session is stopped until it is opened again.
    #[error("session {session} failed: {reason}")]
    SessionFailed {
        /// The session that failed.
        session: SessionId,
        /// The message of the panic.
        reason: String,
    },
}

/// A message that any process may post, also without the lease.
#[derive(Debug, Clone, PartialEq)]
pub enum InboxMessage {
    /// A prompt to queue.
    Prompt {
        /// The prompt. Its thread must exist unless `new_thread` is set.
        prompt: Box<QueuedPrompt>,
        /// The thread to create if the session has none with its key. If it has one, the prompt is
        /// queued there.
        new_thread: Option<Box<Thread>>,
    },
    /// A decision.
    Resolve {
        /// The gate that it resolves.
        gate: GateId,
        /// The answer.
        resolution: Resolution,
    },
    /// A command to the host that runs the session.
    Command(SessionCommand),
}

impl InboxMessage {
    /// A prompt to an existing thread.
    pub fn prompt(prompt: QueuedPrompt) -> Self {
        Self::Prompt {
            prompt: Box::new(prompt),
            new_thread: None,
        }
    }
}

/// A command to the host that runs a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCommand {
    /// Id of the command; posting the same id again has no effect.
    pub id: CommandId,
    /// One thread, or all threads of the session.
    pub thread: Option<ThreadId>,
    /// What to do.
    pub kind: CommandKind,
}

impl SessionCommand {
    /// Creates a command for one thread, or for all.
    pub fn new(thread: Option<ThreadId>, kind: CommandKind) -> Self {
        Self {
            id: CommandId::new(),
            thread,
            kind,
        }
    }
}

/// What a command does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// Abort the running turn and clear the queue.
    Abort,
    /// Start nothing more.
    Pause,
    /// Start again.
    Resume,
    /// Remove a waiting prompt from the queue. One that has started is not affected.
    WithdrawPrompt {
        /// The prompt.
        prompt: PromptId,
    },
    /// Change what the agent of the session may do without asking.
    SetPermissionMode {
        /// The new mode.
        mode: PermissionMode,
    },
    /// Withdraw a pending gate. The tool that opened it gets an error, and the turn continues.
    WithdrawGate {
        /// The gate.
        gate: GateId,
        /// The cause, for the tool.
        reason: String,
    },
}

/// Result of a post.
#[derive(Debug, Clone, PartialEq)]
pub enum PostOutcome {
    /// The message is stored.
    Written,
    /// The same message was stored before.
    Duplicate,
    /// The gate was already resolved differently.
    Conflict(Resolution),
    /// The gate was withdrawn or has expired.
    GateClosed(GateStatus),
}

/// The state of a session that a host needs to continue it; the history is loaded on demand.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSnapshot {
    /// The session itself.
    pub session: Session,
    /// Threads, oldest first.
    pub threads: Vec<Thread>,
    /// Waiting and running prompts, in queue order.
    pub prompts: Vec<QueuedPrompt>,
    /// Gates of those prompts, closed ones included.
    pub gates: Vec<Gate>,
    /// Sequence number of the last event.
    pub sequence: u64,
}

/// A process that holds the lease of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The session it holds.
    pub session: SessionId,
    /// Name of its host.
    pub host: String,
    /// The process, unless the store is in memory.
    pub process: Option<ProcessRef>,
}

/// Selects sessions, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only sessions of this user.
    pub user: Option<String>,
    /// Only children of this session.
    pub parent: Option<SessionId>,
    /// Only sessions whose id starts or ends with this text.
    pub id_part: Option<String>,
    /// Only sessions created before this one.
    pub before: Option<SessionId>,
    /// Maximum number of sessions.
    pub limit: usize,
}

/// Stores sessions durably.
///
/// The holder of a session's lease writes through [`commit`](Self::commit), which is atomic,
/// durable when it returns, and refused if the lease was lost. Commits of one session are
/// applied in the order of the calls. Other processes write through [`post`](Self::post); the
/// holder is notified by [`subscribe_posts`](Self::subscribe_posts).
pub trait SessionStore: Send + Sync + 'static {
    /// Claims the lease of a session, whether or not the session exists.
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease>;

    /// Releases a lease. Releasing a lost lease is no error.
    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()>;

    /// The live holder of a session's lease, or of all leases.
    fn holders<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Holder>>;

    /// Commits a batch and returns the sequence number of the session's last event.
    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64>;

    /// Stores a message for the lease holder.
    fn post<'a>(
        &'a self,
        session: &'a SessionId,
        post: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome>;

    /// Notifies of sessions that any process or caller has posted to, and of existing sessions
    /// that were claimed or released.
    fn subscribe_posts(&self) -> broadcast::Receiver<SessionId>;

    /// Notifies when another process may have committed to any session, for subscribers that
    /// read the store.
    fn subscribe_commits(&self) -> watch::Receiver<()>;

    /// Commands not yet completed, oldest first. Each stays until a commit
    /// [completes](rye_protocol::Op::CompleteCommand) it.
    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>>;

    /// The state needed to continue a session; `None` if it does not exist.
    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>>;

    /// A session without what belongs to it; `None` if it does not exist.
    fn session<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Session>>;

    /// Everything stored for a session; `None` if it does not exist.
    fn archive<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Archive>>;

    /// A prompt of a session, waiting, running or finished; `None` if it does not exist.
    fn prompt<'a>(
        &'a self,
        session: &'a SessionId,
        prompt: &'a PromptId,
    ) -> StoreFuture<'a, Option<QueuedPrompt>>;

    /// Sessions without a live holder that have something to do: commands, prompts that do not
    /// wait for a decision, or a pending gate whose deadline is not after `before`. Without runs
    /// and graphs. Tasks are included; their parent runs them.
    fn due(&self, before: Millis) -> StoreFuture<'_, Vec<SessionId>>;

    /// Lists sessions, newest first. An unreadable session is listed with status `error` and the
    /// [reason](Session::unreadable).
    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>>;

    /// The entries from the first one to `leaf`.
    fn path<'a>(&'a self, session: &'a SessionId, leaf: &'a EntryId)
    -> StoreFuture<'a, Vec<Entry>>;

    /// Entries of a thread in commit order, starting after `after`.
    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Entry>>;

    /// An entry of a session; `None` if it does not exist.
    fn entry<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Option<Entry>>;

    /// Looks up a gate.
    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>>;

    /// The places where a gate is shown, first one first.
    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>>;

    /// Pending gates of one session or of all, oldest first.
    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>>;

    /// Pending gates of a session and its descendants, oldest first.
    fn pending_gates_in_tree<'a>(&'a self, root: &'a SessionId) -> StoreFuture<'a, Vec<Gate>>;

    /// All gates of a session, open or closed, oldest first.
    fn gates<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Vec<Gate>>;

    /// Events with a sequence number above `after`, in order.
    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Event>>;

    /// Fails unless the store can be read and written.
    fn check(&self) -> StoreFuture<'_, ()>;

    /// Deletes sessions with all their data, in one transaction.
    fn remove<'a>(&'a self, leases: &'a [Lease]) -> StoreFuture<'a, ()>;
}

impl fmt::Debug for dyn SessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionStore")
    }
}
