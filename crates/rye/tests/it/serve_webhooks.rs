//! Webhooks and hooks, with the official library of Standard Webhooks on the other side.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::graphs::env_with_examples;
use crate::mcp_support::tools_dir;
use crate::serve::env_with;
use crate::serve_schedules::wait_for;
use crate::serve_support::{Server, answer, client, create_token};
use crate::support::{TestEnv, json as output_json};

const ANSWER: &str = "steps: [{ text: done }]";

/// A graph whose input is the body of a request.
const HOOKED: &str = r#"
version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: ["rye.execute.tool.lib.count"]
config_schema: { type: object, properties: { payload: { type: object } }, required: [payload] }
config:
  start: files
  max_steps: 5
  nodes:
    files:
      action: { primary: execute, item_type: tool, item_id: lib/count, params: { what: files, directory: "${inputs.payload.directory}" } }
      assign: { files: "${result.count}" }
      next: end
    end: { type: return, output: { directory: "${inputs.payload.directory}", files: "${state.files}" } }
"#;

/// The script with the official library.
fn library(args: &[&str]) -> Command {
    let directory = tools_dir("standardwebhooks");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/webhooks.py");
    let mut command = Command::new(directory.join("bin/python"));
    command.arg(script).args(args).env("PYTHONPATH", directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// A receiver that verifies what it gets, and refuses the first request.
struct Endpoint {
    child: Child,
    url: String,
    requests: Receiver<Value>,
}

impl Endpoint {
    fn start(env: &TestEnv) -> Self {
        let secret = env.path("secret");
        let mut child = library(&["receive", secret.to_str().unwrap()])
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next().unwrap().unwrap();
        let (sender, requests) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines {
                let request = serde_json::from_str(&line.unwrap()).unwrap();
                if sender.send(request).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            url: format!("http://127.0.0.1:{port}/hook"),
            requests,
        }
    }

    /// The next request, which must verify.
    fn next(&self) -> Value {
        let request = self.requests.recv_timeout(Duration::from_mins(1)).unwrap();
        assert_eq!(request["verified"], true, "{request}");
        request
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn add_webhook(env: &TestEnv, url: &str) -> String {
    let add = [
        "webhook",
        "add",
        url,
        "--event",
        "turn_end",
        "--allow-private",
        "--json",
    ];
    let added = output_json(&env.run(&add));
    env.write("secret", added["secret"].as_str().unwrap());
    added["webhook"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn official_library_verifies_what_is_sent() {
    let env = env_with(ANSWER);
    let endpoint = Endpoint::start(&env);
    let webhook = add_webhook(&env, &endpoint.url);
    let server = Server::start(&env);
    let session = server.create_session().await;
    let item = server.prompt(&session, "go").await;
    server.answer(&item).await;
    // The first attempt is refused.
    let (first, second) = (endpoint.next(), endpoint.next());
    assert_eq!(first, second);
    assert_eq!(first["payload"]["type"], "turn_end");
    assert_eq!(first["payload"]["data"]["session"], json!(session));
    let delivered = wait_for("a delivery", async || {
        let path = format!("/api/webhooks/{webhook}/deliveries");
        let (status, list) = server.get(&path).await;
        assert_eq!(status, 200, "{list}");
        let delivery = list["deliveries"][0].clone();
        (delivery["status"] == "delivered").then_some(delivery)
    })
    .await;
    assert_eq!(delivered["attempts"], 2);
    assert_eq!(delivered["id"], first["id"]);

    let short = &webhook[webhook.len() - 8..];
    let id = delivered["id"].as_str().unwrap();
    let replayed = env.run(&["webhook", "replay", short, id]);
    assert!(replayed.status.success(), "{replayed:?}");
    assert_eq!(endpoint.next(), first);
    let listed = env.run(&["webhook", "list"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains(short) && listed.contains("active"),
        "{listed}"
    );
    // The database has no secret in clear text.
    let secret = env.read("secret");
    let secret = secret.strip_prefix("whsec_").unwrap();
    for file in ["sessions.db", "sessions.db-wal"] {
        let bytes = std::fs::read(env.path(&format!("user/.local/state/rye/{file}"))).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(secret), "{file}");
    }
    assert!(env.run(&["webhook", "rm", short]).status.success());
    let (_, list) = server.get("/api/webhooks").await;
    assert_eq!(list["webhooks"], json!([]));
}

/// Another process runs the session while the server does not run, and a server is killed.
#[tokio::test]
async fn events_of_other_processes_are_sent_also_after_a_crash() {
    let env = env_with(ANSWER);
    let endpoint = Endpoint::start(&env);
    add_webhook(&env, &endpoint.url);
    let prompt = [
        "prompt",
        "go",
        "--model",
        "scripted:agent.yaml",
        "--sandbox",
        "virtual",
    ];
    assert!(env.run(&prompt).status.success());
    let mut server = Server::start(&env);
    let first = endpoint.next();
    server.signal(Signal::KILL);
    server.status();
    assert!(env.run(&prompt).status.success());
    let _server = Server::start(&env);
    let mut ids = std::collections::BTreeSet::new();
    // At least once, and always with the same id.
    while ids.len() < 2 {
        ids.insert(endpoint.next()["id"].as_str().unwrap().to_owned());
    }
    assert!(ids.contains(first["id"].as_str().unwrap()));
}

#[tokio::test]
async fn hook_accepts_what_the_official_library_signs() {
    let env = env_with(ANSWER);
    let server = Server::start(&env);
    let add = ["hook", "add", "--prompt", "Triage this", "--json"];
    let added = output_json(&env.run(&add));
    let (id, secret) = (
        added["hook"]["id"].as_str().unwrap(),
        added["secret"].as_str().unwrap(),
    );
    let body = r#"{"issue": 7}"#;
    let output = library(&["sign", secret, "msg_1", body]).output().unwrap();
    let headers: Value = serde_json::from_slice(&output.stdout).unwrap();
    let send = async |changes: Value, body: &'static str| {
        let mut request = client().post(format!("{}/api/hooks/{id}", server.url));
        for (name, value) in headers.as_object().unwrap() {
            let value = changes
                .get(name)
                .unwrap_or(value)
                .as_str()
                .unwrap()
                .to_owned();
            request = request.header(name, value);
        }
        let (status, body) = answer(request.body(body)).await;
        (status.as_u16(), body)
    };
    let (status, problem) = send(json!({}), "{}").await;
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("invalid_signature"))
    );
    let (status, problem) = send(json!({ "webhook-timestamp": "1" }), body).await;
    assert_eq!((status, &problem["code"]), (401, &json!("stale_timestamp")));
    let (status, started) = send(json!({}), body).await;
    assert_eq!(status, 202, "{started}");
    let (session, prompt) = (&started["session"], &started["prompt"]);
    let item = format!("{}@{}", prompt.as_str().unwrap(), session.as_str().unwrap());
    assert_eq!(server.answer(&item).await["text"], "done");
    let (status, problem) = send(json!({}), body).await;
    assert_eq!((status, &problem["code"]), (409, &json!("replayed")));
    let unsigned = client()
        .post(format!("{}/api/hooks/{id}", server.url))
        .body(body);
    assert_eq!(answer(unsigned).await.0, 400);
    let unknown = client().post(format!("{}/api/hooks/none", server.url));
    let unknown = unknown
        .header("webhook-id", "a")
        .header("webhook-timestamp", "1");
    assert_eq!(
        answer(unknown.header("webhook-signature", "v1,")).await.0,
        404
    );
    let (_, list) = server.get("/api/hooks").await;
    assert_eq!(list["hooks"][0]["id"], json!(id));
    assert!(env.run(&["hook", "rm", id]).status.success());
    assert_eq!(send(json!({}), body).await.0, 404);
}

#[tokio::test]
async fn webhooks_of_others_do_not_exist() {
    let env = env_with(ANSWER);
    let server = Server::start(&env);
    let new = json!({ "url": "https://example.org/hook", "user": "ada" });
    let (status, created) = server.post("/api/webhooks", &new).await;
    assert_eq!(status, 201, "{created}");
    let id = created["webhook"]["id"].as_str().unwrap();
    let call = async |token: &str, path: &str, body: Option<Value>| {
        let url = format!("{}{path}", server.url);
        let request = match body {
            Some(body) => client().post(url).json(&body),
            None => client().get(url),
        };
        answer(request.bearer_auth(token)).await
    };
    let grace = create_token(&env, &["--user", "grace", "--scope", "admin"]);
    let path = format!("/api/webhooks/{id}/deliveries");
    assert_eq!(call(&grace, &path, None).await.0, 404);
    assert_eq!(
        call(&grace, "/api/webhooks", None).await.1["webhooks"],
        json!([])
    );
    let private = json!({ "url": "http://127.0.0.1:1/", "allow_private": true });
    let (status, problem) = call(&grace, "/api/webhooks", Some(private)).await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (403, &json!("bounded_token"))
    );
    let invalid = json!({ "url": "ftp://example.org" });
    let (status, problem) = call(&grace, "/api/webhooks", Some(invalid)).await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (422, &json!("invalid_definition"))
    );
    let reader = create_token(&env, &["--user", "ada", "--scope", "read"]);
    assert_eq!(call(&reader, "/api/webhooks", None).await.0, 403);
}

#[tokio::test]
async fn hook_starts_a_graph_with_the_body_as_payload() {
    let env = env_with_examples();
    env.write("project/agent.yaml", ANSWER);
    env.write("project/.ai/tools/workflows/hooked.yaml", HOOKED);
    assert!(env.run(&["sign", "tool:workflows/hooked"]).status.success());
    let server = Server::start(&env);
    let add = ["hook", "add", "--graph", "workflows/hooked", "--json"];
    let added = output_json(&env.run(&add));
    let (id, secret) = (
        added["hook"]["id"].as_str().unwrap(),
        added["secret"].as_str().unwrap(),
    );
    let body = r#"{"directory":"src"}"#;
    let output = library(&["sign", secret, "msg_1", body]).output().unwrap();
    let headers: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut request = client().post(format!("{}/api/hooks/{id}", server.url));
    for (name, value) in headers.as_object().unwrap() {
        request = request.header(name, value.as_str().unwrap());
    }
    let (status, started) = answer(request.body(body)).await;
    assert_eq!(status, 202, "{started}");
    let session = started["session"].as_str().unwrap();
    let run = wait_for("the end of the run", async || {
        let (_, state) = server.get(&format!("/api/sessions/{session}")).await;
        let run = state["session"]["run"].clone();
        (run["status"] != "running").then_some(run)
    })
    .await;
    assert_eq!(run["status"], "completed", "{run}");
    let export = server.request(Method::GET, &format!("/api/sessions/{session}/export"));
    let export = export.send().await.unwrap().text().await.unwrap();
    assert!(
        export.contains(r#"{"directory":"src","files":2}"#),
        "{export}"
    );
}
