//! Connections by server, made when they are first needed and kept warm.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lillux::process::Supervisor;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::ask::{Asks, ElicitationHandler};
use super::call::ToolCall;
use super::connect::{self, Connector, Key, ServerSpec};
use super::connection::Connection;
use super::error::{ClientError, ClientErrorKind};
use super::login::{LoginGrant, LoginRequest};
use super::tools::RemoteTool;

/// How long all servers together may take to end.
const ENDING: Duration = Duration::from_secs(5);

/// Connections to servers. Clones share them; when the last is dropped, they are
/// closed, and the servers' processes end.
#[derive(Debug, Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connector: Connector,
    slots: Mutex<HashMap<Key, Arc<Slot>>>,
    ended: CancellationToken,
}

/// The place of a server.
#[derive(Debug, Default)]
struct Slot {
    /// How many attempts to connect have failed.
    failures: AtomicU64,
    /// Locked while somebody connects: all others want the same connection.
    state: tokio::sync::Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Arc<Connection>>,
    failure: Option<ClientError>,
}

impl Pool {
    /// A pool whose servers run under a supervisor. It costs nothing until it is used.
    /// Its servers can ask nobody anything.
    pub fn new(supervisor: &Supervisor) -> Self {
        Self::with(supervisor, Asks::default())
    }

    /// The same, with servers that may ask: the one given, or else whoever a call is for.
    pub fn with_elicitation(
        supervisor: &Supervisor,
        usual: Option<Arc<dyn ElicitationHandler>>,
    ) -> Self {
        let asks = Asks {
            is_offered: true,
            usual,
        };
        Self::with(supervisor, asks)
    }

    fn with(supervisor: &Supervisor, asks: Asks) -> Self {
        Self {
            shared: Arc::new(Shared {
                connector: Connector {
                    supervisor: supervisor.clone(),
                    http: OnceLock::new(),
                    asks,
                },
                slots: Mutex::default(),
                ended: CancellationToken::new(),
            }),
        }
    }

    /// Lets a person log in to a server, at an address that `show` is given, and seals the
    /// tokens in the vault. Calls take them from then on.
    pub async fn log_in(
        &self,
        server: &ServerSpec,
        ask: &LoginRequest,
        show: impl FnOnce(&str) + Send,
    ) -> Result<LoginGrant, ClientError> {
        let mut ask = ask.clone();
        if ask.challenge.is_none() {
            // What it says when it does not know us tells where to go.
            let refused = self.shared.connector.connect(server).await.err();
            ask.challenge = match refused.map(|error| error.kind) {
                Some(ClientErrorKind::LoginNeeded { challenge, .. }) => {
                    Some(challenge).filter(|challenge| !challenge.is_empty())
                }
                _ => None,
            };
        }
        self.shared.connector.log_in(server, &ask, show).await
    }

    /// Forgets the tokens of a server, and says whether there were any.
    pub fn log_out(server: &ServerSpec) -> Result<bool, ClientError> {
        connect::log_out(server)
    }

    /// Calls a tool and gives its result as the server sent it.
    ///
    /// A server that is gone is started once more, if the call has certainly not
    /// reached it or may be carried out twice.
    pub async fn call(&self, server: &ServerSpec, call: &ToolCall) -> Result<Value, ClientError> {
        let work = async {
            match self.once(server, call).await {
                Err((error, may_repeat))
                    if error.is_unsent() || (error.is_lost() && may_repeat) =>
                {
                    self.once(server, call).await
                }
                outcome => outcome,
            }
        };
        let outcome = match call.timeout {
            None => work.await,
            Some(limit) => match timeout_at(Instant::now() + limit, work).await {
                Ok(outcome) => outcome,
                Err(_) => return Err(self.timed_out(server, limit)),
            },
        };
        outcome.map_err(|(error, _)| error)
    }

    /// One attempt, and whether it could be repeated if it were lost.
    async fn once(
        &self,
        server: &ServerSpec,
        call: &ToolCall,
    ) -> Result<Value, (ClientError, bool)> {
        let connection = self
            .connection(server)
            .await
            .map_err(|error| (error, false))?;
        let _busy = connection.busy();
        let limit = server.config.call_timeout;
        let answer = async {
            let mut may_repeat = false;
            if let Some(pin) = &call.pin {
                let tool = connection.accepted(&call.tool, pin).await;
                let tool = tool.map_err(|error| (error, true))?;
                may_repeat = tool.is_repeatable();
            }
            let answer = connection.call(call).await;
            answer.map_err(|error| (error, may_repeat))
        };
        match call.timeout {
            // It is kept around all of it.
            Some(_) => answer.await,
            None => match timeout_at(Instant::now() + limit, answer).await {
                Ok(outcome) => outcome,
                Err(_) => Err((connection.error(ClientErrorKind::Timeout(limit)), false)),
            },
        }
    }

    /// The tools of a server.
    pub async fn tools(&self, server: &ServerSpec) -> Result<Arc<[RemoteTool]>, ClientError> {
        let work = async {
            let connection = self.connection(server).await?;
            let _busy = connection.busy();
            connection.tools().await
        };
        let limit = server.config.start_timeout + server.config.call_timeout;
        match timeout_at(Instant::now() + limit, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.timed_out(server, limit)),
        }
    }

    /// Ends all servers, and waits a bounded time for it. There are no more after it.
    pub async fn shutdown(&self) {
        self.shared.ended.cancel();
        let slots: Vec<_> = self.slots().drain().collect();
        let mut ending = tokio::task::JoinSet::new();
        for (_, slot) in slots {
            ending.spawn(async move {
                if let Some(connection) = slot.state.lock().await.connection.take() {
                    connection.end().await;
                }
            });
        }
        let all = async { while ending.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(ENDING, all).await;
    }

    /// The connection to a server: the one there is, or a new one.
    async fn connection(&self, server: &ServerSpec) -> Result<Arc<Connection>, ClientError> {
        let slot = self.slot(server);
        let failures = slot.failures.load(Ordering::Acquire);
        let mut state = slot.state.lock().await;
        if self.shared.ended.is_cancelled() {
            return Err(ClientError::new(&server.id, ClientErrorKind::ShuttingDown));
        }
        if let Some(connection) = &state.connection
            && connection.is_open()
        {
            return Ok(Arc::clone(connection));
        }
        state.connection = None;
        // Somebody has just tried it while we waited: it would be the same for us.
        if slot.failures.load(Ordering::Acquire) > failures
            && let Some(failure) = &state.failure
        {
            return Err(failure.clone());
        }
        let connected = tokio::select! {
            connected = self.shared.connector.connect(server) => connected,
            () = self.shared.ended.cancelled() => Err(ClientError::new(&server.id, ClientErrorKind::ShuttingDown)),
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

    /// The place of a server. Those that nobody uses any more are given up: a
    /// configuration that was changed has another.
    fn slot(&self, server: &ServerSpec) -> Arc<Slot> {
        let key = server.key();
        let mut slots = self.slots();
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        slots.retain(|_, slot| match slot.state.try_lock() {
            Ok(state) => state.connection.as_ref().is_some_and(|held| held.is_open()),
            Err(_) => true,
        });
        Arc::clone(slots.entry(key).or_default())
    }

    /// An error with what the server has said so far, if it is there.
    fn timed_out(&self, server: &ServerSpec, limit: Duration) -> ClientError {
        let slot = self.slots().get(&server.key()).cloned();
        let state = slot.as_ref().and_then(|slot| slot.state.try_lock().ok());
        match state.and_then(|state| state.connection.clone()) {
            Some(connection) => connection.error(ClientErrorKind::Timeout(limit)),
            None => ClientError::new(&server.id, ClientErrorKind::Timeout(limit)),
        }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Key, Arc<Slot>>> {
        let slots = self.shared.slots.lock();
        slots.unwrap_or_else(PoisonError::into_inner)
    }
}
