//! Primitives: the built-in operations at the end of a chain.

mod execute;
mod http;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lillux::cas::Cas;
use lillux::process::Stream;
use rye_items::{Item, ItemId, ItemRef, Verified};
use serde_json::{Map, Value};

use crate::chain::Link;
use crate::confinement::Confinement;
use crate::executor::{Approval, Executor};

pub use execute::{Execute, record_overflow};
pub use http::HttpClient;

/// Id of the primitive that runs processes.
pub(crate) const EXECUTE: &str = "rye/core/primitives/execute";
/// Id of the primitive that sends HTTP requests.
pub(crate) const HTTP_CLIENT: &str = "rye/core/primitives/http_client";
/// Other names of these primitives.
pub(crate) const ALIASES: [(&str, &str); 3] = [
    ("rye/core/primitives/subprocess", EXECUTE),
    ("subprocess", EXECUTE),
    ("http_client", HTTP_CLIENT),
];

/// A call that is ready for its primitive: verified, checked and rendered.
#[derive(Debug)]
pub struct Call {
    /// The verified tool.
    pub tool: Verified<Item>,
    /// Further verified items, by the keys of [`Primitive::item_keys`].
    pub items: BTreeMap<String, Link>,
    /// The merged configuration with all placeholders replaced.
    pub config: Map<String, Value>,
    /// All environment variables of the call; nothing else is inherited.
    pub environment: Arc<BTreeMap<String, String>>,
    /// The validated parameters, with defaults filled in.
    pub parameters: Value,
    /// Working directory, unless the configuration names another one.
    pub cwd: PathBuf,
    /// Time limit of the call.
    pub timeout: Option<Duration>,
    /// Store for output that is too long to keep in memory.
    pub spill: Spill,
    /// Receives the output while the call runs.
    pub listener: Option<OutputListener>,
    /// Approval that the call was made with.
    pub approval: Approval,
    /// Identity of the durable run that the call creates or belongs to.
    pub run: Option<RunContext>,
    /// Confines the process of the call.
    pub confinement: Option<Confinement>,
}

/// Store for output that is too long to keep in memory. Most calls never open it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spill(PathBuf);

impl Spill {
    /// Creates a handle to a store in this directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// Opens the store. If that fails, long output is truncated and the result says so.
    pub fn open(&self) -> Option<Cas> {
        Cas::open(&self.0).ok()
    }
}

/// Identity of a durable run, such as the run of a graph, whose steps are calls themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunContext {
    /// Id of the run. A call with the id of an existing run resumes it.
    pub id: String,
    /// Nesting depth: the number of runs around this one.
    pub depth: u32,
}

/// Callback that receives the output of a tool while it runs. The result contains the output
/// as well.
#[derive(Clone)]
pub struct OutputListener(Arc<OutputFn>);

type OutputFn = dyn Fn(Stream, &[u8]) + Send + Sync;

impl OutputListener {
    /// Creates a listener from a function that gets each chunk of output.
    pub fn new(on_output: impl Fn(Stream, &[u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(on_output))
    }

    /// Passes a chunk of output to the listener.
    pub fn on_output(&self, stream: Stream, bytes: &[u8]) {
        (self.0)(stream, bytes);
    }
}

impl std::fmt::Debug for OutputListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OutputListener")
    }
}

/// Outcome of a call that a primitive carried out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallOutcome {
    /// Output of the tool.
    pub data: Value,
    /// Exit code, for a process that exited on its own.
    pub exit_code: Option<i32>,
    /// The failure, if the call failed.
    pub failure: Option<CallFailure>,
    /// Further data for the result's metadata.
    pub metadata: Map<String, Value>,
}

impl CallOutcome {
    /// The outcome of a call, with further metadata.
    #[must_use]
    pub fn new(result: Result<Self, CallFailure>, metadata: Map<String, Value>) -> Self {
        let mut outcome = result.unwrap_or_else(Self::from);
        outcome.metadata.extend(metadata);
        outcome
    }
}

impl From<CallFailure> for CallOutcome {
    fn from(failure: CallFailure) -> Self {
        Self {
            failure: Some(failure),
            ..Self::default()
        }
    }
}

/// Why a call failed after it was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// Stable error code for scripts.
    pub code: &'static str,
    /// Explanation for the user.
    pub message: String,
    /// Advice on how to fix the failure.
    pub hint: Option<String>,
}

impl CallFailure {
    /// Creates a failure without a hint.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// Adds a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Future of a call's outcome.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = CallOutcome> + Send + 'a>>;

/// A built-in operation that carries out calls.
pub trait Primitive: Send + Sync {
    /// Carries out a call. Dropping the future cancels the call.
    fn run(&self, call: Call) -> CallFuture<'_>;

    /// Carries out a call that makes further calls through `executor`.
    fn run_with_executor<'a>(&'a self, call: Call, _: &'a Executor) -> CallFuture<'a> {
        self.run(call)
    }

    /// Configuration keys that name further items. These are verified with the chain and passed
    /// as [`Call::items`].
    fn item_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Configuration keys whose fields are dropped if they consist of an unknown placeholder,
    /// that is, of a parameter that the call does not pass.
    fn optional_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Checks a call without carrying it out, for a dry run.
    fn check(&self, _: Call) -> Result<(), CallFailure> {
        Ok(())
    }

    /// Whether the primitive carries out the tool's file itself, so that it cannot be called
    /// without a tool.
    fn needs_tool(&self) -> bool {
        false
    }

    /// The tools that a tool of this primitive calls, as far as its file names them.
    fn called_tools(&self, _: &Verified<Item>) -> Vec<ItemRef> {
        Vec::new()
    }

    /// Whether the primitive starts programs. If not, the executor does not create the private
    /// copies and directories that only programs use.
    fn runs_programs(&self) -> bool {
        true
    }

    /// Whether the primitive applies [`Call::confinement`].
    fn is_confinable(&self) -> bool {
        false
    }
}

/// Registry of primitives.
#[derive(Clone, Default)]
pub struct Primitives {
    all: BTreeMap<ItemId, Arc<dyn Primitive>>,
    aliases: BTreeMap<ItemId, ItemId>,
}

impl std::fmt::Debug for Primitives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.all.keys()).finish()
    }
}

impl Primitives {
    /// Registers a primitive under its id and aliases.
    pub fn register(&mut self, id: ItemId, aliases: Vec<ItemId>, primitive: Arc<dyn Primitive>) {
        for alias in aliases {
            self.aliases.insert(alias, id.clone());
        }
        self.all.insert(id, primitive);
    }

    /// Looks up a primitive by its id or alias.
    pub fn get(&self, id: &ItemId) -> Option<&Arc<dyn Primitive>> {
        self.all.get(self.aliases.get(id).unwrap_or(id))
    }

    /// Whether a primitive with this id or alias is registered.
    pub fn contains(&self, id: &ItemId) -> bool {
        self.get(id).is_some()
    }

    /// Replaces an alias by the id of its primitive.
    pub fn canonical(&self, reference: &ItemRef) -> ItemRef {
        let id = self.aliases.get(&reference.id).unwrap_or(&reference.id);
        ItemRef::new(reference.kind, id.clone())
    }
}
