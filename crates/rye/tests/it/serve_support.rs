//! `rye serve` on a free port, and a client of its API.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use reqwest::{Method, RequestBuilder, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::mcp_support::wait_for_status;
use crate::support::TestEnv;

/// How long a test waits for something that is about to happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A server process.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// The login link that it printed.
    pub(crate) login: String,
    /// The secret of a token that permits everything.
    pub(crate) token: String,
    pub(crate) client: reqwest::Client,
}

impl Server {
    /// Starts a server with a scripted model and the sandbox `local`, whose commands need approval.
    pub(crate) fn start(env: &TestEnv) -> Self {
        Self::start_with(
            env,
            &["--model", "scripted:agent.yaml", "--sandbox", "local"],
        )
    }

    /// Starts a server with options.
    pub(crate) fn start_with(env: &TestEnv, options: &[&str]) -> Self {
        Self::spawn(env, env.command(), options)
    }

    /// Starts a server with a command that runs `rye` with further arguments.
    pub(crate) fn spawn(env: &TestEnv, mut command: Command, options: &[&str]) -> Self {
        command.args(["serve", "--addr", "127.0.0.1:0", "--json"]);
        let mut child = command.args(options).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        if line.is_empty() {
            let output = child.wait_with_output().unwrap();
            panic!("the server did not start: {output:?}");
        }
        // Drain standard error, so that the server does not block on it.
        let mut errors = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::stderr()));
        let ready: Value = serde_json::from_str(&line).unwrap();
        let text = |key: &str| ready[key].as_str().unwrap().to_owned();
        Self {
            child,
            url: text("url"),
            login: text("login"),
            token: create_token(env, &["--scope", "admin"]),
            client: client(),
        }
    }

    /// A request with the token.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        request.bearer_auth(&self.token)
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        answer(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        answer(self.request(Method::POST, path).json(body)).await
    }

    /// Creates a session and returns its id.
    pub(crate) async fn create_session(&self) -> String {
        let (status, state) = self.post("/api/sessions", &json!({})).await;
        assert_eq!(status, 201, "{state}");
        state["session"]["id"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt to the thread `default` and returns the item.
    pub(crate) async fn prompt(&self, session: &str, text: &str) -> String {
        let path = format!("/api/sessions/{session}/threads/default/prompts");
        let (status, accepted) = self.post(&path, &json!({ "text": text })).await;
        assert_eq!(status, 202, "{accepted}");
        accepted["id"].as_str().unwrap().to_owned()
    }

    /// Waits for the answer to a prompt.
    pub(crate) async fn answer(&self, item: &str) -> Value {
        let (status, state) = self.get(&format!("/api/prompts/{item}?wait=30")).await;
        assert_eq!(status, 200, "{state}");
        assert_eq!(state["status"], "ended", "{state}");
        state
    }

    /// Opens an event stream of a session.
    pub(crate) async fn events(&self, session: &str, query: &str) -> Events {
        let path = format!("/api/sessions/{session}/events{query}");
        let response = self.request(Method::GET, &path).send().await.unwrap();
        assert_eq!(response.status(), 200);
        Events::new(response)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
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

/// An HTTP client that follows no redirects.
pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy().timeout(2 * TIMEOUT);
    let builder = builder.redirect(reqwest::redirect::Policy::none());
    builder.build().unwrap()
}

/// Creates a token on the command line and returns its secret.
pub(crate) fn create_token(env: &TestEnv, options: &[&str]) -> String {
    let args = [&["token", "create", "--name", "test", "--json"], options].concat();
    let created = crate::support::json(&env.run(&args));
    created["secret"].as_str().unwrap().to_owned()
}

/// Status and JSON body of a response.
pub(crate) async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

/// A Server-Sent Event.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SseEvent {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// Parses Server-Sent Events; an incomplete event at the end is ignored, as by browsers.
#[derive(Default)]
pub(crate) struct SseParser {
    buffer: String,
}

impl SseParser {
    /// Adds text and returns the events that are complete now.
    pub(crate) fn push(&mut self, text: &str) -> Vec<SseEvent> {
        self.buffer += text;
        let mut events = Vec::new();
        while let Some(end) = self.buffer.find("\n\n") {
            let block: String = self.buffer.drain(..end + 2).collect();
            let field = |name: &str| {
                let mut lines = block.lines();
                let value = lines.find_map(|line| line.strip_prefix(name));
                value.map(|value| value.trim_start().to_owned())
            };
            // A comment has no data.
            let Some(data) = field("data:") else { continue };
            events.push(SseEvent {
                id: field("id:"),
                name: field("event:").unwrap_or_default(),
                data: serde_json::from_str(&data).unwrap(),
            });
        }
        events
    }
}

/// An event stream.
pub(crate) struct Events {
    response: reqwest::Response,
    parser: SseParser,
    ready: std::collections::VecDeque<SseEvent>,
}

impl Events {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        Self {
            response,
            parser: SseParser::default(),
            ready: std::collections::VecDeque::new(),
        }
    }

    /// The next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let bytes = self.response.chunk().await.unwrap()?;
            // JSON on the wire is ASCII or whole characters per event.
            self.ready
                .extend(self.parser.push(std::str::from_utf8(&bytes).unwrap()));
        }
    }

    /// Reads until an event with a name.
    pub(crate) async fn until(&mut self, name: &str) -> SseEvent {
        loop {
            let event = self.next().await;
            let event = event.unwrap_or_else(|| panic!("the stream ended before {name}"));
            if event.name == name {
                return event;
            }
        }
    }

    /// All events up to the end of the stream.
    pub(crate) async fn rest(mut self) -> Vec<SseEvent> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}
