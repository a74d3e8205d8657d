//! Upkeep of a server's sessions: idle ones, abandoned ones, and the end of the server.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_engine::protocol::{EventKind, SessionId, StatusKind, TurnEnd};
use rye_engine::store::{Claim, SessionStore, StoreError};
use rye_engine::{Engine, NewSession, Upkeep};
use rye_model::{Catalogue, Script};
use rye_sandbox::VirtualSandbox;
use rye_store::{MemoryStore, SqliteStore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A generous time limit, so that a mistake fails the test instead of blocking it.
const TIMEOUT: Duration = Duration::from_mins(1);

const ANSWER: &str = "steps: []\nafter_last: { text: hello }";

fn engine(store: &Arc<dyn SessionStore>, script: &str) -> Engine {
    let script: Script = script.parse().unwrap();
    Engine::builder()
        .shared_store(Arc::clone(store))
        .models(Catalogue::new(".").with("scripted:test", script))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tools(rye_tools::tools())
        .build()
        .unwrap()
}

/// Runs the upkeep of an engine until the guard is dropped.
fn run_upkeep(engine: &Engine, idle_after: Duration) -> tokio_util::sync::DropGuard {
    let stop = CancellationToken::new();
    let (engine, token) = (engine.clone(), stop.clone());
    let upkeep = Upkeep {
        idle_after,
        interval: Duration::from_millis(20),
    };
    tokio::spawn(async move { engine.run_upkeep(upkeep, token).await });
    stop.drop_guard()
}

async fn wait_until(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !check().await {
        assert!(start.elapsed() < TIMEOUT, "{what} does not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn answer(engine: &Engine, session: &SessionId) -> String {
    let prompt = engine.submit(session, "hello").await.unwrap();
    let answer = timeout(TIMEOUT, engine.answer(session, &prompt)).await;
    answer.unwrap().unwrap().text
}

fn unattended() -> NewSession {
    NewSession {
        unattended: true,
        ..NewSession::default()
    }
}

#[tokio::test]
async fn idle_session_is_closed_and_opens_again_on_demand() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let engine = engine(&store, ANSWER);
    let _upkeep = run_upkeep(&engine, Duration::from_millis(50));
    let session = engine.ensure_session(unattended()).await.unwrap().id;
    let mut events = engine.follow(&session, 0).await.unwrap();
    for _ in 0..3 {
        assert_eq!(answer(&engine, &session).await, "hello");
        wait_until("closing", async || engine.open_sessions() == 0).await;
        assert_eq!(engine.holder(&session).await.unwrap(), None);
    }
    let mut ends = 0;
    while ends < 3 {
        let event = timeout(TIMEOUT, events.next()).await.unwrap().unwrap();
        let kind = event.unwrap().event.kind;
        ends += u32::from(matches!(kind, EventKind::TurnEnd { .. }));
    }
}

#[tokio::test]
async fn session_with_files_in_memory_stays_open() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let write = "steps:\n  - tool_calls: [{ name: write, args: { path: a.txt, content: kept } }]\n  \
                 - { text: written }\n  - tool_calls: [{ name: read, args: { path: a.txt } }]\n  \
                 - { text: '${last_tool_result}' }";
    let engine = engine(&store, write);
    let session = engine.ensure_session(unattended()).await.unwrap().id;
    assert_eq!(answer(&engine, &session).await, "written");
    // Many rounds of the upkeep, the first of which would close it.
    let upkeep = run_upkeep(&engine, Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(upkeep);
    assert!(answer(&engine, &session).await.contains("kept"));
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib: usize = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib * 1024
}

#[tokio::test]
async fn ten_thousand_stored_sessions_are_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let open =
        |file: &Path| -> Arc<dyn SessionStore> { Arc::new(SqliteStore::open(file).unwrap()) };
    let store = open(&dir.path().join("sessions.db"));
    let engine = engine(&store, ANSWER);
    let upkeep = run_upkeep(&engine, Duration::from_millis(200));
    let mut last = None;
    for _ in 0..100 {
        let batch = (0..100).map(|_| engine.ensure_session(unattended()));
        for created in futures_util::future::join_all(batch).await {
            last = Some(created.unwrap().id);
        }
    }
    let last = last.unwrap();
    assert_eq!(answer(&engine, &last).await, "hello");
    wait_until("closing", async || engine.open_sessions() == 0).await;
    let before = resident();
    drop(upkeep);
    // What serving them takes: open, answer and close some of them again.
    let _upkeep = run_upkeep(&engine, Duration::ZERO);
    assert_eq!(answer(&engine, &last).await, "hello");
    wait_until("closing", async || engine.open_sessions() == 0).await;
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
}

#[tokio::test]
async fn only_unattended_sessions_of_dead_processes_are_continued() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let first = engine(&store, "steps: [{ text: late, delay_ms: 3600000 }]");
    let mut prompts = Vec::new();
    for new in [unattended(), NewSession::default()] {
        let session = first.ensure_session(new).await.unwrap().id;
        let prompt = first.submit(&session, "go").await.unwrap();
        prompts.push((session, prompt));
    }
    first.shutdown().await.unwrap();
    // Both servers look for it, and one gets it.
    let servers = [engine(&store, ANSWER), engine(&store, ANSWER)];
    let _upkeep = servers.each_ref().map(|it| run_upkeep(it, TIMEOUT));
    let (session, prompt) = &prompts[0];
    wait_until("an answer", async || {
        let answer = servers[0].answer_if_ended(session, prompt).await.unwrap();
        answer.is_some_and(|answer| answer.text == "hello")
    })
    .await;
    let ends = servers[0].events(session, 0, 1000).await.unwrap();
    let ends = ends
        .iter()
        .filter(|it| matches!(it.kind, EventKind::TurnEnd { .. }));
    assert_eq!(ends.count(), 1);
    let (session, prompt) = &prompts[1];
    assert_eq!(
        servers[0].answer_if_ended(session, prompt).await.unwrap(),
        None
    );
    assert_eq!(servers[0].holder(session).await.unwrap(), None);
}

#[tokio::test]
async fn drained_session_is_handed_over_at_its_next_commit() {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let script = "steps:\n  - { text: slow, delay_ms: 500, tool_calls: [{ name: read, args: { path: a } }] }\n  \
                  - { text: never, delay_ms: 3600000 }";
    let first = engine(&store, script);
    let session = first.ensure_session(unattended()).await.unwrap().id;
    let prompt = first.submit(&session, "go").await.unwrap();
    wait_until("a model call", async || {
        let open = first.session(&session).unwrap();
        let mut threads = open.threads().into_iter();
        threads.any(|thread| thread.status == StatusKind::Thinking)
    })
    .await;
    timeout(TIMEOUT, first.drain()).await.unwrap();
    assert_eq!(first.holder(&session).await.unwrap(), None);
    // The running call was not lost, and no other one has begun.
    let history = first.history(&session).await.unwrap();
    let text = format!("{history:?}");
    assert!(text.contains("slow"), "{text}");
    let refused = first.submit(&session, "more").await;
    assert!(
        matches!(refused, Err(StoreError::NotRunHere(_))),
        "{refused:?}"
    );
    let second = engine(&store, "steps: [{ text: unused }, { text: finished }]");
    second.open_session(&session, Claim::IfFree).await.unwrap();
    let answer = timeout(TIMEOUT, second.answer(&session, &prompt)).await;
    let answer = answer.unwrap().unwrap();
    assert_eq!(
        (answer.reason, answer.text.as_str()),
        (TurnEnd::EndTurn, "finished")
    );
    first.shutdown().await.unwrap();
}
