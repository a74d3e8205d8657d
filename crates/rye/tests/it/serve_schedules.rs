//! Schedules: the commands, the API, and servers that fire them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::graphs::env_with_examples;
use crate::serve::env_with;
use crate::serve_support::{Server, answer, client, create_token};
use crate::support::{TestEnv, json as output_json};

const ANSWER: &str = "steps: [{ text: done }]";

/// How long a test waits for firings: a server that died in one holds it for a while.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Waits until `check` returns a value.
pub(crate) async fn wait_for<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(start.elapsed() < TIMEOUT, "{what} does not happen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn create(server: &Server, body: Value) -> String {
    let (status, schedule) = server.post("/api/schedules", &body).await;
    assert_eq!(status, 201, "{schedule}");
    schedule["id"].as_str().unwrap().to_owned()
}

fn yearly(text: &str) -> Value {
    json!({ "cron": "@yearly", "action": { "type": "prompt", "text": text } })
}

/// Makes a schedule due now.
async fn run_now(server: &Server, id: &str) {
    let path = format!("/api/schedules/{id}/run");
    let (status, schedule) = server.post(&path, &json!({})).await;
    assert_eq!(status, 200, "{schedule}");
}

/// Waits for the next firing of a schedule.
async fn fired(server: &Server, id: &str) -> Value {
    wait_for("a firing", async || {
        let (status, schedule) = server.get(&format!("/api/schedules/{id}")).await;
        assert_eq!(status, 200, "{schedule}");
        Some(schedule["last"].clone()).filter(|last| !last.is_null())
    })
    .await
}

#[test]
fn schedules_are_managed_on_the_command_line() {
    let env = env_with(ANSWER);
    let run = |args: &[&str]| output_json(&env.run(&[args, &["--json"]].concat()));
    assert_eq!(run(&["schedule", "list"])["schedules"], json!([]));
    let cron = ["--cron", "0 9 * * MON-FRI", "--time-zone", "Europe/Berlin"];
    let prompt = [
        "--prompt",
        "Summarise",
        "--missed",
        "once",
        "--name",
        "daily",
    ];
    let added = run(&[&["schedule", "add"], &cron[..], &prompt[..]].concat());
    let added = &added["schedule"];
    assert_eq!(added["action"]["text"], "Summarise");
    assert_eq!(added["missed"], "once");
    assert!(added["next"].is_u64());
    let id = added["id"].as_str().unwrap();
    let short = &id[id.len() - 8..];
    let paused = run(&["schedule", "pause", short]);
    assert_eq!(paused["schedule"]["next"], Value::Null);
    let listed = env.run(&["schedule", "list"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains(short) && listed.contains("paused"),
        "{listed}"
    );
    let resumed = run(&["schedule", "resume", short]);
    assert_eq!(resumed["schedule"]["next"], added["next"]);
    run(&["schedule", "rm", short]);
    assert_eq!(run(&["schedule", "list"])["schedules"], json!([]));

    for (args, message) in [
        (
            vec!["schedule", "add", "--cron", "0 9 * *", "--prompt", "x"],
            "invalid cron expression `0 9 * *`",
        ),
        (
            vec!["schedule", "add", "--cron", "0 0 30 2 *", "--prompt", "x"],
            "the cron expression `0 0 30 2 *` matches no time",
        ),
        (
            vec![
                "schedule",
                "add",
                "--cron",
                "@daily",
                "--time-zone",
                "Berlin",
                "--prompt",
                "x",
            ],
            "unknown time zone `Berlin`",
        ),
        (
            vec!["schedule", "add", "--cron", "@daily", "--graph", "no/such"],
            "no/such",
        ),
        (vec!["schedule", "add", "--cron", "@daily"], "--prompt"),
        (vec!["schedule", "rm", "nope"], "schedule nope not found"),
    ] {
        let output = env.run(&args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{args:?}");
        assert!(error.contains(message), "{args:?}: {error}");
    }
}

#[tokio::test]
async fn schedule_starts_prompts_of_its_owner() {
    let env = env_with(ANSWER);
    let server = Server::start(&env);
    let mut new = yearly("go");
    new["user"] = json!("ada");
    let id = create(&server, new).await;
    run_now(&server, &id).await;
    let last = fired(&server, &id).await;
    assert_eq!(last["outcome"], "started");
    let (session, prompt) = (last["session"].as_str().unwrap(), last["prompt"].as_str());
    let item = format!("{}@{session}", prompt.unwrap());
    assert_eq!(server.answer(&item).await["text"], "done");

    // Others know neither the schedule nor its session.
    let token = |user: &str| {
        let options = ["--user", user, "--scope", "read", "--scope", "prompt"];
        create_token(&env, &options)
    };
    let (ada, grace) = (token("ada"), token("grace"));
    let get = async |token: &str, path: &str| {
        let request = client().get(format!("{}{path}", server.url));
        answer(request.bearer_auth(token)).await
    };
    for path in [
        format!("/api/schedules/{id}"),
        format!("/api/sessions/{session}"),
    ] {
        assert_eq!(get(&ada, &path).await.0, 200, "{path}");
        assert_eq!(get(&grace, &path).await.0, 404, "{path}");
    }
    assert_eq!(
        get(&grace, "/api/schedules").await.1["schedules"],
        json!([])
    );
    let remove = client().delete(format!("{}/api/schedules/{id}", server.url));
    assert_eq!(answer(remove.bearer_auth(&grace)).await.0, 404);
    let remove = server.request(Method::DELETE, &format!("/api/schedules/{id}"));
    assert_eq!(answer(remove).await.0, 204);
    assert_eq!(server.get("/api/schedules").await.1["schedules"], json!([]));
}

#[tokio::test]
async fn invalid_schedules_are_refused() {
    let env = env_with(ANSWER);
    let server = Server::start(&env);
    let prompt = json!({ "type": "prompt", "text": "go" });
    for (body, status, code) in [
        (
            json!({ "cron": "* * *", "action": prompt }),
            422,
            "invalid_cron",
        ),
        (
            json!({ "cron": "@daily", "time_zone": "x", "action": prompt }),
            422,
            "unknown_time_zone",
        ),
        (
            json!({ "cron": "@daily", "action": { "type": "prompt", "text": "" } }),
            422,
            "invalid_definition",
        ),
        (
            json!({ "cron": "@daily", "action": { "type": "prompt", "text": "x", "model": "no/such" } }),
            422,
            "unknown_model",
        ),
        (
            json!({ "cron": "@daily", "action": { "type": "prompt", "text": "x", "session": "none" } }),
            404,
            "not_found",
        ),
        (
            json!({ "cron": "@daily", "action": { "type": "graph", "graph": "no/such" } }),
            404,
            "action",
        ),
        (
            json!({ "cron": "@daily", "action": { "type": "mail" } }),
            400,
            "invalid_body",
        ),
        (json!({ "cron": "@daily" }), 400, "invalid_body"),
    ] {
        let (found, problem) = server.post("/api/schedules", &body).await;
        assert_eq!(
            (found.as_u16(), &problem["code"]),
            (status, &json!(code)),
            "{body} {problem}"
        );
    }
}

#[tokio::test]
async fn schedule_runs_a_graph_with_inputs() {
    let env = env_with_examples();
    env.write("project/agent.yaml", ANSWER);
    let server = Server::start(&env);
    let action =
        json!({ "type": "graph", "graph": "workflows/stats", "inputs": { "directory": "src" } });
    let id = create(&server, json!({ "cron": "@yearly", "action": action })).await;
    run_now(&server, &id).await;
    let last = fired(&server, &id).await;
    assert_eq!(last["outcome"], "started", "{last}");
    let session = last["session"].as_str().unwrap().to_owned();
    let run = wait_for("the end of the run", async || {
        let (_, state) = server.get(&format!("/api/sessions/{session}")).await;
        let run = state["session"]["run"].clone();
        (run["status"] != "running").then_some(run)
    })
    .await;
    assert_eq!(run["status"], "completed", "{run}");
    let wrong =
        json!({ "type": "graph", "graph": "workflows/stats", "inputs": { "directory": 7 } });
    let (status, problem) = server
        .post(
            "/api/schedules",
            &json!({ "cron": "@daily", "action": wrong }),
        )
        .await;
    assert_eq!(status, 422, "{problem}");
}

/// Number of prompts of each session that the schedules have started.
async fn prompts(server: &Server) -> BTreeMap<String, usize> {
    let (_, list) = server.get("/api/sessions?limit=1000").await;
    let mut found = BTreeMap::new();
    for session in list["sessions"].as_array().unwrap() {
        let id = session["id"].as_str().unwrap();
        let path = format!("/api/sessions/{id}/threads/default/entries?limit=100");
        let (_, entries) = server.get(&path).await;
        let entries = entries["entries"].as_array().unwrap();
        let is_prompt = |entry: &&Value| entry["role"] == "user" || entry["kind"]["role"] == "user";
        found.insert(id.to_owned(), entries.iter().filter(is_prompt).count());
    }
    found
}

/// Makes many schedules due, while two servers compete for them, and returns the sessions that
/// must exist afterwards.
async fn many_due(server: &Server, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..count {
        ids.push(create(server, yearly(&format!("go {number}"))).await);
    }
    for id in &ids {
        run_now(server, id).await;
    }
    ids
}

async fn assert_each_fired_once(server: &Server, ids: &[String]) {
    let mut expected = BTreeMap::new();
    for id in ids {
        let last = fired(server, id).await;
        assert_eq!(last["outcome"], "started", "{last}");
        let session = last["session"].as_str().unwrap().to_owned();
        let item = format!("{}@{session}", last["prompt"].as_str().unwrap());
        assert_eq!(server.answer(&item).await["text"], "done");
        expected.insert(session, 1);
    }
    assert_eq!(prompts(server).await, expected);
}

#[tokio::test]
async fn two_servers_fire_each_schedule_once() {
    let env = env_with(ANSWER);
    let (first, second) = (Server::start(&env), Server::start(&env));
    let ids = many_due(&first, 20).await;
    assert_each_fired_once(&second, &ids).await;
}

#[tokio::test]
async fn killed_server_fires_nothing_twice_and_loses_nothing() {
    let env = env_with(ANSWER);
    let (mut first, second) = (Server::start(&env), Server::start(&env));
    let ids = many_due(&second, 30).await;
    // In the middle of the firings.
    wait_for("the first session", async || {
        let (_, list) = second.get("/api/sessions").await;
        (!list["sessions"].as_array().unwrap().is_empty()).then_some(())
    })
    .await;
    first.signal(Signal::KILL);
    first.status();
    assert_each_fired_once(&second, &ids).await;
}

/// While no server runs, a schedule becomes due.
#[tokio::test]
async fn schedule_that_became_due_without_a_server_fires_when_one_starts() {
    let env: TestEnv = env_with(ANSWER);
    let add = [
        "schedule", "add", "--cron", "@yearly", "--prompt", "go", "--json",
    ];
    let added = output_json(&env.run(&add));
    let id = added["schedule"]["id"].as_str().unwrap();
    assert!(env.run(&["schedule", "run", id]).status.success());
    let server = Server::start(&env);
    assert_each_fired_once(&server, &[id.to_owned()]).await;
}
