//! Confines the processes of tools in the same way as agents' commands.

use std::path::PathBuf;
use std::sync::Arc;

use lillux::Hash;
use lillux::path_policy::ProtectedPaths;
use lillux::process::Supervisor;
use rye_executor::Roots;
use rye_executor::confinement::{
    ConfineError, ConfineRequest, ConfinedCall, ConfinedFuture, Confiner, Process, WrappedProcess,
};
use rye_items::Spaces;
use rye_sandbox::{ConfinedSandbox, PreparedCommand};

use crate::sandbox::{ConfinementError, confined, load_sandbox_policy};

/// Confines tools to the project, with the policy of the spaces.
pub(crate) struct ToolConfiner {
    roots: Roots,
    supervisor: Arc<Supervisor>,
    protected: ProtectedPaths,
}

impl ToolConfiner {
    pub(crate) fn new(roots: &Roots, supervisor: Arc<Supervisor>) -> Self {
        Self {
            protected: roots.protected_paths(),
            roots: roots.clone(),
            supervisor,
        }
    }

    fn sandbox(&self, request: &ConfineRequest<'_>) -> Result<ConfinedSandbox, ConfineError> {
        let invalid = |error: &dyn std::fmt::Display| ConfineError {
            reason: error.to_string(),
            fix: None,
        };
        let roots = &self.roots;
        let (project, user) = (Some(&*roots.project), roots.user.as_deref());
        let spaces = Spaces::open(project, user, &roots.bundles, roots.embedded);
        let spaces = spaces.map_err(|error| invalid(&error))?;
        let (policy, _) = load_sandbox_policy(&spaces).map_err(|error| invalid(&error))?;
        let sandbox = confined(
            request.project,
            Arc::clone(&self.supervisor),
            policy,
            self.protected.clone(),
            roots.project.clone(),
            None,
        );
        sandbox.map_err(|error| ConfineError {
            reason: error.to_string(),
            fix: match &error {
                ConfinementError::Workspace(_) => Some("rye execute --project DIR".to_owned()),
                other => other.fix(),
            },
        })
    }
}

impl Confiner for ToolConfiner {
    fn confine(&self, request: ConfineRequest<'_>) -> Result<Arc<dyn ConfinedCall>, ConfineError> {
        let sandbox = self.sandbox(&request)?;
        let access = request.sandbox.filesystem;
        Ok(Arc::new(ToolCall(
            sandbox.for_tool(access, request.programs),
        )))
    }
}

/// A call of a tool in its own sandbox.
struct ToolCall(ConfinedSandbox);

impl ConfinedCall for ToolCall {
    fn tier(&self) -> String {
        self.0.tier().to_string()
    }

    fn policy(&self) -> Hash {
        self.0.policy_hash()
    }

    fn wrap(&self, process: Process) -> ConfinedFuture<'_, WrappedProcess> {
        Box::pin(async move {
            let cwd = self.0.starting_dir(&process.cwd);
            let cwd: PathBuf = cwd.map_err(|error| error.to_string())?;
            let prepared = self.0.prepare(&cwd, process.program).await;
            let mut prepared = prepared.map_err(|error| error.to_string())?;
            let program = std::mem::take(&mut prepared.program);
            let mut environment = process.environment;
            // The directory that `TMPDIR` names outside does not exist inside.
            environment.remove("TMPDIR");
            for (name, value) in self.0.variables() {
                environment.entry(name).or_insert(value);
            }
            let variables = environment.into_iter();
            let variables =
                variables.map(|(name, value)| (ConfinedSandbox::command_variable(&name), value));
            Ok(WrappedProcess {
                process: Process {
                    program,
                    cwd,
                    environment: variables.collect(),
                },
                state: Box::new(prepared),
            })
        })
    }

    fn finish<'a>(&'a self, process: &'a WrappedProcess) -> ConfinedFuture<'a, Vec<String>> {
        Box::pin(async move {
            let Some(prepared) = process.state.downcast_ref::<PreparedCommand>() else {
                return Ok(Vec::new());
            };
            let finished = self.0.finish(prepared).await;
            finished.map_err(|error| error.to_string())
        })
    }

    fn failure(
        &self,
        process: &WrappedProcess,
        exit_code: Option<i32>,
        stderr: &str,
    ) -> Option<String> {
        let prepared = process.state.downcast_ref::<PreparedCommand>()?;
        prepared.failure(exit_code, stderr).map(str::to_owned)
    }
}
