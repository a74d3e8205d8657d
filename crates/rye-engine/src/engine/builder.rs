//! Builds an engine from its parts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lillux::keys::{PublicKey, SigningKey};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::event_stream::Watchers;
use super::{DecisionKeys, Engine, Inner, process_posts};
use crate::blob::BlobStore;
use crate::changes::Workspaces;
use crate::clock::{Clock, SystemClock};
use crate::compaction::Settings;
use crate::credential::{CredentialStore, Credentials, LoginProvider, Refresher};
use crate::documents::DocumentStore;
use crate::guides::Guides;
use crate::machine::CallLimits;
use crate::metrics::Metrics;
use crate::model::Models;
use crate::policy::Policy;
use crate::quotas::Quotas;
use crate::review::ReviewTool;
use crate::runner::ToolRegistry;
use crate::sandbox::{Sandbox, SandboxProvider, Sandboxes};
use crate::setup::{Setup, Setups};
use crate::store::SessionStore;
use crate::tool::Tool;
use lillux::redact::Redactor;

/// Default collect window.
const DEFAULT_COLLECT_WINDOW: Duration = Duration::from_secs(5);

/// Why an engine cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A required part is missing.
    #[error("an engine needs a {0}")]
    Missing(&'static str),
    /// A tool has an invalid definition.
    #[error("{0}")]
    Tool(String),
}

/// Builds an engine.
#[derive(Default)]
pub struct Builder {
    store: Option<Arc<dyn SessionStore>>,
    blobs: Option<Arc<dyn BlobStore>>,
    models: Option<Arc<dyn Models>>,
    sandboxes: Option<Arc<dyn SandboxProvider>>,
    clock: Option<Arc<dyn Clock>>,
    tools: Vec<Arc<dyn Tool>>,
    collect_window: Option<Duration>,
    compaction: Settings,
    guides: Option<Arc<dyn Guides>>,
    system: String,
    key: Option<Arc<SigningKey>>,
    decision_keys: Option<DecisionKeys>,
    credentials: Option<Arc<dyn CredentialStore>>,
    refresher: Option<Arc<dyn Refresher>>,
    logins: Option<Arc<dyn LoginProvider>>,
    redactor: Redactor,
    prompt_on_limit: bool,
    policy: Policy,
    calls: CallLimits,
    is_passive: bool,
    setups: Option<Arc<dyn Setups>>,
    quotas: Option<Arc<dyn DocumentStore>>,
}

impl Builder {
    /// Where sessions are stored; required.
    #[must_use]
    pub fn store(self, store: impl SessionStore) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// Like [`store`](Self::store), for engines of one process that share a store.
    #[must_use]
    pub fn shared_store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Where output too long for a model is stored; without it, that output is lost.
    #[must_use]
    pub fn blobs(mut self, blobs: impl BlobStore) -> Self {
        self.blobs = Some(Arc::new(blobs));
        self
    }

    /// The available models; required.
    #[must_use]
    pub fn models(mut self, models: impl Models) -> Self {
        self.models = Some(Arc::new(models));
        self
    }

    /// The sandbox that the tools of all sessions work in; this or
    /// [`sandbox_provider`](Self::sandbox_provider) is required.
    #[must_use]
    pub fn sandbox(self, sandbox: Arc<dyn Sandbox>) -> Self {
        self.sandbox_provider(sandbox)
    }

    /// Creates and opens a sandbox for each session.
    #[must_use]
    pub fn sandbox_provider(mut self, provider: impl SandboxProvider) -> Self {
        self.sandboxes = Some(Arc::new(provider));
        self
    }

    /// The clock; the system clock by default.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds tools, such as the built-in ones of `rye-tools`.
    #[must_use]
    pub fn tools(mut self, tools: Vec<Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// How long `collect` prompts are merged into one.
    #[must_use]
    pub fn collect_window(mut self, window: Duration) -> Self {
        self.collect_window = Some(window);
        self
    }

    /// When and how histories are compacted; see the [defaults](Settings).
    #[must_use]
    pub fn compaction(mut self, settings: Settings) -> Self {
        self.compaction = settings;
        self
    }

    /// Where roles, skills and rules are loaded from.
    #[must_use]
    pub fn guides(mut self, guides: Arc<dyn Guides>) -> Self {
        self.guides = Some(guides);
        self
    }

    /// The base system prompt.
    #[must_use]
    pub fn system(mut self, system: impl Into<String>) -> Self {
        self.system = system.into();
        self
    }

    /// The key that signs histories and decisions.
    #[must_use]
    pub fn sign_with(mut self, key: impl Into<Arc<SigningKey>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Acts only on decisions whose receipt verifies with a key that this function returns
    /// for the receipt's fingerprint. Without it, decisions need no signature.
    #[must_use]
    pub fn require_signed_decisions(
        mut self,
        keys: impl Fn(&str) -> Option<PublicKey> + Send + Sync + 'static,
    ) -> Self {
        self.decision_keys = Some(Arc::new(keys));
        self
    }

    /// Where credentials for tools are stored; without it, there are none.
    #[must_use]
    pub fn credentials(mut self, store: Arc<dyn CredentialStore>) -> Self {
        self.credentials = Some(store);
        self
    }

    /// Refreshes OAuth tokens.
    #[must_use]
    pub fn refresher(mut self, refresher: impl Refresher) -> Self {
        self.refresher = Some(Arc::new(refresher));
        self
    }

    /// Logins that the gates of missing credentials offer.
    #[must_use]
    pub fn logins(mut self, logins: impl LoginProvider) -> Self {
        self.logins = Some(Arc::new(logins));
        self
    }

    /// Secrets to redact from all output, in addition to the credentials in use.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Opens a gate when a limit is reached, instead of ending the turn.
    #[must_use]
    pub fn prompt_on_limit(mut self, is_enabled: bool) -> Self {
        self.prompt_on_limit = is_enabled;
        self
    }

    /// Which tool calls need approval: built-in tools in an unconfined sandbox, and tools that
    /// declare a risk.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Bounds on the tool calls of one answer.
    #[must_use]
    pub fn call_limits(mut self, limits: CallLimits) -> Self {
        self.calls = limits;
        self
    }

    /// Whether sessions run in this engine; true by default. Otherwise it only reads and writes
    /// records: it does not open sessions to process what is posted to them.
    #[must_use]
    pub fn runs_sessions(mut self, runs_sessions: bool) -> Self {
        self.is_passive = !runs_sessions;
        self
    }

    /// Applies the quotas that are stored in these documents.
    #[must_use]
    pub fn quotas(mut self, documents: Arc<dyn DocumentStore>) -> Self {
        self.quotas = Some(documents);
        self
    }

    /// Chooses another setup for the sessions of other projects.
    #[must_use]
    pub fn setups(mut self, setups: Arc<dyn Setups>) -> Self {
        self.setups = Some(setups);
        self
    }

    /// Builds only what the sessions of a project run with, for [`Setups`]: models, tools,
    /// sandboxes, credentials, policy, guides and settings. Other parts have no effect.
    pub fn setup(self) -> Result<Setup, BuildError> {
        let models = self.models.ok_or(BuildError::Missing("model"))?;
        let sandboxes = self.sandboxes.ok_or(BuildError::Missing("sandbox"))?;
        let mut tools = ToolRegistry::default();
        for tool in self.tools {
            tools.add(tool).map_err(BuildError::Tool)?;
        }
        let review = Arc::new(ReviewTool::default());
        tools.add(review).map_err(BuildError::Tool)?;
        let mut compaction = self.compaction;
        compaction.protected_tools.extend(tools.protected());
        Ok(Setup {
            models,
            credentials: Credentials::new(self.credentials, self.refresher, self.logins),
            tools: Arc::new(tools),
            sandboxes,
            policy: self.policy,
            redactor: self.redactor,
            calls: self.calls,
            compaction: Arc::new(compaction),
            guides: self.guides,
            prompt_on_limit: self.prompt_on_limit,
            system: self.system,
        })
    }

    /// Builds the engine. Must be called within a Tokio runtime.
    pub fn build(mut self) -> Result<Engine, BuildError> {
        let store = self.store.take().ok_or(BuildError::Missing("store"))?;
        let clock = self.clock.take();
        let clock = clock.unwrap_or_else(|| Arc::<SystemClock>::default());
        let quotas = self.quotas.take();
        let quotas = quotas.map(|documents| Quotas::new(documents, Arc::clone(&clock)));
        let inner = Arc::new(Inner {
            store,
            blobs: self.blobs.take(),
            setups: self.setups.take(),
            sandboxes: Sandboxes::default(),
            metrics: Arc::<Metrics>::default(),
            clock,
            quotas,
            collect_window: self.collect_window.unwrap_or(DEFAULT_COLLECT_WINDOW),
            key: self.key.take(),
            decision_keys: self.decision_keys.take(),
            open: Mutex::new(HashMap::new()),
            events_tx: crate::bus::feed_channel(),
            open_locks: Mutex::default(),
            workspaces: Workspaces::default(),
            runs_sessions: !self.is_passive,
            watchers: Watchers::default(),
            editors: Mutex::default(),
            shut_down: CancellationToken::new(),
            is_draining: AtomicBool::new(false),
            children: Arc::default(),
            setup: Arc::new(self.setup()?),
        });
        tokio::spawn(process_posts(
            Arc::downgrade(&inner),
            inner.store.subscribe_posts(),
        ));
        Ok(Engine { inner })
    }
}
