//! Where the record is kept: the one trait through which anything is written.

use std::fmt;

use rye_protocol::{
    Archive, Batch, CommandId, Entry, EntryId, Event, Gate, GateId, GateRef, GateStatus,
    QueuedPrompt, Resolution, Session, SessionId, SuspendedTurn, Thread, ThreadId,
};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::BoxFuture;

/// What a store gives, some time.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The right to write a session, until somebody else takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Of which session.
    pub session: SessionId,
    /// Whoever takes it raises this; a commit of a lower one is refused.
    pub epoch: u64,
}

/// How a session is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Only if nobody who is alive has it.
    IfFree,
    /// From whoever has it: what they write from now on is refused.
    TakeOver,
}

/// Why something was not stored or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else has taken the session: nothing was written.
    #[error("session {0} was taken over by another host")]
    Fenced(SessionId),
    /// Somebody who is alive has it.
    #[error("session {session} is in use by {holder}")]
    InUse {
        /// Which.
        session: SessionId,
        /// By whom.
        holder: String,
    },
    /// It names something that is not there: nothing was written.
    #[error("there is no {kind} {id}")]
    NotFound {
        /// What kind of thing.
        kind: &'static str,
        /// Which.
        id: String,
    },
    /// It is there already and is not the same: nothing was written.
    #[error("{kind} {id} is there already, and differs")]
    Conflict {
        /// What kind of thing.
        kind: &'static str,
        /// Which.
        id: String,
    },
    /// A gate has ended and is not changed again: nothing was written.
    #[error("gate {0} has ended")]
    GateClosed(GateId),
    /// The thread takes no prompts: nothing was written.
    #[error("thread {0} is archived and takes no prompts")]
    Archived(String),
    /// The session records a single call and takes no prompts: nothing was written.
    #[error("session {0} records a single call and takes no prompts")]
    SingleCall(SessionId),
    /// The disk is full, or the database does not answer: it may work later.
    #[error("the store cannot be used now: {0}")]
    Unavailable(String),
    /// What is stored cannot be understood: it was damaged, or written by a newer version.
    #[error("the store cannot be read: {0}")]
    Unreadable(String),
    /// A bug, of ours or of a part that the host brought: the session stands still until it
    /// is opened again.
    #[error("the session broke down: {0}")]
    SessionFailed(String),
}

/// Something that anybody may write, also without the lease.
#[derive(Debug, Clone, PartialEq)]
pub enum InboxMessage {
    /// A prompt that waits.
    Prompt(Box<QueuedPrompt>),
    /// A decision.
    Resolve {
        /// At which gate.
        gate: GateId,
        /// What.
        resolution: Resolution,
    },
    /// An order to whoever runs the session.
    Command(SessionCommand),
}

/// An order to whoever runs a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCommand {
    /// Its id: posted again, it is the one that is there.
    pub id: CommandId,
    /// To one thread, or to all.
    pub thread: Option<ThreadId>,
    /// What.
    pub kind: CommandKind,
}

impl SessionCommand {
    /// A new order, to one thread or to all.
    pub fn new(thread: Option<ThreadId>, kind: CommandKind) -> Self {
        Self {
            id: CommandId::new(),
            thread,
            kind,
        }
    }
}

/// What is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandKind {
    /// End what runs, and forget what waits.
    Abort,
    /// Begin nothing more.
    Pause,
    /// Begin again.
    Resume,
}

/// What came of a post.
#[derive(Debug, Clone, PartialEq)]
pub enum PostOutcome {
    /// It is written.
    Written,
    /// The same was written before.
    Duplicate,
    /// Another decision was made before: this.
    Conflict(Resolution),
    /// The gate was withdrawn or has expired: nobody waits for a decision.
    GateClosed(GateStatus),
}

/// All that is needed to go on with a session, but its history.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSnapshot {
    /// It.
    pub session: Session,
    /// Its threads, in the order in which they were made.
    pub threads: Vec<Thread>,
    /// What waits or runs, in order.
    pub prompts: Vec<QueuedPrompt>,
    /// The gates of what waits or runs, ended ones too.
    pub gates: Vec<Gate>,
    /// Turns that wait at gates.
    pub suspended: Vec<SuspendedTurn>,
    /// The number of the last event.
    pub sequence: u64,
}

/// Where the metadata of a session that is listed and cannot be read say why.
pub const UNREADABLE: &str = "unreadable";

/// Which sessions, and from where on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Of this user alone.
    pub user: Option<String>,
    /// Children of this session alone.
    pub parent: Option<SessionId>,
    /// Those made before this one.
    pub before: Option<SessionId>,
    /// At most so many, the newest first.
    pub limit: usize,
}

/// Where the record is kept.
///
/// [`commit`](Self::commit) is the one way in which whoever holds a session writes it: all
/// or nothing, durable when it returns, refused if the lease was lost. Commits of one
/// session are made in the order in which they are called. The other way in is
/// [`post`](Self::post), for those who do not hold it; whoever does is told by
/// [`posts`](Self::posts).
pub trait SessionStore: Send + Sync + 'static {
    /// Takes a session, there already or not.
    fn claim<'a>(&'a self, session: &'a SessionId, claim: Claim) -> StoreFuture<'a, Lease>;

    /// Gives it back. A lease that was lost is no error.
    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()>;

    /// Writes a batch and gives the number of the session's last event.
    fn commit<'a>(&'a self, lease: &'a Lease, batch: Batch) -> StoreFuture<'a, u64>;

    /// Writes what anybody may.
    fn post<'a>(
        &'a self,
        session: &'a SessionId,
        post: InboxMessage,
    ) -> StoreFuture<'a, PostOutcome>;

    /// Which sessions others have posted to, as it happens, in this process and in others.
    fn subscribe_posts(&self) -> broadcast::Receiver<SessionId>;

    /// Orders that were not carried out yet, the oldest first. Each stays until a commit
    /// [ends](rye_protocol::Op::CompleteCommand) it, so that none is lost on the way.
    fn pending_commands<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Vec<SessionCommand>>;

    /// All that is needed to go on; none if there is no such session.
    fn snapshot<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<SessionSnapshot>>;

    /// The session with all that belongs to it, ended or not; none if there is none.
    fn archive<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Option<Archive>>;

    /// Sessions, the newest first. One that cannot be read is among them, so that the others
    /// are found: its status is `error`, and its metadata say why under [`UNREADABLE`].
    fn sessions(&self, filter: SessionFilter) -> StoreFuture<'_, Vec<Session>>;

    /// From the first entry to this one.
    fn path<'a>(&'a self, session: &'a SessionId, leaf: &'a EntryId)
    -> StoreFuture<'a, Vec<Entry>>;

    /// Entries of a thread in the order in which they were written, from behind one on.
    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        thread: &'a ThreadId,
        after: Option<&'a EntryId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Entry>>;

    /// A gate.
    fn gate<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Option<Gate>>;

    /// Where a gate was shown, the first place first.
    fn gate_refs<'a>(&'a self, gate: &'a GateId) -> StoreFuture<'a, Vec<GateRef>>;

    /// Gates that wait for a decision, of one session or of all, the oldest first.
    fn pending_gates<'a>(&'a self, session: Option<&'a SessionId>) -> StoreFuture<'a, Vec<Gate>>;

    /// Events with numbers above one, in order.
    fn events<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<Event>>;

    /// Forgets sessions, each with all that belongs to it: all of them, or none.
    fn remove<'a>(&'a self, leases: &'a [Lease]) -> StoreFuture<'a, ()>;
}

impl fmt::Debug for dyn SessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionStore")
    }
}
