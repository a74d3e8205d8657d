//! Quotas of users and organisations, with two processes on one store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rye_engine::clock::{Clock, SystemClock};
use rye_engine::documents::DocumentStore;
use rye_engine::protocol::{ErrorCode, Millis, SessionId, TurnEnd, Usage};
use rye_engine::quotas::{
    EVERYONE, Period, Quota, QuotaError, QuotaLimit, Quotas, Subject, SubjectKind,
};
use rye_engine::store::SessionStore;
use rye_engine::{Answer, Engine, NewSession};
use rye_model::{Catalogue, Script};
use rye_sandbox::VirtualSandbox;
use rye_store::{MemoryDocuments, MemoryStore};
use tokio::time::timeout;

/// A generous time limit, so that a mistake fails the test instead of blocking it.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A clock that a test sets.
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::Relaxed))
    }
}

struct Database {
    store: Arc<dyn SessionStore>,
    documents: Arc<dyn DocumentStore>,
    quotas: Quotas,
}

impl Database {
    fn new() -> Self {
        let documents: Arc<dyn DocumentStore> = Arc::new(MemoryDocuments::new());
        Self {
            store: Arc::new(MemoryStore::new()),
            quotas: Quotas::new(Arc::clone(&documents), Arc::new(SystemClock::default())),
            documents,
        }
    }

    /// An engine, like a server process on the database.
    fn server(&self, script: &str) -> Engine {
        let script: Script = script.parse().unwrap();
        Engine::builder()
            .shared_store(Arc::clone(&self.store))
            .quotas(Arc::clone(&self.documents))
            .models(Catalogue::new(".").with("scripted:test", script))
            .sandbox(Arc::new(VirtualSandbox::new()))
            .tools(rye_tools::tools())
            .build()
            .unwrap()
    }

    async fn set(&self, kind: SubjectKind, name: &str, quota: Quota) {
        self.quotas
            .set(&Subject::new(kind, name), &quota)
            .await
            .unwrap();
    }

    async fn running(&self) -> usize {
        let states = self.quotas.list().await.unwrap();
        states.iter().map(|state| state.running_turns).sum()
    }
}

fn turns(turns: u32) -> Quota {
    Quota {
        turns: Some(turns),
        ..Quota::default()
    }
}

async fn session(engine: &Engine, user: &str, org: Option<&str>) -> SessionId {
    let new = NewSession {
        user_id: Some(user.to_owned()),
        org_id: org.map(str::to_owned),
        ..NewSession::default()
    };
    engine.ensure_session(new).await.unwrap().id
}

async fn prompt(engine: &Engine, session: &SessionId) -> Answer {
    let prompt = engine.submit(session, "go").await.unwrap();
    let answer = timeout(TIMEOUT, engine.answer(session, &prompt)).await;
    answer.unwrap().unwrap()
}

const COSTLY: &str = "steps: []\nafter_last: { text: hi, usage: { input: 90, output: 20 } }";

#[tokio::test]
async fn turn_is_refused_once_the_budget_is_used_up() {
    let database = Database::new();
    let budget = Quota {
        tokens: Some(200),
        ..Quota::default()
    };
    database
        .set(SubjectKind::User, EVERYONE, budget.clone())
        .await;
    let servers = [database.server(COSTLY), database.server(COSTLY)];
    for server in &servers {
        let answer = prompt(server, &session(server, "alice", None).await).await;
        assert_eq!(answer.reason, TurnEnd::EndTurn);
    }
    // 220 of 200 tokens, at two servers.
    let refused = session(&servers[0], "alice", None).await;
    let answer = prompt(&servers[0], &refused).await;
    let error = answer.error.unwrap();
    assert_eq!(error.code, ErrorCode::Quota);
    assert!(
        error.message.contains("220 of 200 tokens"),
        "{}",
        error.message
    );
    // Everyone has a budget of their own.
    let answer = prompt(&servers[1], &session(&servers[1], "bob", None).await).await;
    assert_eq!(answer.reason, TurnEnd::EndTurn);
    // A quota of one's own replaces that of everyone.
    let more = Quota {
        tokens: Some(1000),
        ..budget
    };
    database.set(SubjectKind::User, "alice", more).await;
    assert_eq!(prompt(&servers[1], &refused).await.reason, TurnEnd::EndTurn);
}

#[tokio::test]
async fn spend_of_an_organisation_counts_for_all_its_users() {
    let database = Database::new();
    let budget = Quota {
        micro_dollars: Some(1),
        period: Period::Month,
        ..Quota::default()
    };
    database.set(SubjectKind::Org, "acme", budget).await;
    let script = "price: { input: 1000, output: 1000 }\nsteps: []\n\
                  after_last: { text: hi, usage: { input: 90, output: 20 } }";
    let server = database.server(script);
    let answer = prompt(&server, &session(&server, "alice", Some("acme")).await).await;
    assert_eq!(answer.reason, TurnEnd::EndTurn);
    let answer = prompt(&server, &session(&server, "bob", Some("acme")).await).await;
    assert_eq!(answer.error.unwrap().code, ErrorCode::Quota);
    let answer = prompt(&server, &session(&server, "bob", None).await).await;
    assert_eq!(answer.reason, TurnEnd::EndTurn);
}

#[tokio::test]
async fn turns_of_several_servers_share_the_slots() {
    let database = Database::new();
    database.set(SubjectKind::User, "alice", turns(1)).await;
    let slow = "steps: [{ text: slow, delay_ms: 700 }]\nafter_last: { text: slow, delay_ms: 700 }";
    let servers = [database.server(slow), database.server(slow)];
    let mut sessions = Vec::new();
    for server in &servers {
        sessions.push(session(server, "alice", None).await);
    }
    let watch = async {
        let mut most = 0;
        loop {
            most = database.running().await.max(most);
            assert!(most <= 1, "{most} turns run");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let both = futures_util::future::join(
        prompt(&servers[0], &sessions[0]),
        prompt(&servers[1], &sessions[1]),
    );
    tokio::select! {
        (first, second) = both => {
            assert_eq!((first.text.as_str(), second.text.as_str()), ("slow", "slow"));
        }
        () = watch => {}
    }
    for server in &servers {
        server.shutdown().await.unwrap();
    }
    assert_eq!(database.running().await, 0);
}

#[tokio::test]
async fn turn_that_waits_for_a_decision_has_no_slot() {
    let database = Database::new();
    database.set(SubjectKind::User, "alice", turns(1)).await;
    let ask = "steps: [{ tool_calls: [{ name: ask, args: { question: 'why?' } }] }]";
    let server = database.server(ask);
    let waiting = session(&server, "alice", None).await;
    server.submit(&waiting, "go").await.unwrap();
    let start = std::time::Instant::now();
    while server
        .pending_gates(Some(&waiting))
        .await
        .unwrap()
        .is_empty()
        || database.running().await > 0
    {
        assert!(start.elapsed() < TIMEOUT, "the slot is not released");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn slot_of_a_dead_process_becomes_free_after_its_lease() {
    let documents: Arc<dyn DocumentStore> = Arc::new(MemoryDocuments::new());
    let clock = Arc::new(TestClock(AtomicU64::new(1_800_000_000_000)));
    let quotas = || Quotas::new(Arc::clone(&documents), Arc::clone(&clock) as Arc<dyn Clock>);
    let (dead, alive) = (quotas(), quotas());
    let user = Subject::new(SubjectKind::User, "alice");
    dead.set(&user, &turns(1)).await.unwrap();
    let database = Database::new();
    let server = database.server(COSTLY);
    let ids = [
        session(&server, "alice", None).await,
        session(&server, "alice", None).await,
    ];
    let first = server.session_data(&ids[0]).await.unwrap().unwrap();
    let second = server.session_data(&ids[1]).await.unwrap().unwrap();
    let slot = dead.start_turn(&first).await.unwrap();
    // A killed process releases nothing.
    std::mem::forget(slot);
    let refused = alive.start_turn(&second).await.unwrap_err();
    let QuotaError::Exceeded(exceeded) = refused else {
        panic!("{refused}");
    };
    assert_eq!(
        (exceeded.limit, exceeded.used, exceeded.allowed),
        (QuotaLimit::Turns, 1, 1)
    );
    assert!(alive.check_turns(&second).await.is_err());
    // The turn itself continues elsewhere at once, in its own slot.
    let own = alive.start_turn(&first).await.unwrap();
    std::mem::forget(own);
    clock.0.fetch_add(60_000, Ordering::Relaxed);
    assert!(alive.start_turn(&second).await.unwrap().is_some());
}

#[tokio::test]
async fn counters_of_concurrent_processes_lose_nothing() {
    let documents: Arc<dyn DocumentStore> = Arc::new(MemoryDocuments::new());
    let clock = Arc::new(TestClock(AtomicU64::new(1_800_000_000_000)));
    let quotas = Quotas::new(Arc::clone(&documents), Arc::clone(&clock) as Arc<dyn Clock>);
    let user = Subject::new(SubjectKind::User, "alice");
    let budget = Quota {
        tokens: Some(1),
        ..Quota::default()
    };
    quotas.set(&user, &budget).await.unwrap();
    let database = Database::new();
    let server = database.server(COSTLY);
    let id = session(&server, "alice", None).await;
    let data = server.session_data(&id).await.unwrap().unwrap();
    let usage = Usage {
        turns: 1,
        input_tokens: 3,
        ..Usage::default()
    };
    let calls = (0..20).map(|_| quotas.record(&data, usage));
    for recorded in futures_util::future::join_all(calls).await {
        recorded.unwrap();
    }
    let state = quotas.list().await.unwrap().remove(0);
    assert_eq!((state.used.turns, state.used.tokens()), (20, 60));
    assert!(quotas.check_budget(&data).await.is_err());
    // The next day begins with nothing, and the counter of the last one is deleted.
    clock.0.fetch_add(24 * 3_600_000, Ordering::Relaxed);
    assert!(quotas.check_budget(&data).await.is_ok());
    quotas.record(&data, usage).await.unwrap();
    let state = quotas.list().await.unwrap().remove(0);
    assert_eq!(state.used.turns, 1);
}
