//! The engine: sessions opened, threads moved, decisions passed on.

mod blobs;
mod budget;
mod builder;
mod compaction;
mod copies;
mod fatal;
mod looking;
mod opening;
mod prompt;
mod rest;
mod session;
mod threads;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use lillux::keys::{PublicKey, SigningKey};
use rye_protocol::{
    Batch, Entry, Gate, GateId, GateKind, Limits, Millis, Op, Purpose, Resolution, SandboxId,
    SandboxRef, Session as SessionData, SessionId, SessionStatus, Thread, Usage,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::arguments;
use crate::audit;
use crate::blob::BlobStore;
use crate::bus::{Bus, Feed, Filter, ToAll};
use crate::clock::Clock;
use crate::compaction::Settings;
use crate::credential::Credentials;
use crate::guides::{Guides, Role};
use crate::machine::{CallLimits, is_no_amount};
use crate::meta_tools::Policy;
use crate::metrics::Metrics;
use crate::model::{Models, ToolSpec};
use crate::runner::{ROLE, Toolbox};
use crate::sandbox::Sandbox;
use crate::store::{
    Claim, InboxMessage, Lease, PostOutcome, SessionFilter, SessionStore, StoreError,
};
use lillux::redact::Redactor;

pub(crate) use budget::{Above, Budget};
pub use builder::{BuildError, Builder};
pub(crate) use fatal::BEFORE;
pub use prompt::{Answer, Prompt, ThreadView};
pub use session::Session;
pub use threads::{ThreadChange, ThreadSettings};

/// How long to wait before a store that does not answer is asked again.
const AGAIN: Duration = Duration::from_millis(200);

/// Runs sessions.
///
/// Cheap to clone: all clones are one engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

/// Finds the public key of a fingerprint whose decisions count.
pub(crate) type DecisionKeys = Arc<dyn Fn(&str) -> Option<PublicKey> + Send + Sync>;

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) blobs: Option<Arc<dyn BlobStore>>,
    models: Arc<dyn Models>,
    tools: Arc<Toolbox>,
    sandbox: Arc<dyn Sandbox>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) credentials: Credentials,
    pub(crate) policy: Policy,
    redactor: Redactor,
    calls: CallLimits,
    collect: Duration,
    compaction: Arc<Settings>,
    pub(crate) guides: Option<Arc<dyn Guides>>,
    asks_for_more: bool,
    system: String,
    key: Option<Arc<SigningKey>>,
    /// If set, the engine acts only on decisions that one of these keys signed.
    decision_keys: Option<DecisionKeys>,
    metrics: Arc<Metrics>,
    open: Mutex<HashMap<SessionId, Session>>,
    /// One for each session that somebody is opening.
    doors: Mutex<HashMap<SessionId, Weak<tokio::sync::Mutex<()>>>>,
    /// Whoever listens to all sessions.
    told: tokio::sync::broadcast::Sender<ToAll>,
    /// Held while a child is made or ended, so that none is left between the two.
    children: Arc<tokio::sync::Mutex<()>>,
}

impl Inner {
    /// Whether a decision carries the signature that the engine requires; if not, why.
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
            Err("it is not signed".to_owned())
        }
    }
}

/// What all threads of a session have in common.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) lease: Lease,
    pub(crate) models: Arc<dyn Models>,
    pub(crate) tools: Arc<Toolbox>,
    pub(crate) sandbox: Arc<dyn Sandbox>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) calls: CallLimits,
    pub(crate) collect: Duration,
    /// When and how histories are summed up.
    pub(crate) compaction: Arc<Settings>,
    pub(crate) guides: Option<Arc<dyn Guides>>,
    pub(crate) system: String,
    /// The role of threads that have none.
    pub(crate) role: Option<String>,
    /// The model of threads that name none.
    pub(crate) model: String,
    pub(crate) bus: Bus,
    /// Over: closed here, or lost to another host.
    pub(crate) closed: CancellationToken,
    lost: Mutex<Option<StoreError>>,
    paused: AtomicBool,
    pub(crate) budget: Arc<Budget>,
    pub(crate) metrics: Arc<Metrics>,
    /// What nobody is to see.
    pub(crate) redactor: Redactor,
    /// The session as it is written.
    pub(crate) data: Mutex<Arc<SessionData>>,
    /// Held while it is written, so that nobody writes an older one over it.
    pub(crate) writing: tokio::sync::Mutex<()>,
    /// Whether a person is asked for more when a limit is reached.
    pub(crate) asks_for_more: bool,
    /// Who signs histories.
    pub(crate) key: Option<Arc<SigningKey>>,
    /// The hash of the last seal under one of them.
    pub(crate) last_seal: Mutex<Option<String>>,
    pub(crate) engine: Weak<Inner>,
}

impl Shared {
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// The hash of the last seal under a history of this session.
    pub(crate) fn last_seal(&self) -> Option<String> {
        let last = self.last_seal.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A history was signed, and that is written down.
    pub(crate) fn sealed(&self, hash: &str) {
        let last = self.last_seal.lock();
        *last.unwrap_or_else(PoisonError::into_inner) = Some(hash.to_owned());
    }

    /// The event that seals what a batch writes outside of any thread's history.
    pub(crate) fn seal_rows(&self, batch: &Batch) -> Option<Op> {
        let key = self.key.as_ref()?;
        let (session, now) = (&self.lease.session, self.clock.now());
        let kind = audit::seal_rows(session, &batch.ops, now, key);
        Some(Op::Event(None, Arc::new(kind)))
    }

    /// The session as it is.
    pub(crate) fn data(&self) -> Arc<SessionData> {
        let data = self.data.lock();
        Arc::clone(&data.unwrap_or_else(PoisonError::into_inner))
    }

    /// The session is another now, and that is written down.
    pub(crate) fn put(&self, data: Arc<SessionData>) {
        let there = self.data.lock();
        *there.unwrap_or_else(PoisonError::into_inner) = data;
    }

    /// The record cannot be written any more: all threads stop where they are.
    fn lose(&self, error: &StoreError) {
        self.mark_lost(error);
        self.closed.cancel();
    }

    fn mark_lost(&self, error: &StoreError) {
        let lost = self.lost.lock();
        *lost.unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let lost = self.lost.lock();
        match &*lost.unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// A session to be made.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// Its id, where the caller has one: made again, it is the one that is there.
    pub id: Option<SessionId>,
    /// Whose it is.
    pub user_id: Option<String>,
    /// Whose organisation's.
    pub org_id: Option<String>,
    /// The folder it is about.
    pub workspace: Option<String>,
    /// What it is for.
    pub purpose: Purpose,
    /// The model of its threads.
    pub model: Option<String>,
    /// The role of its threads.
    pub role: Option<String>,
    /// How much it may use up.
    pub limits: Limits,
    /// What the host wants to remember.
    pub metadata: serde_json::Map<String, Value>,
}

/// A decision that a person makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The action.
    pub action: String,
    /// What they say beside it.
    pub value: Value,
    /// Who.
    pub by: String,
    /// By which way.
    pub source: String,
}

impl Decision {
    /// Somebody chooses an action, by some way, and says nothing beside it.
    pub fn new(
        action: impl Into<String>,
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

/// Why a decision does not count.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// There is no such gate.
    #[error("there is no gate {0}")]
    GateNotFound(GateId),
    /// It cannot be answered so.
    #[error("`{action}` is no answer to gate {gate}; there are {}", .actions.join(", "))]
    UnknownAction {
        /// The gate.
        gate: GateId,
        /// What was answered.
        action: String,
        /// What can be.
        actions: Vec<String>,
    },
    /// What is answered is written down, and a secret must not be.
    #[error(
        "gate {0} asks for a secret, which is not written into the record: put it into the vault and answer `provided`"
    )]
    SecretInAnswer(GateId),
    /// Other arguments were given for what cannot have others.
    #[error("what gate {0} asks about cannot be approved with other arguments")]
    NotEditable(GateId),
    /// How much there may be was not said in a number.
    #[error("gate {0} asks how much there may be, which is a whole number above 0")]
    InvalidAmount(GateId),
    /// The store does not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Engine {
    /// An engine to be put together.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// In words why a model cannot be asked, if it cannot; the default where none is named.
    pub fn check_model(&self, name: Option<&str>) -> Result<(), String> {
        let models = &self.inner.models;
        let name = name.map_or_else(|| models.default_name(), str::to_owned);
        models.get(&name).map(drop)
    }

    /// The role of a name; or in words why there is none.
    pub async fn role(&self, name: &str) -> Result<Role, String> {
        match &self.inner.guides {
            Some(guides) => guides.role(name, &*self.inner.sandbox).await,
            None => Err(format!("there is no role `{name}`: nobody has any here")),
        }
    }

    /// What a skill says, with its variables filled in; or in words why it cannot.
    pub async fn skill(
        &self,
        name: &str,
        variables: &BTreeMap<String, String>,
    ) -> Result<String, String> {
        let Some(guides) = &self.inner.guides else {
            return Err(format!("there is no skill `{name}`: nobody has any here"));
        };
        let skill = guides.skill(name, &*self.inner.sandbox).await?;
        skill.fill(variables)
    }

    /// Makes a session, or opens the one of the same id.
    pub async fn create_session(&self, new: NewSession) -> Result<Session, StoreError> {
        let id = new.id.clone().unwrap_or_else(SessionId::new);
        let inner = &self.inner;
        let data = session_data(id, new, inner.sandbox.kind(), inner.clock.now());
        inner.make(data, None).await
    }

    /// Opens a session that was written down, and goes on with it.
    pub async fn open_session(&self, id: &SessionId, claim: Claim) -> Result<Session, StoreError> {
        self.inner.open(id, claim, None).await
    }

    /// What happens in all sessions that are open here, children among them, live.
    pub fn feed(&self) -> Feed {
        self.feed_with(Filter::default())
    }

    /// The same, of what somebody wants to hear of.
    pub fn feed_with(&self, filter: Filter) -> Feed {
        Feed::new(&self.inner.told, filter)
    }

    /// The session of an id, if it is open here.
    pub fn session(&self, id: &SessionId) -> Option<Session> {
        self.inner.is_open(id)
    }

    /// How long things took here, and how often they happened.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Sessions that were written down, the newest first.
    pub async fn sessions(&self, filter: SessionFilter) -> Result<Vec<SessionData>, StoreError> {
        self.inner.store.sessions(filter).await
    }

    /// The tools that agents have here.
    pub fn tools(&self) -> Arc<[ToolSpec]> {
        self.inner.tools.specs()
    }

    /// The public key of whoever signs here.
    pub fn public_key(&self) -> Option<&lillux::keys::PublicKey> {
        self.inner.key.as_ref().map(|key| key.public())
    }

    /// The threads of a session with their entries, whether it is open or not.
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

    /// Forgets a session and all that belongs to it, unless another host has it: long output
    /// too, where no other session refers to it and it is not of the last hour.
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
        store.remove(&leases).await?;
        for lease in &leases {
            // What is left of it for a moment is sealed, and of a session that is not.
            let forgotten = self.inner.credentials.forget(&lease.session).await;
            forgotten.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        }
        self.inner.collect_blobs(blobs).await
    }

    /// Claims a session, and those below it: nobody makes more of them then.
    async fn claim_tree(&self, id: &SessionId, leases: &mut Vec<Lease>) -> Result<(), StoreError> {
        if let Some(open) = self.session(id) {
            open.close().await?;
        }
        let store = &self.inner.store;
        leases.push(store.claim(id, Claim::IfFree).await?);
        for child in store.sessions(opening::children_of(id)).await? {
            Box::pin(self.claim_tree(&child.id, leases)).await?;
        }
        Ok(())
    }

    /// Gates that wait for a decision. One whose time is up does not, also if nobody was there
    /// to see it expire.
    pub async fn pending_gates(
        &self,
        session: Option<&SessionId>,
    ) -> Result<Vec<Gate>, StoreError> {
        let mut gates = self.inner.store.pending_gates(session).await?;
        let now = self.inner.clock.now();
        gates.retain(|gate| gate.expires_at.is_none_or(|until| now < until));
        Ok(gates)
    }

    /// Makes a decision, whichever host runs the session, and also if none does. The first
    /// one holds.
    pub async fn decide(
        &self,
        gate: &GateId,
        decision: Decision,
    ) -> Result<PostOutcome, DecideError> {
        let store = &self.inner.store;
        let open = store.gate(gate).await?;
        let open = open.ok_or_else(|| DecideError::GateNotFound(gate.clone()))?;
        let actions: Vec<_> = open
            .actions
            .iter()
            .map(|action| action.id.clone())
            .collect();
        if !actions.is_empty() && !actions.contains(&decision.action) {
            return Err(DecideError::UnknownAction {
                gate: gate.clone(),
                action: decision.action,
                actions,
            });
        }
        if open.kind == GateKind::CredentialRequest && !decision.value.is_null() {
            return Err(DecideError::SecretInAnswer(gate.clone()));
        }
        let others = arguments::others(&decision.action, &decision.value);
        if others.is_some() && !arguments::is_editable(&open.context) {
            return Err(DecideError::NotEditable(gate.clone()));
        }
        if is_no_amount(&open, &decision.value) {
            return Err(DecideError::InvalidAmount(gate.clone()));
        }
        let mut resolution = Resolution {
            action: decision.action,
            value: decision.value,
            by: decision.by,
            at: self.inner.clock.now(),
            source: decision.source,
            receipt: None,
        };
        if let Some(key) = &self.inner.key {
            let receipt = audit::receipt(&open, &resolution, key);
            resolution.receipt = Some(Box::new(receipt));
        }
        let session = &open.origin.session;
        let gate = gate.clone();
        let posted = store
            .post(session, InboxMessage::Resolve { gate, resolution })
            .await?;
        if let Some(session) = self.session(session) {
            match session.look().await {
                // It is written. Whoever opens the session next finds it.
                Err(_) if !session.is_open() => {}
                looked => looked?,
            }
        }
        Ok(posted)
    }

    /// Stops all threads where they are and gives the sessions back. What was written
    /// goes on where it is opened next.
    pub async fn shutdown(&self) -> Result<(), StoreError> {
        let sessions = {
            let open = self.inner.open.lock();
            let mut open = open.unwrap_or_else(PoisonError::into_inner);
            let mut sessions: Vec<_> = open.values().cloned().collect();
            // All stop before any is closed, and those above their tasks first: to whoever
            // still worked, the end of a task's session would be the end of the task.
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
        Ok(())
    }
}

/// Looks after sessions that others have posted to, as long as the engine is there.
async fn look_after(inner: Weak<Inner>, mut posts: tokio::sync::broadcast::Receiver<SessionId>) {
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
        let open = {
            let open = inner.open.lock();
            let open = open.unwrap_or_else(PoisonError::into_inner);
            let wanted = |session: &&Session| ids.as_ref().is_none_or(|id| session.id() == id);
            open.values().filter(wanted).cloned().collect::<Vec<_>>()
        };
        for session in open {
            let mut looked = session.look().await;
            while let Err(StoreError::Unavailable(_)) = looked {
                tokio::time::sleep(AGAIN).await;
                looked = session.look().await;
            }
            if let Err(error) = looked {
                session.shared().break_down(None, &error).await;
            }
        }
    }
}

fn session_data(id: SessionId, new: NewSession, sandbox: &str, now: Millis) -> SessionData {
    let mut metadata = new.metadata;
    if let Some(role) = new.role {
        metadata.insert(ROLE.to_owned(), role.into());
    }
    SessionData {
        id,
        user_id: new.user_id,
        org_id: new.org_id,
        workspace: new.workspace,
        purpose: new.purpose,
        status: SessionStatus::Running,
        sandbox: Some(SandboxRef {
            kind: sandbox.to_owned(),
            id: SandboxId::new(),
        }),
        snapshot_id: None,
        parent: None,
        depth: 0,
        model: new.model,
        limits: new.limits,
        usage: Usage::default(),
        metadata,
        created_at: now,
        updated_at: now,
    }
}
