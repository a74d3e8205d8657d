//! Hosts of the PostgreSQL store: liveness, fencing, lost connections and lost answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_engine::store::{Claim, SessionStore as _, StoreError};
use rye_protocol::Millis;
use rye_store::{PostgresStore, PostgresUrl};
use rye_testkit::postgres::{self, PostgresServer};
use rye_testkit::store_contract::sample::{
    append, chain, create_session, prompt, put_prompt, sid, status_event, write,
};
use rye_testkit::tcp_proxy::TcpProxy;
use tokio::time::{sleep, timeout};

/// Time limit for what should happen within seconds, on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// A new database on the shared server.
struct Database {
    server: &'static PostgresServer,
    name: String,
}

impl Database {
    fn new() -> Self {
        let server = postgres::server();
        let url = server.create_database();
        let name = url.rsplit('/').next().unwrap().to_owned();
        Self { server, name }
    }

    fn open(&self) -> PostgresStore {
        PostgresStore::open(self.server.url(&self.name).parse().unwrap()).unwrap()
    }

    /// A host behind a proxy.
    fn open_through_proxy(&self) -> (PostgresStore, TcpProxy) {
        let proxy = TcpProxy::start(SocketAddr::from(([127, 0, 0, 1], self.server.port())));
        let url = format!("postgres://rye@{}/{}", proxy.address(), self.name);
        let url: PostgresUrl = url.parse().unwrap();
        let url = url.with_timeout(Duration::from_secs(2));
        (PostgresStore::open(url).unwrap(), proxy)
    }

    fn sql(&self, sql: &str) -> String {
        self.server.sql(&self.name, sql)
    }
}

/// Claims a session as soon as its holder is dead, and returns how long that took.
async fn claim_from_dead(store: &PostgresStore, session: &str) -> Duration {
    let start = Instant::now();
    let claimed = async {
        while let Err(error) = store.claim(&sid(session), Claim::IfFree).await {
            assert!(matches!(error, StoreError::InUse { .. }), "{error}");
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, claimed).await.unwrap();
    start.elapsed()
}

#[tokio::test]
async fn sessions_of_a_host_that_was_cut_off_can_be_claimed_after_three_seconds() {
    let database = Database::new();
    let (first, proxy) = database.open_through_proxy();
    let second = database.open();
    let lease = create_session(&first, "s").await;
    let mut running = prompt("s", "q1", 1);
    running.status = rye_protocol::PromptStatus::Running;
    write(&first, &lease, vec![put_prompt(running)])
        .await
        .unwrap();
    assert_eq!(second.due(Millis(0)).await, Ok(vec![]));
    proxy.cut();
    let taken = claim_from_dead(&second, "s").await;
    assert!(taken >= Duration::from_secs(2), "{taken:?}");
    // The cut-off host does not judge, and its lease is lost when it comes back.
    proxy.pass();
    let fenced = async {
        loop {
            match write(&first, &lease, vec![status_event()]).await {
                Err(StoreError::Unavailable(_)) => sleep(Duration::from_millis(50)).await,
                other => break other,
            }
        }
    };
    let fenced = timeout(LIMIT, fenced).await.unwrap();
    assert_eq!(fenced, Err(StoreError::Fenced(sid("s"))));
    assert_eq!(second.events(&sid("s"), 0, 9).await, Ok(vec![]));
}

#[tokio::test]
async fn host_that_lost_the_database_judges_nobody() {
    let database = Database::new();
    let (first, proxy) = database.open_through_proxy();
    let (second, other_proxy) = database.open_through_proxy();
    create_session(&second, "s").await;
    // Both are cut off, like in a failover; the first one comes back earlier.
    proxy.cut();
    other_proxy.cut();
    sleep(Duration::from_secs(4)).await;
    proxy.pass();
    let refused = async {
        loop {
            match first.claim(&sid("s"), Claim::IfFree).await {
                Err(StoreError::Unavailable(_)) => sleep(Duration::from_millis(50)).await,
                other => break other,
            }
        }
    };
    let refused = timeout(LIMIT, refused).await.unwrap();
    assert!(
        matches!(refused, Err(StoreError::InUse { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn commit_whose_answer_was_lost_is_applied_once() {
    let database = Database::new();
    let (store, proxy) = database.open_through_proxy();
    let lease = create_session(&store, "s").await;
    for (number, entry) in (1..).zip(chain("s", 10)) {
        proxy.swallow_next_answer();
        let ops = vec![append(entry), status_event()];
        assert_eq!(write(&store, &lease, ops).await, Ok(number));
    }
    let events = store.events(&sid("s"), 0, 99).await.unwrap();
    assert_eq!(events.len(), 10);
}

#[tokio::test]
async fn commit_that_is_repeated_after_an_outage_is_applied_once() {
    let database = Database::new();
    let (store, proxy) = database.open_through_proxy();
    let lease = create_session(&store, "s").await;
    // The answer is lost, and so is the connection for the second attempt.
    proxy.swallow_next_answer();
    let ops = vec![status_event()];
    let cut = async {
        let number = |text: String| text.parse::<u32>().unwrap();
        while number(database.sql("SELECT count(*) FROM rye.events")) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        proxy.cut();
    };
    let (first, ()) = tokio::join!(write(&store, &lease, ops.clone()), cut);
    proxy.pass();
    let mut outcome = first;
    let repeated = async {
        while matches!(outcome, Err(StoreError::Unavailable(_))) {
            sleep(Duration::from_millis(20)).await;
            outcome = write(&store, &lease, ops.clone()).await;
        }
    };
    timeout(LIMIT, repeated).await.unwrap();
    assert_eq!(outcome, Ok(1));
    assert_eq!(write(&store, &lease, ops).await, Ok(2));
}

#[tokio::test]
async fn another_commit_after_an_unknown_one_knows_whether_that_was_applied() {
    let database = Database::new();
    let (store, proxy) = database.open_through_proxy();
    let lease = create_session(&store, "s").await;
    let entries = chain("s", 2);
    // A stalled connection: the statement does not arrive, and the store does not know.
    proxy.stall();
    let first = vec![append(entries[0].clone()), status_event()];
    let unknown = timeout(LIMIT, write(&store, &lease, first.clone()))
        .await
        .unwrap();
    assert!(
        matches!(unknown, Err(StoreError::Unavailable(_))),
        "{unknown:?}"
    );
    proxy.cut();
    sleep(Duration::from_millis(50)).await;
    proxy.pass();
    let other = vec![status_event()];
    let mut outcome = Err(StoreError::Unavailable(String::new()));
    let repeated = async {
        while matches!(outcome, Err(StoreError::Unavailable(_))) {
            sleep(Duration::from_millis(20)).await;
            outcome = write(&store, &lease, other.clone()).await;
        }
    };
    timeout(LIMIT, repeated).await.unwrap();
    let applied = outcome.unwrap();
    // Repeating the first one returns the answer that was lost, or applies it now.
    let again = write(&store, &lease, first).await.unwrap();
    assert_eq!(applied + again, 3);
    let events = store.events(&sid("s"), 0, 9).await.unwrap();
    assert_eq!(events.len(), 2);
}

#[tokio::test]
async fn posts_are_announced_after_the_connection_was_lost() {
    let database = Database::new();
    let (store, proxy) = database.open_through_proxy();
    let other = database.open();
    create_session(&store, "s").await;
    let mut posts = store.subscribe_posts();
    proxy.cut();
    let message = rye_engine::store::InboxMessage::prompt(prompt("s", "q1", 1));
    other.post(&sid("s"), message).await.unwrap();
    proxy.pass();
    let announced = timeout(LIMIT, posts.recv()).await.unwrap();
    assert_eq!(announced, Ok(sid("s")));
}

#[tokio::test]
async fn hosts_that_start_at_once_create_the_tables_once() {
    let database = Arc::new(Database::new());
    let opened: Vec<_> = (0..4)
        .map(|_| {
            let database = Arc::clone(&database);
            tokio::task::spawn_blocking(move || database.open())
        })
        .collect();
    for store in opened {
        let store = store.await.unwrap();
        assert_eq!(store.snapshot(&sid("s")).await, Ok(None));
    }
}

#[tokio::test]
async fn closed_store_releases_its_sessions_and_leaves_no_host() {
    let database = Database::new();
    let (store, other) = (database.open(), database.open());
    create_session(&store, "s").await;
    drop(store);
    assert_eq!(other.holders(None).await, Ok(vec![]));
    other.claim(&sid("s"), Claim::IfFree).await.unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM rye.hosts"), "1");
}

#[test]
fn unusable_databases_are_explained() {
    let server = postgres::server();
    for (url, reason) in [
        (server.url("missing"), "database \"missing\" does not exist"),
        ("postgres://rye@127.0.0.1:1/rye".to_owned(), "refused"),
        (
            format!(
                "postgres://rye@127.0.0.1:{}/postgres?sslmode=require",
                server.port()
            ),
            "does not support TLS",
        ),
    ] {
        let opened = PostgresStore::open(url.parse().unwrap());
        let Err(StoreError::Unavailable(message)) = opened else {
            panic!("{url}: {opened:?}");
        };
        assert!(message.contains(reason), "{message}");
        assert!(message.contains("postgres://127.0.0.1/"), "{message}");
    }
}

#[test]
fn newer_tables_are_refused() {
    let database = Database::new();
    drop(database.open());
    database.sql("UPDATE rye.version SET version = version + 1");
    drop(database.open());
    database.sql("UPDATE rye.version SET version = version + 1");
    let opened = PostgresStore::open(database.server.url(&database.name).parse().unwrap());
    assert!(matches!(opened, Err(StoreError::Damaged(_))), "{opened:?}");
}
