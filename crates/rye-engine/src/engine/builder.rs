//! An engine put together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lillux::keys::{PublicKey, SigningKey};

use super::{DecisionKeys, Engine, Inner, look_after};
use crate::blob::BlobStore;
use crate::builtin::Skill;
use crate::clock::{Clock, SystemClock};
use crate::compaction::Settings;
use crate::credential::{CredentialStore, Credentials, Refresher};
use crate::guides::Guides;
use crate::machine::CallLimits;
use crate::meta_tools::Policy;
use crate::metrics::Metrics;
use crate::model::Models;
use crate::runner::Toolbox;
use crate::sandbox::{Measured, Sandbox};
use crate::store::SessionStore;
use crate::tool::Tool;
use lillux::redact::Redactor;

/// How long prompts are collected where nobody says otherwise.
const COLLECT: Duration = Duration::from_secs(5);

/// Why an engine cannot be put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Something that it cannot do without.
    #[error("an engine needs a {0}")]
    Missing(&'static str),
    /// A tool that nobody could call.
    #[error("{0}")]
    Tool(String),
}

/// What an engine is put together from.
#[derive(Default)]
pub struct Builder {
    store: Option<Arc<dyn SessionStore>>,
    blobs: Option<Arc<dyn BlobStore>>,
    models: Option<Arc<dyn Models>>,
    sandbox: Option<Arc<dyn Sandbox>>,
    clock: Option<Arc<dyn Clock>>,
    tools: Vec<Arc<dyn Tool>>,
    collect: Option<Duration>,
    compaction: Settings,
    guides: Option<Arc<dyn Guides>>,
    system: String,
    key: Option<SigningKey>,
    decision_keys: Option<DecisionKeys>,
    credentials: Option<Arc<dyn CredentialStore>>,
    refresher: Option<Arc<dyn Refresher>>,
    redactor: Redactor,
    asks_for_more: bool,
    policy: Policy,
    calls: CallLimits,
}

impl Builder {
    /// Where the record is kept.
    #[must_use]
    pub fn store(mut self, store: impl SessionStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Where output is kept that is too long for a model. Without it, that is gone.
    #[must_use]
    pub fn blobs(mut self, blobs: impl BlobStore) -> Self {
        self.blobs = Some(Arc::new(blobs));
        self
    }

    /// Who answers.
    #[must_use]
    pub fn models(mut self, models: impl Models) -> Self {
        self.models = Some(Arc::new(models));
        self
    }

    /// Where tools work.
    #[must_use]
    pub fn sandbox(mut self, sandbox: Arc<dyn Sandbox>) -> Self {
        self.sandbox = Some(sandbox);
        self
    }

    /// What time it is; the machine's clock unless given.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// With one more tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// With more tools, such as the [built-in](crate::builtin::tools) ones.
    #[must_use]
    pub fn tools(mut self, tools: Vec<Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// How long prompts are collected.
    #[must_use]
    pub fn collect_window(mut self, window: Duration) -> Self {
        self.collect = Some(window);
        self
    }

    /// When and how histories are summed up; as the [defaults](Settings) say unless given.
    #[must_use]
    pub fn compaction(mut self, settings: Settings) -> Self {
        self.compaction = settings;
        self
    }

    /// Where roles, skills and rules are found. The tool `skill` comes with it.
    #[must_use]
    pub fn guides(mut self, guides: impl Guides) -> Self {
        let guides: Arc<dyn Guides> = Arc::new(guides);
        self.tools.push(Arc::new(Skill::new(Arc::clone(&guides))));
        self.guides = Some(guides);
        self
    }

    /// What holds before anything is said.
    #[must_use]
    pub fn system(mut self, system: impl Into<String>) -> Self {
        self.system = system.into();
        self
    }

    /// Who signs histories at the ends of turns, and decisions.
    #[must_use]
    pub fn sign_with(mut self, key: SigningKey) -> Self {
        self.key = Some(key);
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

    /// Where keys and passwords for tools are kept. Without it, there are none.
    #[must_use]
    pub fn credentials(mut self, store: Arc<dyn CredentialStore>) -> Self {
        self.credentials = Some(store);
        self
    }

    /// Who renews tokens that end.
    #[must_use]
    pub fn refresher(mut self, refresher: impl Refresher) -> Self {
        self.refresher = Some(Arc::new(refresher));
        self
    }

    /// What nobody is to see in what tools give, beside the credentials that they use.
    #[must_use]
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Asks a person for more when a limit is reached, rather than end there.
    #[must_use]
    pub fn prompt_on_limit(mut self, asks: bool) -> Self {
        self.asks_for_more = asks;
        self
    }

    /// What tools may do without asking: built-in ones where nothing confines them, and
    /// others that say how risky they are.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How many tool calls of one answer are run, and how many of them at once.
    #[must_use]
    pub fn call_limits(mut self, limits: CallLimits) -> Self {
        self.calls = limits;
        self
    }

    /// Puts it together. Must be called within a Tokio runtime.
    pub fn build(self) -> Result<Engine, BuildError> {
        let store = self.store.ok_or(BuildError::Missing("store"))?;
        let models = self.models.ok_or(BuildError::Missing("model"))?;
        let metrics = Arc::<Metrics>::default();
        let sandbox = self.sandbox.ok_or(BuildError::Missing("sandbox"))?;
        let mut tools = Toolbox::default();
        for tool in self.tools {
            tools.add(tool, &*sandbox).map_err(BuildError::Tool)?;
        }
        let mut compaction = self.compaction;
        compaction.protected_tools.extend(tools.protected());
        let sandbox = Measured {
            inner: sandbox,
            metrics: Arc::clone(&metrics),
        };
        let inner = Arc::new(Inner {
            store,
            blobs: self.blobs,
            models,
            sandbox: Arc::new(sandbox),
            metrics,
            clock: self.clock.unwrap_or_else(|| Arc::<SystemClock>::default()),
            tools: Arc::new(tools),
            credentials: Credentials::new(self.credentials, self.refresher),
            redactor: self.redactor,
            asks_for_more: self.asks_for_more,
            policy: self.policy,
            calls: self.calls,
            collect: self.collect.unwrap_or(COLLECT),
            compaction: Arc::new(compaction),
            guides: self.guides,
            system: self.system,
            key: self.key.map(Arc::new),
            decision_keys: self.decision_keys,
            open: Mutex::new(HashMap::new()),
            told: crate::bus::all(),
            doors: Mutex::default(),
            children: Arc::default(),
        });
        tokio::spawn(look_after(
            Arc::downgrade(&inner),
            inner.store.subscribe_posts(),
        ));
        Ok(Engine { inner })
    }
}
