//! A server that is there: made once, shared by all calls.

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

use super::ask::{Askers, Asks};
use super::error::{ClientError, ClientErrorKind};
use super::process::{End, Process};
use super::said::Heard;
use super::tools::RemoteTool;
use super::wire::Wire;

/// How long a server that is to be left may take to hear what is still to be said.
const FAREWELL: Duration = Duration::from_millis(500);

/// A connection to a server. Dropped, it is closed, and the server's process ends.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: String,
    pub(super) peer: Peer<RoleClient>,
    pub(super) wire: Arc<Wire>,
    pub(super) heard: Heard,
    pub(super) client: Arc<Client>,
    /// What the server said of its tools, unless it has said since that they changed.
    pub(super) tools: Mutex<Option<Arc<[RemoteTool]>>>,
    pub(super) limit: usize,
    process: Option<Arc<Process>>,
    use_: Arc<Use>,
    closing: CancellationToken,
    closed: CancellationToken,
}

/// Who uses a connection.
#[derive(Debug, Default)]
struct Use {
    calls: AtomicUsize,
    changed: Notify,
}

/// A call that is under way: its connection is not idle.
pub(super) struct Busy(Arc<Use>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }
}

/// What a connection is made of.
pub(super) struct Parts {
    pub(super) server: String,
    pub(super) wire: Arc<Wire>,
    pub(super) heard: Heard,
    pub(super) client: Arc<Client>,
    pub(super) process: Option<Arc<Process>>,
    pub(super) limit: usize,
    pub(super) idle: Duration,
}

impl Connection {
    /// Keeps what was connected until it is closed, by either side or by idleness.
    pub(super) fn keep(
        running: RunningService<RoleClient, Arc<Client>>,
        closing: CancellationToken,
        parts: Parts,
    ) -> Self {
        let Parts {
            server,
            wire,
            heard,
            client,
            process,
            limit,
            idle,
        } = parts;
        let peer = running.peer().clone();
        let closed = CancellationToken::new();
        let use_ = Arc::new(Use::default());
        tokio::spawn({
            let (closing, closed) = (closing.clone(), closed.clone());
            let (process, use_) = (process.clone(), Arc::clone(&use_));
            async move {
                let waiting = running.waiting();
                tokio::pin!(waiting);
                tokio::select! {
                    _ = &mut waiting => {}
                    () = use_.idle_for(idle) => {
                        closing.cancel();
                        let _ = waiting.await;
                    }
                }
                closed.cancel();
                if let Some(process) = process {
                    process.end().await;
                }
            }
        });
        Self {
            server,
            peer,
            wire,
            heard,
            client,
            tools: Mutex::default(),
            limit,
            process,
            use_,
            closing,
            closed,
        }
    }

    /// Whether calls can be sent over it.
    pub(super) fn is_open(&self) -> bool {
        !self.closed.is_cancelled()
            && !self.closing.is_cancelled()
            && !self.peer.is_transport_closed()
    }

    /// Whether the server is reached over a network, and not a process of ours.
    pub(super) fn is_remote(&self) -> bool {
        self.process.is_none()
    }

    /// Marks it as used, until what it gives is dropped.
    pub(super) fn busy(&self) -> Busy {
        self.use_.calls.fetch_add(1, Ordering::Relaxed);
        self.use_.changed.notify_waiters();
        Busy(Arc::clone(&self.use_))
    }

    /// Closes it; what goes on over it fails.
    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    /// Closes it and waits until the server is gone.
    pub(super) async fn end(&self) {
        // Those that were cancelled just now are still being told.
        let _ = tokio::time::timeout(FAREWELL, self.use_.idle_for(Duration::ZERO)).await;
        self.closing.cancel();
        self.closed.cancelled().await;
        if let Some(process) = &self.process {
            process.end().await;
        }
    }

    /// Why it was closed, where a call found it so.
    pub(super) async fn why(&self, sent: bool) -> ClientError {
        let kind = match self.wire.fault() {
            Some(fault) => fault,
            None => ClientErrorKind::ConnectionLost {
                how: self.how().await,
                sent,
            },
        };
        self.error(kind)
    }

    async fn how(&self) -> String {
        if self.closing.is_cancelled() {
            return "was shut down".to_owned();
        }
        let Some(process) = &self.process else {
            return "closed the connection".to_owned();
        };
        match process.ended().await {
            Some(End::Ended(how)) => how,
            Some(End::NotStarted(why)) => why,
            Some(End::Stopped) | None => "closed its standard output".to_owned(),
        }
    }

    pub(super) fn error(&self, kind: ClientErrorKind) -> ClientError {
        ClientError::new(&self.server, kind).with(self.heard.said())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Use {
    /// Waits until there has been no call for some time.
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

/// Our side of the protocol: what a server may tell or ask us.
#[derive(Debug)]
pub(super) struct Client {
    /// Who is asked what it wants to know.
    pub(super) askers: Askers,
    /// Who hears of the progress of a call.
    pub(super) listeners: Mutex<HashMap<ProgressToken, OutputListener>>,
    /// Whether the server's tools have changed since they were listed.
    pub(super) is_stale: AtomicBool,
}

impl Client {
    pub(super) fn new(server: &str, asks: &Asks, redactor: &Redactor) -> Self {
        Self {
            askers: Askers::new(server, asks, redactor),
            listeners: Mutex::default(),
            is_stale: AtomicBool::default(),
        }
    }
}

impl ClientHandler for Client {
    /// A model is not offered: which it would be, and who pays, nobody has said.
    fn get_info(&self) -> ClientConfig {
        let me = Implementation::new("rye", env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = self.askers.capability();
        ClientConfig::new(capabilities, me)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let listeners = self.listeners.lock().await;
        if let Some(listener) = listeners.get(&progress.progress_token) {
            listener.on_output(Stream::Stderr, told(&progress).as_bytes());
        }
    }

    async fn create_elicitation(
        &self,
        form: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(self.askers.asked(form).await)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.is_stale.store(true, Ordering::Release);
    }
}

/// Progress as a line.
fn told(progress: &ProgressNotificationParam) -> String {
    let message = progress.message.as_deref().unwrap_or_default();
    let message = super::said::without_controls(message).replace('\n', " ");
    let total = progress
        .total
        .map_or_else(String::new, |total| format!("/{total}"));
    format!("{}{total} {message}", progress.progress)
        .trim_end()
        .to_owned()
        + "\n"
}

/// How the conversation begins.
pub(super) fn lifecycle(is_modern: bool) -> ClientLifecycleMode {
    if is_modern {
        ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::LATEST],
        }
    } else {
        ClientLifecycleMode::Initialize
    }
}

/// Whether a server refused how the conversation began, and may know only the other way.
pub(super) fn does_not_know(error: &ClientInitializeError) -> bool {
    use rmcp::model::ErrorCode;
    let ClientInitializeError::JsonRpcError(error) = error else {
        return false;
    };
    [
        ErrorCode::METHOD_NOT_FOUND,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
        // To a server of the newest revision alone, `initialize` lacks a header.
        ErrorCode::HEADER_MISMATCH,
    ]
    .contains(&error.code)
}
