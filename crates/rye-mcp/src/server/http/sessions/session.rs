//! One client's session: its requests go to the server, and what the server says goes to
//! the stream of the request that it is about.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, GetExtensions as _, GetMeta as _, JsonRpcMessage,
    ProgressToken, RequestId, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::service::OriginatingRequestId;
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::session::SessionId;
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::time::{Instant, Sleep};

use super::line::{Line, Listener};
use super::{Given, SessionError};

/// How long a session is kept in which nothing runs and nobody listens.
const IDLE: Duration = Duration::from_mins(5);

/// How many messages may wait for the server.
const WAITING: usize = 16;

/// How many may listen beside the one who hears.
const IDLERS: usize = 32;

pub(super) struct Session {
    id: SessionId,
    lines: Mutex<Lines>,
    given: Arc<Given>,
}

struct Lines {
    /// None once the session has ended.
    to_server: Option<mpsc::Sender<ClientJsonRpcMessage>>,
    /// The number of the next request's stream.
    next: u64,
    requests: HashMap<RequestId, Request>,
    progress: HashMap<ProgressToken, RequestId>,
    /// For what is about no request.
    common: Arc<Line>,
    idlers: VecDeque<Arc<Line>>,
    /// When something was last said.
    last: Instant,
}

struct Request {
    line: Arc<Line>,
    progress: Option<ProgressToken>,
}

impl Lines {
    /// Forgets a request, and gives its stream.
    fn take(&mut self, id: &RequestId) -> Option<Arc<Line>> {
        let request = self.requests.remove(id)?;
        if let Some(token) = request.progress {
            self.progress.remove(&token);
        }
        Some(request.line)
    }

    fn of_request(&self, id: &RequestId) -> Option<&Arc<Line>> {
        self.requests.get(id).map(|request| &request.line)
    }

    /// The stream of what is no answer.
    fn about(&self, message: &ServerJsonRpcMessage) -> &Arc<Line> {
        let line = match message {
            JsonRpcMessage::Request(asked) => {
                let origin = asked.request.extensions().get::<OriginatingRequestId>();
                origin.and_then(|origin| self.of_request(&origin.0))
            }
            JsonRpcMessage::Notification(told) => match &told.notification {
                ServerNotification::ProgressNotification(progress) => {
                    let request = self.progress.get(&progress.params.progress_token);
                    request.and_then(|id| self.of_request(id))
                }
                ServerNotification::CancelledNotification(cancelled) => {
                    let request = cancelled.params.request_id.as_ref();
                    request.and_then(|id| self.of_request(id))
                }
                _ => None,
            },
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => None,
        };
        line.unwrap_or(&self.common)
    }
}

impl Session {
    /// A session, and the end of it that the server holds.
    pub(super) fn new(id: SessionId, given: Arc<Given>) -> (Arc<Self>, End) {
        let (to_server, incoming) = mpsc::channel(WAITING);
        let lines = Lines {
            to_server: Some(to_server),
            next: 0,
            requests: HashMap::new(),
            progress: HashMap::new(),
            common: Arc::new(Line::common()),
            idlers: VecDeque::new(),
            last: Instant::now(),
        };
        let session = Arc::new(Self {
            id,
            lines: Mutex::new(lines),
            given,
        });
        let end = End {
            session: Arc::clone(&session),
            incoming,
            idle: Box::pin(tokio::time::sleep(IDLE)),
        };
        (session, end)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a message to the server.
    async fn room(&self) -> Result<OwnedPermit<ClientJsonRpcMessage>, SessionError> {
        let to_server = {
            let mut lines = self.lines();
            lines.last = Instant::now();
            lines.to_server.clone()
        };
        let to_server = to_server.ok_or(SessionError::Ended)?;
        let room = to_server.reserve_owned().await;
        room.map_err(|_| SessionError::Ended)
    }

    /// Hands a message to the server.
    pub(super) async fn say(&self, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        self.room().await?.send(message);
        Ok(())
    }

    /// Hands a request to the server, and listens for what it says about it.
    ///
    /// It is written down only when there is room for it: whoever is gone before that has
    /// left nothing that would wait for an answer.
    pub(super) async fn ask(
        &self,
        message: ClientJsonRpcMessage,
        begin: impl FnOnce(u64) -> Line,
    ) -> Result<Listener, SessionError> {
        let room = self.room().await?;
        let mut lines = self.lines();
        let line = Arc::new(begin(lines.next));
        lines.next += 1;
        if lines.to_server.is_none() {
            return Err(SessionError::Ended);
        }
        if let JsonRpcMessage::Request(request) = &message {
            // An id that is used again is nobody else's.
            if let Some(before) = lines.take(&request.id) {
                before.end();
            }
            let progress = request.request.get_meta().get_progress_token();
            if let Some(token) = &progress {
                lines.progress.insert(token.clone(), request.id.clone());
            }
            let asked = Request {
                line: Arc::clone(&line),
                progress,
            };
            lines.requests.insert(request.id.clone(), asked);
        }
        drop(lines);
        room.send(message);
        Ok(Listener::of(line))
    }

    /// Ends the stream of a request that the client no longer wants.
    pub(super) fn notice(&self, notification: &ClientNotification) {
        if let ClientNotification::CancelledNotification(cancelled) = notification
            && let Some(id) = &cancelled.params.request_id
            && let Some(line) = self.lines().take(id)
        {
            line.end();
        }
    }

    /// The stream of a request that has not been answered.
    pub(super) fn line(&self, number: u64) -> Option<Arc<Line>> {
        let lines = self.lines();
        let mut running = lines.requests.values().map(|request| &request.line);
        running.find(|line| line.number() == Some(number)).cloned()
    }

    /// Listens to what is about no request. One hears it; clients that open more such
    /// streams would else cut each other off, again and again.
    pub(super) fn listen(&self, after: Option<u64>) -> Listener {
        let mut lines = self.lines();
        lines.last = Instant::now();
        if lines.to_server.is_some() && lines.common.is_heard() {
            let idler = Arc::new(Line::common());
            if lines.idlers.len() == IDLERS
                && let Some(oldest) = lines.idlers.pop_front()
            {
                oldest.end();
            }
            lines.idlers.push_back(Arc::clone(&idler));
            return Listener::of(idler);
        }
        let common = Arc::clone(&lines.common);
        match after {
            Some(index) => Listener::after(common, index),
            None => Listener::of(common),
        }
    }

    /// Puts what the server says where its listener finds it.
    fn tell(&self, message: ServerJsonRpcMessage) {
        let mut lines = self.lines();
        lines.last = Instant::now();
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let Some(id) = answered else {
            lines.about(&message).say(message);
            return;
        };
        // Of a request that the client no longer wants there is none.
        let Some(line) = lines.take(id) else {
            return;
        };
        drop(lines);
        line.say(message);
        line.end();
        self.given.keep(self.id.clone(), line);
    }

    /// Ends all streams, and the server's work for this client.
    pub(super) fn end(&self) {
        let mut lines = self.lines();
        lines.to_server = None;
        lines.progress.clear();
        for (_, request) in lines.requests.drain() {
            request.line.end();
        }
        for idler in lines.idlers.drain(..) {
            idler.end();
        }
        lines.common.end();
    }

    /// When it is to be ended, should nothing happen until then.
    fn idle_at(&self) -> Instant {
        let lines = self.lines();
        let since = if lines.requests.is_empty() && !lines.common.is_heard() {
            lines.last
        } else {
            Instant::now()
        };
        since + IDLE
    }
}

/// The server's end of a session.
pub(in crate::server::http) struct End {
    session: Arc<Session>,
    incoming: mpsc::Receiver<ClientJsonRpcMessage>,
    /// One timer for all messages: it looks back when it rings.
    idle: Pin<Box<Sleep>>,
}

impl Transport<RoleServer> for End {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        self.session.tell(message);
        ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            tokio::select! {
                biased;
                message = self.incoming.recv() => return message,
                () = &mut self.idle => {
                    let at = self.session.idle_at();
                    if at <= Instant::now() {
                        return None;
                    }
                    self.idle.as_mut().reset(at);
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        self.session.end();
        Ok(())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.session.end();
    }
}
