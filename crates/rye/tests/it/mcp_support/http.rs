//! `rye mcp serve --http` on a free port, and raw HTTP requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{TIMEOUT, wait_for_status};
use crate::support::TestEnv;

pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts the server in a directory without a project.
    pub(crate) fn start(env: &TestEnv, options: &[&str]) -> Self {
        Self::start_in(env, "elsewhere", options)
    }

    /// Starts the server in the project.
    pub(crate) fn start_in_project(env: &TestEnv, options: &[&str]) -> Self {
        Self::start_in(env, "project", options)
    }

    /// Starts the server in a directory.
    pub(crate) fn start_in(env: &TestEnv, directory: &str, options: &[&str]) -> Self {
        let mut command = env.command();
        command.args(["mcp", "serve", "--http", "127.0.0.1:0"]);
        Self::run(command.args(options), &env.path(directory))
    }

    /// Starts the server in the project with a limit on open files.
    pub(crate) fn with_open_files(env: &TestEnv, files: u32) -> Self {
        let like = env.command();
        let mut command = Command::new("/bin/sh");
        let script = format!("ulimit -n {files}; exec \"$0\" mcp serve --http 127.0.0.1:0");
        command
            .args(["-c", script.as_str()])
            .arg(like.get_program());
        command
            .env_clear()
            .envs(like.get_envs().filter_map(|(n, v)| Some((n, v?))));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self::run(&mut command, &env.path("project"))
    }

    fn run(command: &mut Command, folder: &Path) -> Self {
        let mut child = command.current_dir(folder).spawn().unwrap();
        let mut line = String::new();
        let mut aside = BufReader::new(child.stderr.take().unwrap());
        aside.read_line(&mut line).unwrap();
        let address = line.trim().strip_suffix("/mcp");
        let port = address.and_then(|address| address.rsplit_once(':'));
        let port = port.and_then(|(_, port)| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("it says {line:?} and not where it is"));
        // Drain standard error, so that the server doesn't block on it.
        std::thread::spawn(move || std::io::copy(&mut aside, &mut std::io::sink()));
        Self { child, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Sends a request and reads the head of the response.
    pub(crate) fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Response {
        Response::of(self.send_without_reading(method, headers, body))
    }

    /// Sends a request with additional headers and doesn't read the response.
    pub(crate) fn send_without_reading(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let host = format!("127.0.0.1:{}", self.port);
        let usual = [
            ("Host", host.as_str()),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
            ("Connection", "close"),
        ];
        let is_given = |name: &str| headers.iter().any(|(given, _)| *given == name);
        let usual = usual.into_iter().filter(|(name, _)| !is_given(name));
        let given = headers.iter().copied();
        let lines = usual
            .chain(given)
            .map(|(name, value)| format!("{name}: {value}\r\n"));
        let lines: String = lines.collect();
        let length = body.len();
        let head = format!("{method} /mcp HTTP/1.1\r\n{lines}Content-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses the request may stop reading.
        let _ = stream.write_all(body.as_bytes());
        stream
    }

    pub(crate) fn post(&self, headers: &[(&str, &str)], message: &Value) -> Response {
        self.send("POST", headers, &message.to_string())
    }

    /// Opens a session, in a revision that has sessions, and returns its id.
    pub(crate) fn open_session(&self) -> String {
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1.0.0" },
        });
        let mut response = self.post(&[], &request(1, "initialize", &hello));
        assert_eq!(response.status, 200);
        let session = response.header("mcp-session-id").unwrap().to_owned();
        assert_eq!(response.message(1)["result"]["serverInfo"]["name"], "rye");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let headers = [("Mcp-Session-Id", session.as_str())];
        assert_eq!(self.post(&headers, &ready).status, 202);
        session
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the exit status.
    pub(crate) fn status(&mut self) -> ExitStatus {
        wait_for_status(&mut self.child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A JSON-RPC request.
pub(crate) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// The head of a response; the body is read on demand.
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: BufReader<TcpStream>,
}

impl Response {
    pub(crate) fn of(stream: TcpStream) -> Self {
        let mut body = BufReader::new(stream);
        let mut line = String::new();
        body.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{line:?} is no answer"));
        let mut headers = Vec::new();
        loop {
            line.clear();
            body.read_line(&mut line).unwrap();
            match line.trim().split_once(": ") {
                Some((name, value)) => headers.push((name.to_lowercase(), value.to_owned())),
                None => break,
            }
        }
        Self {
            status,
            headers,
            body,
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(other, _)| other == name);
        header.map(|(_, value)| value.as_str())
    }

    /// The rest of the body.
    pub(crate) fn text(mut self) -> String {
        let mut text = String::new();
        self.body.read_to_string(&mut text).unwrap();
        text
    }

    /// The response to a JSON-RPC request, as JSON or as an event of a stream.
    pub(crate) fn message(&mut self, id: u64) -> Value {
        loop {
            let line = self.line().expect("the stream ended without an answer");
            let data = line.strip_prefix("data: ").unwrap_or(&line);
            let message: Value = serde_json::from_str(data).unwrap_or_default();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// The id of the server's next request with this method.
    pub(crate) fn request(&mut self, method: &str) -> Value {
        loop {
            let line = self.line().expect("the stream ended without a request");
            let data = line.strip_prefix("data: ").unwrap_or(&line);
            let message: Value = serde_json::from_str(data).unwrap_or_default();
            if message["method"] == method {
                return message["id"].clone();
            }
        }
    }

    /// The id of the first event of a stream, with which the stream can be resumed.
    pub(crate) fn event_id(&mut self) -> String {
        loop {
            let line = self.line().expect("the stream ended without an event");
            if let Some(id) = line.strip_prefix("id: ") {
                return id.to_owned();
            }
        }
    }

    /// The next line that isn't a chunk length; none at the end.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.body.read_line(&mut line).unwrap();
        (length > 0).then(|| line.trim_end().to_owned())
    }
}
