//! Minimal MCP clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio as Pipe};

use anyhow::{Context, Result, ensure};

/// Handshake of the newest revision that has one.
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn call(id: usize, tool: &str) -> String {
    let arguments = r#"{"item_type":"tool","item_id":"nothing","parameters":{"text":"hello"}}"#;
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

/// A client over standard input and output.
pub struct Stdio {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: String,
}

impl Stdio {
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Pipe::piped()).stdout(Pipe::piped()).spawn()?;
        let input = child.stdin.take().context("no standard input")?;
        let output = child.stdout.take().context("no standard output")?;
        let mut client = Self {
            child,
            input,
            output: BufReader::new(output),
            line: String::new(),
        };
        client.send(INITIALIZE)?;
        client.receive()?;
        client.send(INITIALIZED)?;
        Ok(client)
    }

    /// Makes `number` calls, at most `concurrency` at the same time.
    pub fn calls(&mut self, number: usize, concurrency: usize, tool: &str) -> Result<()> {
        let mut sent = 0;
        for answered in 0..number {
            while sent < number && sent < answered + concurrency {
                self.send(&call(sent + 1, tool))?;
                sent += 1;
            }
            self.receive()?;
            ensure!(self.line.contains("hello"), "{}", self.line);
        }
        Ok(())
    }

    /// Resident memory of the server, in bytes.
    pub fn resident(&self) -> Result<f64> {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next());
        let kibibytes: f64 = kibibytes.context("no Rss")?.parse()?;
        Ok(kibibytes * 1024.0)
    }

    fn send(&mut self, message: &str) -> Result<()> {
        self.input.write_all(format!("{message}\n").as_bytes())?;
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        self.line.clear();
        ensure!(
            self.output.read_line(&mut self.line)? > 0,
            "the server has ended"
        );
        Ok(())
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client over one HTTP connection.
pub struct Http {
    child: Child,
    stream: BufReader<TcpStream>,
    session: String,
}

impl Http {
    /// Starts a server, which prints its address.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdout(Pipe::piped()).spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().context("no standard output")?;
        BufReader::new(output).read_line(&mut line)?;
        let stream = TcpStream::connect(line.trim())?;
        stream.set_nodelay(true)?;
        let mut client = Self {
            child,
            stream: BufReader::new(stream),
            session: String::new(),
        };
        let (headers, _) = client.post(INITIALIZE)?;
        let is_session = |line: &&str| line.to_ascii_lowercase().starts_with("mcp-session-id:");
        let session = headers.lines().find(is_session);
        let session = session.and_then(|line| line.split_once(':'));
        client.session = session
            .map(|(_, id)| id.trim().to_owned())
            .unwrap_or_default();
        client.post(INITIALIZED)?;
        Ok(client)
    }

    pub fn calls(&mut self, number: usize, tool: &str) -> Result<()> {
        for id in 0..number {
            let (_, body) = self.post(&call(id + 1, tool))?;
            ensure!(body.contains("hello"), "{body}");
        }
        Ok(())
    }

    fn post(&mut self, body: &str) -> Result<(String, String)> {
        let session = match self.session.as_str() {
            "" => String::new(),
            id => format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n"),
        };
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{session}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.read_response()
    }

    fn read_response(&mut self) -> Result<(String, String)> {
        let mut headers = String::new();
        while !headers.ends_with("\r\n\r\n") {
            ensure!(
                self.stream.read_line(&mut headers)? > 0,
                "the server has ended"
            );
        }
        let lower = headers.to_ascii_lowercase();
        if lower.contains("transfer-encoding: chunked") {
            return Ok((headers, self.read_chunks()?));
        }
        let length = lower
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        let length = length.map_or(Ok(0), |length| length.trim().parse())?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((headers, String::from_utf8(body)?))
    }

    fn read_chunks(&mut self) -> Result<String> {
        let mut body = String::new();
        loop {
            let mut size = String::new();
            self.stream.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16)?;
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk)?;
            if size == 0 {
                return Ok(body);
            }
            body.push_str(std::str::from_utf8(&chunk[..size])?);
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
