//! A confiner that confines nothing and records what it was asked for.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use lillux::Hash;
use rye_executor::confinement::{
    ConfineError, ConfineRequest, ConfinedCall, ConfinedFuture, Confiner, Process, WrappedProcess,
};
use rye_protocol::ToolSandbox;

/// A call that was to be confined.
#[derive(Debug, Clone)]
pub(crate) struct Confined {
    pub(crate) sandbox: ToolSandbox,
    pub(crate) programs: Vec<PathBuf>,
}

#[derive(Clone, Default)]
pub(crate) struct RecordingConfiner {
    pub(crate) calls: Arc<Mutex<Vec<Confined>>>,
    /// Files that every call creates and that are moved away.
    pub(crate) quarantined: Vec<String>,
}

impl Confiner for RecordingConfiner {
    fn confine(&self, request: ConfineRequest<'_>) -> Result<Arc<dyn ConfinedCall>, ConfineError> {
        self.calls.lock().unwrap().push(Confined {
            sandbox: request.sandbox,
            programs: request.programs,
        });
        Ok(Arc::new(Unchanged(self.quarantined.clone())))
    }
}

struct Unchanged(Vec<String>);

impl ConfinedCall for Unchanged {
    fn tier(&self) -> String {
        "test".to_owned()
    }

    fn policy(&self) -> Hash {
        Hash::digest("policy")
    }

    fn wrap(&self, process: Process) -> ConfinedFuture<'_, WrappedProcess> {
        Box::pin(async move {
            let state = Box::new(());
            Ok(WrappedProcess { process, state })
        })
    }

    fn finish<'a>(&'a self, _: &'a WrappedProcess) -> ConfinedFuture<'a, Vec<String>> {
        Box::pin(async { Ok(self.0.clone()) })
    }

    fn failure(&self, _: &WrappedProcess, _: Option<i32>, _: &str) -> Option<String> {
        None
    }
}
