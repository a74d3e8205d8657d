//! Builds the sandbox of each session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::path_policy::ProtectedPaths;
use lillux::process::Supervisor;
use rye_engine::protocol::{SandboxId, SandboxRef};
use rye_engine::sandbox::{
    OpenSandbox, Sandbox, SandboxError, SandboxFuture, SandboxProvider, SandboxSpec,
};
use rye_items::vault::Vault;
use rye_sandbox::{ConfinedSandbox, LocalSandbox, ServedKind, VirtualSandbox};

use super::{ConfinementError, ConfinementPolicy, SANDBOX_FILE, confined, targets};
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
    vault: Option<Vault>,
    supervisor: Arc<Supervisor>,
    /// Keeps the changes of sessions until a review.
    reviews: PathBuf,
}

impl HostSandboxes {
    /// Keeps what sandboxes store in the directory `state`.
    pub(crate) fn new(
        options: SandboxOptions,
        vault: Option<Vault>,
        supervisor: Arc<Supervisor>,
        state: &Path,
    ) -> Self {
        Self {
            reviews: state.join("review"),
            options,
            vault,
            supervisor,
        }
    }

    /// The workspace of a session that records `recorded`.
    fn workspace(&self, recorded: Option<&str>) -> PathBuf {
        let recorded = recorded.map(PathBuf::from);
        let workspace = self.options.workspace.clone().or(recorded);
        workspace.unwrap_or_else(|| self.options.project.clone())
    }

    /// The changes of a sandbox in review mode.
    fn review_dir(&self, id: &SandboxId) -> PathBuf {
        self.reviews.join(id.as_str())
    }

    async fn build(
        &self,
        kind: SandboxKind,
        workspace: &Path,
        id: &SandboxId,
        is_reviewed: bool,
    ) -> Result<Arc<dyn Sandbox>, SandboxError> {
        if is_reviewed && kind != SandboxKind::Confined {
            return Err(SandboxError::Unavailable {
                reason: "the session is in review mode, which works only in the sandbox `confined`"
                    .to_owned(),
                hint: Some("rye help sandbox".to_owned()),
            });
        }
        let served = match kind {
            SandboxKind::Virtual => return Ok(Arc::new(VirtualSandbox::new())),
            SandboxKind::Docker => {
                let container = targets::docker(&self.options.confinement, workspace)?;
                return Ok(Arc::new(container.open(id).await?));
            }
            SandboxKind::Remote => {
                let config = self.options.confinement.remote.as_ref();
                let vault = self.vault.as_ref();
                return Ok(Arc::new(targets::remote(config, vault, id).await?));
            }
            SandboxKind::Local => ServedKind::Local,
            SandboxKind::Confined => ServedKind::Confined,
        };
        let vault = self.vault.clone();
        if is_reviewed {
            let supervisor = Arc::clone(&self.supervisor);
            let confined = confined_here(workspace, &self.options, vault, supervisor)?;
            let reviewed = confined.with_review(&self.review_dir(id));
            return Ok(Arc::new(reviewed.map_err(ConfinementError::from)?));
        }
        build_here(served, workspace, &self.options, vault, &self.supervisor)
    }
}

fn confined_here(
    workspace: &Path,
    options: &SandboxOptions,
    vault: Option<Vault>,
    supervisor: Arc<Supervisor>,
) -> Result<ConfinedSandbox, ConfinementError> {
    let SandboxOptions {
        project,
        confinement,
        protected,
        ..
    } = options.clone();
    confined(
        workspace,
        supervisor,
        confinement,
        protected,
        project,
        vault,
    )
}

/// Builds a sandbox with processes of this machine.
pub fn build_here(
    kind: ServedKind,
    workspace: &Path,
    options: &SandboxOptions,
    vault: Option<Vault>,
    supervisor: &Arc<Supervisor>,
) -> Result<Arc<dyn Sandbox>, SandboxError> {
    let supervisor = Arc::clone(supervisor);
    Ok(match kind {
        ServedKind::Local => {
            let local = LocalSandbox::new(workspace, supervisor).map_err(|error| {
                let dir = workspace.display();
                SandboxError::unavailable(format_args!("cannot use the workspace {dir}: {error}"))
            })?;
            Arc::new(local.protected(options.protected.clone(), &options.project))
        }
        ServedKind::Confined => Arc::new(confined_here(workspace, options, vault, supervisor)?),
    })
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
            let id = SandboxId::new();
            let kind = spec.kind.map_or(self.options.kind, SandboxKind::from);
            // Files in memory never reach the workspace.
            let configured = self.options.review && kind != SandboxKind::Virtual;
            let review = spec.review.unwrap_or(configured);
            if review && kind != SandboxKind::Confined {
                return Err(SandboxError::Unavailable {
                    reason: format!(
                        "`review: true` of {SANDBOX_FILE} works only in the sandbox `confined`"
                    ),
                    hint: Some("rye prompt --review=false 'your task'".to_owned()),
                });
            }
            let sandbox = self.build(kind, &workspace, &id, review).await?;
            let workspace = sandbox.working_dir();
            let target = sandbox.location().filter(|_| workspace.is_none());
            let reference = SandboxRef {
                id,
                target,
                review,
                ..SandboxRef::new(sandbox.kind(), workspace)
            };
            Ok(OpenSandbox { reference, sandbox })
        })
    }

    fn open<'a>(&'a self, reference: &'a SandboxRef) -> SandboxFuture<'a, Arc<dyn Sandbox>> {
        Box::pin(async move {
            let workspace = self.workspace(reference.workspace.as_deref());
            let kind = self.options.resume_in;
            let kind = kind.unwrap_or_else(|| reference.kind.into());
            let sandbox = self
                .build(kind, &workspace, &reference.id, reference.review)
                .await?;
            // The record names the machine, but only the user's configuration chooses it.
            match (&reference.target, sandbox.location()) {
                (Some(recorded), Some(found))
                    if kind == SandboxKind::Remote && *recorded != found =>
                {
                    Err(SandboxError::Unavailable {
                        reason: format!(
                            "the session works in {recorded}, but {SANDBOX_FILE} names {found}"
                        ),
                        hint: Some("rye help sandbox".to_owned()),
                    })
                }
                _ => Ok(sandbox),
            }
        })
    }

    fn destroy<'a>(&'a self, reference: &'a SandboxRef) -> SandboxFuture<'a, ()> {
        let removed = if reference.review {
            rye_sandbox::remove_review(&self.review_dir(&reference.id))
        } else {
            Ok(())
        };
        let removed = removed.map_err(SandboxError::unavailable);
        Box::pin(std::future::ready(removed))
    }
}
