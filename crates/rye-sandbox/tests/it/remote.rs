//! Sandboxes behind the RPC: over HTTPS, over the streams of a program, and in a container.

mod engine;
mod failures;
mod podman;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rye_engine::protocol::SandboxId;
use rye_engine::sandbox::{Sandbox, SandboxError};
use rye_sandbox::{
    ConfinementPolicy, DockerOptions, HttpsTarget, RemoteSandbox, SandboxServer, Secret,
    ServeOptions, ServedKind, SshTarget, tls_acceptor,
};
use tempfile::TempDir;
use tokio::net::TcpListener;

pub(crate) const SECRET: &str = "a secret with at least 32 characters";

/// A certificate for 127.0.0.1, and its authority.
pub(crate) struct Certificates {
    dir: TempDir,
}

impl Certificates {
    pub(crate) fn get() -> &'static Self {
        static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
        CERTIFICATES.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            let commands = [
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                 -subj /CN=authority -keyout ca.key -out ca.pem",
                "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
                 -subj /CN=server -keyout key.pem -out server.csr",
                "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile extensions -out cert.pem",
            ];
            fs::write(
                dir.path().join("extensions"),
                "subjectAltName = IP:127.0.0.1\n",
            )
            .unwrap();
            for command in commands {
                let made = std::process::Command::new("openssl")
                    .args(command.split_whitespace())
                    .current_dir(dir.path())
                    .output()
                    .unwrap();
                assert!(made.status.success(), "{made:?}");
            }
            Self { dir }
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Serves a sandbox over TLS until the runtime ends.
pub(crate) async fn serve(sandbox: Arc<dyn Sandbox>, options: ServeOptions) -> SocketAddr {
    let certificates = Certificates::get();
    let tls = tls_acceptor(
        &certificates.path("cert.pem"),
        &certificates.path("key.pem"),
    )
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = SandboxServer::new(sandbox, options);
    tokio::spawn(async move { server.serve_tcp(listener, Some(tls)).await });
    address
}

pub(crate) async fn connect(address: SocketAddr) -> Result<RemoteSandbox, SandboxError> {
    let secret = Secret::new(SECRET).unwrap();
    let ca = Certificates::get().path("ca.pem");
    let target = HttpsTarget::new(&format!("https://{address}"), secret, Some(ca))?;
    RemoteSandbox::https(target, &SandboxId::new()).await
}

/// A sandbox behind HTTPS.
pub(crate) async fn https(sandbox: Arc<dyn Sandbox>) -> RemoteSandbox {
    let options = ServeOptions {
        secret: Secret::new(SECRET),
        ..ServeOptions::default()
    };
    connect(serve(sandbox, options).await).await.unwrap()
}

/// A target whose `ssh` is a script that runs the remote command on this machine. The real ssh is
/// tested with the real program.
pub(crate) fn stdio_target(dir: &TempDir) -> SshTarget {
    static SSH: OnceLock<TempDir> = OnceLock::new();
    let ssh = SSH.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ssh");
        let script =
            "#!/bin/sh\necho 'a message of the login shell'\neval \"exec sh -c \\\"exec \\${$#}\\\"\"\n";
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        dir
    });
    SshTarget {
        host: "test".to_owned(),
        workspace: dir.path().to_str().unwrap().to_owned(),
        command: env!("CARGO_BIN_EXE_rye-sandbox-launcher").to_owned(),
        sandbox: ServedKind::Confined,
        config: None,
        ssh: ssh.path().join("ssh"),
    }
}

/// A confined sandbox behind the streams of a program.
pub(crate) async fn stdio(dir: &TempDir) -> RemoteSandbox {
    let id = SandboxId::new();
    RemoteSandbox::ssh(stdio_target(dir), &id).await.unwrap()
}

/// A local sandbox in a container of Podman, or of the [`engine`] where Podman doesn't run.
pub(crate) async fn docker(dir: &TempDir) -> RemoteSandbox {
    let options = docker_options(dir, podman::socket().unwrap_or_else(engine::start));
    options.open(&SandboxId::new()).await.unwrap()
}

pub(crate) fn docker_options(dir: &TempDir, socket: PathBuf) -> DockerOptions {
    DockerOptions {
        socket,
        image: "localhost/test".to_owned(),
        network: "none".to_owned(),
        memory_mib: 1024,
        processes: 1000,
        open_files: 1024,
        policy: ConfinementPolicy::default(),
        workspace: dir.path().canonicalize().unwrap(),
        program: env!("CARGO_BIN_EXE_rye-sandbox-launcher").into(),
    }
}
