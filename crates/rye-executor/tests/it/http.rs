//! The `http_client` primitive with a real server.

use std::time::{Duration, Instant};

use crate::support::TestEnv;
use crate::support::server::{Reply, Server};
use lillux::cas::Cas;
use rye_executor::{ExecutionResult, Status};
use serde_json::{Value, json};

/// An environment with a tool `ask` that uses the primitive.
fn env_with_tool(config: &Value) -> TestEnv {
    let env = TestEnv::new();
    let tool = json!({
        "version": "1.0.0",
        "tool_type": "tool",
        "executor_id": "http_client",
        "config": config,
    });
    env.signed("tools/ask.yaml", &tool.to_string());
    env
}

async fn ask(config: &Value, parameters: Value) -> ExecutionResult {
    env_with_tool(config).run("ask", parameters).await
}

fn code(result: &ExecutionResult) -> &str {
    result.error.as_ref().map_or("", |error| &error.code)
}

#[tokio::test]
async fn request_is_rendered_and_response_is_data() {
    let server = Server::start(|_, _| Reply::json("{\"id\": 7}")).await;
    let config = json!({
        "method": "POST",
        "url": "{base}/things?a=1",
        "headers": {"X-Key": "k-{who}", "X-None": "{unknown}"},
        "query": {"q": "{text}", "tag": ["x", "y"], "none": "{unknown}"},
        "body": {"text": "{text}", "count": "{count}", "optional": "{unknown}", "in": {"also": "{unknown}", "kept": "a {unknown}"}},
    });
    let env = env_with_tool(&config);
    // A parameter that looks like a placeholder is data.
    let parameters =
        json!({"base": server.address, "who": "ada", "text": "{count} & ${HOME}", "count": 3});
    let result = env.run("ask", parameters).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
    assert_eq!(result.data["status"], 200);
    assert_eq!(result.data["body"], json!({"id": 7}));
    assert_eq!(result.data["headers"]["content-type"], "application/json");
    assert_eq!(result.chain, ["ask", "rye/core/primitives/http_client"]);
    let requests = &server.requests()[0];
    let (head, body) = requests.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("POST /things?a=1&q=%7Bcount%7D+%26+%24%7BHOME%7D&tag=x&tag=y HTTP/1.1"),
        "{head}"
    );
    assert!(head.contains("x-key: k-ada"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert!(!head.contains("x-none"), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    let expected = json!({"text": "{count} & ${HOME}", "count": 3, "in": {"kept": "a {unknown}"}});
    assert_eq!(body, expected);
}

#[tokio::test]
async fn body_encoding_follows_the_content_type() {
    let server = Server::start(|_, _| Reply::new("200 OK", &[], "fine")).await;
    let form = json!({
        "method": "PUT", "url": server.address, "body": {"a": "1 2", "b": ["x", "&"]},
        "headers": {"content-type": "application/x-www-form-urlencoded"},
    });
    let result = ask(&form, json!({})).await;
    assert_eq!(result.data["body"], "fine", "{result:?}");
    let text = json!({"method": "PUT", "url": server.address, "body": "plain"});
    ask(&text, json!({})).await;
    let requests = server.requests();
    assert!(
        requests[0].ends_with("\r\n\r\na=1+2&b=x&b=%26"),
        "{requests:?}"
    );
    assert!(requests[1].ends_with("\r\n\r\nplain"), "{requests:?}");
    assert!(
        requests[1].contains("content-type: text/plain"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn error_status_is_a_failure_with_the_body() {
    let reply = |_: usize, _: &str| {
        let kind = ["content-type: application/problem+json"];
        Reply::new("404 Not Found", &kind, "{\"why\": \"gone\"}")
    };
    let server = Server::start(reply).await;
    let result = ask(&json!({"url": server.address, "retries": 3}), json!({})).await;
    assert_eq!(code(&result), "http_status", "{result:?}");
    assert_eq!(result.data["status"], 404);
    assert_eq!(result.data["body"]["why"], "gone");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn temporary_errors_are_retried_and_retry_after_is_honoured() {
    let reply = |number: usize, _: &str| match number {
        0 => Reply::Close,
        1 => Reply::new("503 Service Unavailable", &["retry-after: 1"], ""),
        2 => Reply::new("429 Too Many Requests", &["retry-after: 0"], ""),
        _ => Reply::json("[1]"),
    };
    let server = Server::start(reply).await;
    let start = Instant::now();
    let result = ask(&json!({"url": server.address, "retries": 3}), json!({})).await;
    assert_eq!(result.data["body"], json!([1]), "{result:?}");
    assert_eq!(result.metadata["attempts"], 4);
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn unsafe_requests_are_not_retried() {
    let server = Server::start(|_, _| Reply::Close).await;
    let config = json!({"method": "POST", "url": server.address, "retries": 3, "body": "x"});
    let result = ask(&config, json!({})).await;
    assert_eq!(code(&result), "connection", "{result:?}");
    assert_eq!(server.requests().len(), 1);
    let busy = Server::start(|_, _| Reply::new("503 Busy", &[], "later")).await;
    let config = json!({"method": "POST", "url": busy.address, "retries": 3});
    let result = ask(&config, json!({})).await;
    assert_eq!(code(&result), "http_status", "{result:?}");
    assert_eq!(result.data["body"], "later");
    assert_eq!(busy.requests().len(), 1);
}

#[tokio::test]
async fn retry_after_beyond_the_deadline_is_not_awaited() {
    let server = Server::start(|_, _| {
        Reply::new("503 Busy", &["retry-after: 18446744073709551615"], "later")
    })
    .await;
    let config = json!({"url": server.address, "retries": 3, "timeout": 20});
    let start = Instant::now();
    let result = ask(&config, json!({})).await;
    assert_eq!(code(&result), "http_status", "{result:?}");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn silent_server_times_out() {
    let server = Server::start(|_, _| Reply::Silence).await;
    let config = json!({"url": server.address, "timeout": 0.3, "retries": 5});
    let start = Instant::now();
    let result = ask(&config, json!({})).await;
    assert_eq!(code(&result), "timeout", "{result:?}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn long_response_is_truncated_and_stored() {
    let long = "é".repeat(1_000_000);
    let body = long.clone();
    let server = Server::start(move |_, _| Reply::new("200 OK", &[], &body)).await;
    let env = env_with_tool(&json!({"url": server.address}));
    let result = env.run("ask", json!({})).await;
    assert_eq!(result.status, Status::Success, "{:?}", result.error);
    let given = result.data["body"].as_str().unwrap();
    assert_eq!(given.len(), 1 << 20);
    assert_eq!(result.metadata["body_truncated"], true);
    assert_eq!(result.metadata["body_bytes"], 2_000_000);
    let hash = result.metadata["body_hash"].as_str().unwrap();
    let store = Cas::open(env.cache().join("output")).unwrap();
    let whole = store.get(&hash.parse().unwrap()).unwrap();
    assert_eq!(whole.as_slice(), long.as_bytes());
}

#[tokio::test]
async fn binary_response_is_stored() {
    let server = Server::start(|_, _| Reply::new("200 OK", &[], b"\xff\x00\xfe")).await;
    let env = env_with_tool(&json!({"url": server.address}));
    let result = env.run("ask", json!({})).await;
    assert_eq!(result.metadata["body_binary"], true, "{result:?}");
    let hash = result.metadata["body_hash"].as_str().unwrap();
    let store = Cas::open(env.cache().join("output")).unwrap();
    let whole = store.get(&hash.parse().unwrap()).unwrap();
    assert_eq!(whole.as_slice(), b"\xff\x00\xfe");
}

#[tokio::test]
async fn interrupted_response_is_an_error() {
    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort".to_vec();
    let server = Server::start(move |_, _| Reply::Bytes(reply.clone())).await;
    let result = ask(&json!({"url": server.address}), json!({})).await;
    assert_eq!(code(&result), "connection", "{result:?}");
}

#[tokio::test]
async fn redirects_are_followed_up_to_a_limit() {
    let reply = |_: usize, text: &str| match text.split(' ').nth(1) {
        Some("/loop") => Reply::new("302 Found", &["location: /loop"], ""),
        Some("/file") => Reply::new("302 Found", &["location: file:///etc/passwd"], ""),
        Some("/old") => Reply::new("303 See Other", &["location: new"], ""),
        _ => Reply::new("200 OK", &[], "there"),
    };
    let server = Server::start(reply).await;
    let at = |path: &str| json!({"method": "PUT", "body": "x", "url": format!("{}{path}", server.address)});
    let result = ask(&at("/old"), json!({})).await;
    assert_eq!(result.data["body"], "there", "{result:?}");
    assert!(server.requests()[1].starts_with("GET /new "));
    let result = ask(&at("/loop"), json!({})).await;
    assert_eq!(code(&result), "too_many_redirects", "{result:?}");
    assert_eq!(server.requests().len(), 2 + 11);
    let result = ask(&at("/file"), json!({})).await;
    assert_eq!(code(&result), "invalid_request", "{result:?}");
}

#[tokio::test]
async fn redirect_to_another_origin_is_refused() {
    for (status, method) in [
        ("301 x", "GET"),
        ("302 x", "POST"),
        ("303 x", "POST"),
        ("307 x", "POST"),
        ("308 x", "PUT"),
        ("307 x", "HEAD"),
    ] {
        let other = Server::start(|_, _| Reply::new("200 OK", &[], "")).await;
        let place = format!("location: {}/x", other.address);
        let first = Server::start(move |_, _| Reply::new(status, &[&place], "")).await;
        let config = json!({"url": first.address, "method": method, "body": "private"});
        let result = ask(&config, json!({})).await;
        assert_eq!(code(&result), "unsafe_redirect", "{result:?}");
        let message = result.error.unwrap().message;
        for origin in [&first.address, &other.address] {
            assert!(message.contains(origin.as_str()), "{message}");
        }
        assert_eq!(other.requests().len(), 0, "{status} {method}");
    }
}

#[tokio::test]
async fn tool_can_allow_redirects_without_headers() {
    let other = Server::start(|_, _| Reply::new("200 OK", &[], "")).await;
    let place = format!("location: {}/x", other.address);
    let first = Server::start(move |_, _| Reply::new("307 On", &[&place], "")).await;
    let config = json!({
        "url": first.address,
        "redirects": "follow",
        "headers": {
            "X-Api-Key": "secret", "Authorization": "secret", "Cookie": "secret",
            "Accept": "text/plain",
        },
    });
    let result = ask(&config, json!({})).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
    assert!(first.requests()[0].contains("x-api-key: secret"));
    let requests = &other.requests()[0];
    assert!(!requests.contains("secret"), "{requests}");
    assert!(requests.contains("accept: text/plain"), "{requests}");
    // A request body is never sent to another origin.
    for method in ["POST", "PUT", "DELETE"] {
        let config = json!({
            "url": first.address, "redirects": "follow", "method": method, "body": "private",
        });
        let result = ask(&config, json!({})).await;
        assert_eq!(code(&result), "unsafe_redirect", "{result:?}");
    }
    assert_eq!(other.requests().len(), 1);
}

#[tokio::test]
async fn other_schemes_and_refused_connections_are_errors() {
    for url in ["file:///etc/passwd", "ftp://x/", "nonsense", ""] {
        let result = ask(&json!({ "url": url }), json!({})).await;
        assert_eq!(code(&result), "invalid_request", "{url}: {result:?}");
    }
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let config = json!({"url": format!("http://127.0.0.1:{port}/?key=secret"), "retries": 1});
    let result = ask(&config, json!({})).await;
    assert_eq!(code(&result), "connection", "{result:?}");
    assert_eq!(result.metadata["attempts"], 2);
    assert!(!result.error.unwrap().message.contains("secret"));
    let result = ask(
        &json!({"url": "http://x/", "headers": {"a b": "c"}}),
        json!({}),
    )
    .await;
    assert_eq!(code(&result), "invalid_request", "{result:?}");
}
