//! Operations of `rye serve`: metrics, readiness, hosts and the access log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};

use crate::serve::env_with;
use crate::serve_schedules::wait_for;
use crate::serve_support::{Server, answer, client, create_token};
use crate::support::TestEnv;

const GATED: &str = "steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi > out.txt' } }]
    usage: { input: 1000, output: 20 }
  - { text: 'done', usage: { input: 1000, output: 20 } }
  - { text: 'again', usage: { input: 1000, output: 20 } }
";

const OPTIONS: [&str; 4] = ["--model", "scripted:agent.yaml", "--sandbox", "local"];

/// A project whose state is in `state`.
fn env() -> TestEnv {
    let mut env = env_with(GATED);
    env.set("RYE_STATE_DIR", env.path("state").to_str().unwrap());
    env
}

async fn text(server: &Server, path: &str) -> String {
    let response = client().get(format!("{}{path}", server.url)).send().await;
    let response = response.unwrap();
    assert_eq!(response.status(), 200);
    response.text().await.unwrap()
}

/// Runs the health check of the container image.
fn is_healthy(server: &Server) -> bool {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/healthcheck.sh");
    let port = server.url.rsplit(':').next().unwrap();
    let status = Command::new(script).arg(port).status();
    status.unwrap().success()
}

/// A sample of the text format: name, labels and value.
fn sample(line: &str) -> (&str, BTreeMap<&str, &str>, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.trim_end_matches('}').split(',');
    let labels = labels.filter_map(|label| label.split_once('='));
    let labels = labels.map(|(name, value)| (name, value.trim_matches('"')));
    (name, labels.collect(), value.parse().unwrap())
}

#[tokio::test]
async fn metrics_are_described_and_have_no_ids_or_secrets() {
    let env = env();
    let server = Server::start_with(&env, &OPTIONS);
    let session = server.create_session().await;
    let mut events = server.events(&session, "").await;
    let item = server.prompt(&session, "the key is hunter2-sesame").await;
    let waiting = server.prompt(&session, "and then").await;
    let gate = events.until("decision_gate").await.data["data"]["gate"].clone();
    let value = |text: &str, series: &str| {
        let line = text
            .lines()
            .find(|it| it.starts_with(&format!("{series} ")));
        line.map(|line| sample(line).2)
    };
    let busy = wait_for("a prompt in the queue", async || {
        let busy = text(&server, "/metrics").await;
        (value(&busy, "rye_queued_prompts") == Some(1.0)).then_some(busy)
    })
    .await;
    let streams = "rye_open_streams{transport=\"sse\"}";
    assert_eq!(value(&busy, streams), Some(1.0), "{busy}");
    let path = format!("/api/gates/{}/decision", gate["id"].as_str().unwrap());
    let decided = server.post(&path, &json!({ "action": "approve" })).await;
    assert_eq!(decided.0, 200);
    for item in [&item, &waiting] {
        server.answer(item).await;
    }
    drop(events);
    let text = wait_for("the end of the stream", async || {
        let text = text(&server, "/metrics").await;
        (value(&text, streams) == Some(0.0)).then_some(text)
    })
    .await;

    let model = "model=\"scripted:agent.yaml\"";
    for (series, expected) in [
        ("rye_queued_prompts", 0.0),
        (
            &*format!("rye_model_tokens_total{{{model},kind=\"input\"}}"),
            3000.0,
        ),
        (
            &*format!("rye_model_tokens_total{{{model},kind=\"output\"}}"),
            60.0,
        ),
        ("rye_stream_lagged_total", 0.0),
        (
            "rye_tool_exec_seconds_count{tool=\"bash\",outcome=\"success\"}",
            1.0,
        ),
        ("rye_queue_wait_seconds_count", 2.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}\n{text}");
    }
    assert!(value(&text, "rye_stream_lag_seconds_count").unwrap() > 0.0);
    assert!(text.ends_with("# EOF\n"));

    let described = |kind: &str| -> BTreeSet<&str> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(kind));
        lines.map(|line| line.split(' ').next().unwrap()).collect()
    };
    let (help, types) = (described("# HELP "), described("# TYPE "));
    assert_eq!(help, types);
    let permitted = [
        "le",
        "model",
        "kind",
        "tool",
        "outcome",
        "reason",
        "status",
        "transport",
    ];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels, _) = sample(line);
        let suffixes = ["", "_total", "_bucket", "_sum", "_count"];
        let families = suffixes
            .iter()
            .filter_map(|suffix| name.strip_suffix(suffix));
        assert!(families.into_iter().any(|it| types.contains(it)), "{line}");
        assert!(labels.keys().all(|it| permitted.contains(it)), "{line}");
    }
    for secret in [&*session, &item, &server.token, "hunter2-sesame", "out.txt"] {
        assert!(!text.contains(secret), "{secret}\n{text}");
    }
}

#[tokio::test]
async fn server_is_not_ready_while_the_database_is_locked_and_loses_nothing() {
    let env = env();
    let server = Server::start_with(&env, &OPTIONS);
    let session = server.create_session().await;
    let database = rusqlite::Connection::open(env.path("state/sessions.db")).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let readyz = async || answer(client().get(format!("{}/readyz", server.url))).await;
    let problem = wait_for("readiness to end", async || {
        let (status, problem) = readyz().await;
        (status == 503).then_some(problem)
    })
    .await;
    assert_eq!(problem["code"], "store_unavailable");
    assert!(!problem.to_string().contains("sessions.db"), "{problem}");
    // Reading works, and what is written waits.
    assert_eq!(server.get(&format!("/api/sessions/{session}")).await.0, 200);
    let path = format!("/api/sessions/{session}/threads/default/prompts");
    let prompt = json!({ "text": "go" });
    let post = tokio::spawn(answer(server.request(Method::POST, &path).json(&prompt)));
    database.execute_batch("ROLLBACK").unwrap();
    let (status, accepted) = post.await.unwrap();
    assert_eq!(status, 202, "{accepted}");
    wait_for("readiness", async || {
        (readyz().await.0 == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn server_is_not_ready_without_its_database_and_says_so() {
    let env = env();
    let server = Server::start_with(&env, &OPTIONS);
    let session = server.create_session().await;
    assert!(is_healthy(&server));
    fs::remove_file(env.path("state/sessions.db")).unwrap();
    let problem = wait_for("readiness to end", async || {
        let (status, problem) = answer(client().get(format!("{}/readyz", server.url))).await;
        (status == 503).then_some(problem)
    })
    .await;
    assert_eq!(problem["code"], "store_unavailable");
    assert!(!is_healthy(&server));
    let path = format!("/api/sessions/{session}/threads/default/prompts");
    let (status, problem) = server.post(&path, &json!({ "text": "go" })).await;
    assert_eq!(status, 500, "{problem}");
    assert_eq!(problem["code"], "store_damaged");
    assert!(problem["hint"].is_string(), "{problem}");
}

#[tokio::test]
async fn hosts_are_the_processes_that_hold_sessions() {
    let env = env();
    let first = Server::start_with(&env, &OPTIONS);
    let second = Server::start_with(&env, &OPTIONS);
    for server in [&first, &second] {
        let session = server.create_session().await;
        let mut events = server.events(&session, "").await;
        server.prompt(&session, "go").await;
        events.until("decision_gate").await;
    }
    let (status, list) = first.get("/api/hosts").await;
    assert_eq!(status, 200, "{list}");
    let hosts = list["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 2, "{list}");
    let own: Vec<_> = hosts.iter().filter(|it| it["is_self"] == true).collect();
    assert_eq!(own.len(), 1, "{list}");
    assert_eq!(own[0]["sessions"], 1);
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(own[0]["name"], name.trim());
    assert_ne!(hosts[0]["process"], hosts[1]["process"]);
    let bounded = create_token(&env, &["--scope", "read", "--user", "ada"]);
    let request = client().get(format!("{}/api/hosts", first.url));
    let (status, problem) = answer(request.bearer_auth(bounded)).await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (403, &json!("bounded_token"))
    );
}

#[tokio::test]
async fn access_log_names_requests_and_no_secrets() {
    let env = env();
    let log = env.path("access.log");
    let options = [&OPTIONS[..], &["--log", "info", "--log-format", "json"]].concat();
    let options = [&options[..], &["--log-file", log.to_str().unwrap()]].concat();
    let server = Server::start_with(&env, &options);
    let login = client().get(&server.login).send().await.unwrap();
    let cookie = login.headers()["set-cookie"].to_str().unwrap().to_owned();
    let cookie = cookie.split(';').next().unwrap();
    let own = client().get(format!("{}/api/tokens/self?hunter2=sesame", server.url));
    let (_, token) = answer(own.header("Cookie", cookie)).await;
    let wrong = client().get(format!("{}/api/sessions", server.url));
    assert_eq!(answer(wrong.bearer_auth("rye_guess")).await.0, 401);
    let session = server.create_session().await;
    server.prompt(&session, "the key is hunter2-sesame").await;
    let requests = wait_for("the log", async || {
        let log = env.read("access.log");
        let lines = log
            .lines()
            .map(|it| serde_json::from_str::<Value>(it).unwrap());
        let lines = lines.filter(|it| it["target"] == "rye_server::access");
        let lines: Vec<_> = lines.collect();
        (lines.len() >= 5).then_some(lines)
    })
    .await;
    let request = |path: &str| {
        let mut requests = requests.iter().map(|it| &it["fields"]);
        let found = requests.find(|it| it["path"] == path);
        found
            .unwrap_or_else(|| panic!("{path}: {requests:?}"))
            .clone()
    };
    assert_eq!(request("/login")["status"], 303);
    let own = request("/api/tokens/self");
    assert_eq!(
        (&own["method"], &own["token"]),
        (&json!("GET"), &token["id"])
    );
    assert!(own["micros"].is_u64(), "{own}");
    let prompt = request(&format!("/api/sessions/{session}/threads/default/prompts"));
    assert_eq!(
        (&prompt["method"], &prompt["status"]),
        (&json!("POST"), &json!(202))
    );
    let log = env.read("access.log");
    let secret = server.login.split_once("token=").unwrap().1;
    let cookie = cookie.split_once('=').unwrap().1;
    for secret in [
        secret,
        cookie,
        &server.token,
        "rye_guess",
        "hunter2",
        "sesame",
    ] {
        assert!(!log.contains(secret), "{secret}\n{log}");
    }
}
