//! The sandbox at the client's end of the RPC.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::Method;
use http_body_util::BodyExt as _;
use lillux::path_policy::{PathClass, SensitiveReason};
use rye_engine::BoxFuture;
use rye_engine::protocol::{SandboxId, SandboxKind};
use rye_engine::sandbox::{
    Confinement, Exec, ExecObserver, ExecOutput, FileInfo, ResolvedPath, Sandbox, SandboxError,
    SandboxFuture, WalkOptions, WalkResult,
};

use super::client::{Attempts, Call, CallError, Client};
use super::connect::Connect;
use super::wire::{
    ExecEvent, ExecRequest, MAX_OUTPUT, ReadManyRequest, RpcError, SettleRequest, decode,
};
use super::{HttpsTarget, SshTarget};
use crate::confined::WorkspaceGuard;

/// Maximum length of a line in the output of a command; JSON may need six bytes for one.
const MAX_LINE: usize = 2 * 6 * MAX_OUTPUT + 1024 * 1024;
/// Maximum number of bytes in a request for many files.
const READ_MANY: usize = 64;

/// A sandbox on another machine or in a container.
///
/// Commands end when this process disappears: the server ends those of a client that it has not
/// heard of for a while. After a short loss of the network, a command over HTTPS continues; over
/// ssh, the connection and its commands end together.
pub struct RemoteSandbox {
    client: Arc<Client>,
    kind: SandboxKind,
    confinement: Confinement,
    working_dir: Option<String>,
    location: String,
    /// Protects the files of a workspace on this machine.
    guard: Option<Arc<WorkspaceGuard>>,
}

impl RemoteSandbox {
    /// Connects over ssh.
    pub async fn ssh(target: SshTarget, id: &SandboxId) -> Result<Self, SandboxError> {
        Self::open(Box::new(target), id).await
    }

    /// Connects over HTTPS.
    pub async fn https(target: HttpsTarget, id: &SandboxId) -> Result<Self, SandboxError> {
        Self::open(Box::new(target), id).await
    }

    /// Connects to a server, and learns what it confines.
    pub(crate) async fn open(
        connect: Box<dyn Connect>,
        id: &SandboxId,
    ) -> Result<Self, SandboxError> {
        let target = connect.target();
        let client = Client::new(connect, &id.to_string());
        let health = client.health().await?;
        let workspace = health.workspace.unwrap_or_default();
        let location = match target.strip_suffix(&*workspace) {
            Some(_) => target,
            None => format!("{target}{workspace}"),
        };
        Ok(Self {
            client: Arc::new(client),
            kind: SandboxKind::Remote,
            confinement: health.confinement,
            working_dir: None,
            location,
            guard: None,
        })
    }

    /// Describes a container on this machine, whose server cannot know what the container confines.
    pub(crate) fn in_container(
        mut self,
        confinement: Confinement,
        workspace: String,
        guard: Arc<WorkspaceGuard>,
    ) -> Self {
        self.guard = Some(guard);
        self.kind = SandboxKind::Docker;
        self.confinement = confinement;
        self.location.clone_from(&workspace);
        self.working_dir = Some(workspace);
        self
    }

    async fn get<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        file: &str,
    ) -> Result<T, SandboxError> {
        let call = Call::new(Method::GET, path, &[("path", file)]);
        self.client.retry_json(&call).await
    }

    async fn change(&self, call: Call) -> Result<(), SandboxError> {
        self.client.retry(&call).await?;
        Ok(())
    }

    async fn put(&self, query: &[(&str, &str)], bytes: &[u8]) -> Result<(), SandboxError> {
        let mut call = Call::new(Method::PUT, "/files/write", query);
        call.body = Bytes::copy_from_slice(bytes);
        self.change(call).await
    }

    async fn run(
        &self,
        exec: Exec,
        observer: &dyn ExecObserver,
    ) -> Result<ExecOutput, SandboxError> {
        let id = SandboxId::new().to_string();
        // Also makes the server forget a command that ended.
        let _end = EndOnDrop {
            client: Arc::clone(&self.client),
            id: id.clone(),
        };
        self.start(&id, exec).await?;
        tokio::select! {
            outcome = self.follow(&id, observer) => outcome,
            never = self.stay_alive() => match never {},
        }
    }

    /// Runs a command, and moves the protected files away that it created.
    async fn run_guarded(
        &self,
        exec: Exec,
        observer: &dyn ExecObserver,
    ) -> Result<ExecOutput, SandboxError> {
        let Some(guard) = &self.guard else {
            return self.run(exec, observer).await;
        };
        let before = guard.find().await;
        let outcome = self.run(exec, observer).await;
        // A command that failed may have created files too.
        let quarantined = guard.quarantine_since(&before).await?;
        Ok(ExecOutput {
            quarantined,
            ..outcome?
        })
    }

    /// Starts a command. Never twice, even if the connection breaks.
    async fn start(&self, id: &str, exec: Exec) -> Result<(), SandboxError> {
        let mut attempts = Attempts::new(self.client.timeout());
        let mut request = ExecRequest {
            id: id.to_owned(),
            instance: self.client.instance().await?,
            exec,
        };
        loop {
            let call = Call::json("/exec", &request);
            match self.client.call(&call).await {
                Ok(_) => return Ok(()),
                Err(error @ CallError::Lost(_)) => {
                    attempts.pause(error).await.map_err(interrupted)?;
                }
                // No server process has seen it before this one.
                Err(CallError::Refused(RpcError::OtherInstance)) if !attempts.has_failed() => {
                    request.instance = self.client.instance().await?;
                }
                Err(error) if attempts.has_failed() => return Err(interrupted(error)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the output of a command until it ends; continues at the byte that it had after the
    /// connection broke.
    async fn follow(
        &self,
        id: &str,
        observer: &dyn ExecObserver,
    ) -> Result<ExecOutput, SandboxError> {
        let path = format!("/exec/{id}/output");
        let mut attempts = Attempts::new(self.client.timeout());
        let mut offset = 0;
        let mut line = Vec::new();
        loop {
            let call = Call::new(Method::GET, &path, &[("from", &offset.to_string())]);
            let error = match self.client.call(&call).await {
                Err(error) => error,
                Ok(response) => {
                    let mut body = response.into_body();
                    while let Some(Ok(frame)) = body.frame().await {
                        let Ok(bytes) = frame.into_data() else {
                            continue;
                        };
                        attempts.succeeded();
                        offset += bytes.len();
                        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
                            line.extend_from_slice(part);
                            if line.len() > MAX_LINE {
                                let message = "the remote sandbox sent too much output";
                                return Err(SandboxError::Interrupted(message.to_owned()));
                            }
                            if part.ends_with(b"\n") {
                                if let Some(outcome) = handle(&line, observer)? {
                                    return outcome;
                                }
                                line.clear();
                            }
                        }
                    }
                    CallError::Lost("lost the connection to the remote sandbox".to_owned())
                }
            };
            let CallError::Lost(_) = &error else {
                return Err(interrupted(error));
            };
            attempts.pause(error).await.map_err(interrupted)?;
        }
    }

    /// Tells the server that this process is alive.
    async fn stay_alive(&self) -> std::convert::Infallible {
        let call = Call::new(Method::GET, "/health", &[]);
        loop {
            tokio::time::sleep(self.client.timeout() / 4).await;
            let beat = self.client.call(&call);
            // The reader of the output reports a broken connection.
            let _ = tokio::time::timeout(self.client.timeout(), beat).await;
        }
    }
}

/// Handles a line of a command's output. Returns the outcome if it was the last.
fn handle(
    line: &[u8],
    observer: &dyn ExecObserver,
) -> Result<Option<Result<ExecOutput, SandboxError>>, SandboxError> {
    let event = serde_json::from_slice(line).map_err(|error| {
        SandboxError::Interrupted(format!("the remote sandbox sent invalid output: {error}"))
    })?;
    match event {
        ExecEvent::Start(process) => observer.on_start(&process),
        ExecEvent::Output(text) => observer.on_output(&text),
        ExecEvent::End(outcome) => return Ok(Some(outcome)),
    }
    Ok(None)
}

/// The command may have run.
fn interrupted(error: CallError) -> SandboxError {
    SandboxError::Interrupted(match error {
        CallError::Refused(RpcError::UnknownExec) => {
            "the remote sandbox has ended it after a lost connection".to_owned()
        }
        error => SandboxError::from(error).to_string(),
    })
}

/// Ends a command whose future is dropped.
struct EndOnDrop {
    client: Arc<Client>,
    id: String,
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let client = Arc::clone(&self.client);
        let call = Call::new(Method::DELETE, &format!("/exec/{}", self.id), &[]);
        runtime.spawn(async move {
            // If this fails, the server ends the commands of a client that it does not hear of.
            let _ = client.retry(&call).await;
        });
    }
}

impl Sandbox for RemoteSandbox {
    fn kind(&self) -> SandboxKind {
        self.kind
    }

    fn confinement(&self) -> Confinement {
        self.confinement.clone()
    }

    fn working_dir(&self) -> Option<String> {
        self.working_dir.clone()
    }

    fn location(&self) -> Option<String> {
        Some(self.location.clone())
    }

    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let call = Call::new(Method::GET, "/files/read", &[("path", path)]);
            Ok(self.client.retry(&call).await?.to_vec())
        })
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()> {
        Box::pin(async move { self.put(&[("path", path)], bytes).await })
    }

    fn write_resolved<'a>(
        &'a self,
        path: &'a str,
        permitted: &'a ResolvedPath,
        bytes: &'a [u8],
    ) -> SandboxFuture<'a, ()> {
        Box::pin(async move {
            let permitted = serde_json::to_string(permitted).unwrap_or_default();
            self.put(&[("path", path), ("permitted", &permitted)], bytes)
                .await
        })
    }

    fn list<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<FileInfo>> {
        Box::pin(self.get("/files/list", path))
    }

    fn read_many<'a>(
        &'a self,
        paths: &'a [String],
        max_size: u64,
    ) -> BoxFuture<'a, Vec<Result<Vec<u8>, SandboxError>>> {
        Box::pin(async move {
            let mut all = Vec::with_capacity(paths.len());
            for paths in paths.chunks(READ_MANY) {
                let request = ReadManyRequest {
                    paths: paths.to_vec(),
                    max_size,
                };
                let call = Call::json("/files/read-many", &request);
                let read: Result<Vec<Result<String, SandboxError>>, _> =
                    self.client.retry_json(&call).await;
                match read {
                    Ok(files) if files.len() == paths.len() => {
                        all.extend(files.into_iter().map(|it| decode(&it?)));
                    }
                    Ok(_) => {
                        let error =
                            SandboxError::unavailable("the remote sandbox sent invalid data");
                        all.extend(paths.iter().map(|_| Err(error.clone())));
                    }
                    Err(error) => all.extend(paths.iter().map(|_| Err(error.clone()))),
                }
            }
            all
        })
    }

    fn walk<'a>(&'a self, walk: &'a WalkOptions) -> SandboxFuture<'a, WalkResult> {
        Box::pin(async move {
            let call = Call::json("/files/walk", walk);
            self.client.retry_json(&call).await
        })
    }

    fn stat<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, FileInfo> {
        Box::pin(self.get("/files/stat", path))
    }

    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        Box::pin(self.change(Call::new(Method::POST, "/files/mkdir", &[("path", path)])))
    }

    fn rmdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        Box::pin(self.change(Call::new(Method::POST, "/files/rmdir", &[("path", path)])))
    }

    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        Box::pin(async move {
            let call = Call::new(Method::DELETE, "/files", &[("path", path)]);
            let mut attempts = Attempts::new(self.client.timeout());
            loop {
                match self.client.call(&call).await {
                    Err(error @ CallError::Lost(_)) => attempts.pause(error).await?,
                    // An attempt without an answer removed it.
                    Err(CallError::Refused(RpcError::Sandbox(SandboxError::NotFound(_))))
                        if attempts.has_failed() =>
                    {
                        return Ok(());
                    }
                    outcome => return Ok(outcome.map(drop)?),
                }
            }
        })
    }

    fn kill<'a>(&'a self, process: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let call = Call::new(Method::POST, "/kill", &[("process", process)]);
            // A server that cannot be reached ends the command itself.
            let _ = self.client.call(&call).await;
        })
    }

    fn resolve_path<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ResolvedPath> {
        Box::pin(async move {
            let resolved = self.get("/files/resolve", path).await;
            resolved.unwrap_or_else(|_| ResolvedPath {
                path: path.to_owned(),
                class: PathClass::Sensitive(SensitiveReason::Unresolvable),
            })
        })
    }

    fn settle_quarantined<'a>(&'a self, paths: &'a [String], keep: bool) -> SandboxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(guard) = &self.guard {
                return guard.settle(paths, keep);
            }
            let request = SettleRequest {
                paths: paths.to_vec(),
                keep,
            };
            let call = Call::json("/files/settle", &request);
            Ok(self.client.call(&call).await.map(drop)?)
        })
    }

    fn exec<'a>(
        &'a self,
        exec: Exec,
        observer: &'a dyn ExecObserver,
    ) -> SandboxFuture<'a, ExecOutput> {
        Box::pin(self.run_guarded(exec, observer))
    }
}
