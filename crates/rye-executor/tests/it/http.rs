//! The primitive `http_client`, against a real server.

use std::time::{Duration, Instant};

use crate::support::World;
use crate::support::server::{Reply, Server};
use lillux::cas::Cas;
use rye_executor::{Envelope, Status};
use serde_json::{Value, json};

/// A world with a tool `ask` over the primitive.
fn world(config: &Value) -> World {
    let world = World::new();
    let tool = json!({
        "version": "1.0.0",
        "tool_type": "tool",
        "executor_id": "http_client",
        "config": config,
    });
    world.signed("tools/ask.yaml", &tool.to_string());
    world
}

async fn ask(config: &Value, parameters: Value) -> Envelope {
    world(config).run("ask", parameters).await
}

fn code(envelope: &Envelope) -> &str {
    envelope.error.as_ref().map_or("", |error| &error.code)
}

#[tokio::test]
async fn a_request_is_what_its_template_says_and_the_answer_is_data() {
    let server = Server::start(|_, _| Reply::json("{\"id\": 7}")).await;
    let config = json!({
        "method": "POST",
        "url": "{base}/things?a=1",
        "headers": {"X-Key": "k-{who}", "X-None": "{unknown}"},
        "query": {"q": "{text}", "tag": ["x", "y"], "none": "{unknown}"},
        "body": {"text": "{text}", "count": "{count}", "optional": "{unknown}", "in": {"also": "{unknown}", "kept": "a {unknown}"}},
    });
    let world = world(&config);
    // What only looks like a placeholder is data.
    let parameters =
        json!({"base": server.address, "who": "ada", "text": "{count} & ${HOME}", "count": 3});
    let envelope = world.run("ask", parameters).await;
    assert_eq!(envelope.status, Status::Success, "{envelope:?}");
    assert_eq!(envelope.data["status"], 200);
    assert_eq!(envelope.data["body"], json!({"id": 7}));
    assert_eq!(envelope.data["headers"]["content-type"], "application/json");
    assert_eq!(envelope.chain, ["ask", "rye/core/primitives/http_client"]);
    let asked = &server.asked()[0];
    let (head, body) = asked.split_once("\r\n\r\n").unwrap();
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
async fn a_body_is_text_or_a_form_as_the_headers_say() {
    let server = Server::start(|_, _| Reply::new("200 OK", &[], "fine")).await;
    let form = json!({
        "method": "PUT", "url": server.address, "body": {"a": "1 2", "b": ["x", "&"]},
        "headers": {"content-type": "application/x-www-form-urlencoded"},
    });
    let envelope = ask(&form, json!({})).await;
    assert_eq!(envelope.data["body"], "fine", "{envelope:?}");
    let text = json!({"method": "PUT", "url": server.address, "body": "plain"});
    ask(&text, json!({})).await;
    let asked = server.asked();
    assert!(asked[0].ends_with("\r\n\r\na=1+2&b=x&b=%26"), "{asked:?}");
    assert!(asked[1].ends_with("\r\n\r\nplain"), "{asked:?}");
    assert!(asked[1].contains("content-type: text/plain"), "{asked:?}");
}

#[tokio::test]
async fn a_status_of_an_error_is_an_error_that_keeps_the_body() {
    let reply = |_: usize, _: &str| {
        let kind = ["content-type: application/problem+json"];
        Reply::new("404 Not Found", &kind, "{\"why\": \"gone\"}")
    };
    let server = Server::start(reply).await;
    let envelope = ask(&json!({"url": server.address, "retries": 3}), json!({})).await;
    assert_eq!(code(&envelope), "http_status", "{envelope:?}");
    assert_eq!(envelope.data["status"], 404);
    assert_eq!(envelope.data["body"]["why"], "gone");
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_retry_after_is_honoured() {
    let reply = |number: usize, _: &str| match number {
        0 => Reply::Close,
        1 => Reply::new("503 Service Unavailable", &["retry-after: 1"], ""),
        2 => Reply::new("429 Too Many Requests", &["retry-after: 0"], ""),
        _ => Reply::json("[1]"),
    };
    let server = Server::start(reply).await;
    let start = Instant::now();
    let envelope = ask(&json!({"url": server.address, "retries": 3}), json!({})).await;
    assert_eq!(envelope.data["body"], json!([1]), "{envelope:?}");
    assert_eq!(envelope.metadata["attempts"], 4);
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn what_is_not_safe_to_repeat_is_sent_once() {
    let server = Server::start(|_, _| Reply::Close).await;
    let config = json!({"method": "POST", "url": server.address, "retries": 3, "body": "x"});
    let envelope = ask(&config, json!({})).await;
    assert_eq!(code(&envelope), "connection", "{envelope:?}");
    assert_eq!(server.asked().len(), 1);
    let busy = Server::start(|_, _| Reply::new("503 Busy", &[], "later")).await;
    let config = json!({"method": "POST", "url": busy.address, "retries": 3});
    let envelope = ask(&config, json!({})).await;
    assert_eq!(code(&envelope), "http_status", "{envelope:?}");
    assert_eq!(envelope.data["body"], "later");
    assert_eq!(busy.asked().len(), 1);
}

#[tokio::test]
async fn a_server_that_wants_more_patience_than_there_is_time_is_not_waited_for() {
    let server = Server::start(|_, _| {
        Reply::new("503 Busy", &["retry-after: 18446744073709551615"], "later")
    })
    .await;
    let config = json!({"url": server.address, "retries": 3, "timeout": 20});
    let start = Instant::now();
    let envelope = ask(&config, json!({})).await;
    assert_eq!(code(&envelope), "http_status", "{envelope:?}");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn silence_ends_with_the_timeout() {
    let server = Server::start(|_, _| Reply::Silence).await;
    let config = json!({"url": server.address, "timeout": 0.3, "retries": 5});
    let start = Instant::now();
    let envelope = ask(&config, json!({})).await;
    assert_eq!(code(&envelope), "timeout", "{envelope:?}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_long_answer_is_given_in_part_and_kept_whole() {
    let long = "é".repeat(1_000_000);
    let body = long.clone();
    let server = Server::start(move |_, _| Reply::new("200 OK", &[], &body)).await;
    let world = world(&json!({"url": server.address}));
    let envelope = world.run("ask", json!({})).await;
    assert_eq!(envelope.status, Status::Success, "{:?}", envelope.error);
    let given = envelope.data["body"].as_str().unwrap();
    assert_eq!(given.len(), 1 << 20);
    assert_eq!(envelope.metadata["body_truncated"], true);
    assert_eq!(envelope.metadata["body_bytes"], 2_000_000);
    let hash = envelope.metadata["body_hash"].as_str().unwrap();
    let store = Cas::open(world.cache().join("output")).unwrap();
    let whole = store.get(&hash.parse().unwrap()).unwrap();
    assert_eq!(whole.as_slice(), long.as_bytes());
}

#[tokio::test]
async fn an_answer_that_is_no_text_is_kept_whole() {
    let server = Server::start(|_, _| Reply::new("200 OK", &[], b"\xff\x00\xfe")).await;
    let world = world(&json!({"url": server.address}));
    let envelope = world.run("ask", json!({})).await;
    assert_eq!(envelope.metadata["body_binary"], true, "{envelope:?}");
    let hash = envelope.metadata["body_hash"].as_str().unwrap();
    let store = Cas::open(world.cache().join("output")).unwrap();
    let whole = store.get(&hash.parse().unwrap()).unwrap();
    assert_eq!(whole.as_slice(), b"\xff\x00\xfe");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort".to_vec();
    let server = Server::start(move |_, _| Reply::Bytes(reply.clone())).await;
    let envelope = ask(&json!({"url": server.address}), json!({})).await;
    assert_eq!(code(&envelope), "connection", "{envelope:?}");
}

#[tokio::test]
async fn redirects_are_followed_so_far_and_no_further() {
    let reply = |_: usize, text: &str| match text.split(' ').nth(1) {
        Some("/loop") => Reply::new("302 Found", &["location: /loop"], ""),
        Some("/file") => Reply::new("302 Found", &["location: file:///etc/passwd"], ""),
        Some("/old") => Reply::new("303 See Other", &["location: new"], ""),
        _ => Reply::new("200 OK", &[], "there"),
    };
    let server = Server::start(reply).await;
    let at = |path: &str| json!({"method": "PUT", "body": "x", "url": format!("{}{path}", server.address)});
    let envelope = ask(&at("/old"), json!({})).await;
    assert_eq!(envelope.data["body"], "there", "{envelope:?}");
    assert!(server.asked()[1].starts_with("GET /new "));
    let envelope = ask(&at("/loop"), json!({})).await;
    assert_eq!(code(&envelope), "too_many_redirects", "{envelope:?}");
    assert_eq!(server.asked().len(), 2 + 11);
    let envelope = ask(&at("/file"), json!({})).await;
    assert_eq!(code(&envelope), "invalid_request", "{envelope:?}");
}

#[tokio::test]
async fn a_redirect_to_another_origin_is_not_followed() {
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
        let envelope = ask(&config, json!({})).await;
        assert_eq!(code(&envelope), "unsafe_redirect", "{envelope:?}");
        let message = envelope.error.unwrap().message;
        for origin in [&first.address, &other.address] {
            assert!(message.contains(origin.as_str()), "{message}");
        }
        assert_eq!(other.asked().len(), 0, "{status} {method}");
    }
}

#[tokio::test]
async fn a_tool_may_follow_a_get_to_another_origin_without_its_headers() {
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
    let envelope = ask(&config, json!({})).await;
    assert_eq!(envelope.status, Status::Success, "{envelope:?}");
    assert!(first.asked()[0].contains("x-api-key: secret"));
    let asked = &other.asked()[0];
    assert!(!asked.contains("secret"), "{asked}");
    assert!(asked.contains("accept: text/plain"), "{asked}");
    // The body of a request stays where it was meant for.
    for method in ["POST", "PUT", "DELETE"] {
        let config = json!({
            "url": first.address, "redirects": "follow", "method": method, "body": "private",
        });
        let envelope = ask(&config, json!({})).await;
        assert_eq!(code(&envelope), "unsafe_redirect", "{envelope:?}");
    }
    assert_eq!(other.asked().len(), 1);
}

#[tokio::test]
async fn only_http_is_spoken_and_nobody_listening_is_an_error() {
    for url in ["file:///etc/passwd", "ftp://x/", "nonsense", ""] {
        let envelope = ask(&json!({ "url": url }), json!({})).await;
        assert_eq!(code(&envelope), "invalid_request", "{url}: {envelope:?}");
    }
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let config = json!({"url": format!("http://127.0.0.1:{port}/?key=secret"), "retries": 1});
    let envelope = ask(&config, json!({})).await;
    assert_eq!(code(&envelope), "connection", "{envelope:?}");
    assert_eq!(envelope.metadata["attempts"], 2);
    assert!(!envelope.error.unwrap().message.contains("secret"));
    let envelope = ask(
        &json!({"url": "http://x/", "headers": {"a b": "c"}}),
        json!({}),
    )
    .await;
    assert_eq!(code(&envelope), "invalid_request", "{envelope:?}");
}
