//! How a walk ends: at its end, or before.

use serde_json::Value;

use super::{RunResult, Walk};
use crate::event::{Event, NodeError, RunStatus};
use crate::model::{Moment, Node};
use crate::record::RecordError;

impl Walk<'_> {
    /// The state without what the walker keeps there.
    pub(super) fn visible_state(&self) -> Value {
        let own = self.state.iter().filter(|(name, _)| !name.starts_with('_'));
        let own = own.map(|(name, value)| (name.clone(), value.clone()));
        Value::Object(own.collect())
    }

    pub(super) async fn complete(
        mut self,
        output: Option<Value>,
    ) -> Result<RunResult, RecordError> {
        self.hooks(Moment::GraphCompleted, None).await?;
        let output = output.unwrap_or_else(|| self.visible_state());
        if self.journal.is_some() {
            self.snapshot()?;
            self.tell(Event::End {
                status: RunStatus::Completed,
                error: None,
                output: Some(output.clone()),
                node: None,
            });
            self.commit(true)?;
        }
        Ok(self.ended(RunStatus::Completed, output, None, None))
    }

    pub(super) fn stop(
        mut self,
        status: RunStatus,
        error: Option<NodeError>,
        node: Option<&Node>,
    ) -> Result<RunResult, RecordError> {
        let node = node.map(|node| node.name.clone());
        if self.journal.is_some() {
            self.snapshot()?;
            self.tell(Event::End {
                status,
                error: error.clone(),
                output: None,
                node: node.clone(),
            });
            self.commit(true)?;
        }
        let state = self.visible_state();
        Ok(self.ended(status, state, error, node))
    }

    fn ended(
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
