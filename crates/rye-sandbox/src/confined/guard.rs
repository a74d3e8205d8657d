//! Protects the files of a workspace whose commands another program confines.

use std::path::{Path, PathBuf};

use rye_engine::sandbox::SandboxError;
use tokio::task::spawn_blocking;

use super::policy::ConfinementPolicy;
use super::protected::ProtectedFiles;
use super::quarantine::Quarantine;

/// Finds the protected files of a workspace, and moves away those that a command created.
pub(crate) struct WorkspaceGuard {
    workspace: PathBuf,
    home: Option<PathBuf>,
    policy: ConfinementPolicy,
    quarantine: Quarantine,
}

impl WorkspaceGuard {
    pub(crate) fn new(workspace: &Path, policy: ConfinementPolicy) -> Self {
        Self {
            workspace: workspace.to_owned(),
            home: std::env::var_os("HOME").map(PathBuf::from),
            policy,
            quarantine: Quarantine::new(workspace),
        }
    }

    pub(crate) async fn find(&self) -> ProtectedFiles {
        let (workspace, policy) = (self.workspace.clone(), self.policy.clone());
        let home = self.home.clone();
        let find = move || ProtectedFiles::find(&workspace, &policy, home.as_deref());
        spawn_blocking(find).await.unwrap_or_default()
    }

    /// Moves the files away that were created since `before`, and returns them.
    pub(crate) async fn quarantine_since(
        &self,
        before: &ProtectedFiles,
    ) -> Result<Vec<String>, SandboxError> {
        self.quarantine
            .take(&self.find().await.created_since(before))
    }

    /// Restores files in quarantine, or removes them.
    pub(crate) fn settle(&self, paths: &[String], keep: bool) -> Result<(), SandboxError> {
        self.quarantine.settle(paths, keep)
    }
}
