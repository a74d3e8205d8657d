//! The bridge: any number of actions for the price of two tools.
//!
//! A model sees `list_tools` and `call_tool`, and nothing of the ten thousand actions
//! behind them until it looks. Each [source](ToolProvider) has a service name, and an
//! action is called `SERVICE:ID`. What a call does to the world is decided before it is
//! made, by a [policy](Policy) that is data: let it, ask a person, or refuse. A person who
//! approves is shown what exactly would run, and approves its hash: if it is another one
//! when it would run, they are asked again and told what changed.

mod call;
mod commands;
mod list;
mod policy;
mod question;

use std::any::Any;
use std::sync::Arc;

use rye_protocol::ErrorInfo;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::BoxFuture;
use crate::sandbox::Sandbox;
use crate::tool::{Effect, Tool, ToolContext, ToolOutput};

pub(crate) use call::resolve_target;
pub use commands::{CommandEntry, CommandSpec, CommandTools};
pub use policy::{LimitPolicy, Mode, Policy, Rule};
pub use question::{APPROVE, APPROVE_PROJECT, APPROVE_SESSION, DENY, DRIFT};

/// How much harm an action can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// None to speak of.
    Low,
    /// Some, which can be undone.
    Medium,
    /// Much.
    High,
    /// More than can be undone.
    Critical,
}

impl Risk {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// An action in a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ToolSummary {
    /// Its id within the service.
    pub id: String,
    /// What it does.
    pub description: String,
    /// The names of its parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
    /// How much harm it can do, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// Where it is from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<String>,
}

/// What a source has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolListing {
    /// The actions that fit best, the best first.
    pub tools: Vec<ToolSummary>,
    /// How many fit.
    pub total: usize,
    /// What a person should put right: a missing credential, for one.
    pub warnings: Vec<String>,
}

/// An action, as it would run now.
#[derive(Clone)]
pub struct ResolvedTool {
    /// Its id within the service.
    pub id: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its parameters.
    pub schema: Option<Value>,
    /// How much harm it can do, where that is known.
    pub risk: Option<Risk>,
    /// Where it is from.
    pub space: Option<String>,
    /// Whether it says itself that a person must approve it.
    pub requires_approval: bool,
    /// What may be done when its host died while it ran.
    pub effect: Effect,
    /// What is not as it was when somebody accepted it, in words: then a person is asked,
    /// whatever the policy lets.
    pub drift: Option<String>,
    /// The hash of all that would run.
    pub hash: String,
    /// The pieces of it, the action itself first.
    pub components: Vec<Component>,
    /// What its source wants to remember until it is called.
    pub handle: Arc<dyn Any + Send + Sync>,
}

/// What is known of a call with certain parameters before it is made.
#[derive(Clone)]
pub struct Review {
    /// Why a person must approve it, beside what the action says of itself.
    pub reasons: Vec<ReviewReason>,
    /// What its source wants to remember until it is called.
    pub handle: Arc<dyn Any + Send + Sync>,
}

impl Default for Review {
    fn default() -> Self {
        Self {
            reasons: Vec::new(),
            handle: Arc::new(()),
        }
    }
}

/// Why a person must approve a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewReason {
    /// The reason, in a line.
    pub text: String,
    /// Whether a rule of the policy may allow the call all the same.
    pub can_be_allowed_by_rule: bool,
    /// Whether it is about the action, whatever its parameters are: then an approval for the
    /// session or the project holds for the next call too.
    pub applies_to_all_params: bool,
}

/// One file of what would run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// The hash of its bytes.
    pub hash: String,
    /// Who vouches for it.
    pub signed_by: Option<String>,
}

/// Why an action has nothing to give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolProviderError {
    /// It is not what was approved any more: nothing ran.
    #[error("it has changed since it was approved")]
    Changed,
    /// It needs a key or a password that is not there.
    #[error("{service} needs a credential: {remedy}")]
    AuthRequired {
        /// Of which service.
        service: String,
        /// What a person does about it.
        remedy: String,
    },
    /// It failed, or cannot be run.
    #[error("{}", .0.message)]
    Failed(ErrorInfo),
}

/// Whether a person has approved something once and for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredApproval {
    /// They have.
    Granted,
    /// Nothing is known of it.
    NotGranted,
    /// They have, and it does not hold here: why, in a sentence for whoever is asked again.
    NotValidHere(String),
}

/// Where actions come from.
pub trait ToolProvider: Send + Sync + 'static {
    /// Its name, which stands before the ids of its actions.
    fn service(&self) -> &str;

    /// The folder of this machine that its actions work in, without links, where that is not
    /// the sandbox's. What a person approved in one folder is asked about again in another.
    fn working_dir(&self) -> Option<String> {
        None
    }

    /// What becomes of calls that no rule is about.
    fn default_mode(&self) -> Mode {
        Mode::Allow
    }

    /// What it has that fits some words; all, if there are none.
    fn list<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<ToolListing, ToolProviderError>>;

    /// An action as it would run now. Nothing is run.
    fn resolve<'a>(&'a self, id: &'a str)
    -> BoxFuture<'a, Result<ResolvedTool, ToolProviderError>>;

    /// Looks at what a call with these parameters would do. Nothing is run. The error is a
    /// call that no approval can allow.
    fn review<'a>(
        &'a self,
        _: &'a ResolvedTool,
        _params: &'a Value,
        _: &'a dyn Sandbox,
    ) -> BoxFuture<'a, Result<Review, ToolProviderError>> {
        Box::pin(std::future::ready(Ok(Review::default())))
    }

    /// Runs an action, if it is still the one that was prepared and reviewed.
    fn call<'a>(
        &'a self,
        prepared: &'a ResolvedTool,
        review: &'a Review,
        params: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolProviderError>>;

    /// A person has seen in what way it is not what was accepted, and accepts it.
    fn accept_drift<'a>(
        &'a self,
        _: &'a ResolvedTool,
    ) -> BoxFuture<'a, Result<(), ToolProviderError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether a person has approved it once and for all.
    fn stored_approval<'a>(&'a self, _: &'a ResolvedTool) -> BoxFuture<'a, StoredApproval> {
        Box::pin(std::future::ready(StoredApproval::NotGranted))
    }

    /// Whether an approval can be remembered once and for all.
    fn can_store_approval(&self) -> bool {
        false
    }

    /// Remembers that a person has approved it.
    fn store_approval<'a>(
        &'a self,
        _: &'a ResolvedTool,
        _by: &'a str,
    ) -> BoxFuture<'a, Result<(), ToolProviderError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The words of a query, in lower case, without those that say nothing; with them, where
/// there are no others.
pub fn query_terms(query: &str) -> Vec<String> {
    let all: Vec<_> = query.split_whitespace().map(str::to_lowercase).collect();
    let says = |word: &&String| !lillux::is_stop_word(word);
    let some: Vec<_> = all.iter().filter(says).cloned().collect();
    if some.is_empty() { all } else { some }
}

/// The two tools.
pub fn tools(sources: Vec<Arc<dyn ToolProvider>>, policy: Policy) -> Vec<Arc<dyn Tool>> {
    let bridge = Arc::new(Bridge { sources, policy });
    vec![
        Arc::new(call::CallTool::new(Arc::clone(&bridge))),
        Arc::new(list::ListTools::new(bridge)),
    ]
}

struct Bridge {
    sources: Vec<Arc<dyn ToolProvider>>,
    policy: Policy,
}

impl Bridge {
    fn services(&self) -> String {
        let names: Vec<_> = self.sources.iter().map(|source| source.service()).collect();
        names.join(", ")
    }
}
