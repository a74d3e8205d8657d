//! End of an execution.

use serde_json::Value;

use super::{RunResult, Walker};
use crate::definition::{HookEvent, Node};
use crate::error::RecordError;
use rye_protocol::{NodeError, RunEvent, RunStatus};

impl Walker<'_> {
    /// The state without reserved keys.
    pub(super) fn visible_state(&self) -> Value {
        let own = self.state.iter().filter(|(name, _)| !name.starts_with('_'));
        let own = own.map(|(name, value)| (name.clone(), value.clone()));
        Value::Object(own.collect())
    }

    /// Ends a run that completed.
    pub(super) async fn complete(
        mut self,
        output: Option<Value>,
    ) -> Result<RunResult, RecordError> {
        self.run_hooks(HookEvent::GraphCompleted, None).await?;
        let output = output.unwrap_or_else(|| self.visible_state());
        self.end(RunStatus::Completed, None, None, Some(output))
            .await
    }

    /// Ends a run before it is complete.
    pub(super) async fn stop(
        self,
        status: RunStatus,
        error: Option<NodeError>,
        node: Option<&Node>,
    ) -> Result<RunResult, RecordError> {
        self.end(status, error, node.map(|node| node.name.clone()), None)
            .await
    }

    /// Commits the end and releases the session.
    async fn end(
        mut self,
        status: RunStatus,
        error: Option<NodeError>,
        node: Option<String>,
        output: Option<Value>,
    ) -> Result<RunResult, RecordError> {
        self.record(RunEvent::End {
            status,
            error: error.clone(),
            output: output.clone(),
            node: node.clone(),
        });
        self.commit().await?;
        if let Some(journal) = self.journal.take() {
            journal.close().await?;
        }
        Ok(RunResult {
            status,
            output: output.unwrap_or_else(|| self.visible_state()),
            error,
            node,
            state: self.state,
            steps: self.steps,
            warnings: self.warnings,
        })
    }
}
