//! Open connections: timeouts for incomplete requests, and a bound on their number.
//!
//! A connection *waits* while its client owes it something: the head or the body of a request,
//! or the next request. At the bound, the connection that has waited longest is closed to make
//! room for a new one, so clients that send incomplete requests cannot keep others out.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::response::Response;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Upper bound for the number of open connections.
const MAX_CONNECTIONS: usize = 1024;

/// Pause after a failed `accept`, for example because the process has too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Bounds on what clients may hold open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum number of open connections.
    pub(super) connections: usize,
    /// Limit for the head of a request, for each part of its body, and for an idle connection.
    pub(super) read_timeout: Duration,
}

impl Limits {
    /// Limits the connections to half of the file descriptors; tools need the rest.
    pub(super) fn with_timeout(read_timeout: Duration) -> Self {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let half = usize::try_from(files / 2).unwrap_or(usize::MAX);
        Self {
            connections: half.clamp(8, MAX_CONNECTIONS),
            read_timeout,
        }
    }
}

/// Serves a listener until `stop`, then lets requests in progress finish.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let connections = Arc::new(Connections::new(limits.connections));
    let service = TowerToHyperService::new(router);
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = async {
                connections.make_room().await;
                listener.accept().await
            } => accepted,
        };
        let Ok((stream, address)) = accepted else {
            connections.close_longest_waiting();
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        // Otherwise a small response waits about 40 ms for an acknowledgement.
        let _ = stream.set_nodelay(true);
        let (registration, service) = (Registration::new(&connections), service.clone());
        let stop = stop.clone();
        tasks.spawn(async move {
            let connection = Arc::clone(&registration.connection);
            handle(stream, address, service, connection, limits, stop).await;
            drop(registration);
        });
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// Serves one connection until it ends, is closed to make room, or the server stops.
async fn handle(
    stream: TcpStream,
    address: SocketAddr,
    service: TowerToHyperService<Router>,
    connection: Arc<Connection>,
    limits: Limits,
    stop: CancellationToken,
) {
    let closed = connection.closed.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(address));
        let request = request.map(|body| ReceivedBody::new(body, &connection, limits));
        let response = service.call(request.map(Body::new));
        let mark_waiting = MarkWaiting(Arc::clone(&connection));
        async move {
            let response = response.await?;
            Ok::<Response, std::convert::Infallible>(response.map(|body| {
                Body::new(SentBody {
                    body,
                    _mark_waiting: mark_waiting,
                })
            }))
        }
    });
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.read_timeout)
            .serve_connection(TokioIo::new(stream), service)
    );
    // Errors of one connection are ignored; they only affect its client.
    tokio::select! {
        _ = served.as_mut() => return,
        () = closed.cancelled() => return,
        () = stop.cancelled() => served.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = served => {}
        () = closed.cancelled() => {}
    }
}

/// All open connections.
struct Connections {
    limit: usize,
    open: Mutex<OpenConnections>,
    /// Notified when a connection closes or begins to wait.
    changed: Notify,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    all: HashMap<u64, Arc<Connection>>,
}

impl Connections {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            open: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when another connection may be opened. If all of them are serving requests,
    /// that is when one of them has finished.
    async fn make_room(&self) {
        loop {
            let changed = self.changed.notified();
            if self.open().all.len() < self.limit || self.close_longest_waiting() {
                return;
            }
            changed.await;
        }
    }

    /// Closes the connection that has waited longest; false if none waits.
    fn close_longest_waiting(&self) -> bool {
        let mut open = self.open();
        let waiting = open.all.iter().filter_map(|(id, connection)| {
            let since = (*connection.waiting_since())?;
            Some((since, *id))
        });
        let Some((_, id)) = waiting.min() else {
            return false;
        };
        if let Some(connection) = open.all.remove(&id) {
            connection.closed.cancel();
        }
        true
    }
}

/// One connection.
struct Connection {
    connections: Arc<Connections>,
    /// Since when the connection waits for its client; `None` while a request is served.
    waiting_since: Mutex<Option<Instant>>,
    closed: CancellationToken,
}

impl Connection {
    fn waiting_since(&self) -> MutexGuard<'_, Option<Instant>> {
        let since = self.waiting_since.lock();
        since.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registration of a connection, removed when dropped.
struct Registration {
    connections: Arc<Connections>,
    id: u64,
    connection: Arc<Connection>,
}

impl Registration {
    fn new(connections: &Arc<Connections>) -> Self {
        let connection = Arc::new(Connection {
            connections: Arc::clone(connections),
            waiting_since: Mutex::new(Some(Instant::now())),
            closed: CancellationToken::new(),
        });
        let mut open = connections.open();
        let id = open.next;
        open.next += 1;
        open.all.insert(id, Arc::clone(&connection));
        drop(open);
        Self {
            connections: Arc::clone(connections),
            id,
            connection,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connections.open().all.remove(&self.id);
        self.connections.changed.notify_one();
    }
}

/// A request body with a timeout for each part. Once it is complete, the connection no longer
/// waits.
struct ReceivedBody {
    body: Incoming,
    connection: Arc<Connection>,
    timeout: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl ReceivedBody {
    fn new(body: Incoming, connection: &Arc<Connection>, limits: Limits) -> Self {
        let received = Self {
            body,
            connection: Arc::clone(connection),
            timeout: limits.read_timeout,
            deadline: None,
        };
        received.note_end();
        received
    }

    fn note_end(&self) {
        if self.body.is_end_stream() {
            *self.connection.waiting_since() = None;
        }
    }
}

impl HttpBody for ReceivedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.deadline = None;
            this.note_end();
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        let timeout = this.timeout;
        let deadline = this
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(deadline.as_mut().poll(context));
        let error = io::Error::new(io::ErrorKind::TimedOut, "the request body is incomplete");
        Poll::Ready(Some(Err(axum::Error::new(error))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Marks a connection as waiting when its response was sent.
struct MarkWaiting(Arc<Connection>);

impl Drop for MarkWaiting {
    fn drop(&mut self) {
        *self.0.waiting_since() = Some(Instant::now());
        self.0.connections.changed.notify_one();
    }
}

/// Body of a response.
struct SentBody {
    body: Body,
    _mark_waiting: MarkWaiting,
}

impl HttpBody for SentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    struct Server {
        address: SocketAddr,
        stop: CancellationToken,
    }

    impl Drop for Server {
        fn drop(&mut self) {
            self.stop.cancel();
        }
    }

    async fn start(limits: Limits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(|body: Bytes| async move { body });
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, router, limits, stop.clone()));
        Server { address, stop }
    }

    async fn send(server: &Server, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream
    }

    /// Everything the server sends until it closes the connection.
    async fn received(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        let read = stream.read_to_end(&mut text);
        let read = tokio::time::timeout(Duration::from_secs(20), read).await;
        let _ = read.expect("the server keeps the connection open");
        String::from_utf8(text).unwrap()
    }

    const PARTIAL_HEAD: &str = "POST / HTTP/1.1\r\nHost: x\r\n";
    const PARTIAL_BODY: &str = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf";
    const COMPLETE: &str =
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nwhole";

    #[tokio::test]
    async fn incomplete_requests_and_idle_connections_are_closed_after_the_timeout() {
        let server = start(Limits {
            connections: 8,
            read_timeout: Duration::from_millis(100),
        })
        .await;
        for request in ["", PARTIAL_HEAD, PARTIAL_BODY] {
            let response = received(send(&server, request).await).await;
            assert!(!response.starts_with("HTTP/1.1 200"), "{response}");
        }
        let response = received(send(&server, COMPLETE).await).await;
        assert!(response.ends_with("whole"), "{response}");
    }

    #[tokio::test]
    async fn incomplete_requests_make_room_for_complete_ones() {
        let server = start(Limits {
            connections: 8,
            read_timeout: Duration::from_hours(1),
        })
        .await;
        let mut partial = Vec::new();
        for id in 0..40 {
            let request = if id % 2 == 0 {
                PARTIAL_HEAD
            } else {
                PARTIAL_BODY
            };
            partial.push(send(&server, request).await);
        }
        let response = received(send(&server, COMPLETE).await).await;
        assert!(response.ends_with("whole"), "{response}");
        // The oldest connection was closed.
        received(partial.swap_remove(0)).await;
    }
}
