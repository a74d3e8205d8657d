//! A client on the standard input and output of `rye mcp serve`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{TIMEOUT, wait_for_status};
use crate::support::TestEnv;

pub(crate) struct Client {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    last_id: u64,
}

impl Client {
    /// Starts a server in the project without initialising the connection.
    pub(crate) fn start(env: &TestEnv) -> Self {
        Self::start_in(env, "project", &[])
    }

    /// Starts a server in a directory, with options.
    pub(crate) fn start_in(env: &TestEnv, directory: &str, options: &[&str]) -> Self {
        let mut command = env.command();
        command.args(["mcp", "serve"]).args(options);
        command.current_dir(env.path(directory));
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            lines,
            last_id: 0,
        }
    }

    /// Starts a server and initialises the connection.
    pub(crate) fn connect(env: &TestEnv) -> Self {
        let mut client = Self::start(env);
        client.initialize(&json!({}));
        client
    }

    /// Initialises the connection with these capabilities.
    pub(crate) fn initialize(&mut self, capabilities: &Value) {
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1.0.0" },
        });
        let answer = self.request_and_wait("initialize", &hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "rye", "{answer}");
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    /// Calls a tool and answers the server's requests meanwhile: `reply` returns the result for
    /// a method.
    pub(crate) fn call(
        &mut self,
        tool: &str,
        arguments: &Value,
        mut reply: impl FnMut(&str) -> Value,
    ) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let id = self.request("tools/call", &params);
        loop {
            let message = self.next().expect("the server hung up");
            match message["method"].as_str() {
                Some(method) if !message["id"].is_null() => {
                    let result = reply(method);
                    let answer = json!({
                        "jsonrpc": "2.0", "id": message["id"], "result": result,
                    });
                    self.send(&answer);
                }
                None if message["id"] == id => return message["result"].clone(),
                _ => {}
            }
        }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub(crate) fn request_and_wait(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        self.wait_for_answer(id)
    }

    /// Waits for the response to a request; drops notifications and other responses.
    pub(crate) fn wait_for_answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next().expect("the server hung up");
            if message["id"] == id {
                return message;
            }
        }
    }

    /// The next message; none at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => Some(serde_json::from_str(&line).unwrap()),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the server says nothing"),
        }
    }

    /// Closes the server's standard input.
    pub(crate) fn disconnect(&mut self) {
        self.input = None;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the server's exit status.
    pub(crate) fn status(&mut self) -> ExitStatus {
        wait_for_status(&mut self.child)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
