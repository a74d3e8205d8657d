//! The engine: creates and opens sessions, runs their threads, and routes decisions.

mod blobs;
mod budget;
mod builder;
mod compaction;
mod decide;
mod editors;
mod event_stream;
mod export;
mod failure;
mod inbox;
mod lifecycle;
mod prompt;
mod queries;
mod quiescence;
mod requests;
mod reviews;
mod session;
mod threads;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use lillux::keys::{PublicKey, SigningKey};
use parking_lot::Mutex;
use rye_protocol::{
    ActionId, BackgroundCommand, Batch, Entry, EventKind, Gate, GateId, Limits, Millis, Op,
    Purpose, Resolution, SandboxKind, SandboxRef, Session as SessionData, SessionId,
    SessionSettings, Thread,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::audit;
use crate::blob::BlobStore;
use crate::bus::{Bus, Feed, FeedNotice, Filter};
use crate::changes::Workspaces;
use crate::clock::Clock;
use crate::compaction::Settings;
use crate::guides::{Role, Skill};
use crate::metrics::Metrics;
use crate::model::ToolSpec;
use crate::quotas::Quotas;
use crate::runner::ToolRegistry;
use crate::sandbox::{
    EditorFiles, FileAccess, OpenSandbox, Sandbox, SandboxError, SandboxSpec, Sandboxes,
};
use crate::setup::{InvalidSession, Setup, Setups};
use crate::store::{Claim, Lease, SessionFilter, SessionStore, StoreError};
use lillux::redact::Redactor;

pub(crate) use budget::{Budget, ParentBudget};
pub use builder::{BuildError, Builder};
pub use editors::EditorAttachment;
pub use event_stream::EventStream;
use event_stream::Watchers;
use lifecycle::check_same;
pub use prompt::{Answer, Prompt, ThreadView};
pub use requests::WithdrawError;
pub use reviews::ReviewSwitch;
pub use session::Session;
pub use threads::{ThreadChange, ThreadSettings};
pub use upkeep::Upkeep;

/// Delay before an unavailable store is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Runs agent sessions.
///
/// Cheap to clone; all clones share one engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

impl From<Arc<Inner>> for Engine {
    fn from(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

/// Returns the public key of a fingerprint whose decisions are accepted.
pub(crate) type DecisionKeys = Arc<dyn Fn(&str) -> Option<PublicKey> + Send + Sync>;

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) blobs: Option<Arc<dyn BlobStore>>,
    /// What sessions run with, unless `setups` knows better.
    pub(crate) setup: Arc<Setup>,
    setups: Option<Arc<dyn Setups>>,
    sandboxes: Sandboxes,
    pub(crate) clock: Arc<dyn Clock>,
    collect_window: Duration,
    key: Option<Arc<SigningKey>>,
    /// If set, the engine acts only on decisions that one of these keys signed.
    decision_keys: Option<DecisionKeys>,
    pub(crate) metrics: Arc<Metrics>,
    open: Mutex<HashMap<SessionId, Session>>,
    /// Locks that serialise opening a session.
    open_locks: Mutex<HashMap<SessionId, Weak<tokio::sync::Mutex<()>>>>,
    /// Channel for subscribers to all sessions.
    events_tx: tokio::sync::broadcast::Sender<FeedNotice>,
    /// What the workspaces of the open sessions contain.
    pub(crate) workspaces: Workspaces,
    /// Whether sessions may be opened here to process what was posted to them.
    runs_sessions: bool,
    /// Streams that follow a session.
    watchers: Watchers,
    /// Editors whose files the tools of a session use.
    pub(crate) editors: Mutex<HashMap<SessionId, Arc<dyn EditorFiles>>>,
    shut_down: CancellationToken,
    /// Whether no more work is started, because the process ends.
    is_draining: AtomicBool,
    /// Limits of the owners of sessions.
    pub(crate) quotas: Option<Quotas>,
    /// Locked while a child session is created or closed.
    children: Arc<tokio::sync::Mutex<()>>,
}

impl Inner {
    fn is_shut_down(&self) -> bool {
        self.shut_down.is_cancelled()
    }

    /// Verifies the receipt of a decision if the engine requires one; the error is the reason.
    pub(crate) fn check_signature(
        &self,
        gate: &Gate,
        resolution: &Resolution,
    ) -> Result<(), String> {
        let Some(keys) = &self.decision_keys else {
            return Ok(());
        };
        if audit::check_receipt(gate, resolution, |name| keys(name))? {
            Ok(())
        } else {
            Err("the decision is not signed".to_owned())
        }
    }
}

/// State shared by all threads of a session.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) lease: Lease,
    pub(crate) setup: Arc<Setup>,
    /// The tools of this session.
    pub(crate) tools: Arc<ToolRegistry>,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) collect_window: Duration,
    /// When and how histories are compacted.
    pub(crate) compaction: Arc<Settings>,
    /// Default role of the threads.
    pub(crate) role: Option<String>,
    /// Default model of the threads.
    pub(crate) model: String,
    pub(crate) bus: Bus,
    /// Cancelled when the session is closed here or lost to another host.
    pub(crate) closed: CancellationToken,
    failure: Mutex<Option<StoreError>>,
    paused: AtomicBool,
    pub(crate) budget: Arc<Budget>,
    pub(crate) metrics: Arc<Metrics>,
    /// The stored session data.
    pub(crate) data: Mutex<Arc<SessionData>>,
    /// Locked while the session data is written, so that updates are not lost.
    pub(crate) writing: tokio::sync::Mutex<()>,
    /// The key that signs histories.
    pub(crate) key: Option<Arc<SigningKey>>,
    /// Hash of the session's last seal.
    pub(crate) last_seal: Mutex<Option<String>>,
    /// Commands that run in the background of this process.
    pub(crate) background: Mutex<Vec<BackgroundCommand>>,
    pub(crate) engine: Weak<Inner>,
}

impl Shared {
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Hash of the session's last seal.
    pub(crate) fn last_seal(&self) -> Option<String> {
        self.last_seal.lock().clone()
    }

    /// Records the hash of a committed seal.
    pub(crate) fn set_last_seal(&self, hash: &str) {
        *self.last_seal.lock() = Some(hash.to_owned());
    }

    /// A seal event for the rows that a batch writes outside of any thread's history.
    pub(crate) fn seal_rows(&self, batch: &Batch) -> Option<Op> {
        let key = self.key.as_ref()?;
        let (session, now) = (&self.lease.session, self.clock.now());
        let kind = audit::seal_rows(session, &batch.ops, now, key);
        Some(Op::Event(None, Arc::new(kind)))
    }

    /// The current session data.
    pub(crate) fn data(&self) -> Arc<SessionData> {
        Arc::clone(&self.data.lock())
    }

    /// Replaces the session data after a commit.
    pub(crate) fn set_data(&self, data: Arc<SessionData>) {
        *self.data.lock() = data;
    }

    /// Stops all threads because the session can no longer be written.
    fn stop(&self, error: &StoreError) {
        self.set_failure(error);
        self.closed.cancel();
    }

    fn set_failure(&self, error: &StoreError) {
        *self.failure.lock() = Some(error.clone());
    }

    pub(crate) fn check_failure(&self) -> Result<(), StoreError> {
        match &*self.failure.lock() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// Parameters of a new session.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// Id chosen by the caller; creating the same id again opens the existing session.
    pub id: Option<SessionId>,
    /// Owner of the session.
    pub user_id: Option<String>,
    /// Organisation of the owner.
    pub org_id: Option<String>,
    /// Directory that the session is about.
    pub workspace: Option<String>,
    /// Project that the session belongs to.
    pub project: Option<String>,
    /// What the session is for.
    pub purpose: Purpose,
    /// Default model of its threads.
    pub model: Option<String>,
    /// Default role of its threads.
    pub role: Option<String>,
    /// System prompt instead of the base system prompt.
    pub system: Option<String>,
    /// Tools, failover and compaction, where they differ from the project's configuration.
    pub settings: SessionSettings,
    /// Kind of its sandbox; by default that of the project.
    pub sandbox_kind: Option<SandboxKind>,
    /// Whether changes are reviewed; by default as configured.
    pub review: Option<bool>,
    /// Whether servers continue it on their own after its process died.
    pub unattended: bool,
    /// Limits of the session, children included.
    pub limits: Limits,
    /// Its sandbox; created if there is none.
    pub sandbox: Option<OpenSandbox>,
    /// Data of the embedding application.
    pub metadata: serde_json::Map<String, Value>,
}

/// A person's answer to a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Id of the chosen action.
    pub action: ActionId,
    /// Additional value, such as text or edited arguments.
    pub value: Value,
    /// Name of the person.
    pub by: String,
    /// Channel through which the answer came.
    pub source: String,
}

impl Decision {
    /// A decision without an additional value.
    pub fn new(
        action: impl Into<ActionId>,
        by: impl Into<String>,
        source: impl Into<String>,
    ) -> Self {
        Self {
            action: action.into(),
            value: Value::Null,
            by: by.into(),
            source: source.into(),
        }
    }
}

fn action_list(actions: &[ActionId]) -> String {
    let actions: Vec<_> = actions.iter().map(ActionId::as_str).collect();
    actions.join(", ")
}

/// Why a decision is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// The gate does not exist.
    #[error("there is no gate {}", .0.short())]
    GateNotFound(GateId),
    /// The gate does not offer this action.
    #[error("gate {} has no action `{action}`; it has {}", .gate.short(), action_list(.actions))]
    UnknownAction {
        /// The gate that was answered.
        gate: GateId,
        /// The given action.
        action: ActionId,
        /// The actions that the gate offers.
        actions: Vec<ActionId>,
    },
    /// The answer contains a secret, which must not be stored in the session.
    #[error(
        "gate {} asks for a secret, which answers must not contain: store it in the vault and answer `provided`",
        .0.short()
    )]
    SecretInAnswer(GateId),
    /// The gate does not allow edited arguments.
    #[error("the arguments of gate {} cannot be edited", .0.short())]
    NotEditable(GateId),
    /// The edited arguments don't match the schema of the tool.
    #[error("the arguments for gate {} are invalid: {reason}", .gate.short())]
    InvalidArguments {
        /// The gate that was answered.
        gate: GateId,
        /// The validation errors.
        reason: String,
    },
    /// The answer to a limit gate is not a positive integer.
    #[error("gate {} needs an amount: a whole number above 0", .0.short())]
    InvalidAmount(GateId),
    /// The answer selects something that is not in the change set.
    #[error("gate {}: {reason}", .gate.short())]
    InvalidSelection {
        /// The gate that was answered.
        gate: GateId,
        /// The cause.
        reason: String,
    },
    /// The signature that came with the decision does not verify.
    #[error("gate {}: {reason}", .gate.short())]
    InvalidReceipt {
        /// The gate that was answered.
        gate: GateId,
        /// The cause.
        reason: String,
    },
    /// The store refused the decision.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// Starts building an engine.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Checks that a session can be created like this.
    pub async fn check_new_session(&self, new: &NewSession) -> Result<(), InvalidSession> {
        let id = new.id.clone().unwrap_or_else(SessionId::new);
        let data = session_data(id, new.clone(), None, self.inner.clock.now());
        let setup = self.inner.setup_of(&data).await;
        let setup = setup.map_err(InvalidSession::Setup)?;
        setup.check(new.model.as_deref(), &new.settings)
    }

    /// Checks that a model is available to a session; the error is the reason.
    pub async fn check_model_of(&self, session: &SessionData, name: &str) -> Result<(), String> {
        let setup = self.inner.setup_of(session).await?;
        setup.models.get(name).map(drop)
    }

    /// Checks that a model, or the default model, is available; the error is the reason.
    pub fn check_model(&self, name: Option<&str>) -> Result<(), String> {
        let models = &self.inner.setup.models;
        let name = name.map_or_else(|| models.default_name(), str::to_owned);
        models.get(&name).map(drop)
    }

    /// Creates the sandbox of a session that is about to be created.
    pub async fn create_sandbox(&self, spec: &SandboxSpec) -> Result<OpenSandbox, SandboxError> {
        let provider = &*self.inner.setup.sandboxes;
        self.inner.sandboxes.create(provider, spec).await
    }

    /// Opens the sandbox of a stored session. As long as the caller holds it,
    /// the session uses the same sandbox.
    pub async fn open_sandbox(&self, id: &SessionId) -> Result<Arc<dyn Sandbox>, StoreError> {
        let data = self.session_data(id).await?;
        let data = data.ok_or_else(|| StoreError::NotFound {
            kind: "session",
            id: id.to_string(),
        })?;
        let spec = SandboxSpec::default();
        let parts = Box::pin(self.inner.parts_of(&data, &spec)).await?;
        Ok(parts.opened.sandbox)
    }

    /// The sandbox with the files of a session; `None` if they were in memory and are gone.
    pub(crate) async fn sandbox_with_files(
        &self,
        id: &SessionId,
    ) -> Result<Option<Arc<dyn Sandbox>>, StoreError> {
        let sandbox = self.open_sandbox(id).await?;
        let is_gone = sandbox.confinement().files == FileAccess::Memory
            && self.inner.open_session(id).is_none();
        Ok((!is_gone).then_some(sandbox))
    }

    /// Secrets to redact from all output.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.inner.setup.redactor
    }

    /// Records that changes of files are undone. The next turn tells the model.
    pub(crate) async fn record_undo(
        &self,
        id: &SessionId,
        event: EventKind,
        paths: Vec<String>,
    ) -> Result<(), StoreError> {
        let event = Op::Event(None, Arc::new(event));
        let add = |data: &mut SessionData| {
            for path in paths {
                if !data.restored_files.contains(&path) {
                    data.restored_files.push(path);
                }
            }
        };
        match self.inner.open_session(id) {
            Some(session) => {
                session.change_data_with(Some(event), add).await?;
                session.shared().bus.notify_external_write();
                Ok(())
            }
            None => self.change_stored(id, Some(event), add).await,
        }
    }

    /// Lists the roles, sorted by name.
    pub async fn roles(&self, sandbox: &dyn Sandbox) -> Vec<Role> {
        match &self.inner.setup.guides {
            Some(guides) => guides.roles(sandbox).await,
            None => Vec::new(),
        }
    }

    /// Lists the skills, sorted by name.
    pub async fn skills(&self, sandbox: &dyn Sandbox) -> Vec<Skill> {
        match &self.inner.setup.guides {
            Some(guides) => guides.skills(sandbox).await,
            None => Vec::new(),
        }
    }

    /// Loads a role; the error is the reason.
    pub async fn role(&self, name: &str, sandbox: &dyn Sandbox) -> Result<Role, String> {
        match &self.inner.setup.guides {
            Some(guides) => guides.role(name, sandbox).await,
            None => Err(format!("unknown role `{name}`: this engine has no roles")),
        }
    }

    /// Loads a skill and fills in its variables; the error is the reason.
    pub async fn skill(
        &self,
        name: &str,
        variables: &BTreeMap<String, String>,
        sandbox: &dyn Sandbox,
    ) -> Result<String, String> {
        let Some(guides) = &self.inner.setup.guides else {
            return Err(format!("unknown skill `{name}`: this engine has no skills"));
        };
        let skill = guides.skill(name, sandbox).await?;
        skill.fill(variables)
    }

    /// Creates a session, or opens the existing one with the same id.
    pub async fn create_session(&self, new: NewSession) -> Result<Session, StoreError> {
        let id = new.id.clone().unwrap_or_else(SessionId::new);
        let inner = &self.inner;
        // Holds the sandbox until the session does.
        let sandbox = new.sandbox.clone();
        let reference = sandbox.as_ref().map(|it| it.reference.clone());
        let spec = SandboxSpec {
            workspace: None,
            kind: new.sandbox_kind,
            review: new.review,
        };
        let data = session_data(id, new, reference, inner.clock.now());
        Box::pin(inner.create_or_open(data, &spec, None)).await
    }

    /// Opens a stored session and continues it.
    pub async fn open_session(&self, id: &SessionId, claim: Claim) -> Result<Session, StoreError> {
        self.inner.open(id, claim, None).await
    }

    /// Live events of all open sessions, children included.
    pub fn feed(&self) -> Feed {
        self.feed_with(Filter::default())
    }

    /// Live events that match a filter.
    pub fn feed_with(&self, filter: Filter) -> Feed {
        Feed::new(&self.inner.events_tx, filter)
    }

    /// An open session.
    pub fn session(&self, id: &SessionId) -> Option<Session> {
        self.inner.open_session(id)
    }

    /// Durations and counts of the engine's work.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Lists stored sessions, newest first.
    pub async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionData>, StoreError> {
        self.inner.store.sessions(filter).await
    }

    /// The tools that agents with the default model have.
    pub fn tools(&self) -> Arc<[ToolSpec]> {
        let models = &self.inner.setup.models;
        let family = models.family(&models.default_name());
        self.inner.setup.tools.specs(family)
    }

    /// The public key that verifies the engine's signatures.
    pub fn public_key(&self) -> Option<&lillux::keys::PublicKey> {
        self.inner.key.as_ref().map(|key| key.public())
    }

    /// The threads of a stored session with their entries.
    pub async fn history(&self, id: &SessionId) -> Result<Vec<(Thread, Vec<Entry>)>, StoreError> {
        let store = &self.inner.store;
        let record = store
            .snapshot(id)
            .await?
            .ok_or_else(|| StoreError::NotFound {
                kind: "session",
                id: id.to_string(),
            })?;
        let mut threads = Vec::new();
        for thread in record.threads {
            let entries = store.entries(id, &thread.id, None, usize::MAX).await?;
            threads.push((thread, entries));
        }
        Ok(threads)
    }

    /// Deletes a session and its children, unless another host has one of them open. Also deletes
    /// their blobs, except those that other sessions use or that are less than an hour old.
    pub async fn remove_session(&self, id: &SessionId) -> Result<(), StoreError> {
        let store = &self.inner.store;
        let mut leases = Vec::new();
        if let Err(error) = self.claim_tree(id, &mut leases).await {
            for lease in &leases {
                store.release(lease).await?;
            }
            return Err(error);
        }
        let mut blobs = BTreeSet::new();
        for lease in &leases {
            blobs.extend(self.inner.blobs_of(&lease.session).await?);
        }
        let sandboxes = self.sandboxes_of(&leases).await?;
        store.remove(&leases).await?;
        for reference in sandboxes {
            // The session is gone, so files that remain are harmless.
            if let Err(error) = self.inner.setup.sandboxes.destroy(&reference).await {
                tracing::warn!(%error, "cannot remove the sandbox of a removed session");
            }
        }
        for lease in &leases {
            // A crash before this leaves sealed credentials of a session that no longer exists.
            let removed = self
                .inner
                .setup
                .credentials
                .remove_session(&lease.session)
                .await;
            removed.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        }
        self.inner.collect_blobs(blobs).await
    }

    /// The sandboxes of claimed sessions.
    async fn sandboxes_of(&self, leases: &[Lease]) -> Result<Vec<SandboxRef>, StoreError> {
        let mut all = Vec::new();
        for lease in leases {
            let data = self.session_data(&lease.session).await?;
            all.extend(data.and_then(|data| data.sandbox));
        }
        all.dedup_by(|a, b| a.id == b.id);
        Ok(all)
    }

    /// Claims a session and its descendants, so that no more are created.
    async fn claim_tree(&self, id: &SessionId, leases: &mut Vec<Lease>) -> Result<(), StoreError> {
        if let Some(open) = self.session(id) {
            open.close().await?;
        }
        let store = &self.inner.store;
        leases.push(store.claim(id, Claim::IfFree).await?);
        for child in store.sessions(lifecycle::children_of(id)).await? {
            Box::pin(self.claim_tree(&child.id, leases)).await?;
        }
        Ok(())
    }

    /// Pending gates, without those that have passed their deadline.
    pub async fn pending_gates(
        &self,
        session: Option<&SessionId>,
    ) -> Result<Vec<Gate>, StoreError> {
        let gates = self.inner.store.pending_gates(session).await?;
        Ok(self.unexpired(gates))
    }

    /// The gates that have not passed their deadline.
    fn unexpired(&self, mut gates: Vec<Gate>) -> Vec<Gate> {
        let now = self.inner.clock.now();
        gates.retain(|gate| gate.expires_at.is_none_or(|until| now < until));
        gates
    }

    /// Closes all sessions. Unfinished turns continue where the sessions are opened next.
    pub async fn shutdown(&self) -> Result<(), StoreError> {
        self.inner.shut_down.cancel();
        let sessions = {
            let mut open = self.inner.open.lock();
            let mut sessions: Vec<_> = open.values().cloned().collect();
            // Stop all sessions before closing any, parents first: a parent still running would see
            // the end of its task's session as the end of the task.
            sessions.sort_by_key(|session| session.data().depth);
            for session in &sessions {
                session.shared().closed.cancel();
            }
            open.clear();
            sessions
        };
        for session in sessions {
            session.close().await?;
        }
        self.inner.watchers.notify_all();
        match &self.inner.quotas {
            Some(quotas) => quotas.release_all().await,
            None => Ok(()),
        }
    }

    /// The quotas of users and organisations, if the engine applies any.
    pub fn quotas(&self) -> Option<&Quotas> {
        self.inner.quotas.as_ref()
    }
}

/// Processes posts to open sessions until the engine is dropped.
async fn process_posts(inner: Weak<Inner>, mut posts: tokio::sync::broadcast::Receiver<SessionId>) {
    use tokio::sync::broadcast::error::RecvError;
    loop {
        let ids = match posts.recv().await {
            Ok(id) => Some(id),
            Err(RecvError::Lagged(_)) => None,
            Err(RecvError::Closed) => return,
        };
        let Some(inner) = inner.upgrade() else {
            return;
        };
        match &ids {
            Some(id) => inner.watchers.notify(id),
            None => inner.watchers.notify_all(),
        }
        let open = {
            let open = inner.open.lock();
            let is_selected = |session: &&Session| ids.as_ref().is_none_or(|id| session.id() == id);
            open.values()
                .filter(is_selected)
                .cloned()
                .collect::<Vec<_>>()
        };
        for session in open {
            let mut drained = session.drain_inbox().await;
            while let Err(StoreError::Unavailable(_)) = drained {
                tokio::time::sleep(RETRY_DELAY).await;
                drained = session.drain_inbox().await;
            }
            if let Err(error) = drained {
                session.shared().fail(None, &error).await;
            }
        }
    }
}

fn session_data(
    id: SessionId,
    new: NewSession,
    sandbox: Option<SandboxRef>,
    now: Millis,
) -> SessionData {
    SessionData {
        user_id: new.user_id,
        org_id: new.org_id,
        workspace: new.workspace,
        sandbox,
        model: new.model,
        role: new.role,
        system: new.system,
        settings: new.settings,
        unattended: new.unattended,
        project: new.project,
        limits: new.limits,
        metadata: new.metadata,
        ..SessionData::new(id, new.purpose, now)
    }
}
