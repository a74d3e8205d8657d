//! `rye mcp serve --http`: authentication, limits, reconnection and shutdown.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;

use crate::mcp_support::http::{Response, Server, request};
use crate::mcp_support::{env, execute, processes_in, wait_for_exit, wait_for_file};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Calls a tool of the project in a session.
fn call(server: &Server, session: &str, id: u64, tool: &str) -> Response {
    let headers = [
        ("Mcp-Session-Id", session),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    server.post(&headers, &request(id, "tools/call", &execute(tool)))
}

/// Calls a tool of the project in the newest revision, which has no sessions.
fn call_without_session(server: &Server, id: u64, tool: &str) -> TcpStream {
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "execute"),
    ];
    let mut params = execute(tool);
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message = request(id, "tools/call", &params);
    server.send_without_reading("POST", &headers, &message.to_string())
}

fn text(answer: &Value) -> &str {
    let text = &answer["result"]["content"][0]["text"];
    text.as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Waits until a server accepts no more connections, so that the signal has arrived.
fn wait_until_closed(server: &Server) {
    let start = std::time::Instant::now();
    while TcpStream::connect(("127.0.0.1", server.port)).is_ok() {
        assert!(
            start.elapsed() < crate::mcp_support::TIMEOUT,
            "it still listens"
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn initialize_request() -> Value {
    let hello = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1.0.0" },
    });
    request(1, "initialize", &hello)
}

#[test]
fn request_without_a_token_is_refused() {
    let env = env();
    env.write("tokens", "# the team's\nsesame\n");
    let tokens = env.path("tokens");
    let server = Server::start(&env, &["--token-file", tokens.to_str().unwrap()]);
    let try_with = |headers: &[(&str, &str)]| server.post(headers, &initialize_request());
    let refused = try_with(&[]);
    assert_eq!(refused.status, 401);
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    assert!(refused.text().contains("bearer token"));
    for wrong in [
        "Bearer guess",
        "Bearer",
        "Basic sesame",
        "Bearer # the team's",
    ] {
        assert_eq!(try_with(&[("Authorization", wrong)]).status, 401, "{wrong}");
    }
    assert_eq!(try_with(&[("Authorization", "Bearer sesame")]).status, 200);
}

#[test]
fn request_from_a_foreign_origin_is_refused() {
    let env = env();
    let options = ["--allow-origin", "https://example.org:443"];
    let options = [&options[..], &["--allow-host", "rye.example.org"]].concat();
    let server = Server::start(&env, &options);
    let status = |header: (&str, &str)| server.post(&[header], &initialize_request()).status;
    assert_eq!(status(("Origin", "https://evil.example")), 403);
    assert_eq!(status(("Origin", "null")), 403);
    assert_eq!(status(("Host", "evil.example")), 403);
    assert_eq!(status(("Host", "127.0.0.1.evil.example")), 403);
    assert_eq!(status(("Origin", "https://example.org")), 200);
    assert_eq!(status(("Origin", "http://localhost:3000")), 200);
    assert_eq!(status(("Host", "rye.example.org")), 200);
    assert_eq!(status(("Host", "localhost")), 200);
}

#[test]
fn integer_of_more_than_64_bits_keeps_its_digits() {
    let env = env();
    let server = Server::start(&env, &[]);
    let session = server.open_session();
    let ask = "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"search\",\
        \"arguments\":{\"query\":\"x\",\"limit\":123456789012345678901}}}";
    let answer = server
        .send("POST", &[("Mcp-Session-Id", &session)], ask)
        .text();
    assert!(answer.contains("123456789012345678901"), "{answer}");
}

#[test]
fn too_long_request_is_refused_and_the_next_one_answered() {
    let env = env();
    let server = Server::start(&env, &["--max-body", "1"]);
    let long = "x".repeat(2 * 1024 * 1024);
    let ask = request(1, "initialize", &json!({ "protocolVersion": long }));
    assert_eq!(server.post(&[], &ask).status, 413);
    server.open_session();
}

#[test]
fn rate_limit_sends_retry_after() {
    let env = env();
    let server = Server::start(&env, &["--rate", "5"]);
    // Two seconds' worth may arrive at once; the hundred arrive within one second.
    let responses = (0..100).map(|_| server.send("GET", &[], ""));
    let refused = responses.into_iter().find(|it| it.status == 429).unwrap();
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[test]
fn malformed_request_is_refused() {
    let env = env();
    let server = Server::start_in_project(&env, &[]);
    let session = server.open_session();
    let headers = [("Mcp-Session-Id", session.as_str())];
    for body in ["{not json", "", "42"] {
        let status = server.send("POST", &headers, body).status;
        assert!((400..500).contains(&status), "{body}: {status}");
    }
    let gone = [("Mcp-Session-Id", "nope")];
    assert_eq!(call(&server, "nope", 1, "greet").status, 404);
    assert_eq!(server.send("GET", &gone, "").status, 404);
    let mut answer = server.post(&headers, &request(2, "nope/nope", &json!({})));
    assert_eq!(answer.message(2)["error"]["code"], -32601);
    let ask = json!({ "name": 5 });
    let mut answer = server.post(&headers, &request(3, "tools/call", &ask));
    assert_eq!(answer.message(3)["error"]["code"], -32602);
    assert_eq!(
        text(&call(&server, &session, 4, "greet").message(4)),
        "hello\n{}"
    );
}

#[test]
fn deleted_session_is_gone() {
    let env = env();
    let server = Server::start_in_project(&env, &[]);
    let session = server.open_session();
    let headers = [("Mcp-Session-Id", session.as_str())];
    assert_eq!(server.send("DELETE", &headers, "").status, 204);
    assert_eq!(call(&server, &session, 1, "greet").status, 404);
}

#[test]
fn hundred_concurrent_calls_are_answered() {
    let env = env();
    let server = Arc::new(Server::start_in_project(&env, &[]));
    let session = server.open_session();
    let calls = (2..102).map(|id| {
        let (server, session) = (Arc::clone(&server), session.clone());
        std::thread::spawn(move || call(&server, &session, id, "greet").message(id))
    });
    // All are sent before the first is awaited.
    let calls: Vec<_> = calls.collect();
    for answer in calls {
        assert_eq!(text(&answer.join().unwrap()), "hello\n{}");
    }
}

#[test]
fn disconnected_client_fetches_the_answer_of_a_running_call() {
    let env = env();
    let server = Server::start_in_project(&env, &[]);
    let session = server.open_session();
    let mut cut = call(&server, &session, 7, "held");
    let event = cut.event_id();
    wait_for_file(&env.path("project/held"));
    drop(cut);
    let headers = [
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Last-Event-ID", event.as_str()),
    ];
    let mut resumed = server.send("GET", &headers, "");
    assert_eq!(resumed.status, 200);
    fs::write(env.path("project/go"), "").unwrap();
    assert_eq!(text(&resumed.message(7)), "done\n");
}

#[test]
fn disconnected_client_fetches_the_answer_of_an_ended_call() {
    let env = env();
    let server = Server::start_in_project(&env, &[]);
    let session = server.open_session();
    let mut cut = call(&server, &session, 7, "held");
    let event = cut.event_id();
    wait_for_file(&env.path("project/held"));
    drop(cut);
    fs::write(env.path("project/go"), "").unwrap();
    wait_for_file(&env.path("project/ended"));
    // Another call is answered after it, so the first answer has been sent.
    assert_eq!(
        text(&call(&server, &session, 8, "greet").message(8)),
        "hello\n{}"
    );
    let headers = [
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", "2025-11-25"),
        ("Last-Event-ID", event.as_str()),
    ];
    let mut resumed = server.send("GET", &headers, "");
    assert_eq!(text(&resumed.message(7)), "done\n");
}

#[test]
fn disconnecting_without_a_session_cancels_the_call() {
    let env = env();
    let server = Server::start_in_project(&env, &[]);
    let gone = call_without_session(&server, 1, "slow");
    let pid = wait_for_file(&env.path("project/pid"));
    drop(gone);
    wait_for_exit(&pid);
    let answer = call_without_session(&server, 2, "greet");
    let answer = Response::of(answer).message(2);
    assert_eq!(text(&answer), "hello\n{}");
}

#[test]
fn sigterm_lets_running_calls_finish() {
    let env = env();
    let mut server = Server::start_in_project(&env, &[]);
    let session = server.open_session();
    let mut held = call(&server, &session, 7, "held");
    wait_for_file(&env.path("project/held"));
    server.signal(Signal::TERM);
    wait_until_closed(&server);
    fs::write(env.path("project/go"), "").unwrap();
    assert_eq!(text(&held.message(7)), "done\n");
    assert_eq!(server.status().code(), Some(0));
}

#[test]
fn second_sigterm_ends_at_once_and_leaves_no_process() {
    let env = env();
    let mut server = Server::start_in_project(&env, &[]);
    let session = server.open_session();
    let _slow = call(&server, &session, 7, "slow");
    let pid = wait_for_file(&env.path("project/pid"));
    server.signal(Signal::TERM);
    wait_until_closed(&server);
    server.signal(Signal::TERM);
    assert_eq!(server.status().code(), Some(0));
    wait_for_exit(&pid);
    assert_eq!(processes_in(&env.path("project")), [""; 0]);
}

#[test]
fn roots_over_http_stay_in_the_servers_project() {
    let env = env();
    let server = Server::start_in_project(&env, &[]);
    let hello = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": { "roots": {} },
        "clientInfo": { "name": "test", "version": "1.0.0" },
    });
    let hello = server.post(&[], &request(1, "initialize", &hello));
    let session = hello.header("mcp-session-id").unwrap().to_owned();
    let headers = [("Mcp-Session-Id", session.as_str())];
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(server.post(&headers, &ready).status, 202);
    let arguments = json!({ "query": "greet", "project_path": "/" });
    let params = json!({ "name": "search", "arguments": arguments });
    let mut called = server.post(&headers, &request(2, "tools/call", &params));
    let asked = called.request("roots/list");
    let roots = json!({ "roots": [{ "uri": "file:///" }] });
    let reply = json!({ "jsonrpc": "2.0", "id": asked, "result": roots });
    assert_eq!(server.post(&headers, &reply).status, 202);
    let answer = called.message(2);
    let error = &answer["result"]["structuredContent"]["error"];
    assert_eq!(error["code"], "project_out_of_bounds", "{answer}");
}

#[test]
fn incomplete_requests_do_not_block_other_clients() {
    let env = env();
    // Fewer open files than incomplete requests.
    let server = Server::with_open_files(&env, 256);
    let session = server.open_session();
    let half = [
        "",
        "POST /mcp HTTP/1.1\r\nHost: 127",
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
    ];
    let open: Vec<_> = (0..300)
        .map(|number| {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            // The server may have closed it to make room.
            let _ = stream.write_all(half[number % half.len()].as_bytes());
            stream
        })
        .collect();
    for id in 2..12 {
        let mut answer = call(&server, &session, id, "greet");
        assert_eq!(text(&answer.message(id)), "hello\n{}");
    }
    drop(open);
}
