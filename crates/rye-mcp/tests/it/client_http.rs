//! Healthy and faulty servers over streamable HTTP.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{Fixture, until};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use axum::serve::ListenerExt as _;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rye_executor::OutputListener;
use rye_mcp::client::ToolCall;
use serde_json::{Map, Value, json};
use tokio::sync::Barrier;

/// A server without faults.
#[derive(Clone)]
struct HealthyServer {
    barrier: Arc<Barrier>,
    cancelled: Arc<AtomicUsize>,
}

impl ServerHandler for HealthyServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object"}).as_object().unwrap().clone();
        let tools = ["echo", "barrier", "hang", "progress"];
        let tools = tools.map(|name| Tool::new(name, "A tool", schema.clone()));
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = match request.name.as_ref() {
            "echo" => json!(request.arguments).to_string(),
            "barrier" => {
                self.barrier.wait().await;
                "all here".to_owned()
            }
            "hang" => {
                context.ct.cancelled().await;
                self.cancelled.fetch_add(1, Ordering::Relaxed);
                "cancelled".to_owned()
            }
            "progress" => {
                let token = context.meta.get_progress_token().unwrap();
                for step in 1..=3 {
                    let progress = ProgressNotificationParam::new(token.clone(), f64::from(step));
                    context.peer.notify_progress(progress).await.unwrap();
                }
                "there".to_owned()
            }
            other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// Serves on a free local port and returns the URL.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/mcp")
}

async fn serve_healthy(at_once: usize) -> (String, HealthyServer) {
    let healthy = HealthyServer {
        barrier: Arc::new(Barrier::new(at_once)),
        cancelled: Arc::default(),
    };
    let handler = healthy.clone();
    let service = StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    (
        serve(Router::new().nest_service("/mcp", service)).await,
        healthy,
    )
}

#[tokio::test]
async fn concurrent_calls_share_a_session_and_progress_arrives() {
    let fixture = Fixture::new();
    let (url, _) = serve_healthy(20).await;
    let server = fixture.configured("healthy", &json!({"url": url}));
    let text = fixture.text(&server, "echo", json!({"a": 1})).await;
    assert_eq!(text, r#"{"a":1}"#);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (pool, server) = (fixture.pool.clone(), server.clone());
        calls.spawn(async move {
            let call = ToolCall::new("barrier", Map::new());
            pool.call(&server, &call).await.unwrap()
        });
    }
    assert_eq!(calls.join_all().await.len(), 20);
    let output = Arc::new(Mutex::new(String::new()));
    let mut call = ToolCall::new("progress", Map::new());
    call.listener = Some(OutputListener::new({
        let output = Arc::clone(&output);
        move |_, bytes| *output.lock().unwrap() += std::str::from_utf8(bytes).unwrap()
    }));
    fixture.pool.call(&server, &call).await.unwrap();
    assert_eq!(*output.lock().unwrap(), "1\n2\n3\n");
    let error = fixture.call_error(&server, "nothing").await;
    assert_eq!(error.code(), "mcp_error", "{error}");
}

#[tokio::test]
async fn timed_out_call_is_cancelled_at_the_server() {
    let fixture = Fixture::new();
    let (url, healthy) = serve_healthy(1).await;
    let server = fixture.configured("healthy", &json!({"url": url, "call_timeout": 0.5}));
    let error = fixture.call_error(&server, "hang").await;
    assert_eq!(error.code(), "timeout", "{error}");
    let notified = || healthy.cancelled.load(Ordering::Relaxed) == 1;
    until(notified, || "the server was not notified".to_owned()).await;
    // Also if the pool shuts down right after it.
    let mut call = ToolCall::new("hang", Map::new());
    call.timeout = Some(Duration::from_millis(300));
    fixture.call_error_with(&server, &call).await;
    fixture.pool.shutdown().await;
    let notified = || healthy.cancelled.load(Ordering::Relaxed) == 2;
    until(notified, || {
        "the server was not notified the second time".to_owned()
    })
    .await;
}

#[tokio::test]
async fn calls_are_not_delayed_by_nagle() {
    // With Nagle's algorithm, each call would take 40 ms.
    let fixture = Fixture::new();
    let (url, _) = serve_healthy(1).await;
    let server = fixture.configured("healthy", &json!({"url": url}));
    fixture.text(&server, "echo", json!({})).await;
    let mut quickest = Duration::MAX;
    for _ in 0..100 {
        let start = Instant::now();
        fixture.text(&server, "echo", json!({})).await;
        quickest = quickest.min(start.elapsed());
    }
    // The minimum, because a busy machine delays some of the calls.
    assert!(quickest < Duration::from_millis(40), "{quickest:?}");
}

/// A server that answers all requests alike.
async fn serve_faulty(
    answer: impl Fn(&HeaderMap) -> Response + Clone + Send + Sync + 'static,
) -> String {
    let handle = move |headers: HeaderMap| {
        let answer = answer.clone();
        async move { answer(&headers) }
    };
    serve(Router::new().route("/mcp", any(handle))).await
}

#[tokio::test]
async fn unusable_server_is_reported_with_its_cause() {
    let fixture = Fixture::new();
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/mcp", listener.local_addr().unwrap())
    };
    let html =
        serve_faulty(|_| ([(header::CONTENT_TYPE, "text/html")], "<html>").into_response()).await;
    let json = |body: &'static str| {
        move |_: &HeaderMap| ([(header::CONTENT_TYPE, "application/json")], body).into_response()
    };
    let broken = serve_faulty(json("{\"jsonrpc\":")).await;
    // Accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs = format!("http://{}/mcp", silent.local_addr().unwrap());
    let unauthorised = serve_faulty(|_| {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"x\"")];
        (StatusCode::UNAUTHORIZED, challenge).into_response()
    })
    .await;
    let failing = serve_faulty(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response()).await;
    let elsewhere = serve_faulty(|_| {
        let location = [(header::LOCATION, "http://127.0.0.2:1/mcp")];
        (StatusCode::TEMPORARY_REDIRECT, location).into_response()
    })
    .await;
    for (url, code, expected) in [
        (closed.as_str(), "connection", "refused"),
        (&html, "connection", "text/html"),
        (&broken, "connection", "jsonrpc"),
        (&hangs, "mcp_start", "within 1.0 s"),
        (&unauthorised, "login_required", "login"),
        (&failing, "connection", "500"),
        (&elsewhere, "connection", "307"),
        ("${NOWHERE:-not an address}", "connection", "URL"),
    ] {
        let server = fixture.configured("x", &json!({"url": url, "start_timeout": 1}));
        let error = fixture.call_error(&server, "echo").await;
        let text = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        assert!(
            text.to_lowercase().contains(&expected.to_lowercase()),
            "{expected}: {text}"
        );
    }
}

#[tokio::test]
async fn headers_are_sent_and_their_secrets_are_redacted() {
    let fixture = Fixture::new();
    let received_key = Arc::new(Mutex::new(String::new()));
    let url = {
        let received_key = Arc::clone(&received_key);
        serve_faulty(move |headers| {
            let value = headers.get("x-api-key").unwrap().to_str().unwrap();
            value.clone_into(&mut received_key.lock().unwrap());
            (StatusCode::BAD_REQUEST, format!("no such key: {value}")).into_response()
        })
        .await
    };
    let config = json!({"url": url, "headers": {"X-Api-Key": "open-sesame"}});
    let server = fixture.configured("x", &config);
    let text = fixture.call_error(&server, "echo").await.to_string();
    assert_eq!(*received_key.lock().unwrap(), "open-sesame");
    assert!(text.contains("no such key: [redacted]"), "{text}");
}

/// A server whose responses have the requested length, as JSON with or without a content length
/// or as an event stream.
async fn serve_long_responses(sent: Arc<AtomicUsize>) -> String {
    let answer = move |uri: Uri, body: Bytes| {
        let sent = Arc::clone(&sent);
        async move {
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let id = &request["id"];
            let result = match request["method"].as_str() {
                Some("initialize") => json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "long", "version": "1" },
                }),
                Some("tools/call") => {
                    let mebibytes = request["params"]["arguments"]["mebibytes"]
                        .as_u64()
                        .unwrap();
                    let start = format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":""#
                    );
                    let chunks = (0..mebibytes).map(|_| Bytes::from(vec![b'x'; 1 << 20]));
                    let chunks = [Bytes::from(start)].into_iter().chain(chunks);
                    let chunks = chunks.chain([Bytes::from(r#""}]}}"#)]);
                    let is_stream = uri.path() == "/stream";
                    let start = if is_stream { "data: " } else { "" };
                    let end = if is_stream { "\n\n" } else { "" };
                    let chunks = [Bytes::from(start)].into_iter().chain(chunks);
                    let chunks = chunks.chain([Bytes::from(end)]);
                    let chunks = chunks.inspect(move |chunk| {
                        sent.fetch_add(chunk.len(), Ordering::Relaxed);
                    });
                    let content_type = match uri.path() {
                        "/stream" => "text/event-stream",
                        _ => "application/json",
                    };
                    let content_type = [(header::CONTENT_TYPE, content_type)];
                    if uri.path() == "/counted" {
                        let whole: Vec<u8> = chunks.flatten().collect();
                        return (content_type, whole).into_response();
                    }
                    let chunks = futures_util::stream::iter(chunks.map(Ok::<_, std::io::Error>));
                    return (content_type, Body::from_stream(chunks)).into_response();
                }
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
            let content_type = [(header::CONTENT_TYPE, "application/json")];
            (content_type, answer.to_string()).into_response()
        }
    };
    let url = serve(Router::new().fallback(any(answer))).await;
    url.strip_suffix("/mcp").unwrap().to_owned()
}

#[tokio::test]
async fn oversized_http_response_is_rejected() {
    let fixture = Fixture::new();
    let sent = Arc::new(AtomicUsize::new(0));
    let url = serve_long_responses(Arc::clone(&sent)).await;
    for variant in ["plain", "counted", "stream"] {
        let url = format!("{url}/{variant}");
        let server = fixture.configured(variant, &json!({ "url": url }));
        let short = fixture.text(&server, "x", json!({ "mebibytes": 15 })).await;
        assert_eq!(short.len(), 15 << 20, "{variant}");
        sent.store(0, Ordering::Relaxed);
        let long = fixture
            .call(&server, "x", json!({ "mebibytes": 100 }))
            .await;
        let error = long.unwrap_err();
        assert_eq!(error.code(), "mcp_too_long", "{variant}: {error}");
        assert!(error.hint().unwrap().contains("max_message"), "{variant}");
        // The client stops reading, so only part of the response is sent.
        if variant != "counted" {
            let sent = sent.load(Ordering::Relaxed);
            assert!(sent < 60 << 20, "{variant}: {sent} bytes");
        }
        // The connection stays usable.
        let short = fixture.text(&server, "x", json!({ "mebibytes": 1 })).await;
        assert_eq!(short.len(), 1 << 20, "{variant}");
    }
}

#[tokio::test]
async fn first_call_waits_for_the_stream_of_notifications() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let answer = {
        let order = Arc::clone(&order);
        move |method: Method, body: Bytes| async move {
            if method == Method::GET {
                tokio::time::sleep(Duration::from_millis(100)).await;
                order.lock().unwrap().push("notifications");
                return StatusCode::METHOD_NOT_ALLOWED.into_response();
            }
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let result = match request["method"].as_str() {
                Some("initialize") => json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "slow", "version": "1" },
                }),
                Some("tools/call") => {
                    order.lock().unwrap().push("call");
                    json!({ "content": [{ "type": "text", "text": "done" }] })
                }
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
            let session = ("mcp-session-id", "session-1");
            let headers = [(header::CONTENT_TYPE.as_str(), "application/json"), session];
            (headers, answer.to_string()).into_response()
        }
    };
    let url = serve(Router::new().route("/mcp", any(answer))).await;
    let fixture = Fixture::new();
    let config = json!({ "url": url, "protocol": "2025-11-25" });
    let server = fixture.configured("slow", &config);
    assert_eq!(fixture.text(&server, "x", json!({})).await, "done");
    assert_eq!(*order.lock().unwrap(), ["notifications", "call"]);
}

/// A server of the HTTP+SSE transport whose event stream announces this endpoint. Records the
/// paths and keys of the posted messages.
async fn serve_sse(endpoint: String, posts: Arc<Mutex<Vec<String>>>) -> String {
    let (events, _) = tokio::sync::broadcast::channel::<String>(16);
    let stream = {
        let events = events.clone();
        move |method: Method| async move {
            if method != Method::GET {
                return StatusCode::METHOD_NOT_ALLOWED.into_response();
            }
            let first = format!("event: endpoint\ndata: {endpoint}\n\n");
            let chunks = futures_util::stream::unfold(
                (Some(first), events.subscribe()),
                |(first, mut events)| async move {
                    let chunk = match first {
                        Some(first) => first,
                        None => events.recv().await.ok()?,
                    };
                    Some((Ok::<_, std::io::Error>(chunk), (None, events)))
                },
            );
            let content_type = [(header::CONTENT_TYPE, "text/event-stream")];
            (content_type, Body::from_stream(chunks)).into_response()
        }
    };
    let post = move |uri: Uri, headers: HeaderMap, body: Bytes| async move {
        let key = headers.get("x-api-key").unwrap().to_str().unwrap();
        posts.lock().unwrap().push(format!("{uri} {key}"));
        let request: Value = serde_json::from_slice(&body).unwrap();
        let result = match request["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2024-11-05",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "old", "version": "1" },
            }),
            Some("tools/call") if request["params"]["name"] == "reject" => {
                let error = json!({ "code": -32602, "message": "no" });
                let answer = json!({ "jsonrpc": "2.0", "id": null, "error": error });
                let content_type = [(header::CONTENT_TYPE, "application/json")];
                return (StatusCode::BAD_REQUEST, content_type, answer.to_string()).into_response();
            }
            Some("tools/call") => json!({ "content": [{ "type": "text", "text": "done" }] }),
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
        events
            .send(format!("event: message\ndata: {answer}\n\n"))
            .unwrap();
        (StatusCode::ACCEPTED, "Accepted").into_response()
    };
    let router = Router::new()
        .route("/mcp", any(stream))
        .route("/messages", any(post));
    serve(router).await
}

#[tokio::test]
async fn sse_server_gets_headers_and_its_rejections_reach_the_caller() {
    let fixture = Fixture::new();
    let posts = Arc::new(Mutex::new(Vec::new()));
    let url = serve_sse("/messages?session=1".to_owned(), Arc::clone(&posts)).await;
    let config = json!({"url": url, "headers": {"X-Api-Key": "k"}});
    let server = fixture.configured("old", &config);
    assert_eq!(fixture.text(&server, "x", json!({})).await, "done");
    let error = fixture.call_error(&server, "reject").await;
    assert_eq!(error.code(), "mcp_error", "{error}");
    let posts = posts.lock().unwrap();
    assert!(posts.len() >= 3, "{posts:?}");
    let expected = |post: &String| post == "/messages?session=1 k";
    assert!(posts.iter().all(expected), "{posts:?}");
}

#[tokio::test]
async fn sse_endpoint_on_another_server_gets_no_message() {
    let fixture = Fixture::new();
    let posts = Arc::new(Mutex::new(Vec::new()));
    let other = serve_sse("/messages".to_owned(), Arc::clone(&posts)).await;
    let endpoint = other.replace("/mcp", "/messages");
    let url = serve_sse(endpoint, Arc::clone(&posts)).await;
    let config = json!({"url": url, "headers": {"X-Api-Key": "k"}});
    let error = fixture
        .call_error(&fixture.configured("old", &config), "x")
        .await;
    assert_eq!(error.code(), "connection", "{error}");
    assert!(posts.lock().unwrap().is_empty());
}
