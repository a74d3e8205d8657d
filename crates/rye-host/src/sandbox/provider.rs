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
use rye_sandbox::{LocalSandbox, ServedKind, VirtualSandbox};

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
}

impl HostSandboxes {
    pub(crate) fn new(
        options: SandboxOptions,
        vault: Option<Vault>,
        supervisor: Arc<Supervisor>,
    ) -> Self {
        Self {
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

    async fn build(
        &self,
        kind: SandboxKind,
        workspace: &Path,
        id: &SandboxId,
    ) -> Result<Arc<dyn Sandbox>, SandboxError> {
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
        build_here(served, workspace, &self.options, vault, &self.supervisor)
    }
}

/// Builds a sandbox with processes of this machine.
pub fn build_here(
    kind: ServedKind,
    workspace: &Path,
    options: &SandboxOptions,
    vault: Option<Vault>,
    supervisor: &Arc<Supervisor>,
) -> Result<Arc<dyn Sandbox>, SandboxError> {
    let SandboxOptions {
        project,
        confinement,
        protected,
        ..
    } = options.clone();
    let supervisor = Arc::clone(supervisor);
    Ok(match kind {
        ServedKind::Local => {
            let local = LocalSandbox::new(workspace, supervisor).map_err(|error| {
                let dir = workspace.display();
                SandboxError::unavailable(format_args!("cannot use the workspace {dir}: {error}"))
            })?;
            Arc::new(local.protected(protected, project))
        }
        ServedKind::Confined => {
            let built = confined(
                workspace,
                supervisor,
                confinement,
                protected,
                project,
                vault,
            );
            Arc::new(built?)
        }
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
            let sandbox = self.build(self.options.kind, &workspace, &id).await?;
            let workspace = sandbox.working_dir();
            let target = sandbox.location().filter(|_| workspace.is_none());
            let reference = SandboxRef {
                id,
                target,
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
            let sandbox = self.build(kind, &workspace, &reference.id).await?;
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
}
