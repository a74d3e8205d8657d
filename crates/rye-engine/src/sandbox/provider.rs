//! Creates and opens the sandboxes of sessions.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rye_protocol::{SandboxId, SandboxKind, SandboxRef};

use super::{Sandbox, SandboxError, SandboxFuture};

/// What a new sandbox is for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxSpec {
    /// Directory that the session is about.
    pub workspace: Option<String>,
    /// Kind of sandbox; the provider's default if absent.
    pub kind: Option<SandboxKind>,
    /// Whether changes are reviewed; as configured if absent.
    pub review: Option<bool>,
}

/// An open sandbox, with the reference that a session records.
#[derive(Clone)]
pub struct OpenSandbox {
    /// Reference with which the session opens this sandbox again.
    pub reference: SandboxRef,
    /// The sandbox.
    pub sandbox: Arc<dyn Sandbox>,
}

impl fmt::Debug for OpenSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reference.fmt(f)
    }
}

/// Creates and opens the sandboxes of sessions. Each session has its own, which it records; a task
/// shares that of its parent.
pub trait SandboxProvider: Send + Sync + 'static {
    /// Creates the sandbox of a new session.
    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> SandboxFuture<'a, OpenSandbox>;

    /// Opens the sandbox of an existing session.
    fn open<'a>(&'a self, reference: &'a SandboxRef) -> SandboxFuture<'a, Arc<dyn Sandbox>>;

    /// Removes what the sandbox of a removed session left behind. The workspace stays.
    fn destroy<'a>(&'a self, reference: &'a SandboxRef) -> SandboxFuture<'a, ()> {
        let _ = reference;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Checks that a sandbox can be opened; the error says why not.
    fn status<'a>(&'a self, reference: &'a SandboxRef) -> SandboxFuture<'a, ()> {
        Box::pin(async move { self.open(reference).await.map(drop) })
    }
}

/// One sandbox that all sessions share.
impl SandboxProvider for Arc<dyn Sandbox> {
    fn create<'a>(&'a self, _: &'a SandboxSpec) -> SandboxFuture<'a, OpenSandbox> {
        let reference = SandboxRef::new(self.kind(), self.working_dir());
        let sandbox = Self::clone(self);
        Box::pin(std::future::ready(Ok(OpenSandbox { reference, sandbox })))
    }

    fn open<'a>(&'a self, _: &'a SandboxRef) -> SandboxFuture<'a, Arc<dyn Sandbox>> {
        Box::pin(std::future::ready(Ok(Self::clone(self))))
    }
}

/// The sandboxes of the open sessions. A session and its tasks have the same instance.
#[derive(Default)]
pub(crate) struct Sandboxes {
    open: Mutex<HashMap<SandboxId, Weak<dyn Sandbox>>>,
}

impl Sandboxes {
    pub(crate) async fn create(
        &self,
        provider: &dyn SandboxProvider,
        spec: &SandboxSpec,
    ) -> Result<OpenSandbox, SandboxError> {
        let created = provider.create(spec).await?;
        let OpenSandbox { reference, sandbox } = created;
        let sandbox = self.register(&reference.id, sandbox);
        Ok(OpenSandbox { reference, sandbox })
    }

    pub(crate) async fn open(
        &self,
        provider: &dyn SandboxProvider,
        reference: &SandboxRef,
    ) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let known = self.open.lock().get(&reference.id).and_then(Weak::upgrade);
        if let Some(sandbox) = known {
            return Ok(sandbox);
        }
        let opened = provider.open(reference).await?;
        Ok(self.register(&reference.id, opened))
    }

    /// Remembers a sandbox, and returns the one to use: another call may have been faster.
    fn register(&self, id: &SandboxId, sandbox: Arc<dyn Sandbox>) -> Arc<dyn Sandbox> {
        let mut open = self.open.lock();
        open.retain(|_, sandbox| sandbox.strong_count() > 0);
        if let Some(first) = open.get(id).and_then(Weak::upgrade) {
            return first;
        }
        open.insert(id.clone(), Arc::downgrade(&sandbox));
        sandbox
    }
}
