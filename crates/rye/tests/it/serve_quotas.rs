//! Quotas of users and organisations, and rates of requests, at real servers.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve::env_with;
use crate::serve_schedules::wait_for;
use crate::serve_support::{Server, create_token};
use crate::support::{TestEnv, json as output_json};

const COSTLY: &str = "steps: []\nafter_last: { text: hi, usage: { input: 90, output: 20 } }";
const SLOW: &str = "steps: []\nafter_last: { text: slow, delay_ms: 600000 }";

/// A server whose token belongs to a user.
fn server_of(env: &TestEnv, user: &str) -> Server {
    let mut server = Server::start(env);
    server.token = create_token(
        env,
        &["--scope", "prompt", "--scope", "read", "--user", user],
    );
    server
}

fn set_quota(env: &TestEnv, args: &[&str]) {
    let set = env.run(&[&["quota", "set"], args].concat());
    assert!(set.status.success(), "{set:?}");
}

async fn try_prompt(server: &Server, session: &str) -> (u16, Value) {
    let path = format!("/api/sessions/{session}/threads/default/prompts");
    let (status, body) = server.post(&path, &json!({ "text": "go" })).await;
    (status.as_u16(), body)
}

#[tokio::test]
async fn budget_holds_at_all_servers_and_is_shown() {
    let env = env_with(COSTLY);
    set_quota(
        &env,
        &["--user", "alice", "--tokens", "200", "--per", "month"],
    );
    let servers = [server_of(&env, "alice"), server_of(&env, "alice")];
    for server in &servers {
        let session = server.create_session().await;
        let item = server.prompt(&session, "go").await;
        assert_eq!(server.answer(&item).await["text"], "hi");
    }
    let session = servers[0].create_session().await;
    for server in &servers {
        let (status, problem) = try_prompt(server, &session).await;
        assert_eq!((status, &problem["code"]), (402, &json!("budget_exceeded")));
        assert_eq!(problem["owner"], json!({ "kind": "user", "name": "alice" }));
        assert_eq!(problem["limit"], "tokens");
        assert_eq!(
            (&problem["used"], &problem["allowed"]),
            (&json!(220), &json!(200))
        );
        assert!(problem["renews_at"].as_u64().is_some(), "{problem}");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("220 of 200 tokens")
        );
    }
    let list = output_json(&env.run(&["quota", "list", "--json"]));
    assert_eq!(list["quotas"][0]["used"]["input_tokens"], 180, "{list}");
    let text = String::from_utf8(env.run(&["quota", "list"]).stdout).unwrap();
    assert!(text.contains("220 of 200"), "{text}");
    assert!(
        env.run(&["quota", "rm", "--user", "alice"])
            .status
            .success()
    );
    assert_eq!(try_prompt(&servers[1], &session).await.0, 202);
    let again = env.run(&["quota", "rm", "--user", "alice", "--json"]);
    assert_eq!(output_json(&again)["error"]["code"], "quota_not_found");
}

#[tokio::test]
async fn turns_at_two_servers_share_a_limit_and_a_killed_one_leaks_none() {
    let env = env_with(SLOW);
    set_quota(&env, &["--user", "*", "--turns", "1"]);
    let mut first = server_of(&env, "alice");
    let second = server_of(&env, "alice");
    let running = || {
        let list = output_json(&env.run(&["quota", "list", "--json"]));
        list["quotas"][0].clone()
    };
    let session = first.create_session().await;
    assert_eq!(try_prompt(&first, &session).await.0, 202);
    let other = second.create_session().await;
    let problem = wait_for("a refusal", async || {
        let (status, problem) = try_prompt(&second, &other).await;
        (status == 429).then_some(problem)
    })
    .await;
    assert_eq!(problem["code"], "too_many_turns", "{}", running());
    // Another user has turns of their own.
    let bob = server_of(&env, "bob");
    let session_of_bob = bob.create_session().await;
    assert_eq!(try_prompt(&bob, &session_of_bob).await.0, 202);
    // Deleting the unfinished session keeps other servers from continuing it.
    first.signal(Signal::KILL);
    first.status();
    let admin = create_token(&env, &["--scope", "admin"]);
    let url = format!("{}/api/sessions/{session}", second.url);
    wait_for("the deletion", async || {
        let deletion = second.client.delete(&url).bearer_auth(&admin);
        deletion
            .send()
            .await
            .unwrap()
            .status()
            .is_success()
            .then_some(())
    })
    .await;
    wait_for("a free slot", async || {
        (try_prompt(&second, &other).await.0 == 202).then_some(())
    })
    .await;
}

#[tokio::test]
async fn requests_beyond_the_rate_are_refused_with_the_time_to_wait() {
    let env = env_with(COSTLY);
    set_quota(&env, &["--user", "alice", "--requests", "3"]);
    let server = server_of(&env, "alice");
    let mut statuses = Vec::new();
    for _ in 0..5 {
        let response = server.request(reqwest::Method::GET, "/api/sessions");
        let response = response.send().await.unwrap();
        let wait = response.headers().get("retry-after").cloned();
        statuses.push(response.status().as_u16());
        if response.status() == 429 {
            let wait: u64 = wait.unwrap().to_str().unwrap().parse().unwrap();
            assert!((1..=20).contains(&wait), "{wait}");
            let problem: Value = response.json().await.unwrap();
            assert_eq!(problem["code"], "rate_limited");
        }
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}

#[tokio::test]
async fn quotas_are_set_and_shown_with_the_scope_admin_only() {
    let env = env_with(COSTLY);
    let mut server = Server::start(&env);
    let put = async |server: &Server, path: &str, body: Value| {
        let request = server.request(reqwest::Method::PUT, path).json(&body);
        let response = request.send().await.unwrap();
        response.status().as_u16()
    };
    let path = "/api/quotas/org/acme";
    let quota = json!({ "micro_dollars": 5_000_000, "period": "month", "turns": 3 });
    assert_eq!(put(&server, path, quota.clone()).await, 204);
    let (_, list) = server.get("/api/quotas").await;
    let state = &list["quotas"][0];
    assert_eq!(
        (&state["kind"], &state["name"]),
        (&json!("org"), &json!("acme"))
    );
    assert_eq!(state["quota"], quota);
    assert_eq!(state["running_turns"], 0);
    for (path, body, expected) in [
        (path, json!({ "token": 1 }), 400),
        (path, json!({ "tokens": -1 }), 400),
        (path, json!({ "period": "year" }), 400),
        ("/api/quotas/team/acme", json!({}), 400),
    ] {
        assert_eq!(
            put(&server, path, body.clone()).await,
            expected,
            "{path} {body}"
        );
    }
    let delete = async |server: &Server| {
        let request = server.request(reqwest::Method::DELETE, path);
        request.send().await.unwrap().status().as_u16()
    };
    let admin = server.token.clone();
    server.token = create_token(&env, &["--scope", "prompt", "--scope", "decide"]);
    assert_eq!(put(&server, path, json!({})).await, 403);
    assert_eq!(delete(&server).await, 403);
    assert_eq!(server.get("/api/quotas").await.0, 403);
    // An administrator of one user may not give themselves more.
    server.token = create_token(&env, &["--scope", "admin", "--user", "alice"]);
    assert_eq!(put(&server, "/api/quotas/user/alice", json!({})).await, 403);
    server.token = admin;
    assert_eq!(delete(&server).await, 204);
    assert_eq!(delete(&server).await, 404);
}
