//! The client of the RPC: one connection that is opened again when it breaks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rye_engine::sandbox::SandboxError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use super::connect::{Connect, Connection, connect_error};
use super::wire::{CLIENT_TIMEOUT, Health, MAX_BODY, PROTOCOL, RpcError, SCOPE_HEADER};

/// Maximum duration of establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why a request failed.
#[derive(Debug, Clone)]
pub(super) enum CallError {
    /// The connection broke, so the server may or may not have processed the request.
    Lost(String),
    /// The server answered with an error.
    Refused(RpcError),
    /// The other end is not usable.
    Unusable(SandboxError),
}

impl From<CallError> for SandboxError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Lost(reason) => Self::unavailable(reason),
            CallError::Refused(RpcError::Sandbox(error)) | CallError::Unusable(error) => error,
            CallError::Refused(error) => Self::unavailable(format_args!(
                "the remote sandbox refused the request: {error}"
            )),
        }
    }
}

/// A request without its headers.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) method: Method,
    /// Path and query.
    pub(super) target: String,
    pub(super) body: Bytes,
}

impl Call {
    pub(super) fn new(method: Method, path: &str, query: &[(&str, &str)]) -> Self {
        let mut target = path.to_owned();
        if !query.is_empty() {
            let mut pairs = form_urlencoded::Serializer::new(String::new());
            pairs.extend_pairs(query);
            target = format!("{target}?{}", pairs.finish());
        }
        let body = Bytes::new();
        Self {
            method,
            target,
            body,
        }
    }

    pub(super) fn json(path: &str, body: &impl Serialize) -> Self {
        Self {
            body: serde_json::to_vec(body).unwrap_or_default().into(),
            ..Self::new(Method::POST, path, &[])
        }
    }
}

/// A connection that works.
#[derive(Clone)]
struct Live {
    sender: SendRequest<Full<Bytes>>,
    instance: String,
    _task: Arc<AbortOnDropHandle<()>>,
}

/// The client of a sandbox.
pub(super) struct Client {
    connect: Box<dyn Connect>,
    scope: String,
    token: Option<String>,
    live: tokio::sync::Mutex<Option<Live>>,
    /// What the server said it is, when it was first connected.
    first: Mutex<Option<Health>>,
}

impl Client {
    pub(super) fn new(connect: Box<dyn Connect>, scope: &str) -> Self {
        Self {
            token: connect.token(scope),
            connect,
            scope: scope.to_owned(),
            live: tokio::sync::Mutex::default(),
            first: Mutex::default(),
        }
    }

    /// Connects if necessary, and returns what the server is.
    pub(super) async fn health(&self) -> Result<Health, SandboxError> {
        self.live().await?;
        let first = self.first.lock().clone();
        first.ok_or_else(|| SandboxError::unavailable("the remote sandbox was not connected"))
    }

    /// How long the server keeps commands of a client that disappeared.
    pub(super) fn timeout(&self) -> Duration {
        let first = self.first.lock();
        first.as_ref().map_or(CLIENT_TIMEOUT, Health::timeout)
    }

    /// The server process that the client is connected to.
    pub(super) async fn instance(&self) -> Result<String, CallError> {
        Ok(self.live().await?.instance)
    }

    async fn live(&self) -> Result<Live, CallError> {
        let mut live = self.live.lock().await;
        if let Some(live) = live.as_ref().filter(|it| !it.sender.is_closed()) {
            return Ok(live.clone());
        }
        *live = None;
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.connect());
        let connected = connected.await.unwrap_or_else(|_| {
            let reason = format!("cannot connect to {}: timed out", self.connect.target());
            Err(CallError::Lost(reason))
        })?;
        *live = Some(connected.clone());
        Ok(connected)
    }

    async fn connect(&self) -> Result<Live, CallError> {
        let target = self.connect.target();
        let Connection {
            stream,
            guard,
            diagnostics,
        } = self.connect.connect().await.map_err(|error| {
            // A server that was reached before may come back.
            if self.first.lock().is_some() {
                CallError::Lost(error.to_string())
            } else {
                CallError::Unusable(error)
            }
        })?;
        let timeout = self.timeout();
        let builder = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .adaptive_window(true)
            .keep_alive_interval(timeout / 4)
            .keep_alive_timeout(timeout / 2)
            .keep_alive_while_idle(true)
            .clone();
        let failed =
            |reason: String| CallError::Lost(connect_error(&target, &reason, &diagnostics));
        let shaken = builder.handshake(TokioIo::new(stream)).await;
        let (sender, task) = shaken.map_err(|error| failed(error.to_string()))?;
        let task = tokio::spawn(async move {
            let _guard = guard;
            // Requests report that the connection broke.
            let _ = task.await;
        });
        let mut live = Live {
            sender,
            instance: String::new(),
            _task: Arc::new(AbortOnDropHandle::new(task)),
        };
        let health = self
            .send(&live, &Call::new(Method::GET, "/health", &[]))
            .await;
        let health: Health = match health {
            Ok(response) => read_json(response).await?,
            Err(CallError::Lost(reason)) => return Err(failed(reason)),
            Err(CallError::Refused(RpcError::Unauthorized)) => {
                let reason = format!("{target} does not accept the token");
                let hint = Some("rye vault list".to_owned());
                return Err(CallError::Unusable(SandboxError::Unavailable {
                    reason,
                    hint,
                }));
            }
            Err(error) => return Err(error),
        };
        live.instance.clone_from(&health.instance);
        self.check_same(&health)?;
        Ok(live)
    }

    /// Refuses a server that is another sandbox than the one that the session was opened with.
    fn check_same(&self, health: &Health) -> Result<(), CallError> {
        let refuse = |what: &str| {
            let target = self.connect.target();
            let error = SandboxError::unavailable(format_args!("{target} {what}"));
            Err(CallError::Unusable(error))
        };
        if health.protocol != PROTOCOL {
            return refuse("has another version of rye");
        }
        let mut first = self.first.lock();
        let is_same = first.as_ref().is_none_or(|first| {
            first.kind == health.kind
                && first.confinement == health.confinement
                && first.workspace == health.workspace
        });
        if !is_same {
            return refuse("was restarted with another sandbox; resume the session to use it");
        }
        first.get_or_insert_with(|| health.clone());
        Ok(())
    }

    async fn send(&self, live: &Live, call: &Call) -> Result<Response<Incoming>, CallError> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(format!("http://sandbox{}", call.target))
            .header(header::CONTENT_TYPE, "application/json")
            .header(SCOPE_HEADER, &self.scope);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(call.body.clone()));
        let invalid =
            |error: axum::http::Error| CallError::Refused(RpcError::Invalid(error.to_string()));
        let request = request.map_err(invalid)?;
        let lost = |error: hyper::Error| {
            let target = self.connect.target();
            CallError::Lost(format!("lost the connection to {target}: {error}"))
        };
        let mut sender = live.sender.clone();
        sender.ready().await.map_err(lost)?;
        let response = sender.send_request(request).await.map_err(lost)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = read_bytes(response).await?;
        let refused = serde_json::from_slice(&bytes);
        Err(CallError::Refused(refused.unwrap_or_else(|_| {
            RpcError::Invalid(format!("the server answered {status}"))
        })))
    }

    /// Sends a request once.
    pub(super) async fn call(&self, call: &Call) -> Result<Response<Incoming>, CallError> {
        let live = self.live().await?;
        self.send(&live, call).await
    }

    /// Sends a request, and sends it again if the connection breaks.
    pub(super) async fn retry(&self, call: &Call) -> Result<Bytes, CallError> {
        let mut attempts = Attempts::new(self.timeout());
        loop {
            let read = async { read_bytes(self.call(call).await?).await };
            match read.await {
                Err(error @ CallError::Lost(_)) => attempts.pause(error).await?,
                outcome => return outcome,
            }
        }
    }

    pub(super) async fn retry_json<T: DeserializeOwned>(
        &self,
        call: &Call,
    ) -> Result<T, SandboxError> {
        Ok(parse(&self.retry(call).await?)?)
    }
}

/// Counts how long attempts have failed.
pub(super) struct Attempts {
    since: Option<Instant>,
    give_up: Duration,
    pause: Duration,
}

impl Attempts {
    pub(super) fn new(give_up: Duration) -> Self {
        Self {
            since: None,
            give_up,
            pause: FIRST_PAUSE,
        }
    }

    /// The server answered.
    pub(super) fn succeeded(&mut self) {
        self.since = None;
        self.pause = FIRST_PAUSE;
    }

    /// Whether an attempt has failed since the last answer.
    pub(super) fn has_failed(&self) -> bool {
        self.since.is_some()
    }

    /// Waits before the next attempt; returns the error if it is time to give up.
    pub(super) async fn pause(&mut self, error: CallError) -> Result<(), CallError> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.give_up {
            return Err(error);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

async fn read_bytes(response: Response<Incoming>) -> Result<Bytes, CallError> {
    let body = Limited::new(response.into_body(), MAX_BODY);
    let collected = body.collect().await;
    let collected = collected.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            let message = "the remote sandbox sent too much";
            return CallError::Unusable(SandboxError::unavailable(message));
        }
        CallError::Lost(format!(
            "lost the connection to the remote sandbox: {error}"
        ))
    })?;
    Ok(collected.to_bytes())
}

async fn read_json<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, CallError> {
    parse(&read_bytes(response).await?)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(bytes).map_err(|error| {
        let error = format_args!("the remote sandbox sent invalid data: {error}").to_string();
        CallError::Unusable(SandboxError::unavailable(error))
    })
}
