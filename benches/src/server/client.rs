//! A minimal HTTP client with one connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Result, ensure};

/// A connection to a server.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
    token: String,
}

impl Client {
    pub(super) fn connect(address: SocketAddr, token: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            token: token.to_owned(),
        })
    }

    /// Sends a request that must get a status.
    pub(super) fn get(&mut self, path: &str, status: u16) -> Result<String> {
        self.send("GET", path, "", status)
    }

    /// Sends JSON to a path that must answer with a status.
    pub(super) fn post(&mut self, path: &str, body: &str, status: u16) -> Result<String> {
        self.send("POST", path, body, status)
    }

    fn send(&mut self, method: &str, path: &str, body: &str, status: u16) -> Result<String> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            ensure!(
                self.stream.read_line(&mut head)? > 0,
                "the server has ended"
            );
        }
        let lower = head.to_ascii_lowercase();
        let length = lower
            .lines()
            .find_map(|it| it.strip_prefix("content-length:"));
        let mut body = vec![0; length.map_or(Ok(0), |length| length.trim().parse())?];
        self.stream.read_exact(&mut body)?;
        let body = String::from_utf8(body)?;
        let expected = format!("HTTP/1.1 {status} ");
        ensure!(head.starts_with(&expected), "{method} {path}: {head}{body}");
        Ok(body)
    }
}
