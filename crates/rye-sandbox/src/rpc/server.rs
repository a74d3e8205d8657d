//! The server of the RPC.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Extension, Path as UrlPath, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use futures_util::stream;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use lillux::Hash;
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use rye_engine::sandbox::{FileInfo, ResolvedPath, Sandbox, SandboxError, WalkOptions, WalkResult};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::execs::{Execution, Scope};
use super::wire::{
    CLIENT_TIMEOUT, ExecRequest, GREETING, Health, MAX_BODY, PROTOCOL, ReadManyRequest, RpcError,
    SCOPE_HEADER, Secret, SettleRequest, encode,
};

/// Maximum duration of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed `accept`, for example because the process has too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Maximum number of open connections.
const MAX_CONNECTIONS: usize = 512;
/// Maximum length of the id of a sandbox or a command.
const MAX_ID: usize = 64;
/// How long a sandbox without commands is remembered after its last request.
const FORGET_AFTER: Duration = Duration::from_mins(10);

/// Options of a server.
#[derive(Clone)]
pub struct ServeOptions {
    /// The secret from which clients derive their tokens. Without it, no token is needed: only for
    /// a connection that no other client can use.
    pub secret: Option<Secret>,
    /// Commands of a client that sends no request for this long are ended.
    pub client_timeout: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            secret: None,
            client_timeout: CLIENT_TIMEOUT,
        }
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A certificate or key cannot be read.
    #[error("cannot read {path}: {reason}")]
    Pem {
        /// The file.
        path: String,
        /// Cause of the failure.
        reason: String,
    },
    /// The certificate and key do not fit.
    #[error("cannot use the certificate: {0}")]
    Tls(#[from] rustls::Error),
}

/// Serves a sandbox. Dropping it ends all commands.
#[derive(Clone)]
pub struct SandboxServer {
    state: Arc<ServerState>,
    _watchdog: Arc<AbortOnDropHandle<()>>,
}

struct ServerState {
    sandbox: Arc<dyn Sandbox>,
    options: ServeOptions,
    instance: String,
    scopes: Mutex<HashMap<String, Arc<Scope>>>,
}

impl SandboxServer {
    /// Creates a server. Must be called within a Tokio runtime.
    pub fn new(sandbox: Arc<dyn Sandbox>, options: ServeOptions) -> Self {
        let seed = format!("{}:{:?}", std::process::id(), std::time::SystemTime::now());
        let state = Arc::new(ServerState {
            sandbox,
            options,
            instance: Hash::digest(seed).to_hex(),
            scopes: Mutex::default(),
        });
        let watchdog = tokio::spawn(end_abandoned(Arc::clone(&state)));
        Self {
            state,
            _watchdog: Arc::new(AbortOnDropHandle::new(watchdog)),
        }
    }

    /// Serves one connection until it ends.
    pub async fn serve_stream(&self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = TowerToHyperService::new(router(Arc::clone(&self.state)));
        let mut builder = auto::Builder::new(TokioExecutor::new());
        let keep_alive = self.state.options.client_timeout / 4;
        builder.http1().timer(TokioTimer::new());
        let mut http2 = builder.http2();
        http2.timer(TokioTimer::new());
        http2.keep_alive_interval(keep_alive);
        http2.keep_alive_timeout(self.state.options.client_timeout);
        http2.adaptive_window(true);
        // A connection that breaks is the client's to report.
        let _ = builder.serve_connection(TokioIo::new(io), service).await;
    }

    /// Serves a client on the standard streams until it closes them, then ends all commands.
    pub async fn serve_stdio(
        &self,
        stdin: impl AsyncRead + Unpin + Send + 'static,
        mut stdout: impl AsyncWrite + Unpin + Send + 'static,
    ) -> io::Result<()> {
        stdout.write_all(GREETING).await?;
        stdout.flush().await?;
        self.serve_stream(tokio::io::join(stdin, stdout)).await;
        self.end_all().await;
        Ok(())
    }

    /// Serves a listener until the future is dropped.
    pub async fn serve_tcp(&self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        let slots = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            let Ok((socket, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            };
            let _ = socket.set_nodelay(true);
            let (server, tls) = (self.clone(), tls.clone());
            connections.spawn(async move {
                let _slot = slot;
                match tls {
                    None => server.serve_stream(socket).await,
                    Some(tls) => {
                        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(socket));
                        if let Ok(Ok(stream)) = handshake.await {
                            server.serve_stream(stream).await;
                        }
                    }
                }
            });
        }
    }

    /// Ends all commands of all clients.
    pub async fn end_all(&self) {
        let scopes: Vec<_> = self.state.scopes.lock().values().cloned().collect();
        for scope in scopes {
            scope.end_all().await;
        }
    }
}

/// Ends the commands of clients that have disappeared.
async fn end_abandoned(state: Arc<ServerState>) {
    let timeout = state.options.client_timeout;
    loop {
        tokio::time::sleep(timeout / 4).await;
        let all: Vec<_> = state.scopes.lock().values().cloned().collect();
        for scope in all.iter().filter(|it| it.idle_for() > timeout) {
            scope.end_all().await;
        }
        let mut scopes = state.scopes.lock();
        scopes.retain(|_, scope| scope.idle_for() < timeout + FORGET_AFTER);
    }
}

/// A TLS acceptor with the certificate chain and the private key of two PEM files.
pub fn tls_acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, ServeError> {
    let failed = |path: &Path, reason: String| ServeError::Pem {
        path: path.display().to_string(),
        reason,
    };
    let read = |path: &Path| File::open(path).map_err(|error| failed(path, error.to_string()));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(read(certificates)?).collect();
    let chain = chain.map_err(|error| failed(certificates, error.to_string()))?;
    let private = PrivateKeyDer::from_pem_reader(read(key)?);
    let private = private.map_err(|error| failed(key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions()?;
    let mut config = config
        .with_no_client_auth()
        .with_single_cert(chain, private)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn router(state: Arc<ServerState>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/files/stat", get(stat))
        .route("/files/read", get(read))
        .route("/files/read-many", post(read_many))
        .route("/files/list", get(list))
        .route("/files/walk", post(walk))
        .route("/files/rmdir", post(rmdir))
        .route("/files/resolve", get(resolve))
        .route("/files/write", put(write))
        .route("/files/mkdir", post(mkdir))
        .route("/files", delete(remove))
        .route("/files/settle", post(settle))
        .route("/exec", post(start))
        .route("/exec/{id}", delete(end))
        .route("/exec/{id}/output", get(output))
        .route("/kill", post(kill))
        .layer(from_fn_with_state(Arc::clone(&state), authorize))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(state)
}

type ServerResult<T> = Result<T, RpcError>;
type Server = State<Arc<ServerState>>;

impl IntoResponse for RpcError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::UnknownExec | Self::Sandbox(SandboxError::NotFound(_)) => StatusCode::NOT_FOUND,
            Self::OtherInstance | Self::Sandbox(SandboxError::PathChanged(_)) => {
                StatusCode::CONFLICT
            }
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Sandbox(SandboxError::Outside(_) | SandboxError::Private(_)) => {
                StatusCode::FORBIDDEN
            }
            Self::Sandbox(_) => StatusCode::UNPROCESSABLE_ENTITY,
        };
        (status, Json(self)).into_response()
    }
}

/// Checks the token, and finds the scope of the request.
async fn authorize(State(state): Server, mut request: Request, next: Next) -> Response {
    let Some(id) = authorized_scope(&state, request.headers()) else {
        return RpcError::Unauthorized.into_response();
    };
    let scope = Arc::clone(state.scopes.lock().entry(id).or_default());
    scope.touch();
    request.extensions_mut().insert(scope);
    next.run(request).await
}

fn authorized_scope(state: &ServerState, headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let scope = text(SCOPE_HEADER.parse().ok()?)?;
    if scope.len() > MAX_ID {
        return None;
    }
    if let Some(secret) = &state.options.secret {
        let token = text(header::AUTHORIZATION)?.strip_prefix("Bearer ")?;
        if !secret.verify(scope, token) {
            return None;
        }
    }
    Some(scope.to_owned())
}

async fn health(State(state): Server) -> Json<Health> {
    let timeout = state.options.client_timeout.as_millis();
    Json(Health {
        protocol: PROTOCOL,
        instance: state.instance.clone(),
        timeout_ms: u64::try_from(timeout).unwrap_or(u64::MAX),
        kind: state.sandbox.kind(),
        confinement: state.sandbox.confinement(),
        workspace: state.sandbox.working_dir(),
    })
}

#[derive(Deserialize)]
struct PathQuery {
    path: String,
}

async fn stat(State(state): Server, Query(it): Query<PathQuery>) -> ServerResult<Json<FileInfo>> {
    Ok(Json(state.sandbox.stat(&it.path).await?))
}

async fn read(State(state): Server, Query(it): Query<PathQuery>) -> ServerResult<Vec<u8>> {
    Ok(state.sandbox.read(&it.path).await?)
}

async fn read_many(
    State(state): Server,
    Json(it): Json<ReadManyRequest>,
) -> Json<Vec<Result<String, SandboxError>>> {
    let mut room = MAX_BODY / 2;
    let all = state.sandbox.read_many(&it.paths, it.max_size).await;
    let fit = all.into_iter().zip(it.paths).map(|(bytes, path)| {
        let bytes = bytes?;
        match room.checked_sub(bytes.len()) {
            Some(rest) => {
                room = rest;
                Ok(encode(&bytes))
            }
            None => Err(SandboxError::Unusable {
                path,
                reason: "too many bytes in one request".to_owned(),
            }),
        }
    });
    Json(fit.collect())
}

async fn list(
    State(state): Server,
    Query(it): Query<PathQuery>,
) -> ServerResult<Json<Vec<FileInfo>>> {
    Ok(Json(state.sandbox.list(&it.path).await?))
}

async fn walk(State(state): Server, Json(it): Json<WalkOptions>) -> ServerResult<Json<WalkResult>> {
    Ok(Json(state.sandbox.walk(&it).await?))
}

async fn resolve(State(state): Server, Query(it): Query<PathQuery>) -> Json<ResolvedPath> {
    Json(state.sandbox.resolve_path(&it.path).await)
}

#[derive(Deserialize)]
struct WriteQuery {
    path: String,
    /// The [`ResolvedPath`] that was approved, as JSON.
    permitted: Option<String>,
}

async fn write(
    State(state): Server,
    Query(it): Query<WriteQuery>,
    bytes: Bytes,
) -> ServerResult<()> {
    let Some(permitted) = it.permitted else {
        return Ok(state.sandbox.write(&it.path, &bytes).await?);
    };
    let permitted = serde_json::from_str::<ResolvedPath>(&permitted)
        .map_err(|error| RpcError::Invalid(error.to_string()))?;
    let written = state.sandbox.write_resolved(&it.path, &permitted, &bytes);
    Ok(written.await?)
}

async fn mkdir(State(state): Server, Query(it): Query<PathQuery>) -> ServerResult<()> {
    Ok(state.sandbox.mkdir(&it.path).await?)
}

async fn rmdir(State(state): Server, Query(it): Query<PathQuery>) -> ServerResult<()> {
    Ok(state.sandbox.rmdir(&it.path).await?)
}

async fn remove(State(state): Server, Query(it): Query<PathQuery>) -> ServerResult<()> {
    Ok(state.sandbox.rm(&it.path).await?)
}

async fn settle(State(state): Server, Json(it): Json<SettleRequest>) -> ServerResult<()> {
    let settled = state.sandbox.settle_quarantined(&it.paths, it.keep);
    Ok(settled.await?)
}

async fn start(
    State(state): Server,
    Extension(scope): Extension<Arc<Scope>>,
    Json(request): Json<ExecRequest>,
) -> ServerResult<()> {
    if request.id.len() > MAX_ID {
        return Err(RpcError::Invalid("the id is too long".to_owned()));
    }
    scope.start(request, &state.instance, &state.sandbox)
}

async fn end(Extension(scope): Extension<Arc<Scope>>, UrlPath(id): UrlPath<String>) {
    scope.end(id).await;
}

#[derive(Deserialize)]
struct OutputQuery {
    /// Number of bytes that the client has.
    from: usize,
}

async fn output(
    Extension(scope): Extension<Arc<Scope>>,
    UrlPath(id): UrlPath<String>,
    Query(it): Query<OutputQuery>,
) -> ServerResult<Body> {
    let execution = scope.get(&id)?;
    let next = async |(execution, offset): (Arc<Execution>, usize)| {
        let bytes = execution.read_from(offset).await?;
        let offset = offset + bytes.len();
        Some((Ok::<_, io::Error>(Bytes::from(bytes)), (execution, offset)))
    };
    Ok(Body::from_stream(stream::unfold(
        (execution, it.from),
        next,
    )))
}

#[derive(Deserialize)]
struct KillQuery {
    process: String,
}

async fn kill(Extension(scope): Extension<Arc<Scope>>, Query(it): Query<KillQuery>) {
    scope.kill(&it.process).await;
}
