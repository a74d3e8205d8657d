//! Artifacts: files that a tool produces for people.

use tokio::sync::oneshot;

use super::{ToolContext, ToolError};
use crate::blob::SCHEME;
use crate::machine::Artifact;
use crate::runner::ThreadCommand;

impl ToolContext {
    /// Stores an artifact, publishes it, and returns its address `blob:…` once it is recorded. A
    /// tool that is repeated after a restart stores it again.
    pub async fn artifact(
        &self,
        name: impl Into<String>,
        bytes: Vec<u8>,
    ) -> Result<String, ToolError> {
        let no_store = "no blob store is configured";
        let blobs = self.blobs().ok_or_else(|| ToolError::failed(no_store))?;
        let stored = blobs.put(bytes).await;
        let hash = stored.map_err(|error| ToolError::failed(error.to_string()))?;
        let source = format!("{SCHEME}{hash}");
        let (reply, written) = oneshot::channel();
        let artifact = Artifact {
            name: name.into(),
            source: source.clone(),
        };
        let commands = ThreadCommand::Artifact(self.call.clone(), artifact, reply);
        let closed = || ToolError::failed("the thread has ended");
        self.commands.send(commands).map_err(|_| closed())?;
        written.await.map_err(|_| closed())?;
        Ok(source)
    }
}
