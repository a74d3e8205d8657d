//! Open connections: timeouts for incomplete requests, and a bound on their number.
//!
//! A connection *waits* while its client owes it something: the head or the body of a request,
//! or the next request. At the bound, the connection that has waited longest is closed to make
//! room for a new one, so clients that send incomplete requests cannot keep others out.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::ConnectInfo;
use axum::response::Response;
use futures_util::stream;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::with_guard;

/// Pause after a failed `accept`, for example because the process has too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Bounds on what clients may hold open.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of open connections.
    pub connections: usize,
    /// Limit for the head of a request, for each part of its body, and for an idle connection.
    pub read_timeout: Duration,
}

impl Limits {
    /// Limits the connections to a number, and to half of the file descriptors; tools need the
    /// rest.
    pub fn new(connections: usize, read_timeout: Duration) -> Self {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let half = usize::try_from(files / 2).unwrap_or(usize::MAX);
        Self {
            connections: half.clamp(8, connections.max(8)),
            read_timeout,
        }
    }
}

/// Serves a listener until `stop`, then lets requests in progress finish.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) {
    let connections = Arc::new(Connections {
        limit: limits.connections,
        open: Mutex::default(),
        changed: Notify::new(),
    });
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
        let registration = Registration(Connection::open(&connections));
        let (service, stop) = (service.clone(), stop.clone());
        tasks.spawn(async move {
            handle(stream, address, service, &registration.0, limits, stop).await;
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
    connection: &Arc<Connection>,
    limits: Limits,
    stop: CancellationToken,
) {
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(address));
        let body_complete = OnDrop(Arc::clone(connection), Connection::set_serving);
        let request = request.map(|body| received_body(body, limits.read_timeout, body_complete));
        let response = service.call(request);
        let response_sent = OnDrop(Arc::clone(connection), Connection::set_waiting);
        async move {
            let response: Response = response.await?;
            Ok::<_, Infallible>(response.map(|body| with_guard(body, response_sent)))
        }
    });
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.read_timeout)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    // Errors of one connection are ignored; they only affect its client.
    tokio::select! {
        _ = served.as_mut() => return,
        () = connection.closed.cancelled() => return,
        () = stop.cancelled() => served.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = served => {}
        () = connection.closed.cancelled() => {}
    }
}

/// A request body with a timeout for each part. `complete` is dropped at its end.
fn received_body(body: Incoming, timeout: Duration, complete: OnDrop) -> Body {
    if body.is_end_stream() {
        return Body::empty();
    }
    let parts = stream::try_unfold((body, complete), move |(mut body, complete)| async move {
        let Ok(frame) = tokio::time::timeout(timeout, body.frame()).await else {
            let message = "the request body is incomplete";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        };
        let frame = frame.transpose().map_err(io::Error::other)?;
        let bytes = frame.map(|frame| frame.into_data().unwrap_or_default());
        Ok(bytes.map(|bytes| (bytes, (body, complete))))
    });
    Body::from_stream(parts)
}

/// All open connections.
struct Connections {
    limit: usize,
    open: Mutex<Vec<Arc<Connection>>>,
    /// Notified when a connection closes or begins to wait.
    changed: Notify,
}

impl Connections {
    /// Returns when another connection may be opened. If all of them are serving requests,
    /// that is when one of them has finished.
    async fn make_room(&self) {
        loop {
            let changed = self.changed.notified();
            let has_room = self.open.lock().len() < self.limit;
            if has_room || self.close_longest_waiting() {
                return;
            }
            changed.await;
        }
    }

    /// Closes the connection that has waited longest; false if none waits.
    fn close_longest_waiting(&self) -> bool {
        let mut open = self.open.lock();
        let waiting = open.iter().enumerate();
        let waiting = waiting.filter_map(|(at, it)| Some(((*it.waiting_since.lock())?, at)));
        let longest = waiting.min();
        if let Some((_, at)) = longest {
            open.remove(at).closed.cancel();
        }
        longest.is_some()
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
    fn open(connections: &Arc<Connections>) -> Arc<Self> {
        let connection = Arc::new(Self {
            connections: Arc::clone(connections),
            waiting_since: Mutex::new(Some(Instant::now())),
            closed: CancellationToken::new(),
        });
        connections.open.lock().push(Arc::clone(&connection));
        connection
    }

    fn set_serving(&self) {
        *self.waiting_since.lock() = None;
    }

    fn set_waiting(&self) {
        *self.waiting_since.lock() = Some(Instant::now());
        self.connections.changed.notify_one();
    }
}

/// Removes a connection when dropped.
struct Registration(Arc<Connection>);

impl Drop for Registration {
    fn drop(&mut self) {
        let connections = &self.0.connections;
        let is_other = |other: &Arc<Connection>| !Arc::ptr_eq(other, &self.0);
        connections.open.lock().retain(is_other);
        connections.changed.notify_one();
    }
}

/// Changes the state of a connection when dropped.
struct OnDrop(Arc<Connection>, fn(&Connection));

impl Drop for OnDrop {
    fn drop(&mut self) {
        (self.1)(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
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
