//! Minimal HTTP server with full control over delivery.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Api;
use super::reply::{Ending, Reply};

/// A request that the server received.
#[derive(Debug, Clone)]
pub struct Request {
    /// Path with the query.
    pub path: String,
    /// Header names are lower-case.
    pub headers: BTreeMap<String, String>,
    /// JSON body; null if it is not JSON.
    pub body: Value,
    /// When the request was complete.
    pub received_at: Instant,
}

type Handler = Box<dyn Fn(usize, &Request) -> Reply + Send + Sync>;

struct State {
    handler: Handler,
    log: Mutex<Log>,
    log_changed: Condvar,
    stopped: AtomicBool,
}

#[derive(Default)]
struct Log {
    requests: Vec<Request>,
    /// Number of replies during which the client disconnected.
    disconnects: usize,
}

/// A model provider on the loopback interface, which stops on drop.
pub struct MockProvider {
    state: Arc<State>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl MockProvider {
    /// Sends these replies in order, and the last one repeatedly.
    pub fn with_replies(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<_> = replies.into_iter().collect();
        Self::new(move |number, _| {
            let last = replies.len() - 1;
            replies[number.min(last)].clone()
        })
    }

    /// Replies with the result of a function of the request and its number, starting at 0.
    pub fn new(handler: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            handler: Box::new(handler),
            log: Mutex::default(),
            log_changed: Condvar::new(),
            stopped: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stopped.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(stream) = stream {
                    let shared = Arc::clone(&shared);
                    // The thread ends with its connection, which does not outlive the client.
                    thread::spawn(move || {
                        let _ = serve(&stream, &shared);
                    });
                }
            }
        });
        Self {
            state,
            address,
            thread: Some(thread),
        }
    }

    /// Base URL without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state.log.lock().unwrap().requests.clone()
    }

    /// Waits until the client has disconnected during a reply. Returns false on timeout.
    pub fn wait_for_disconnect(&self, timeout: Duration) -> bool {
        self.wait(timeout, |log| log.disconnects > 0)
    }

    /// Waits until the server has received this many requests. Returns false on timeout.
    pub fn wait_for_requests(&self, requests: usize, timeout: Duration) -> bool {
        self.wait(timeout, |log| log.requests.len() >= requests)
    }

    fn wait(&self, timeout: Duration, until: impl Fn(&Log) -> bool) -> bool {
        let log = self.state.log.lock().unwrap();
        let changed = &self.state.log_changed;
        let waited = changed.wait_timeout_while(log, timeout, |log| !until(log));
        !waited.unwrap().1.timed_out()
    }
}

impl Drop for MockProvider {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Release);
        // Wakes the thread from `accept`.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Serves one connection, request after request.
fn serve(stream: &TcpStream, state: &State) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader)? {
        let number = {
            let mut log = state.log.lock().unwrap();
            log.requests.push(request.clone());
            state.log_changed.notify_all();
            log.requests.len() - 1
        };
        let refused = Api::from_path(&request.path).and_then(|api| {
            let why = api.check(&request.body).err()?;
            Some(Reply::json(400, &api.error_body(400, &why)))
        });
        let reply = refused.unwrap_or_else(|| (state.handler)(number, &request));
        let reusable = send(stream, &reply);
        if !reusable.unwrap_or(false) {
            let mut log = state.log.lock().unwrap();
            log.disconnects += 1;
            state.log_changed.notify_all();
            return Ok(());
        }
    }
    Ok(())
}

fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length");
    let length = length.and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request {
        path,
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        received_at: Instant::now(),
    }))
}

/// Sends a reply. Returns whether the connection can be reused.
fn send(mut stream: &TcpStream, reply: &Reply) -> io::Result<bool> {
    thread::sleep(reply.delay);
    let mut head = format!("HTTP/1.1 {} Mock\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &[name, ": ", value, "\r\n"].concat();
    }
    head += "transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    for (number, bytes) in reply.body.chunks(reply.chunk_size).enumerate() {
        if number > 0 && !reply.pause.is_zero() {
            thread::sleep(reply.pause);
        }
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        stream.write_all(&chunk)?;
    }
    match reply.ending {
        Ending::Complete => {
            stream.write_all(b"0\r\n\r\n")?;
            Ok(true)
        }
        Ending::Disconnect => Ok(false),
        Ending::Stall => {
            let mut ignored = [0; 64];
            while stream.read(&mut ignored)? > 0 {}
            Ok(false)
        }
    }
}
