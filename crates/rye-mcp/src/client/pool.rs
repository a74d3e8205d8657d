//! Connection pool: connects to a server on first use and keeps the connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lillux::process::Supervisor;
use parking_lot::{Mutex, RwLock};
use rye_executor::OutputListener;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::call::ToolCall;
use super::connect::{self, ConnectionKey, Connector, ServerSpec};
use super::connection::Connection;
use super::elicitation::{ElicitationHandler, ElicitationSettings};
use super::error::{ClientError, ClientErrorKind};
use super::login::{LoginGrant, LoginRequest};
use super::tools::RemoteTool;

/// How long a shutdown of all servers may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections to servers. Clones share them. Dropping the last clone closes the connections and
/// ends the servers' processes.
#[derive(Debug, Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connector: Connector,
    slots: Mutex<HashMap<ConnectionKey, Arc<Slot>>>,
    closing: CancellationToken,
}

/// Connection state of one server.
#[derive(Debug, Default)]
struct Slot {
    /// Number of failed attempts to connect.
    failures: AtomicU64,
    /// Locked while a call connects, because other calls wait for the same connection.
    state: tokio::sync::Mutex<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    connection: Option<Arc<Connection>>,
    failure: Option<ClientError>,
}

impl Pool {
    /// Creates a pool whose server processes run under `supervisor`. It offers no elicitation.
    pub fn new(supervisor: &Supervisor) -> Self {
        Self::with_settings(supervisor, ElicitationSettings::default())
    }

    /// Creates a pool that offers elicitation. `default_handler` answers for calls without a
    /// handler.
    pub fn with_elicitation(
        supervisor: &Supervisor,
        default_handler: Option<Arc<dyn ElicitationHandler>>,
    ) -> Self {
        let elicitation = ElicitationSettings {
            is_offered: true,
            default_handler,
        };
        Self::with_settings(supervisor, elicitation)
    }

    fn with_settings(supervisor: &Supervisor, elicitation: ElicitationSettings) -> Self {
        Self {
            shared: Arc::new(Shared {
                connector: Connector {
                    supervisor: supervisor.clone(),
                    http: OnceLock::new(),
                    elicitation,
                    start_listener: RwLock::default(),
                },
                slots: Mutex::default(),
                closing: CancellationToken::new(),
            }),
        }
    }

    /// Passes the output of servers to a listener while they start, with secrets redacted.
    pub fn set_start_listener(&self, listener: OutputListener) {
        *self.shared.connector.start_listener.write() = Some(listener);
    }

    /// Logs the user in to a server and seals the tokens in the vault, where later calls find
    /// them. Passes the URL of the login page to `show`.
    pub async fn log_in(
        &self,
        server: &ServerSpec,
        request: &LoginRequest,
        show: impl FnOnce(&str) + Send,
    ) -> Result<LoginGrant, ClientError> {
        let mut request = request.clone();
        if request.challenge.is_none() {
            // The challenge of the server names its authorization server.
            let error = self.shared.connector.connect(server).await.err();
            request.challenge = match error.map(|error| error.kind) {
                Some(ClientErrorKind::LoginNeeded { challenge, .. }) => {
                    Some(challenge).filter(|challenge| !challenge.is_empty())
                }
                _ => None,
            };
        }
        self.shared.connector.log_in(server, &request, show).await
    }

    /// Deletes the tokens of a server; false if there were none.
    pub fn log_out(server: &ServerSpec) -> Result<bool, ClientError> {
        connect::log_out(server)
    }

    /// Calls a tool and returns the server's result with secrets redacted.
    ///
    /// If the connection is lost, the call is retried once, provided that it did not reach the
    /// server or that the tool is annotated as repeatable.
    pub async fn call(&self, server: &ServerSpec, call: &ToolCall) -> Result<Value, ClientError> {
        let work = async {
            match self.attempt(server, call).await {
                Err((error, may_repeat))
                    if error.is_unsent() || (error.is_connection_lost() && may_repeat) =>
                {
                    self.attempt(server, call).await
                }
                outcome => outcome,
            }
        };
        let outcome = match call.timeout {
            None => work.await,
            Some(limit) => match timeout_at(Instant::now() + limit, work).await {
                Ok(outcome) => outcome,
                Err(_) => return Err(self.timeout_error(server, limit)),
            },
        };
        outcome.map_err(|(error, _)| error)
    }

    /// One attempt. The error says whether the call may be repeated after a lost connection.
    async fn attempt(
        &self,
        server: &ServerSpec,
        call: &ToolCall,
    ) -> Result<Value, (ClientError, bool)> {
        let connection = self
            .connection(server)
            .await
            .map_err(|error| (error, false))?;
        let _busy = connection.busy_guard();
        let limit = server.config.call_timeout;
        let call_result = async {
            let mut may_repeat = false;
            if let Some(pin) = &call.pin {
                let tool = connection.pinned_tool(&call.tool, pin).await;
                let tool = tool.map_err(|error| (error, true))?;
                may_repeat = tool.is_repeatable();
            }
            let call_result = connection.call(call).await;
            call_result.map_err(|error| (error, may_repeat))
        };
        match call.timeout {
            // The caller enforces this limit.
            Some(_) => call_result.await,
            None => match timeout_at(Instant::now() + limit, call_result).await {
                Ok(outcome) => outcome,
                Err(_) => Err((connection.error(ClientErrorKind::Timeout(limit)), false)),
            },
        }
    }

    /// Lists the tools of a server.
    pub async fn tools(&self, server: &ServerSpec) -> Result<Arc<[RemoteTool]>, ClientError> {
        let work = async {
            let connection = self.connection(server).await?;
            let _busy = connection.busy_guard();
            connection.tools().await
        };
        let limit = server.config.start_timeout() + server.config.call_timeout;
        match timeout_at(Instant::now() + limit, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.timeout_error(server, limit)),
        }
    }

    /// Closes all connections and waits a bounded time for the servers to end. Later calls fail.
    pub async fn shutdown(&self) {
        self.shared.closing.cancel();
        let slots: Vec<_> = self.shared.slots.lock().drain().collect();
        let mut shutdowns = tokio::task::JoinSet::new();
        for (_, slot) in slots {
            shutdowns.spawn(async move {
                if let Some(connection) = slot.state.lock().await.connection.take() {
                    connection.shutdown().await;
                }
            });
        }
        let all = async { while shutdowns.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await;
    }

    /// The open connection to a server, or a new one.
    async fn connection(&self, server: &ServerSpec) -> Result<Arc<Connection>, ClientError> {
        let slot = self.slot(server);
        let failures = slot.failures.load(Ordering::Acquire);
        let mut state = slot.state.lock().await;
        if self.shared.closing.is_cancelled() {
            return Err(ClientError::new(&server.id, ClientErrorKind::ShuttingDown));
        }
        if let Some(connection) = &state.connection
            && connection.is_open()
        {
            return Ok(Arc::clone(connection));
        }
        state.connection = None;
        // Another call failed to connect while this one waited; do not try again.
        if slot.failures.load(Ordering::Acquire) > failures
            && let Some(failure) = &state.failure
        {
            return Err(failure.clone());
        }
        let connected = tokio::select! {
            connected = self.shared.connector.connect(server) => connected,
            () = self.shared.closing.cancelled() => Err(ClientError::new(&server.id, ClientErrorKind::ShuttingDown)),
        };
        match connected {
            Ok(connection) => {
                let connection = Arc::new(connection);
                state.connection = Some(Arc::clone(&connection));
                state.failure = None;
                Ok(connection)
            }
            Err(error) => {
                state.failure = Some(error.clone());
                slot.failures.fetch_add(1, Ordering::Release);
                Err(error)
            }
        }
    }

    /// The slot of a server. Removes slots without an open connection when it adds one, because
    /// a changed configuration has a new key.
    fn slot(&self, server: &ServerSpec) -> Arc<Slot> {
        let key = server.key();
        let mut slots = self.shared.slots.lock();
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        slots.retain(|_, slot| match slot.state.try_lock() {
            Ok(state) => state
                .connection
                .as_ref()
                .is_some_and(|connection| connection.is_open()),
            Err(_) => true,
        });
        Arc::clone(slots.entry(key).or_default())
    }

    /// A timeout error with the diagnostics of the server, if it is connected.
    fn timeout_error(&self, server: &ServerSpec, limit: Duration) -> ClientError {
        let slot = self.shared.slots.lock().get(&server.key()).cloned();
        let state = slot.as_ref().and_then(|slot| slot.state.try_lock().ok());
        match state.and_then(|state| state.connection.clone()) {
            Some(connection) => connection.error(ClientErrorKind::Timeout(limit)),
            None => ClientError::new(&server.id, ClientErrorKind::Timeout(limit)),
        }
    }
}
