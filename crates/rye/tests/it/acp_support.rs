//! Clients of `rye acp`: the official SDKs, and one that sends any message.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde_json::{Value, json};

use crate::mcp_support::{TIMEOUT, tool, tools_dir, wait_for_status};
use crate::support::TestEnv;

/// A project whose model follows a script, and which has the signed tool `careful`, whose calls
/// need approval.
pub(crate) fn env(script: &str) -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write("project/agent.yaml", script);
    assert!(env.run(&["init"]).status.success());
    tool(&env, "careful", "echo careful >> careful.txt; echo done");
    let careful = env.read("project/.ai/tools/careful.yaml");
    let careful = format!("requires_approval: true\n{careful}");
    env.write("project/.ai/tools/careful.yaml", &careful);
    let signed = env.run(&["sign", "careful"]);
    assert!(signed.status.success(), "{signed:?}");
    env
}

/// The command that an editor starts.
pub(crate) fn command(env: &TestEnv) -> Vec<String> {
    let model = format!("scripted:{}", env.path("project/agent.yaml").display());
    let words = [env!("CARGO_BIN_EXE_rye"), "acp", "--model", &model];
    words.map(str::to_owned).to_vec()
}

/// An official client library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sdk {
    TypeScript,
    Python,
}

/// What an SDK client does: the steps are requests.
pub(crate) struct Plan<'a> {
    env: &'a TestEnv,
    plan: Value,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(env: &'a TestEnv, steps: &[Value]) -> Self {
        let variables = env.command();
        let variables = variables.get_envs();
        let variables =
            variables.filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)));
        let plan = json!({
            "command": command(env),
            "cwd": env.path("project"),
            "env": variables.map(|(name, value)| (name.to_owned(), json!(value)))
                .collect::<serde_json::Map<_, _>>(),
            "steps": steps,
        });
        Self { env, plan }
    }

    /// Sets a field of the plan, such as `capabilities`.
    pub(crate) fn with(mut self, key: &str, value: Value) -> Self {
        self.plan[key] = value;
        self
    }

    /// Carries the plan out, and returns what the client observed.
    pub(crate) fn run(&self, sdk: Sdk) -> Value {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rye-acp/tests/clients");
        let mut client = match sdk {
            Sdk::TypeScript => {
                let mut client = Command::new(tools_dir("node").join("bin/node"));
                client.arg(clients.join("typescript_sdk.mjs"));
                client.env("ACP_SDK", tools_dir("acp-typescript-sdk"));
                client
            }
            Sdk::Python => {
                let packages = tools_dir("acp-python-sdk");
                let mut client = Command::new(packages.join("bin/python"));
                client.arg(clients.join("python_sdk.py"));
                client.env("PYTHONPATH", packages);
                client
            }
        };
        client.arg(self.plan.to_string());
        let output = client.stdin(Stdio::null()).output().unwrap();
        let aside = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{aside}", output.status);
        assert_eq!(aside, "", "it complains in {}", self.env.path("").display());
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// The request that opens a new session in the project.
pub(crate) fn new_session(env: &TestEnv) -> Value {
    let params = json!({ "cwd": env.path("project"), "mcpServers": [] });
    json!({ "method": "session/new", "params": params })
}

/// The request that sends a prompt.
pub(crate) fn prompt(text: &str) -> Value {
    let blocks = json!([{ "type": "text", "text": text }]);
    json!({ "method": "session/prompt", "params": { "sessionId": "$session", "prompt": blocks } })
}

/// A step with another field, such as `answers`.
pub(crate) fn with(mut step: Value, key: &str, value: impl Into<Value>) -> Value {
    step[key] = value.into();
    step
}

/// The updates of one kind, in order.
pub(crate) fn updates<'a>(step: &'a Value, kind: &str) -> Vec<&'a Value> {
    let updates = step["updates"].as_array().unwrap().iter();
    updates.filter(|it| it["sessionUpdate"] == kind).collect()
}

/// The text of all chunks of a kind.
pub(crate) fn text(step: &Value, kind: &str) -> String {
    let chunks = updates(step, kind).into_iter();
    let texts = chunks.filter_map(|chunk| chunk["content"]["text"].as_str());
    texts.collect()
}

/// What the updates make of a tool call: the first one, with the fields of the later ones.
pub(crate) fn call(step: &Value, title: &str) -> Value {
    let mut calls = updates(step, "tool_call").into_iter();
    let found = calls.find(|call| call["title"] == title);
    let mut call = found
        .unwrap_or_else(|| panic!("no call `{title}`: {step:#}"))
        .clone();
    for update in updates(step, "tool_call_update") {
        if update["toolCallId"] == call["toolCallId"] {
            for (key, value) in update.as_object().unwrap() {
                call[key] = value.clone();
            }
        }
    }
    call
}

/// An editor that sends any line.
pub(crate) struct RawClient {
    agent: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    /// Messages that were received while waiting for another one.
    skipped: VecDeque<Value>,
    last_id: u64,
}

#[expect(clippy::needless_pass_by_value, reason = "as `json!` gives it")]
impl RawClient {
    /// Starts the agent, and initialises the connection.
    pub(crate) fn start(env: &TestEnv) -> Self {
        let mut client = Self::start_uninitialised(env);
        client.initialise(json!({}));
        client
    }

    pub(crate) fn start_uninitialised(env: &TestEnv) -> Self {
        let words = command(env);
        Self::start_with(env, &words[1..])
    }

    /// Starts the agent with these arguments.
    pub(crate) fn start_with<S: AsRef<OsStr>>(env: &TestEnv, args: &[S]) -> Self {
        let mut agent = env.command();
        agent.args(args).stdin(Stdio::piped());
        let mut agent = agent.stderr(Stdio::inherit()).spawn().unwrap();
        let output = BufReader::new(agent.stdout.take().unwrap());
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines() {
                let message = serde_json::from_str(&line.unwrap()).unwrap();
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self {
            input: agent.stdin.take(),
            agent,
            messages,
            skipped: VecDeque::new(),
            last_id: 0,
        }
    }

    pub(crate) fn initialise(&mut self, capabilities: Value) -> Value {
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        self.request("initialize", params)
    }

    /// Opens a new session in the project, and returns its id.
    pub(crate) fn new_session(&mut self, env: &TestEnv) -> String {
        let params = json!({ "cwd": env.path("project"), "mcpServers": [] });
        let created = self.request("session/new", params);
        let id = created["result"]["sessionId"].as_str();
        id.unwrap_or_else(|| panic!("{created}")).to_owned()
    }

    /// Sends a line as it is.
    pub(crate) fn send_line(&mut self, line: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line).unwrap();
        input.write_all(b"\n").unwrap();
        input.flush().unwrap();
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.send_line(message.to_string().as_bytes());
    }

    /// Sends a request and returns its id.
    pub(crate) fn send_request(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a prompt and returns the id of the request.
    pub(crate) fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        let blocks = json!([{ "type": "text", "text": text }]);
        let params = json!({ "sessionId": session, "prompt": blocks });
        self.send_request("session/prompt", params)
    }

    /// Sends a request and returns the response. Other messages stay available.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send_request(method, params);
        self.response(id)
    }

    /// Waits for the response to a request.
    pub(crate) fn response(&mut self, id: u64) -> Value {
        self.wait_for(|message| message["id"] == id && message["method"].is_null())
    }

    /// Waits for an update of a kind.
    pub(crate) fn update(&mut self, kind: &str) -> Value {
        let message = self.wait_for(|message| message["params"]["update"]["sessionUpdate"] == kind);
        message["params"]["update"].clone()
    }

    /// Waits for a request of the agent.
    pub(crate) fn request_of_agent(&mut self, method: &str) -> Value {
        self.wait_for(|message| message["method"] == method && !message["id"].is_null())
    }

    /// Waits for a permission request, and chooses an option.
    pub(crate) fn choose(&mut self, option: &str) -> Value {
        let request = self.request_of_agent("session/request_permission");
        self.answer_permission(&request, option);
        request
    }

    pub(crate) fn answer_permission(&mut self, request: &Value, option: &str) {
        let outcome = json!({ "outcome": "selected", "optionId": option });
        let result = json!({ "outcome": outcome });
        self.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
    }

    /// The first message that matches, among those that were not returned yet.
    pub(crate) fn wait_for(&mut self, matches: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.skipped.iter().position(&matches) {
            return self.skipped.remove(at).unwrap();
        }
        loop {
            let message = self.messages.recv_timeout(TIMEOUT);
            let message = message.unwrap_or_else(|error| panic!("{error}: {:#?}", self.skipped));
            if matches(&message) {
                return message;
            }
            self.skipped.push_back(message);
        }
    }

    /// The messages that were received and not returned yet.
    pub(crate) fn take_skipped(&mut self) -> Vec<Value> {
        self.skipped.drain(..).collect()
    }

    /// Closes the connection, and returns the exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        drop(self.input.take());
        wait_for_status(&mut self.agent).code()
    }

    /// Kills the agent.
    pub(crate) fn kill(mut self) {
        self.agent.kill().unwrap();
        self.agent.wait().unwrap();
    }
}

impl Drop for RawClient {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}
