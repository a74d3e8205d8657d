//! `rye serve`: a real server process with SQLite and a scripted model.

use crate::serve_support::{Server, answer, client};
use crate::support::TestEnv;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;

/// A command that needs approval, then the answer.
const GATED: &str = "steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi > out.txt' } }]
  - { text: 'done', usage: { input: 1000, output: 20 } }
";

pub(crate) fn env_with(script: &str) -> TestEnv {
    let env = TestEnv::new();
    env.write("project/agent.yaml", script);
    env
}

#[tokio::test]
async fn prompt_is_streamed_up_to_a_gate_and_continues_after_the_decision() {
    let env = env_with(GATED);
    let server = Server::start(&env);
    let session = server.create_session().await;
    let mut events = server.events(&session, "?after=0").await;
    let item = server.prompt(&session, "go").await;
    let gate = events.until("decision_gate").await.data["data"]["gate"].clone();
    assert_eq!(gate["title"], "run: echo hi > out.txt");
    assert!(!env.path("project/out.txt").exists());

    let (_, waiting) = server.get(&format!("/api/prompts/{item}")).await;
    assert_eq!(waiting["status"], "open");
    assert_eq!(waiting["pending_gates"][0]["id"], gate["id"]);

    let path = format!("/api/gates/{}/decision", gate["id"].as_str().unwrap());
    let approve = json!({ "action": "approve" });
    let (status, decided) = server.post(&path, &approve).await;
    assert_eq!(status, 200, "{decided}");
    assert_eq!(decided["repeated"], false);
    events.until("decision_gate_resolved").await;
    let end = events.until("turn_end").await;
    assert_eq!(end.data["data"]["reason"], "end_turn");
    assert_eq!(server.answer(&item).await["text"], "done");
    assert_eq!(env.read("project/out.txt"), "hi\n");

    assert_eq!(server.post(&path, &approve).await.1["repeated"], true);
    let (status, conflict) = server.post(&path, &json!({ "action": "deny" })).await;
    assert_eq!(status, 409, "{conflict}");
    assert_eq!(conflict["code"], "decision_gate_conflict");
    assert_eq!(conflict["resolution"]["action"], "approve");
}

#[tokio::test]
async fn request_needs_a_valid_token() {
    let env = env_with(GATED);
    let server = Server::start(&env);
    let sessions = format!("{}/api/sessions", server.url);
    let (status, problem) = answer(client().get(&sessions)).await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (401, &json!("unauthorized"))
    );
    let wrong = client().get(&sessions).bearer_auth("rye_guess");
    let (status, problem) = answer(wrong).await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (401, &json!("invalid_token"))
    );
    let foreign = server
        .request(Method::GET, "/api/sessions")
        .header("Host", "evil.example");
    let (status, problem) = answer(foreign).await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (403, &json!("foreign_host"))
    );
    assert_eq!(server.get("/api/sessions").await.0, 200);
    for path in ["/healthz", "/readyz", "/metrics", "/api/openapi.json"] {
        let response = client().get(format!("{}{path}", server.url)).send().await;
        assert_eq!(response.unwrap().status(), 200, "{path}");
    }
}

#[tokio::test]
async fn login_link_gives_a_cookie_once() {
    let env = env_with(GATED);
    let server = Server::start(&env);
    let response = client().get(&server.login).send().await.unwrap();
    assert_eq!(response.status(), 303);
    let cookie = response.headers()["set-cookie"]
        .to_str()
        .unwrap()
        .to_owned();
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    let pair = cookie.split(';').next().unwrap();
    let own = format!("{}/api/tokens/self", server.url);
    let (status, token) = answer(client().get(&own).header("Cookie", pair)).await;
    assert_eq!((status.as_u16(), &token["kind"]), (200, &json!("browser")));
    assert_eq!(
        answer(client().get(&server.login)).await.1["code"],
        "login_link_used"
    );
    // A page of another site cannot use the cookie.
    let request = client().get(&own).header("Cookie", pair);
    let foreign = request.header("Origin", "https://evil.example");
    assert_eq!(answer(foreign).await.1["code"], "foreign_origin");
    let logout = client()
        .post(format!("{}/api/logout", server.url))
        .header("Cookie", pair);
    assert_eq!(logout.send().await.unwrap().status(), 204);
    assert_eq!(
        answer(client().get(&own).header("Cookie", pair)).await.0,
        401
    );
}

#[tokio::test]
async fn sigterm_ends_streams_with_a_hint_to_reconnect() {
    let env = env_with(GATED);
    let mut server = Server::start(&env);
    let session = server.create_session().await;
    let mut events = server.events(&session, "").await;
    assert_eq!(events.next().await.unwrap().name, "init");
    server.signal(Signal::TERM);
    let closing = events.next().await.unwrap();
    assert_eq!(closing.name, "closing");
    assert!(events.next().await.is_none());
    assert_eq!(server.status().code(), Some(0));
}
