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
        if self.journal.is_some() {
            self.record(RunEvent::End {
                status: RunStatus::Completed,
                error: None,
                output: Some(output.clone()),
                node: None,
            });
            self.close().await?;
        }
        Ok(self.into_result(RunStatus::Completed, output, None, None))
    }

    /// Ends a run before it is complete.
    pub(super) async fn stop(
        mut self,
        status: RunStatus,
        error: Option<NodeError>,
        node: Option<&Node>,
    ) -> Result<RunResult, RecordError> {
        let node = node.map(|node| node.name.clone());
        if self.journal.is_some() {
            self.record(RunEvent::End {
                status,
                error: error.clone(),
                output: None,
                node: node.clone(),
            });
            self.close().await?;
        }
        let state = self.visible_state();
        Ok(self.into_result(status, state, error, node))
    }

    /// Commits the end and releases the session.
    async fn close(&mut self) -> Result<(), RecordError> {
        self.commit().await?;
        match self.journal.take() {
            Some(journal) => journal.close().await,
            None => Ok(()),
        }
    }

    fn into_result(
        self,
        status: RunStatus,
        output: Value,
        error: Option<NodeError>,
        node: Option<String>,
    ) -> RunResult {
        RunResult {
            status,
            output,
            error,
            node,
            state: self.state,
            steps: self.steps,
            warnings: self.warnings,
        }
    }
}
