//! An open connection to a server, shared by all calls.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lillux::process::Stream;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ErrorData, Implementation,
    ProgressNotificationParam, ProgressToken, ProtocolVersion,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, Peer, RequestContext,
    RoleClient, RunningService,
};
use rye_executor::OutputListener;
use rye_executor::redact::Redactor;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::diagnostics::DiagnosticsLog;
use super::elicitation::{ElicitationRouter, ElicitationSettings};
use super::error::{ClientError, ClientErrorKind};
use super::in_flight::InFlightRequests;
use super::process::{ProcessEnd, ServerProcess};
use super::tools::RemoteTool;

/// How long a shutdown waits for cancellations to be sent.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection to a server. Dropping it closes it and ends the server's process.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: String,
    pub(super) peer: Peer<RoleClient>,
    pub(super) in_flight: Arc<InFlightRequests>,
    pub(super) log: DiagnosticsLog,
    pub(super) client: Arc<Client>,
    /// Cached list of tools.
    pub(super) tools: Mutex<Option<Arc<[RemoteTool]>>>,
    pub(super) max_message: usize,
    pub(super) process: Option<Arc<ServerProcess>>,
    pub(super) usage: Arc<Usage>,
    pub(super) closing: CancellationToken,
    pub(super) closed: CancellationToken,
}

/// Counts the calls in progress over a connection.
#[derive(Debug, Default)]
pub(super) struct Usage {
    calls: AtomicUsize,
    changed: Notify,
}

/// Keeps a connection from being considered idle.
pub(super) struct BusyGuard(Arc<Usage>);

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }
}

impl Connection {
    /// Spawns the task that watches the connection until either side closes it or it is idle.
    pub(super) fn watch(
        &self,
        running: RunningService<RoleClient, Arc<Client>>,
        idle_timeout: Duration,
    ) {
        let (closing, closed) = (self.closing.clone(), self.closed.clone());
        let (process, usage) = (self.process.clone(), Arc::clone(&self.usage));
        tokio::spawn(async move {
            let waiting = running.waiting();
            tokio::pin!(waiting);
            tokio::select! {
                _ = &mut waiting => {}
                () = usage.idle_for(idle_timeout) => {
                    closing.cancel();
                    let _ = waiting.await;
                }
            }
            closed.cancel();
            if let Some(process) = process {
                process.shutdown().await;
            }
        });
    }

    /// Whether calls can be sent over the connection.
    pub(super) fn is_open(&self) -> bool {
        !self.closed.is_cancelled()
            && !self.closing.is_cancelled()
            && !self.peer.is_transport_closed()
    }

    /// Whether the server is reached over HTTP rather than run as a child process.
    pub(super) fn is_remote(&self) -> bool {
        self.process.is_none()
    }

    /// Marks the connection as used until the guard is dropped.
    pub(super) fn busy_guard(&self) -> BusyGuard {
        self.usage.calls.fetch_add(1, Ordering::Relaxed);
        self.usage.changed.notify_waiters();
        BusyGuard(Arc::clone(&self.usage))
    }

    /// Closes the connection; calls in progress fail.
    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    /// Closes the connection and waits until the server has ended.
    pub(super) async fn shutdown(&self) {
        // Cancellations of dropped calls may still have to be sent.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.usage.idle_for(Duration::ZERO)).await;
        self.closing.cancel();
        self.closed.cancelled().await;
        if let Some(process) = &self.process {
            process.shutdown().await;
        }
    }

    /// The error of a call that found the connection closed.
    pub(super) async fn closed_error(&self, sent: bool) -> ClientError {
        let kind = match self.in_flight.fault() {
            Some(fault) => fault,
            None => ClientErrorKind::ConnectionLost {
                cause: self.close_reason().await,
                was_sent: sent,
            },
        };
        self.error(kind)
    }

    async fn close_reason(&self) -> String {
        if self.closing.is_cancelled() {
            return "was shut down".to_owned();
        }
        let Some(process) = &self.process else {
            return "closed the connection".to_owned();
        };
        match process.wait_end().await {
            Some(ProcessEnd::Exited(how)) => how,
            Some(ProcessEnd::NotStarted(why)) => why,
            Some(ProcessEnd::Stopped) | None => "closed its standard output".to_owned(),
        }
    }

    pub(super) fn error(&self, kind: ClientErrorKind) -> ClientError {
        ClientError::new(&self.server, kind).with_diagnostics(self.log.snapshot())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Usage {
    /// Waits until there has been no call for `time`.
    async fn idle_for(&self, time: Duration) {
        let mut since = Instant::now();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.calls.load(Ordering::Relaxed) > 0 {
                changed.await;
                since = Instant::now();
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep_until(since + time) => return,
                () = changed => since = Instant::now(),
            }
        }
    }
}

/// Handles requests and notifications of a server.
#[derive(Debug)]
pub(super) struct Client {
    /// Answers elicitations.
    pub(super) elicitations: ElicitationRouter,
    /// Progress listeners of the calls in progress.
    pub(super) listeners: Mutex<HashMap<ProgressToken, OutputListener>>,
    /// The server has reported a change of its tools since they were listed.
    pub(super) tools_changed: AtomicBool,
}

impl Client {
    pub(super) fn new(server: &str, settings: &ElicitationSettings, redactor: &Redactor) -> Self {
        Self {
            elicitations: ElicitationRouter::new(server, settings, redactor),
            listeners: Mutex::default(),
            tools_changed: AtomicBool::default(),
        }
    }
}

impl ClientHandler for Client {
    /// Sampling is not offered: a server must not spend the user's model budget.
    fn get_info(&self) -> ClientConfig {
        let client = Implementation::new("rye", env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.elicitations.capability();
        ClientConfig::new(capabilities, client)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let listeners = self.listeners.lock().await;
        if let Some(listener) = listeners.get(&progress.progress_token) {
            listener.on_output(Stream::Stderr, progress_line(&progress).as_bytes());
        }
    }

    async fn create_elicitation(
        &self,
        form: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(self.elicitations.on_request(form).await)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tools_changed.store(true, Ordering::Release);
    }
}

/// Formats a progress notification as one line.
fn progress_line(progress: &ProgressNotificationParam) -> String {
    let message = progress.message.as_deref().unwrap_or_default();
    let message = lillux::strip_control(message).replace('\n', " ");
    let total = progress
        .total
        .map_or_else(String::new, |total| format!("/{total}"));
    format!("{}{total} {message}", progress.progress)
        .trim_end()
        .to_owned()
        + "\n"
}

/// The SDK's mode for a handshake with or without `server/discover`.
pub(super) fn lifecycle_mode(use_discover: bool) -> ClientLifecycleMode {
    if use_discover {
        ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::LATEST],
        }
    } else {
        ClientLifecycleMode::Initialize
    }
}

/// Whether a server rejected the handshake in a way that suggests the other revision.
pub(super) fn is_unsupported_revision(error: &ClientInitializeError) -> bool {
    use rmcp::model::ErrorCode;
    let ClientInitializeError::JsonRpcError(error) = error else {
        return false;
    };
    [
        ErrorCode::METHOD_NOT_FOUND,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
        // A server that supports only 2026-07-28 misses a header in `initialize`.
        ErrorCode::HEADER_MISMATCH,
    ]
    .contains(&error.code)
}
