//! HTTP server on loopback with scripted replies that records its requests.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Reply to a request.
pub(crate) enum Reply {
    /// Send these bytes and close the connection.
    Bytes(Vec<u8>),
    /// Close the connection without a response.
    Close,
    /// Send nothing until the client disconnects.
    Silence,
}

impl Reply {
    pub(crate) fn new(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let headers = [headers, &[""]].concat().join("\r\n");
        let head = format!(
            "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        Self::Bytes([head.as_bytes(), body].concat())
    }

    pub(crate) fn json(body: &str) -> Self {
        Self::new("200 OK", &["content-type: application/json"], body)
    }
}

/// A server that runs until the test's runtime ends.
pub(crate) struct Server {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts a server. `answer` gets the index of the request and its text.
    pub(crate) async fn start(
        answer: impl Fn(usize, &str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        tokio::spawn(async move {
            let answer = Arc::new(answer);
            while let Ok((stream, _)) = listener.accept().await {
                let (recorded, answer) = (Arc::clone(&recorded), Arc::clone(&answer));
                tokio::spawn(async move {
                    let mut stream = stream;
                    let text = read(&mut stream).await;
                    let number = {
                        let mut recorded = recorded.lock().unwrap();
                        recorded.push(text.clone());
                        recorded.len() - 1
                    };
                    match answer(number, &text) {
                        Reply::Bytes(bytes) => {
                            let _ = stream.write_all(&bytes).await;
                            let _ = stream.shutdown().await;
                        }
                        Reply::Close => {}
                        Reply::Silence => {
                            let _ = stream.read(&mut [0]).await;
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn read(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let n = stream.read(&mut buffer).await.unwrap_or(0);
        text.extend_from_slice(&buffer[..n]);
        let whole = String::from_utf8_lossy(&text);
        let length = whole.split_once("\r\n\r\n").map(|(head, body)| {
            let content_length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                value.trim().parse().ok().filter(|_: &usize| is_length)
            });
            (content_length.unwrap_or(0), body.len())
        });
        if n == 0 || length.is_some_and(|(expected, received)| received >= expected) {
            return whole.into_owned();
        }
    }
}
