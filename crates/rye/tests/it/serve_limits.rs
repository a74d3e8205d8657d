//! `rye serve` under bad conditions: slow clients, many connections, a full disk, and sessions that
//! are deleted while they run. `serve_api` has invalid requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use crate::serve::env_with;
use crate::serve_schedules::wait_for;
use crate::serve_support::{Server, TIMEOUT, answer, client};

/// A command that needs approval, then the answer.
const GATED: &str = "steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi > out.txt' } }]
  - { text: 'done' }
";

/// A command that takes an hour.
const BUSY: &str = "steps:
  - tool_calls: [{ name: bash, args: { command: 'echo $$ > pid; exec sleep 3600' } }]
  - { text: 'done' }
";

/// Opens connections until standard input ends, and prints their number.
const CONNECT: &str = "
import resource, socket, sys
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
count = min(5000, hard - 50)
address = ('127.0.0.1', int(sys.argv[1]))
connections = []
for number in range(count):
    connection = socket.create_connection(address, timeout=30)
    # A third sends nothing, a third a part of a head, a third a part of a body.
    if number % 3 == 1:
        connection.sendall(b'GET /healthz HTTP/1.1\\r\\nHost: loc')
    elif number % 3 == 2:
        connection.sendall(b'POST /api/sessions HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 9\\r\\n\\r\\n{')
    connections.append(connection)
print(count, flush=True)
sys.stdin.read()
";

fn port(server: &Server) -> &str {
    server.url.rsplit(':').next().unwrap()
}

async fn outcome(request: reqwest::RequestBuilder) -> (u16, Value) {
    let (status, body) = answer(request).await;
    (status.as_u16(), body["code"].clone())
}

#[tokio::test]
async fn thousands_of_unfinished_requests_do_not_keep_others_out() {
    let env = env_with(GATED);
    let server = Server::start(&env);
    let session = server.create_session().await;
    let mut events = server.events(&session, "").await;
    assert_eq!(events.next().await.unwrap().name, "init");
    let mut crowd = Command::new("python3");
    crowd.args(["-c", CONNECT, port(&server)]);
    let mut crowd = crowd
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut count = String::new();
    let mut output = BufReader::new(crowd.stdout.take().unwrap());
    output.read_line(&mut count).unwrap();
    assert!(count.trim().parse::<usize>().unwrap() > 500, "{count}");
    let ready = client().get(format!("{}/readyz", server.url)).send();
    assert_eq!(ready.await.unwrap().status(), 200);
    // The stream, which waits for the server, is still open.
    server.prompt(&session, "go").await;
    events.until("decision_gate").await;
    drop(crowd.stdin.take());
    assert!(crowd.wait().unwrap().success());
}

#[tokio::test]
async fn slow_body_gets_a_problem_and_slow_head_is_closed() {
    let env = env_with(GATED);
    let server = Server::start(&env);
    let open = |text: String| {
        let mut stream = TcpStream::connect(("127.0.0.1", port(&server).parse().unwrap())).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream.set_read_timeout(Some(3 * TIMEOUT)).unwrap();
        stream
    };
    let token = &server.token;
    let start = Instant::now();
    let mut body = open(format!(
        "POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    ));
    let mut head = open("GET /healthz HTTP/1.1\r\nHost: localh".to_owned());
    let read = tokio::task::spawn_blocking(move || {
        let (mut response, mut rest) = (String::new(), Vec::new());
        body.read_to_string(&mut response).unwrap();
        // Whether it is closed with or without a response.
        let _ = head.read_to_end(&mut rest);
        response
    });
    let response = read.await.unwrap();
    assert!(start.elapsed() < 2 * TIMEOUT);
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    assert!(response.contains("application/problem+json"), "{response}");
    assert!(response.contains("\"body_incomplete\""), "{response}");
}

#[tokio::test]
async fn unusable_credentials_are_refused() {
    let env = env_with(GATED);
    let server = Server::start(&env);
    let url = format!("{}/api/sessions", server.url);
    let long = format!("Bearer rye_{}", "x".repeat(10_000));
    for (header, code) in [
        ("Basic cnllOnJ5ZQ==", "unauthorized"),
        ("Bearer", "unauthorized"),
        ("Bearer ", "unauthorized"),
        ("Bearer a b", "invalid_token"),
        ("Bearer ../../etc/passwd", "invalid_token"),
        ("Bearer eyJhbGciOiJub25lIn0.e30.", "invalid_token"),
        (&long, "invalid_token"),
    ] {
        let request = client().get(&url).header("Authorization", header);
        assert_eq!(outcome(request).await, (401, json!(code)), "{header}");
    }
    let bytes = reqwest::header::HeaderValue::from_bytes(b"Bearer \xff\xfe").unwrap();
    let request = client().get(&url).header("Authorization", bytes);
    assert_eq!(outcome(request).await, (401, json!("unauthorized")));
    let cookie = format!("rye_{}=guess", port(&server));
    let request = client().get(&url).header("Cookie", cookie);
    assert_eq!(outcome(request).await, (401, json!("invalid_token")));
}

#[tokio::test]
async fn gate_of_an_aborted_turn_is_closed() {
    let env = env_with(GATED);
    let server = Server::start(&env);
    let session = server.create_session().await;
    let mut events = server.events(&session, "").await;
    let item = server.prompt(&session, "go").await;
    let gate = events.until("decision_gate").await.data["data"]["gate"]["id"].clone();
    let (status, _) = server
        .post(&format!("/api/sessions/{session}/abort"), &json!({}))
        .await;
    assert!(status.is_success(), "{status}");
    server.answer(&item).await;
    let path = format!("/api/gates/{}/decision", gate.as_str().unwrap());
    let decide = server.request(Method::POST, &path);
    let decided = outcome(decide.json(&json!({ "action": "approve" }))).await;
    assert_eq!(decided, (410, json!("gate_closed")));
    assert!(!env.path("project/out.txt").exists());
}

#[tokio::test]
async fn deletion_of_a_running_session_ends_its_work_and_everyone_who_waits() {
    let env = env_with(BUSY);
    let server = Server::start(&env);
    let session = server.create_session().await;
    let path = format!("/api/sessions/{session}");
    let mut events = server.events(&session, "").await;
    let item = server.prompt(&session, "go").await;
    let gate = events.until("decision_gate").await.data["data"]["gate"]["id"].clone();
    let decision = format!("/api/gates/{}/decision", gate.as_str().unwrap());
    let approve = json!({ "action": "approve" });
    assert_eq!(server.post(&decision, &approve).await.0, 200);
    let command = wait_for("the command", async || {
        let text = std::fs::read_to_string(env.path("project/pid")).ok()?;
        text.trim().parse::<u32>().ok()
    })
    .await;
    let waiting = server.request(Method::GET, &format!("/api/prompts/{item}?wait=60"));
    let waiting = tokio::spawn(outcome(waiting));
    let delete = async || outcome(server.request(Method::DELETE, &path)).await;
    assert_eq!(delete().await.0, 204);
    assert_eq!(events.rest().await.last().unwrap().name, "deleted");
    let waited = tokio::time::timeout(TIMEOUT, waiting).await;
    assert_eq!(waited.unwrap().unwrap(), (404, json!("not_found")));
    let process = format!("/proc/{command}");
    wait_for("the end of the command", async || {
        (!std::path::Path::new(&process).exists()).then_some(())
    })
    .await;
    assert_eq!(delete().await, (404, json!("not_found")));
}

#[tokio::test]
async fn full_disk_is_reported_and_loses_nothing() {
    let mut env = env_with(GATED);
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    // A process that ignores the signal gets an error when a file would become too large.
    let program = env.command();
    let mut shell = env.command_of("sh");
    shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    shell.arg(program.get_program());
    let options = ["--model", "scripted:agent.yaml", "--sandbox", "local"];
    let server = Server::spawn(&env, shell, &options);
    let session = server.create_session().await;
    let mut events = server.events(&session, "").await;
    let item = server.prompt(&session, "go").await;
    let gate = events.until("decision_gate").await.data["data"]["gate"]["id"].clone();
    let path = format!("/api/gates/{}/decision", gate.as_str().unwrap());
    let approve = json!({ "action": "approve" });

    let limit = |current: Option<u64>| {
        let maximum = None;
        prlimit(
            Some(server.pid()),
            Resource::Fsize,
            Rlimit { current, maximum },
        )
        .unwrap();
    };
    limit(Some(0));
    let (status, problem) = server.post(&path, &approve).await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (503, &json!("store_unavailable")),
        "{problem}"
    );
    let prompts = format!("/api/sessions/{session}/threads/default/prompts");
    let prompt = json!({ "text": "and then" });
    let (status, problem) = server.post(&prompts, &prompt).await;
    assert_eq!(status, 503, "{problem}");
    // What exists can be read.
    let (status, gates) = server.get("/api/gates").await;
    assert_eq!((status.as_u16(), &gates["gates"][0]["id"]), (200, &gate));
    assert!(!env.path("project/out.txt").exists());

    limit(None);
    let decided = wait_for("the decision", async || {
        let (status, decided) = server.post(&path, &approve).await;
        (status == 200).then_some(decided)
    })
    .await;
    assert_eq!(decided["gate"], gate, "{decided}");
    assert_eq!(server.answer(&item).await["text"], "done");
    assert_eq!(env.read("project/out.txt"), "hi\n");
    let (_, verdict) = server.get(&format!("/api/sessions/{session}/verify")).await;
    assert_eq!(verdict["verified"], true, "{verdict}");
}

#[tokio::test]
async fn unknown_ids_are_answered_at_once() {
    let env = env_with(GATED);
    let server = Server::start(&env);
    let start = Instant::now();
    for path in [
        "/api/prompts/nope?wait=60",
        "/api/sessions/nope/events?until=idle",
        "/api/sessions/nope/threads/default/entries",
        "/api/gates/nope",
        "/api/schedules/nope",
        "/api/webhooks/nope/deliveries",
        "/api/items/tool/no%2Fsuch",
    ] {
        let request = server.request(Method::GET, path);
        assert_eq!(outcome(request).await, (404, json!("not_found")), "{path}");
    }
    assert!(start.elapsed() < Duration::from_secs(20));
}
