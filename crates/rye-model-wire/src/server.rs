//! A small HTTP server: no more than a client of a model's API needs, and everything
//! under control.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Api;
use crate::reply::{Ending, Reply};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// With the query.
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its JSON; null if it is none.
    pub body: Value,
    /// When it was there whole.
    pub at: Instant,
}

type Answers = Box<dyn Fn(usize, &Request) -> Reply + Send + Sync>;

struct State {
    answers: Answers,
    heard: Mutex<Heard>,
    news: Condvar,
    over: AtomicBool,
}

#[derive(Default)]
struct Heard {
    requests: Vec<Request>,
    /// How often the other side has left a reply that was not over.
    left: usize,
}

/// A server on the loopback, until it is dropped.
pub struct Wire {
    state: Arc<State>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    /// One that gives these replies in order, the last one again and again.
    pub fn of(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<_> = replies.into_iter().collect();
        Self::new(move |number, _| {
            let last = replies.len() - 1;
            replies[number.min(last)].clone()
        })
    }

    /// One that gives what a function makes of a request and its number, from 0.
    pub fn new(answers: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            answers: Box::new(answers),
            heard: Mutex::default(),
            news: Condvar::new(),
            over: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.over.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(stream) = stream {
                    let shared = Arc::clone(&shared);
                    // It ends with its connection, which does not outlive the client.
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

    /// Where it is, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it was asked so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state.heard.lock().unwrap().requests.clone()
    }

    /// Waits until the other side has left a reply that was not over; false if it has not
    /// within this time.
    pub fn is_left_within(&self, time: Duration) -> bool {
        self.wait(time, |heard| heard.left > 0)
    }

    /// Waits until so many requests have come; false if they have not within this time.
    pub fn is_asked_within(&self, requests: usize, time: Duration) -> bool {
        self.wait(time, |heard| heard.requests.len() >= requests)
    }

    fn wait(&self, time: Duration, until: impl Fn(&Heard) -> bool) -> bool {
        let heard = self.state.heard.lock().unwrap();
        let news = &self.state.news;
        let waited = news.wait_timeout_while(heard, time, |heard| !until(heard));
        !waited.unwrap().1.timed_out()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Release);
        // It waits for a connection; this is one.
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
            let mut heard = state.heard.lock().unwrap();
            heard.requests.push(request.clone());
            state.news.notify_all();
            heard.requests.len() - 1
        };
        let refused = Api::of_path(&request.path).and_then(|api| {
            let why = api.check(&request.body).err()?;
            Some(Reply::json(400, &api.fault(400, &why)))
        });
        let reply = refused.unwrap_or_else(|| (state.answers)(number, &request));
        let goes_on = say(stream, &reply);
        if !goes_on.unwrap_or(false) {
            let mut heard = state.heard.lock().unwrap();
            heard.left += 1;
            state.news.notify_all();
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
        at: Instant::now(),
    }))
}

/// Says it, and tells whether the connection can be used again.
fn say(mut stream: &TcpStream, reply: &Reply) -> io::Result<bool> {
    thread::sleep(reply.before);
    let mut head = format!("HTTP/1.1 {} Said\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &[name, ": ", value, "\r\n"].concat();
    }
    head += "transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    for (number, piece) in reply.body.chunks(reply.piece).enumerate() {
        if number > 0 && !reply.between.is_zero() {
            thread::sleep(reply.between);
        }
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        stream.write_all(&chunk)?;
    }
    match reply.ending {
        Ending::Whole => {
            stream.write_all(b"0\r\n\r\n")?;
            Ok(true)
        }
        Ending::Cut => Ok(false),
        Ending::Silent => {
            let mut nothing = [0; 64];
            while stream.read(&mut nothing)? > 0 {}
            Ok(false)
        }
    }
}
