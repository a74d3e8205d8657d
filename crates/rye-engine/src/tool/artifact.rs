//! What a tool makes for people to keep.

use tokio::sync::oneshot;

use super::{ToolContext, ToolError};
use crate::blob::SCHEME;
use crate::machine::Artifact;
use crate::runner::ThreadCommand;

impl ToolContext {
    /// Keeps something that the tool made, and tells whoever listens: its address, `blob:…`,
    /// once it is written down. A tool that is run again after a restart makes it again.
    pub async fn artifact(
        &self,
        name: impl Into<String>,
        bytes: Vec<u8>,
    ) -> Result<String, ToolError> {
        let none = "nothing can be kept here: there is no blob store";
        let blobs = self.blobs().ok_or_else(|| ToolError::failed(none))?;
        let kept = blobs.put(bytes).await;
        let hash = kept.map_err(|error| ToolError::failed(error.to_string()))?;
        let source = format!("{SCHEME}{hash}");
        let (reply, written) = oneshot::channel();
        let artifact = Artifact {
            name: name.into(),
            source: source.clone(),
        };
        let mail = ThreadCommand::Artifact(self.call.clone(), artifact, reply);
        let gone = || ToolError::failed("the thread has ended");
        self.mail.send(mail).map_err(|_| gone())?;
        written.await.map_err(|_| gone())?;
        Ok(source)
    }
}
