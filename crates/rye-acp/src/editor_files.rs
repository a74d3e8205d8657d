//! Files of the editor: text that is not saved yet, and writing through its buffers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::Client;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, ReadTextFileRequest, SessionId as AcpSessionId, WriteTextFileRequest,
};
use rye_engine::BoxFuture;
use rye_engine::sandbox::EditorFiles;

/// How long an editor may take for a file. After that, the saved file is used.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The files of an editor that offers them.
struct Files {
    connection: ConnectionTo<Client>,
    session: AcpSessionId,
    can_read: bool,
    can_write: bool,
}

/// The files of the editor; `None` if it offers none.
pub(crate) fn editor_files(
    connection: &ConnectionTo<Client>,
    session: &AcpSessionId,
    client: &ClientCapabilities,
) -> Option<Arc<dyn EditorFiles>> {
    let (can_read, can_write) = (client.fs.read_text_file, client.fs.write_text_file);
    let files = Files {
        connection: connection.clone(),
        session: session.clone(),
        can_read,
        can_write,
    };
    (can_read || can_write).then(|| Arc::new(files) as Arc<dyn EditorFiles>)
}

impl EditorFiles for Files {
    fn read<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            if !self.can_read {
                return None;
            }
            let request = ReadTextFileRequest::new(self.session.clone(), file);
            let answer = self.connection.send_request(request).block_task();
            match tokio::time::timeout(TIMEOUT, answer).await {
                Ok(Ok(response)) => Some(response.content),
                Ok(Err(error)) => {
                    tracing::debug!(file = %file.display(), %error, "the editor has no text");
                    None
                }
                Err(_) => None,
            }
        })
    }

    fn write<'a>(&'a self, file: &'a Path, text: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            if !self.can_write {
                return false;
            }
            let request = WriteTextFileRequest::new(self.session.clone(), file, text);
            let answer = self.connection.send_request(request).block_task();
            let written = tokio::time::timeout(TIMEOUT, answer).await;
            if let Ok(Err(error)) = &written {
                tracing::debug!(file = %file.display(), %error, "the editor did not write");
            }
            matches!(written, Ok(Ok(_)))
        })
    }
}
