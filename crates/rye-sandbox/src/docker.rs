//! The sandbox in a container, over the API of Docker or Podman.
//!
//! The container runs this program as the server of the [RPC](crate::rpc), on its standard streams.
//! It ends when this process closes them, also by being killed, and the engine then removes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use lillux::Hash;
use rye_engine::BoxFuture;
use rye_engine::protocol::SandboxId;
use rye_engine::sandbox::{
    Confinement, Enforcement, FileAccess, NetworkAccess, ProcessAccess, SandboxError,
};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::ConfinementPolicy;
use crate::confined::{GuardKind, ProtectedFiles, WorkspaceGuard};
use crate::rpc::{Connect, Connection, Diagnostics, RemoteSandbox, connect_error, read_greeting};

/// Where the program is inside of the container.
const PROGRAM: &str = "/.rye/rye";
/// Label of the container with the id of the sandbox.
const LABEL: &str = "rye.sandbox";
/// The network that has no interfaces.
const NO_NETWORK: &str = "none";
/// Maximum size of an answer of the API.
const MAX_ANSWER: usize = 1024 * 1024;
/// Maximum size of a frame of the attached streams.
const MAX_FRAME: usize = 1024 * 1024;
/// Number of standard error in a frame.
const STDERR: u8 = 2;

/// A container to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerOptions {
    /// Socket of the API.
    pub socket: PathBuf,
    /// Image of the container. It must be there already.
    pub image: String,
    /// Name of the network; `none` by default.
    pub network: String,
    /// Maximum memory of all processes together, in MiB.
    pub memory_mib: u64,
    /// Maximum number of processes and threads.
    pub processes: u64,
    /// Maximum number of open descriptors of a process.
    pub open_files: u64,
    /// Names the files of the workspace that are read-only.
    pub policy: ConfinementPolicy,
    /// Directory that is mounted at its own path.
    pub workspace: PathBuf,
    /// The `rye` program, which is mounted read-only.
    pub program: PathBuf,
}

impl DockerOptions {
    /// The sockets of Docker and Podman, most likely first.
    pub fn sockets() -> Vec<PathBuf> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let docker_host = std::env::var("DOCKER_HOST").ok();
        let given = docker_host.and_then(|it| Some(PathBuf::from(it.strip_prefix("unix://")?)));
        let own = ["docker.sock", "podman/podman.sock"];
        let own = own
            .into_iter()
            .filter_map(|name| Some(runtime.as_ref()?.join(name)));
        let system = ["/var/run/docker.sock", "/run/podman/podman.sock"];
        given
            .into_iter()
            .chain(own)
            .chain(system.map(PathBuf::from))
            .collect()
    }

    /// Creates the container when it is first used, and connects to it.
    pub async fn open(self, id: &SandboxId) -> Result<RemoteSandbox, SandboxError> {
        let workspace = self.workspace.to_string_lossy().into_owned();
        let confinement = self.confinement();
        let guard = Arc::new(WorkspaceGuard::new(&self.workspace, self.policy.clone()));
        let container = Container {
            options: self,
            guard: Arc::clone(&guard),
            id: id.to_string(),
        };
        let remote = RemoteSandbox::open(Box::new(container), id).await?;
        Ok(remote.in_container(confinement, workspace, guard))
    }

    /// Checks that the engine answers; returns its name and version.
    pub async fn version(&self) -> Result<String, SandboxError> {
        let version = self.call(Method::GET, "/version", None).await?;
        let name = version["Components"][0]["Name"].as_str();
        let name = name.filter(|name| !name.is_empty()).unwrap_or("engine");
        let name = lillux::sanitize_line(name);
        let number = version["Version"].as_str().unwrap_or("unknown");
        Ok(format!("{name}, version {number}"))
    }

    fn confinement(&self) -> Confinement {
        let policy = self.spec("", "", &ProtectedFiles::default()).to_string();
        Confinement {
            files: FileAccess::Workspace,
            network: if self.network == NO_NETWORK {
                NetworkAccess::None
            } else {
                NetworkAccess::Host
            },
            processes: ProcessAccess::Own,
            enforcement: Some(Enforcement {
                tier: "container".to_owned(),
                policy: Hash::digest(policy).to_hex(),
            }),
        }
    }

    /// The request that creates the container.
    fn spec(&self, user: &str, id: &str, protected: &ProtectedFiles) -> Value {
        let mount = |source: &Path, target: &str, read_only: bool| {
            json!({
                "Type": "bind",
                "Source": source.to_string_lossy(),
                "Target": target,
                "ReadOnly": read_only,
            })
        };
        let mut mounts = vec![
            mount(&self.workspace, &self.workspace.to_string_lossy(), false),
            mount(&self.program, PROGRAM, true),
        ];
        for guard in protected.guards() {
            let path = self.workspace.join(guard.path);
            let source = match guard.kind {
                GuardKind::ReadOnly => path.as_path(),
                // Hides it.
                GuardKind::Socket => Path::new("/dev/null"),
            };
            mounts.push(mount(source, &path.to_string_lossy(), true));
        }
        let limit = |name: &str, value: u64| json!({ "Name": name, "Soft": value, "Hard": value });
        let workspace = self.workspace.to_string_lossy();
        json!({
            "Image": self.image,
            "Entrypoint": [PROGRAM],
            "Cmd": ["sandbox", "serve", "--stdio", "--sandbox", "local", "--workspace", workspace],
            "User": user,
            "Env": ["HOME=/tmp", "LANG=C.UTF-8"],
            "WorkingDir": workspace,
            "Labels": { (LABEL): id },
            "AttachStdin": true,
            "AttachStdout": true,
            "AttachStderr": true,
            "OpenStdin": true,
            "StdinOnce": true,
            "Tty": false,
            "HostConfig": {
                "AutoRemove": true,
                "NetworkMode": self.network,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "PidsLimit": self.processes,
                "Memory": self.memory_mib.saturating_mul(1024 * 1024),
                "Ulimits": [limit("nofile", self.open_files), limit("nproc", self.processes)],
                "Tmpfs": { "/tmp": "rw,exec,nosuid,nodev,mode=1777" },
                "Mounts": mounts,
            },
        })
    }

    /// Sends a request, and returns the answer as it comes.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        upgrade: bool,
    ) -> Result<Response<Incoming>, SandboxError> {
        let failed = |error: &dyn std::fmt::Display| SandboxError::Unavailable {
            reason: format!(
                "cannot reach Docker or Podman at {}: {error}",
                self.socket.display()
            ),
            hint: Some("systemctl --user start podman.socket".to_owned()),
        };
        let stream = UnixStream::connect(&self.socket).await;
        let stream = TokioIo::new(stream.map_err(|error| failed(&error))?);
        let handshake = hyper::client::conn::http1::handshake(stream).await;
        let (mut sender, connection) = handshake.map_err(|error| failed(&error))?;
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json");
        if upgrade {
            request = request
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "tcp");
        }
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| failed(&error))?;
        let response = sender.send_request(request).await;
        response.map_err(|error| failed(&error))
    }

    /// Sends a request, and returns the answer; the error is what the engine says.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, SandboxError> {
        let response = self.send(method, path, body, false).await?;
        let status = response.status();
        let answer = read_answer(response).await;
        if status.is_success() {
            return Ok(answer);
        }
        Err(self.refused(status, &answer))
    }

    fn refused(&self, status: StatusCode, answer: &Value) -> SandboxError {
        let message = answer["message"].as_str().unwrap_or("no reason given");
        let message = lillux::sanitize_line(message);
        let hint = (status == StatusCode::NOT_FOUND).then(|| format!("docker pull {}", self.image));
        SandboxError::Unavailable {
            reason: format!("cannot start a container of {}: {message}", self.image),
            hint,
        }
    }

    /// The user to run as: the owner of the files, as the container sees them.
    async fn user(&self) -> Result<String, SandboxError> {
        let info = self.call(Method::GET, "/info", None).await?;
        let options = info["SecurityOptions"].as_array().into_iter().flatten();
        let mut options = options.filter_map(Value::as_str);
        if options.any(|it| it.contains("rootless")) {
            // The user's own id, inside of the user namespace of the engine.
            return Ok("0:0".to_owned());
        }
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        Ok(format!("{}:{}", user.as_raw(), group.as_raw()))
    }
}

async fn read_answer(response: Response<Incoming>) -> Value {
    let body = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await;
    let bytes = body
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

struct Container {
    options: DockerOptions,
    guard: Arc<WorkspaceGuard>,
    id: String,
}

impl Connect for Container {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, SandboxError>> {
        Box::pin(async move {
            let options = &self.options;
            let user = options.user().await?;
            let spec = options.spec(&user, &self.id, &self.guard.find().await);
            let created = options
                .call(Method::POST, "/containers/create", Some(&spec))
                .await?;
            let name = created["Id"].as_str().unwrap_or_default().to_owned();
            let guard = RemoveOnDrop {
                options: options.clone(),
                name: name.clone(),
            };
            let path = format!("/containers/{name}/attach?stream=1&stdin=1&stdout=1&stderr=1");
            let attached = options.send(Method::POST, &path, None, true).await?;
            if attached.status() != StatusCode::SWITCHING_PROTOCOLS {
                let status = attached.status();
                return Err(options.refused(status, &read_answer(attached).await));
            }
            let attached = hyper::upgrade::on(attached).await.map_err(|error| {
                SandboxError::unavailable(format_args!("cannot attach to the container: {error}"))
            })?;
            let path = format!("/containers/{name}/start");
            options.call(Method::POST, &path, None).await?;
            let (frames, stdin) = tokio::io::split(TokioIo::new(attached));
            let (mut stdout, writer) = tokio::io::duplex(MAX_FRAME);
            let diagnostics = Diagnostics::default();
            let copying = tokio::spawn(copy_frames(frames, writer, Arc::clone(&diagnostics)));
            if !read_greeting(&mut stdout).await {
                let _ = copying.await;
                let reason = format!("{PROGRAM} does not run in a container of {}", options.image);
                let reason = connect_error(&self.target(), &reason, &diagnostics);
                return Err(SandboxError::unavailable(reason));
            }
            Ok(Connection {
                stream: Box::new(tokio::io::join(stdout, stdin)),
                guard: Box::new(guard),
                diagnostics,
            })
        })
    }

    fn target(&self) -> String {
        format!("the container of {}", self.options.image)
    }
}

/// Separates the standard output from the standard error of a container.
async fn copy_frames(
    mut frames: impl AsyncRead + Unpin,
    mut stdout: tokio::io::DuplexStream,
    diagnostics: Diagnostics,
) {
    let mut header = [0; 8];
    while frames.read_exact(&mut header).await.is_ok() {
        let [stream, _, _, _, length @ ..] = header;
        let mut left = u32::from_be_bytes(length) as usize;
        let mut chunk = vec![0; left.min(MAX_FRAME)];
        while left > 0 {
            let part = &mut chunk[..left.min(MAX_FRAME)];
            if frames.read_exact(part).await.is_err() {
                return;
            }
            left -= part.len();
            if stream == STDERR {
                let text = String::from_utf8_lossy(part);
                let last = text.lines().rfind(|line| !line.trim().is_empty());
                if let Some(line) = last {
                    let line: String = line.chars().take(1000).collect();
                    *diagnostics.lock() = lillux::sanitize_line(&line).to_string();
                }
            } else if stdout.write_all(part).await.is_err() {
                return;
            }
        }
    }
}

/// Removes a container that does not end by itself.
struct RemoveOnDrop {
    options: DockerOptions,
    name: String,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let options = self.options.clone();
        let path = format!("/containers/{}?force=1", self.name);
        runtime.spawn(async move {
            // Usually it has ended and was removed.
            let _ = options.call(Method::DELETE, &path, None).await;
        });
    }
}
