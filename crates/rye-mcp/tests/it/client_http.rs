//! Servers over streamable HTTP, well and unwell.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{World, until};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, Uri, header};
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

/// A server that is well.
#[derive(Clone)]
struct Well {
    barrier: Arc<Barrier>,
    cancelled: Arc<AtomicUsize>,
}

impl ServerHandler for Well {
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

/// Serves on a free port of this machine, and gives the address.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/mcp")
}

async fn well(at_once: usize) -> (String, Well) {
    let well = Well {
        barrier: Arc::new(Barrier::new(at_once)),
        cancelled: Arc::default(),
    };
    let made = well.clone();
    let service = StreamableHttpService::new(
        move || Ok(made.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    (
        serve(Router::new().nest_service("/mcp", service)).await,
        well,
    )
}

#[tokio::test]
async fn calls_share_a_session_and_progress_is_heard() {
    let world = World::new();
    let (url, _) = well(20).await;
    let server = world.configured("well", &json!({"url": url}));
    let text = world.text(&server, "echo", json!({"a": 1})).await;
    assert_eq!(text, r#"{"a":1}"#);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (pool, server) = (world.pool.clone(), server.clone());
        calls.spawn(async move {
            let call = ToolCall::new("barrier", Map::new());
            pool.call(&server, &call).await.unwrap()
        });
    }
    assert_eq!(calls.join_all().await.len(), 20);
    let heard = Arc::new(Mutex::new(String::new()));
    let mut call = ToolCall::new("progress", Map::new());
    call.listener = Some(OutputListener::new({
        let heard = Arc::clone(&heard);
        move |_, bytes| *heard.lock().unwrap() += std::str::from_utf8(bytes).unwrap()
    }));
    world.pool.call(&server, &call).await.unwrap();
    assert_eq!(*heard.lock().unwrap(), "1\n2\n3\n");
    let error = world.fails(&server, "nothing").await;
    assert_eq!(error.code(), "mcp_error", "{error}");
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    let world = World::new();
    let (url, well) = well(1).await;
    let server = world.configured("well", &json!({"url": url, "call_timeout": 0.5}));
    let error = world.fails(&server, "hang").await;
    assert_eq!(error.code(), "timeout", "{error}");
    let told = || well.cancelled.load(Ordering::Relaxed) == 1;
    until(told, || "it was not told".to_owned()).await;
    // Also where we end right after it.
    let mut call = ToolCall::new("hang", Map::new());
    call.timeout = Some(Duration::from_millis(300));
    world.fails_with(&server, &call).await;
    world.pool.shutdown().await;
    let told = || well.cancelled.load(Ordering::Relaxed) == 2;
    until(told, || "it was not told the second time".to_owned()).await;
}

#[tokio::test]
async fn a_second_call_takes_no_forty_milliseconds() {
    // That is what a connection takes that waits for more to send.
    let world = World::new();
    let (url, _) = well(1).await;
    let server = world.configured("well", &json!({"url": url}));
    world.text(&server, "echo", json!({})).await;
    let mut quickest = Duration::MAX;
    for _ in 0..100 {
        let start = Instant::now();
        world.text(&server, "echo", json!({})).await;
        quickest = quickest.min(start.elapsed());
    }
    // Each would take so long, and not only those that this machine has no time for.
    assert!(quickest < Duration::from_millis(40), "{quickest:?}");
}

/// A server that answers everything in one way.
async fn unwell(answer: impl Fn(&HeaderMap) -> Response + Clone + Send + Sync + 'static) -> String {
    let handle = move |headers: HeaderMap| {
        let answer = answer.clone();
        async move { answer(&headers) }
    };
    serve(Router::new().route("/mcp", any(handle))).await
}

#[tokio::test]
async fn how_a_server_cannot_be_used_is_told() {
    let world = World::new();
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/mcp", listener.local_addr().unwrap())
    };
    let html = unwell(|_| ([(header::CONTENT_TYPE, "text/html")], "<html>").into_response()).await;
    let json = |body: &'static str| {
        move |_: &HeaderMap| ([(header::CONTENT_TYPE, "application/json")], body).into_response()
    };
    let broken = unwell(json("{\"jsonrpc\":")).await;
    // Its doors are open, and nobody is there.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs = format!("http://{}/mcp", silent.local_addr().unwrap());
    let unauthorised = unwell(|_| {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"x\"")];
        (StatusCode::UNAUTHORIZED, challenge).into_response()
    })
    .await;
    let failing = unwell(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response()).await;
    let elsewhere = unwell(|_| {
        let place = [(header::LOCATION, "http://127.0.0.2:1/mcp")];
        (StatusCode::TEMPORARY_REDIRECT, place).into_response()
    })
    .await;
    for (url, code, word) in [
        (closed.as_str(), "connection", "refused"),
        (&html, "connection", "text/html"),
        (&broken, "connection", "JSON"),
        (&hangs, "mcp_start", "within 1.0 s"),
        (&unauthorised, "login_required", "log in"),
        (&failing, "connection", "500"),
        (&elsewhere, "connection", "307"),
        ("${NOWHERE:-not an address}", "connection", "URL"),
    ] {
        let server = world.configured("x", &json!({"url": url, "start_timeout": 1}));
        let error = world.fails(&server, "echo").await;
        let text = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        assert!(
            text.to_lowercase().contains(&word.to_lowercase()),
            "{word}: {text}"
        );
    }
}

#[tokio::test]
async fn headers_are_sent_and_their_secrets_are_not_shown() {
    let world = World::new();
    let seen = Arc::new(Mutex::new(String::new()));
    let url = {
        let seen = Arc::clone(&seen);
        unwell(move |headers| {
            let value = headers.get("x-api-key").unwrap().to_str().unwrap();
            value.clone_into(&mut seen.lock().unwrap());
            (StatusCode::BAD_REQUEST, format!("no such key: {value}")).into_response()
        })
        .await
    };
    let config = json!({"url": url, "headers": {"X-Api-Key": "open-sesame"}});
    let server = world.configured("x", &config);
    let text = world.fails(&server, "echo").await.to_string();
    assert_eq!(*seen.lock().unwrap(), "open-sesame");
    assert!(text.contains("no such key: [redacted]"), "{text}");
}

/// A server whose answers to calls are as long as they say, and come in one of three ways.
async fn long_winded(sent: Arc<AtomicUsize>) -> String {
    let answer = move |uri: Uri, body: Bytes| {
        let sent = Arc::clone(&sent);
        async move {
            let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
            let id = &asked["id"];
            let result = match asked["method"].as_str() {
                Some("initialize") => json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "long", "version": "1" },
                }),
                Some("tools/call") => {
                    let mebibytes = asked["params"]["arguments"]["mebibytes"].as_u64().unwrap();
                    let begin = format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":""#
                    );
                    let pieces = (0..mebibytes).map(|_| Bytes::from(vec![b'x'; 1 << 20]));
                    let pieces = [Bytes::from(begin)].into_iter().chain(pieces);
                    let pieces = pieces.chain([Bytes::from(r#""}]}}"#)]);
                    let is_stream = uri.path() == "/stream";
                    let begin = if is_stream { "data: " } else { "" };
                    let end = if is_stream { "\n\n" } else { "" };
                    let pieces = [Bytes::from(begin)].into_iter().chain(pieces);
                    let pieces = pieces.chain([Bytes::from(end)]);
                    let pieces = pieces.inspect(move |piece| {
                        sent.fetch_add(piece.len(), Ordering::Relaxed);
                    });
                    let kind = match uri.path() {
                        "/stream" => "text/event-stream",
                        _ => "application/json",
                    };
                    let kind = [(header::CONTENT_TYPE, kind)];
                    if uri.path() == "/counted" {
                        let whole: Vec<u8> = pieces.flatten().collect();
                        return (kind, whole).into_response();
                    }
                    let pieces = tokio_stream::iter(pieces.map(Ok::<_, std::io::Error>));
                    return (kind, Body::from_stream(pieces)).into_response();
                }
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (kind, answer.to_string()).into_response()
        }
    };
    let url = serve(Router::new().fallback(any(answer))).await;
    url.strip_suffix("/mcp").unwrap().to_owned()
}

#[tokio::test]
async fn an_answer_over_http_is_bounded_however_it_comes() {
    let world = World::new();
    let sent = Arc::new(AtomicUsize::new(0));
    let url = long_winded(Arc::clone(&sent)).await;
    for way in ["plain", "counted", "stream"] {
        let url = format!("{url}/{way}");
        let server = world.configured(way, &json!({ "url": url }));
        let short = world.text(&server, "x", json!({ "mebibytes": 15 })).await;
        assert_eq!(short.len(), 15 << 20, "{way}");
        sent.store(0, Ordering::Relaxed);
        let long = world.call(&server, "x", json!({ "mebibytes": 100 })).await;
        let error = long.unwrap_err();
        assert_eq!(error.code(), "mcp_too_long", "{way}: {error}");
        assert!(error.hint().unwrap().contains("max_message"), "{way}");
        // It is not even read: what is on its way is all that was sent.
        if way != "counted" {
            let sent = sent.load(Ordering::Relaxed);
            assert!(sent < 60 << 20, "{way}: {sent} bytes");
        }
        // And the connection is as good as before.
        let short = world.text(&server, "x", json!({ "mebibytes": 1 })).await;
        assert_eq!(short.len(), 1 << 20, "{way}");
    }
}
