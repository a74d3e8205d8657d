//! A client on the standard input and output of `rye mcp serve`, which says what it is told to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{PATIENCE, ended};
use crate::support::TestEnv;

pub struct Client {
    pub child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    last_id: u64,
}

impl Client {
    /// Starts a server in the project, and says nothing yet.
    pub fn start(env: &TestEnv) -> Self {
        Self::start_in(env, "project", &[])
    }

    /// The same in another directory, with these options.
    pub fn start_in(env: &TestEnv, directory: &str, options: &[&str]) -> Self {
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

    /// The same, and has shaken hands.
    pub fn connect(env: &TestEnv) -> Self {
        let mut client = Self::start(env);
        client.initialize(&json!({}));
        client
    }

    /// Shakes hands, with these capabilities.
    pub fn initialize(&mut self, capabilities: &Value) {
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1.0.0" },
        });
        let answer = self.ask("initialize", &hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "rye", "{answer}");
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    /// Calls a tool, and answers what the server asks meanwhile: `reply` gives the result of
    /// a request by its method.
    pub fn call(
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
                    self.say(&answer);
                }
                None if message["id"] == id => return message["result"].clone(),
                _ => {}
            }
        }
    }

    pub fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    pub fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    /// Sends a request and gives its id.
    pub fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    /// The answer to a request. Notifications on the way, and other answers, are not kept.
    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next().expect("the server hung up");
            if message["id"] == id {
                return message;
            }
        }
    }

    /// The next message; none if there will be no more.
    pub fn next(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(serde_json::from_str(&line).unwrap()),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the server says nothing"),
        }
    }

    /// Leaves without a word.
    pub fn hang_up(&mut self) {
        self.input = None;
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// How the server ended.
    pub fn status(&mut self) -> ExitStatus {
        ended(&mut self.child)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
