//! Builds the sandbox of each session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::path_policy::ProtectedPaths;
use lillux::process::Supervisor;
use rye_engine::protocol::{SandboxId, SandboxKind as ProtocolKind, SandboxRef};
use rye_engine::sandbox::{
    OpenSandbox, Sandbox, SandboxError, SandboxFuture, SandboxProvider, SandboxSpec,
};
use rye_sandbox::{LocalSandbox, VirtualSandbox};

use super::{ConfinementError, ConfinementPolicy, confined};
use crate::SandboxKind;

/// What the sandboxes of an engine have in common.
#[derive(Debug, Clone)]
pub struct SandboxOptions {
    /// Kind of the sandboxes of new sessions.
    pub kind: SandboxKind,
    /// Kind to use for existing sessions instead of the one that they were created with.
    pub resume_in: Option<SandboxKind>,
    /// Directory that all sessions work in, instead of the one that each records.
    pub workspace: Option<PathBuf>,
    /// Whether the changes of new sessions are reviewed.
    pub review: bool,
    /// The project, and the workspace of sessions that record none.
    pub project: PathBuf,
    /// Policy of the confined sandbox.
    pub confinement: ConfinementPolicy,
    /// Private directories that no agent may use, and home directories of the user.
    pub protected: ProtectedPaths,
}

/// Builds a sandbox for each session.
pub(crate) struct HostSandboxes {
    options: SandboxOptions,
    supervisor: Arc<Supervisor>,
    /// Keeps the changes of sessions until a review.
    reviews: PathBuf,
}

impl HostSandboxes {
    /// Keeps what sandboxes store in the directory `state`.
    pub(crate) fn new(options: SandboxOptions, supervisor: Arc<Supervisor>, state: &Path) -> Self {
        Self {
            reviews: state.join("review"),
            options,
            supervisor,
        }
    }

    /// The workspace of a session that records `recorded`.
    fn workspace(&self, recorded: Option<&str>) -> PathBuf {
        let recorded = recorded.map(PathBuf::from);
        let workspace = self.options.workspace.clone().or(recorded);
        workspace.unwrap_or_else(|| self.options.project.clone())
    }

    /// The changes of a sandbox.
    fn review(&self, id: &SandboxId) -> PathBuf {
        self.reviews.join(id.as_str())
    }

    /// Builds a sandbox. `review` keeps its changes, if they are reviewed.
    fn build(
        &self,
        kind: SandboxKind,
        workspace: &Path,
        review: Option<&Path>,
    ) -> Result<Arc<dyn Sandbox>, SandboxError> {
        if review.is_some() && kind != SandboxKind::Confined {
            let reason =
                "the session is in review mode, which works only in the sandbox `confined`";
            return Err(SandboxError::unavailable(reason));
        }
        let SandboxOptions {
            project,
            confinement,
            protected,
            ..
        } = self.options.clone();
        let supervisor = Arc::clone(&self.supervisor);
        Ok(match kind {
            SandboxKind::Virtual => Arc::new(VirtualSandbox::new()),
            SandboxKind::Local => {
                let local = LocalSandbox::new(workspace, supervisor).map_err(|error| {
                    let dir = workspace.display();
                    SandboxError::unavailable(format_args!(
                        "cannot use the workspace {dir}: {error}"
                    ))
                })?;
                Arc::new(local.protected(protected, project))
            }
            SandboxKind::Confined => {
                let built = confined(workspace, supervisor, confinement, protected, project);
                match review {
                    Some(dir) => {
                        let built = built?.with_review(dir);
                        Arc::new(built.map_err(ConfinementError::from)?)
                    }
                    None => Arc::new(built?),
                }
            }
        })
    }
}

impl From<ConfinementError> for SandboxError {
    fn from(error: ConfinementError) -> Self {
        Self::Unavailable {
            reason: error.to_string(),
            hint: error.fix(),
        }
    }
}

impl SandboxProvider for HostSandboxes {
    fn create<'a>(&'a self, spec: &'a SandboxSpec) -> SandboxFuture<'a, OpenSandbox> {
        Box::pin(async move {
            let workspace = self.workspace(spec.workspace.as_deref());
            let mut reference = SandboxRef::new(ProtocolKind::Confined, None);
            reference.review = self.options.review;
            let review = self.review(&reference.id);
            let review = reference.review.then_some(review.as_path());
            let sandbox = self.build(self.options.kind, &workspace, review)?;
            reference.kind = sandbox.kind();
            reference.workspace = sandbox.working_dir();
            Ok(OpenSandbox { reference, sandbox })
        })
    }

    fn open<'a>(&'a self, reference: &'a SandboxRef) -> SandboxFuture<'a, Arc<dyn Sandbox>> {
        Box::pin(async move {
            let workspace = self.workspace(reference.workspace.as_deref());
            let kind = self.options.resume_in;
            let review = self.review(&reference.id);
            let review = reference.review.then_some(review.as_path());
            let kind = kind.unwrap_or_else(|| reference.kind.into());
            self.build(kind, &workspace, review)
        })
    }

    fn destroy<'a>(&'a self, reference: &'a SandboxRef) -> SandboxFuture<'a, ()> {
        let removed = if reference.review {
            rye_sandbox::remove_review(&self.review(&reference.id))
        } else {
            Ok(())
        };
        let removed = removed.map_err(SandboxError::unavailable);
        Box::pin(std::future::ready(removed))
    }
}
