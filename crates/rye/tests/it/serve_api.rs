//! The API of `rye serve`: every resource, and invalid requests.

use crate::serve::env_with;
use crate::serve_support::{Server, answer, client, create_token};
use crate::support::{TestEnv, json as document};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// An answer, and one that takes a while.
const ANSWERS: &str = "steps:
  - { text: 'hello', usage: { input: 100, output: 5 } }
  - { text: 'slow', chunk_chars: 1, chunk_ms: 20000 }
";

/// A response with its status and code.
fn outcome((status, body): &(StatusCode, Value)) -> (u16, &str) {
    (status.as_u16(), body["code"].as_str().unwrap_or_default())
}

async fn delete(server: &Server, path: &str) -> (StatusCode, Value) {
    answer(server.request(Method::DELETE, path)).await
}

#[tokio::test]
async fn creating_a_session_is_idempotent_by_id() {
    let env = env_with(ANSWERS);
    let server = Server::start(&env);
    let new = json!({ "id": "order-17", "metadata": { "order": 17 } });
    let (status, state) = server.post("/api/sessions", &new).await;
    assert_eq!(status, 201, "{state}");
    assert_eq!(state["session"]["metadata"]["order"], 17);
    assert_eq!(server.post("/api/sessions", &new).await.0, 200);
    let other = json!({ "id": "order-17", "user": "eve" });
    assert_eq!(
        outcome(&server.post("/api/sessions", &other).await),
        (409, "conflict")
    );
    let unknown = json!({ "model": "nobody/nothing" });
    assert_eq!(
        outcome(&server.post("/api/sessions", &unknown).await),
        (422, "unknown_model")
    );
}

#[tokio::test]
async fn prompt_with_a_key_is_stored_once() {
    let env = env_with(ANSWERS);
    let server = Server::start(&env);
    let session = server.create_session().await;
    let path = format!("/api/sessions/{session}/threads/default/prompts");
    let send = async |text: &str| {
        let request = server
            .request(Method::POST, &path)
            .header("Idempotency-Key", "order 17/ü");
        answer(request.json(&json!({ "text": text }))).await
    };
    let (status, first) = send("go").await;
    assert_eq!(status, 202, "{first}");
    let item = first["id"].as_str().unwrap();
    assert_eq!(server.answer(item).await["text"], "hello");
    assert_eq!(send("go").await.1, first);
    assert_eq!(outcome(&send("other").await), (409, "conflict"));
    let (_, history) = server
        .get(&format!("/api/sessions/{session}/threads/default/entries"))
        .await;
    assert_eq!(history["entries"].as_array().unwrap().len(), 2, "{history}");
}

#[tokio::test]
async fn sessions_are_listed_in_pages() {
    let env = env_with(ANSWERS);
    let server = Server::start(&env);
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.insert(0, server.create_session().await);
    }
    let mut listed = Vec::new();
    let mut path = "/api/sessions?limit=2&status=running&purpose=interactive".to_owned();
    loop {
        let (status, page) = server.get(&path).await;
        assert_eq!(status, 200, "{page}");
        let sessions = page["sessions"].as_array().unwrap();
        listed.extend(
            sessions
                .iter()
                .map(|it| it["id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/sessions?limit=2&status=running&before={next}");
    }
    assert_eq!(listed, ids);
    let (_, none) = server.get("/api/sessions?status=paused").await;
    assert_eq!(none["sessions"], json!([]));
}

#[tokio::test]
async fn waiting_prompt_is_withdrawn_and_a_running_one_aborted() {
    let env = env_with(ANSWERS);
    let server = Server::start(&env);
    let session = server.create_session().await;
    let first = server.prompt(&session, "go").await;
    server.answer(&first).await;
    let mut events = server.events(&session, "").await;
    let running = server.prompt(&session, "again").await;
    events.until("message_start").await;
    let waiting = server.prompt(&session, "more").await;
    let queue = format!("/api/sessions/{session}/queue");
    assert_eq!(delete(&server, &format!("{queue}/{waiting}")).await.0, 204);
    assert_eq!(server.answer(&waiting).await["end"], "withdrawn");
    let refused = delete(&server, &format!("{queue}/{running}")).await;
    assert_eq!(outcome(&refused), (409, "prompt_running"));
    let abort = format!("/api/sessions/{session}/abort");
    assert_eq!(server.post(&abort, &json!({})).await.0, 204);
    assert_eq!(server.answer(&running).await["end"], "abort");
    let pause = format!("/api/sessions/{session}/threads/default/pause");
    assert_eq!(server.post(&pause, &json!({})).await.0, 204);
    let resume = format!("/api/sessions/{session}/threads/default/resume");
    assert_eq!(server.post(&resume, &json!({})).await.0, 204);
}

#[tokio::test]
async fn session_is_forked_exported_deleted_imported_and_verified() {
    let mut env = TestEnv::bare();
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    env.write("project/agent.yaml", ANSWERS);
    let server = Server::start(&env);
    let session = server.create_session().await;
    let item = server.prompt(&session, "go").await;
    server.answer(&item).await;
    // Idle: everything is sealed.
    server
        .events(&session, "?after=0&until=idle")
        .await
        .rest()
        .await;
    let base = format!("/api/sessions/{session}");
    let (status, fork) = server.post(&format!("{base}/fork"), &json!({})).await;
    assert_eq!(status, 201, "{fork}");
    let forked = fork["session"].as_str().unwrap();
    assert_eq!(server.get(&format!("/api/sessions/{forked}")).await.0, 200);
    let (_, verdict) = server.get(&format!("{base}/verify")).await;
    assert_eq!(verdict["verified"], true, "{verdict}");
    assert_eq!(verdict["sessions"][0]["findings"], json!([]));

    let export = server
        .request(Method::GET, &format!("{base}/export"))
        .send()
        .await
        .unwrap();
    let export = export.bytes().await.unwrap();
    let import = async |bytes: Vec<u8>| {
        answer(
            server
                .request(Method::POST, "/api/sessions/import")
                .body(bytes),
        )
        .await
    };
    assert_eq!(outcome(&import(export.to_vec()).await), (409, "conflict"));
    assert_eq!(delete(&server, &base).await.0, 204);
    assert_eq!(outcome(&server.get(&base).await), (404, "not_found"));
    let altered = String::from_utf8(export.to_vec())
        .unwrap()
        .replace("hello", "howdy");
    assert_eq!(import(altered.into_bytes()).await.0, 422);
    let (status, imported) = import(export.to_vec()).await;
    assert_eq!(
        (status.as_u16(), &imported["sessions"]),
        (201, &json!([session]))
    );
    let (_, verdict) = server.get(&format!("{base}/verify")).await;
    assert_eq!(verdict["verified"], true, "{verdict}");
}

#[tokio::test]
async fn token_sees_the_sessions_of_its_user_and_organisation_only() {
    let env = env_with(ANSWERS);
    let server = Server::start(&env);
    let all = ["--scope", "read", "--scope", "prompt", "--scope", "decide"];
    let token = |bounds: &[&str]| create_token(&env, &[&all[..], bounds].concat());
    let ada = token(&["--user", "ada", "--org", "acme"]);
    let bob = token(&["--user", "bob", "--org", "acme"]);
    let eve = token(&["--user", "eve"]);
    let with = |token: &str, method: Method, path: &str| {
        let request = client().request(method, format!("{}{path}", server.url));
        request.bearer_auth(token)
    };
    let (status, state) = answer(with(&ada, Method::POST, "/api/sessions").json(&json!({}))).await;
    assert_eq!(status, 201, "{state}");
    assert_eq!(state["session"]["user_id"], "ada");
    let id = state["session"]["id"].as_str().unwrap();
    let path = format!("/api/sessions/{id}");
    for (token, status) in [(&ada, 200), (&bob, 200), (&server.token, 200), (&eve, 404)] {
        assert_eq!(answer(with(token, Method::GET, &path)).await.0, status);
    }
    let (_, list) = answer(with(&eve, Method::GET, "/api/sessions")).await;
    assert_eq!(list["sessions"], json!([]));
    for path in [
        format!("{path}/events"),
        format!("{path}/export"),
        format!("{path}/threads"),
        format!("{path}/ws"),
    ] {
        assert_eq!(
            answer(with(&eve, Method::GET, &path)).await.0,
            404,
            "{path}"
        );
    }
    // Nor does a foreign id reveal that it is used.
    let taken = with(&eve, Method::POST, "/api/sessions").json(&json!({ "id": id }));
    assert_eq!(outcome(&answer(taken).await), (409, "conflict"));
    let foreign = with(&eve, Method::POST, "/api/sessions").json(&json!({ "user": "ada" }));
    assert_eq!(outcome(&answer(foreign).await), (403, "foreign_owner"));
    // A scope that the token does not have.
    let tokens = answer(with(&ada, Method::GET, "/api/tokens")).await;
    assert_eq!(outcome(&tokens), (403, "missing_scope"));
    let reader = create_token(&env, &["--scope", "read", "--user", "ada"]);
    let prompt = with(
        &reader,
        Method::POST,
        &format!("{path}/threads/default/prompts"),
    );
    let refused = answer(prompt.json(&json!({ "text": "go" }))).await;
    assert_eq!(outcome(&refused), (403, "missing_scope"));
}

#[tokio::test]
async fn revoked_and_expired_tokens_are_refused() {
    let env = env_with(ANSWERS);
    let server = Server::start(&env);
    let get = async |token: &str| {
        let request = client().get(format!("{}/api/tokens/self", server.url));
        answer(request.bearer_auth(token)).await
    };
    let new = json!({ "name": "ci", "scopes": ["read"], "user": "ci" });
    let (status, token) = server.post("/api/tokens", &new).await;
    assert_eq!(status, 201, "{token}");
    let secret = token["secret"].as_str().unwrap();
    assert_eq!(get(secret).await.0, 200);
    let listed = document(&env.run(&["token", "list", "--json"]));
    assert!(!listed.to_string().contains(secret), "{listed}");
    let id = token["id"].as_str().unwrap();
    assert!(env.run(&["token", "revoke", id]).status.success());
    assert_eq!(outcome(&get(secret).await), (401, "invalid_token"));
    assert_eq!(
        outcome(&delete(&server, &format!("/api/tokens/{id}")).await),
        (404, "not_found")
    );
    let short = create_token(&env, &["--scope", "read", "--expires-in", "0.001"]);
    assert_eq!(outcome(&get(&short).await), (401, "invalid_token"));
}

#[tokio::test]
async fn items_are_searched_read_and_executed_behind_the_approval_policy() {
    let mut env = TestEnv::bare();
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    env.write("project/agent.yaml", ANSWERS);
    env.write(
        "project/.ai/tools/my/risky.yaml",
        "version: '1.0.0'\ndescription: Writes a file\nrisk_level: high\n\
         executor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: 'echo ran >> ran.txt'\n",
    );
    let signed = env.run(&["sign", "tool:my/risky"]);
    assert!(signed.status.success(), "{signed:?}");
    let server = Server::start(&env);
    let (status, found) = server.get("/api/items?query=risky&kind=tool").await;
    assert_eq!(status, 200, "{found}");
    assert!(found.to_string().contains("my/risky"), "{found}");
    let (status, item) = server.get("/api/items/tool/my%2Frisky").await;
    assert_eq!(status, 200, "{item}");
    let unknown = server.get("/api/items/tool/my%2Fnothing").await;
    assert_eq!(outcome(&unknown), (404, "not_found"));

    let path = "/api/items/tool/my%2Frisky/execute";
    let call = json!({ "parameters": {} });
    let (status, waiting) = server.post(path, &call).await;
    assert_eq!(status, 202, "{waiting}");
    assert!(!env.path("project/ran.txt").exists());
    let gate = waiting["gate"].as_str().unwrap();
    let decide = format!("/api/gates/{gate}/decision");
    let (status, decided) = server.post(&decide, &json!({ "action": "approve" })).await;
    assert_eq!(status, 200, "{decided}");
    let (status, result) = server.post(path, &call).await;
    assert_eq!(
        (status.as_u16(), &result["status"]),
        (200, &json!("success")),
        "{result}"
    );
    assert_eq!(env.read("project/ran.txt"), "ran\n");
    // An approval covers one run.
    assert_eq!(server.post(path, &call).await.0, 202);
}

#[tokio::test]
async fn invalid_requests_get_problem_documents() {
    let env = env_with(ANSWERS);
    let server = Server::start_with(&env, &["--model", "scripted:agent.yaml", "--max-body", "1"]);
    let session = server.create_session().await;
    let prompts = format!("/api/sessions/{session}/threads/default/prompts");
    let post = async |path: &str, body: &str| {
        let request = server.request(Method::POST, path).body(body.to_owned());
        answer(request.header("Content-Type", "application/json")).await
    };
    let large = format!("{{\"text\":\"{}\"}}", "x".repeat(2 * 1024 * 1024));
    for (path, body, expected) in [
        (&*prompts, "{not json", (400, "invalid_body")),
        (&prompts, "", (400, "invalid_body")),
        (&prompts, "[]", (400, "invalid_body")),
        (&prompts, "{\"text\": 5}", (400, "invalid_body")),
        (
            &prompts,
            "{\"text\": \"x\", \"txt\": 1}",
            (400, "invalid_body"),
        ),
        (&prompts, "{\"text\": \" \"}", (422, "empty_prompt")),
        (
            &prompts,
            "{\"text\": \"x\", \"schema\": {\"type\": 5}}",
            (422, "invalid_schema"),
        ),
        (
            &prompts,
            "{\"text\": \"x\", \"model\": \"no/no\"}",
            (422, "unknown_model"),
        ),
        (&prompts, &large, (413, "body_too_large")),
        ("/api/sessions", "{\"id\": \"a b\"}", (400, "invalid_id")),
        (
            "/api/sessions/nope/threads/default/prompts",
            "{\"text\": \"x\"}",
            (404, "not_found"),
        ),
        ("/api/sessions/nope/fork", "{}", (404, "not_found")),
        (
            "/api/gates/nope/decision",
            "{\"action\": \"approve\"}",
            (404, "not_found"),
        ),
        (
            "/api/tokens",
            "{\"name\": \"x\", \"scopes\": [\"root\"]}",
            (400, "invalid_query"),
        ),
        ("/api/sessions/import", "{}", (422, "integrity")),
    ] {
        let got = post(path, body).await;
        assert_eq!(outcome(&got), expected, "{path}: {}", got.1);
        assert_eq!(got.1["status"], expected.0, "{}", got.1);
    }
    for (path, expected) in [
        ("/api/sessions?limit=0", (400, "invalid_query")),
        ("/api/sessions?limit=x", (400, "invalid_query")),
        ("/api/sessions?status=asleep", (400, "invalid_query")),
        ("/api/sessions?colour=red", (400, "invalid_query")),
        ("/api/sessions/nope", (404, "not_found")),
        ("/api/sessions/%00", (404, "not_found")),
        ("/api/prompts/nope", (404, "not_found")),
        ("/api/prompts/nope@nope", (404, "not_found")),
        ("/api/blobs/nope", (404, "not_found")),
        ("/api/nothing", (404, "no_route")),
    ] {
        assert_eq!(outcome(&server.get(path).await), expected, "{path}");
    }
    let text = server.request(Method::POST, &prompts).body("hello");
    assert_eq!(outcome(&answer(text).await), (415, "content_type"));
    let put = server.request(Method::PUT, "/api/sessions");
    let response = put.send().await.unwrap();
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    assert_eq!(response.status(), 405);
}
