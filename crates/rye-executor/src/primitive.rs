//! Primitives: where a chain ends and something happens.

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
use crate::executor::{Approval, Executor};

pub use execute::{Execute, note_overflow};
pub use http::HttpClient;

/// A call that is ready to be carried out: everything verified, checked and
/// rendered. How it is carried out is the primitive's: a new process is one way.
#[derive(Debug)]
pub struct Call {
    /// The tool whose bytes were verified.
    pub tool: Verified<Item>,
    /// What else was verified for it, by the keys of [`Primitive::items`].
    pub items: BTreeMap<String, Link>,
    /// The merged configuration, rendered.
    pub config: Map<String, Value>,
    /// All variables that the call has; nothing else is inherited.
    pub environment: Arc<BTreeMap<String, String>>,
    /// The parameters, checked, with their defaults.
    pub parameters: Value,
    /// The folder to run in, unless the configuration names another.
    pub cwd: PathBuf,
    /// When to give up.
    pub timeout: Option<Duration>,
    /// Where output goes that is too long to keep in memory.
    pub spill: Spill,
    /// Who hears what is printed while it runs.
    pub listener: Option<OutputListener>,
    /// Who let it run.
    pub approval: Approval,
    /// What it is a part of, or is to be called itself.
    pub run: Option<RunContext>,
}

/// A store for output that is too long, which most calls never open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spill(PathBuf);

impl Spill {
    /// A store in this folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// Opens the store. Without one output is cut, and the result says so.
    pub fn open(&self) -> Option<Cas> {
        Cas::open(&self.0).ok()
    }
}

/// The name of work that is written down, and that is made of calls itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunContext {
    /// Its id. Asked for once more under the same id, such work goes on where it was.
    pub id: String,
    /// How many other runs it is within.
    pub depth: u32,
}

/// Somebody who hears what a tool prints while it runs. The result holds it all
/// the same.
#[derive(Clone)]
pub struct OutputListener(Arc<Hear>);

type Hear = dyn Fn(Stream, &[u8]) + Send + Sync;

impl OutputListener {
    /// One who is told each piece as it comes.
    pub fn new(hear: impl Fn(Stream, &[u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    /// Tells a piece.
    pub fn on_output(&self, stream: Stream, bytes: &[u8]) {
        (self.0)(stream, bytes);
    }
}

impl std::fmt::Debug for OutputListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OutputListener")
    }
}

/// What came of a call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallOutcome {
    /// What the tool gave.
    pub data: Value,
    /// How it ended, if it was a process that ended by itself.
    pub exit_code: Option<i32>,
    /// Why it is a failure, if it is one.
    pub failure: Option<CallFailure>,
    /// What else is worth knowing.
    pub metadata: Map<String, Value>,
}

/// Why a call that was carried out is a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// A stable word for scripts.
    pub code: &'static str,
    /// What happened.
    pub message: String,
    /// The next command, where there is one.
    pub hint: Option<String>,
}

impl CallFailure {
    /// A failure in words.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// With the next command.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// What a primitive gives, some time.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = CallOutcome> + Send + 'a>>;

/// Something that carries out calls.
pub trait Primitive: Send + Sync {
    /// Carries out a call. Dropping the future ends what it began.
    fn run(&self, call: Call) -> CallFuture<'_>;

    /// The same for one whose work is made of further calls, which this executor carries out.
    fn run_with_executor<'a>(&'a self, call: Call, _: &'a Executor) -> CallFuture<'a> {
        self.run(call)
    }

    /// The keys of the configuration that name further items. They are found and
    /// verified with the chain, and reach the call as [`Call::items`].
    fn items(&self) -> &'static [&'static str] {
        &[]
    }

    /// The parts of the configuration in which a field is left out if it is
    /// nothing but a placeholder for what the call does not give.
    fn optional(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it starts programs. For one that does not, nothing is made that only a
    /// program opens: no copy of the tool's verified bytes, no folder of its own.
    fn runs_programs(&self) -> bool {
        true
    }
}

/// The primitives by their ids, in one place.
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
    /// Registers a primitive under its id, and other names for it.
    pub fn register(&mut self, id: ItemId, aliases: Vec<ItemId>, primitive: Arc<dyn Primitive>) {
        for alias in aliases {
            self.aliases.insert(alias, id.clone());
        }
        self.all.insert(id, primitive);
    }

    /// The primitive of an id.
    pub fn get(&self, id: &ItemId) -> Option<&Arc<dyn Primitive>> {
        self.all.get(id)
    }

    /// Whether an id is one of a primitive.
    pub fn has(&self, id: &ItemId) -> bool {
        self.all.contains_key(id)
    }

    /// The reference with an alias replaced by what it stands for.
    pub fn canonical(&self, reference: &ItemRef) -> ItemRef {
        let id = self.aliases.get(&reference.id).unwrap_or(&reference.id);
        ItemRef::new(reference.kind, id.clone())
    }
}
