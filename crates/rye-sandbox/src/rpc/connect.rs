//! Connections to a server: over ssh, and over TCP with or without TLS.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use lillux::{sanitize_line, shell_word};
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use rustls_platform_verifier::BuilderVerifierExt as _;
use rye_engine::BoxFuture;
use rye_engine::sandbox::SandboxError;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::wire::{GREETING, Secret};
use crate::ServedKind;

/// Maximum number of bytes that a login shell may print before the greeting.
const MAX_PREAMBLE: u64 = 64 * 1024;
/// Maximum length of a diagnostic line.
const MAX_DIAGNOSTICS: usize = 1000;

/// A stream in both directions.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// The last line that the program at the other end printed on standard error.
pub(crate) type Diagnostics = Arc<Mutex<String>>;

/// An open connection.
pub(crate) struct Connection {
    pub(crate) stream: Box<dyn Duplex>,
    /// Lives as long as the connection.
    pub(crate) guard: Box<dyn Any + Send>,
    pub(crate) diagnostics: Diagnostics,
}

/// Opens connections to a server.
pub(crate) trait Connect: Send + Sync + 'static {
    /// Opens a connection.
    fn connect(&self) -> BoxFuture<'_, Result<Connection, SandboxError>>;

    /// Name of the server for people, with its workspace if it is known.
    fn target(&self) -> String;

    /// The token of a sandbox, if the server needs one.
    fn token(&self, scope: &str) -> Option<String> {
        let _ = scope;
        None
    }
}

/// A message about a connection that failed, with what the other end printed.
pub(crate) fn connect_error(target: &str, reason: &str, diagnostics: &Diagnostics) -> String {
    let printed = diagnostics.lock();
    let reason = if printed.is_empty() { reason } else { &printed };
    format!("cannot connect to {target}: {reason}")
}

/// Reads until the greeting of a server on its standard streams. Returns false if there is none.
pub(crate) async fn read_greeting(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut end = std::collections::VecDeque::with_capacity(GREETING.len());
    let mut stream = stream.take(MAX_PREAMBLE);
    // Byte by byte, so that nothing after the greeting is consumed.
    while let Ok(byte) = stream.read_u8().await {
        if end.len() == GREETING.len() {
            end.pop_front();
        }
        end.push_back(byte);
        if end.iter().eq(GREETING) {
            return true;
        }
    }
    false
}

/// Keeps the last line of a program's standard error.
pub(crate) async fn read_diagnostics(stderr: impl AsyncRead + Unpin, last: Diagnostics) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut stderr).take(MAX_DIAGNOSTICS as u64);
        match limited.read_until(b'\n', &mut line).await {
            Ok(1..) => {}
            _ => return,
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if !text.is_empty() {
            *last.lock() = sanitize_line(text).to_string();
        }
    }
}

/// A machine that is reached over ssh. The server ends with the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTarget {
    /// Destination, as for `ssh`.
    pub host: String,
    /// Workspace on that machine.
    pub workspace: String,
    /// The program to run there, usually `rye`.
    pub command: String,
    /// Sandbox on that machine.
    pub sandbox: ServedKind,
    /// Configuration file for `ssh`, instead of the user's.
    pub config: Option<PathBuf>,
    /// The ssh client, usually `ssh`.
    pub ssh: PathBuf,
}

impl SshTarget {
    fn program(&self) -> Result<tokio::process::Command, SandboxError> {
        if self.host.is_empty() || self.host.starts_with('-') {
            let message = format!("{:?} is not an ssh destination", self.host);
            return Err(SandboxError::unavailable(message));
        }
        let mut ssh = tokio::process::Command::new(&self.ssh);
        if let Some(config) = &self.config {
            ssh.arg("-F").arg(config);
        }
        let options = [
            "BatchMode=yes",
            "ConnectTimeout=20",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
        ];
        for option in options {
            ssh.args(["-o", option]);
        }
        let remote = format!(
            "{} sandbox serve --stdio --sandbox {} --workspace {}",
            self.command,
            self.sandbox.name(),
            shell_word(Path::new(&self.workspace)),
        );
        ssh.args(["-T", &self.host, "--", &remote])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl+C is for this program, which closes the connection when it ends.
            .process_group(0)
            .kill_on_drop(true);
        Ok(ssh)
    }
}

impl Connect for SshTarget {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, SandboxError>> {
        Box::pin(async move {
            let child = self.program()?.spawn();
            let mut child = child.map_err(|error| {
                SandboxError::unavailable(format_args!("cannot run ssh: {error}"))
            })?;
            let (stdin, stdout, stderr) =
                (child.stdin.take(), child.stdout.take(), child.stderr.take());
            let (Some(stdin), Some(mut stdout), Some(stderr)) = (stdin, stdout, stderr) else {
                return Err(SandboxError::unavailable("ssh has no standard streams"));
            };
            let diagnostics = Diagnostics::default();
            let reading = tokio::spawn(read_diagnostics(stderr, Arc::clone(&diagnostics)));
            if !read_greeting(&mut stdout).await {
                let _ = reading.await;
                let reason = "the remote end is not `rye sandbox serve`";
                let reason = connect_error(&self.target(), reason, &diagnostics);
                return Err(SandboxError::unavailable(reason));
            }
            Ok(Connection {
                stream: Box::new(tokio::io::join(stdout, stdin)),
                guard: Box::new(child),
                diagnostics,
            })
        })
    }

    fn target(&self) -> String {
        format!("ssh://{}{}", self.host, self.workspace)
    }
}

/// A server that is reached over HTTPS, or over HTTP on this machine.
#[derive(Clone)]
pub struct HttpsTarget {
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    secret: Secret,
}

impl HttpsTarget {
    /// A server with this URL. `ca` is a PEM file with the only accepted authorities; without it,
    /// those of the system are.
    pub fn new(url: &str, secret: Secret, ca: Option<PathBuf>) -> Result<Self, SandboxError> {
        let invalid = |reason: &str| {
            SandboxError::unavailable(format_args!(
                "the url {url:?} of the remote sandbox {reason}"
            ))
        };
        let uri: axum::http::Uri = url.parse().map_err(|_| invalid("is invalid"))?;
        let host = uri.host().ok_or_else(|| invalid("names no host"))?;
        let host = host.trim_matches(['[', ']']).to_owned();
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(invalid("must not have a path"));
        }
        let is_loopback = host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|it| it.is_loopback());
        let (tls, default_port) = match uri.scheme_str() {
            Some("https") => (Some(tls_connector(ca)?), 443),
            Some("http") if is_loopback => (None, 80),
            _ => return Err(invalid("must start with https://")),
        };
        Ok(Self {
            port: uri.port_u16().unwrap_or(default_port),
            host,
            tls,
            secret,
        })
    }
}

fn tls_connector(ca: Option<PathBuf>) -> Result<TlsConnector, SandboxError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |error: &dyn std::fmt::Display| {
        SandboxError::unavailable(format_args!("cannot use TLS: {error}"))
    };
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?;
    let config = match ca {
        None => config
            .with_platform_verifier()
            .map_err(|error| failed(&error))?,
        Some(path) => {
            let unreadable = |error: &dyn std::fmt::Display| {
                failed(&format_args!("cannot read {}: {error}", path.display()))
            };
            let mut roots = rustls::RootCertStore::empty();
            let certificates =
                CertificateDer::pem_file_iter(&path).map_err(|error| unreadable(&error))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| unreadable(&error))?;
                roots.add(certificate).map_err(|error| unreadable(&error))?;
            }
            config.with_root_certificates(roots)
        }
    };
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Connect for HttpsTarget {
    fn connect(&self) -> BoxFuture<'_, Result<Connection, SandboxError>> {
        Box::pin(async move {
            let failed = |error: std::io::Error| {
                let reason = format!("cannot connect to {}: {error}", self.target());
                SandboxError::unavailable(reason)
            };
            let socket = TcpStream::connect((self.host.as_str(), self.port)).await;
            let socket = socket.map_err(failed)?;
            let _ = socket.set_nodelay(true);
            let stream: Box<dyn Duplex> = match &self.tls {
                None => Box::new(socket),
                Some(tls) => {
                    let name = ServerName::try_from(self.host.clone());
                    let name = name.map_err(|error| failed(std::io::Error::other(error)))?;
                    Box::new(tls.connect(name, socket).await.map_err(failed)?)
                }
            };
            Ok(Connection {
                stream,
                guard: Box::new(()),
                diagnostics: Diagnostics::default(),
            })
        })
    }

    fn target(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        format!("{scheme}://{host}:{}", self.port)
    }

    fn token(&self, scope: &str) -> Option<String> {
        Some(self.secret.token(scope))
    }
}
