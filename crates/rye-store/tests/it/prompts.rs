//! Property test: the SQLite store and the memory store treat prompts alike, for any order of
//! ids, commits, posts and reopened files.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rye_engine::clock::Clock;
use rye_engine::store::{Claim, InboxMessage, Lease, SessionStore};
use rye_protocol::{Millis, Op, PromptStatus, QueuedPrompt};
use rye_store::{MemoryStore, SqliteStore};
use rye_testkit::store_contract::sample::{
    append, create_session, entry, id, prompt, put_prompt, put_thread, sid, status_event, thread,
    write,
};
use tempfile::TempDir;

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Millis {
        Millis(43_200_000)
    }
}

const THREADS: [&str; 3] = ["main", "side", "third"];

/// An action on one of two sessions.
#[derive(Debug, Clone)]
enum Action {
    /// A batch of the holder.
    Commit(&'static str, Vec<Change>),
    /// A post, through the second store of the file if true.
    Post(&'static str, Box<QueuedPrompt>, bool),
    /// Closes and reopens the file.
    Reopen,
}

#[derive(Debug, Clone)]
enum Change {
    Put(Box<QueuedPrompt>),
    Remove(String),
    Thread(&'static str),
    /// Appends entries and an event.
    Steps(usize),
    Event,
}

fn session() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("s"), 1 => Just("t")]
}

/// Mostly ascending ids.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (0..40u32).prop_map(|n| format!("q{n:02}")),
        1 => (0..40u32).prop_map(|n| format!("p{n}")),
    ]
}

fn any_prompt() -> impl Strategy<Value = Box<QueuedPrompt>> {
    let status = select(vec![
        PromptStatus::Waiting,
        PromptStatus::Running,
        PromptStatus::Done,
        PromptStatus::Aborted,
    ]);
    (name(), status, select(THREADS.to_vec()), 0..3u64).prop_map(|(name, status, thread, order)| {
        // The same id usually has the same thread.
        let usual = THREADS[usize::from(name.as_bytes()[1]) % 3];
        let mut prompt = prompt("s", &name, order);
        prompt.thread = id(if order == 0 { thread } else { usual });
        prompt.status = status;
        Box::new(prompt)
    })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => any_prompt().prop_map(Change::Put),
        1 => name().prop_map(Change::Remove),
        2 => select(THREADS.to_vec()).prop_map(Change::Thread),
        2 => (0..5usize).prop_map(Change::Steps),
        1 => Just(Change::Event),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => (session(), vec(change(), 1..5)).prop_map(|(session, all)| Action::Commit(session, all)),
        3 => (session(), any_prompt(), any::<bool>()).prop_map(|(session, prompt, second)| Action::Post(session, prompt, second)),
        1 => Just(Action::Reopen),
    ]
}

/// Ordinary consecutive turns, followed by any actions.
fn actions() -> impl Strategy<Value = Vec<Action>> {
    let turns = (0..12usize).prop_map(|turns| {
        let turn = |n: usize| {
            let mut running = prompt("s", &format!("q{n:02}"), 1);
            running.status = PromptStatus::Running;
            let mut done = running.clone();
            done.status = PromptStatus::Done;
            [running, done].map(|prompt| {
                let main = Change::Thread("main");
                Action::Commit(
                    "s",
                    vec![Change::Steps(2), Change::Put(Box::new(prompt)), main],
                )
            })
        };
        (0..turns).flat_map(turn).collect::<Vec<_>>()
    });
    (turns, vec(action(), 0..30)).prop_map(|(turns, rest)| [turns, rest].concat())
}

/// The operations of some changes. `entries` counts the entries so far.
fn batch(session: &str, changes: &[Change], entries: &mut usize) -> Vec<Op> {
    let mut ops = Vec::new();
    for change in changes {
        match change {
            Change::Put(prompt) => ops.push(put_prompt(in_session(prompt, session))),
            Change::Remove(name) => ops.push(Op::RemovePrompt(id(name))),
            Change::Thread(name) => ops.push(put_thread(thread(session, name))),
            Change::Steps(count) => {
                for _ in 0..*count {
                    *entries += 1;
                    ops.push(append(entry(session, &format!("e{entries:05}"), None)));
                }
                ops.push(status_event());
            }
            Change::Event => ops.push(status_event()),
        }
    }
    ops
}

fn in_session(prompt: &QueuedPrompt, session: &str) -> QueuedPrompt {
    let mut prompt = prompt.clone();
    prompt.session = sid(session);
    prompt
}

/// Two stores of one file, and the leases of the first.
struct Database {
    dir: TempDir,
    stores: Option<[SqliteStore; 2]>,
    leases: Vec<Lease>,
}

fn open(file: &Path) -> [SqliteStore; 2] {
    [(), ()].map(|()| SqliteStore::open_with_clock(file, Arc::new(FixedClock)).unwrap())
}

impl Database {
    async fn reopen(&mut self) {
        self.stores = None;
        let stores = open(&self.dir.path().join("s.db"));
        self.leases.clear();
        for session in ["s", "t"] {
            let lease = stores[0].claim(&sid(session), Claim::TakeOver).await;
            self.leases.push(lease.unwrap());
        }
        self.stores = Some(stores);
    }

    fn store(&self, second: bool) -> &SqliteStore {
        &self.stores.as_ref().unwrap()[usize::from(second)]
    }
}

/// Creates both sessions with their threads.
async fn prepare(store: &dyn SessionStore) -> Vec<Lease> {
    let mut leases = Vec::new();
    for session in ["s", "t"] {
        let lease = create_session(store, session).await;
        let more = THREADS[1..]
            .iter()
            .map(|name| put_thread(thread(session, name)));
        write(store, &lease, more.collect()).await.unwrap();
        leases.push(lease);
    }
    leases
}

async fn snapshots(store: &dyn SessionStore) -> String {
    let mut all = String::new();
    for session in ["s", "t"] {
        writeln!(all, "{:#?}", store.snapshot(&sid(session)).await).unwrap();
    }
    all
}

async fn compare(actions: &[Action]) {
    let memory = MemoryStore::with_clock(Arc::new(FixedClock));
    let dir = tempfile::tempdir().unwrap();
    let leases = prepare(&memory).await;
    let mut file = Database {
        stores: Some(open(&dir.path().join("s.db"))),
        dir,
        leases: Vec::new(),
    };
    file.leases = prepare(file.store(false)).await;
    let mut entries = 0;
    for action in actions {
        match action {
            Action::Commit(session, changes) => {
                let at = usize::from(*session == "t");
                let ops = batch(session, changes, &mut entries);
                let expected = write(&memory, &leases[at], ops.clone()).await;
                let result = write(file.store(false), &file.leases[at], ops).await;
                assert_eq!(result, expected, "{action:?}");
            }
            Action::Post(session, prompt, second) => {
                let post = || InboxMessage::prompt(in_session(prompt, session));
                let expected = memory.post(&sid(session), post()).await;
                let result = file.store(*second).post(&sid(session), post()).await;
                assert_eq!(result, expected, "{action:?}");
            }
            Action::Reopen => file.reopen().await,
        }
        let expected = snapshots(&memory).await;
        assert_eq!(snapshots(file.store(true)).await, expected, "{action:?}");
    }
    for session in ["s", "t"] {
        let expected = memory.archive(&sid(session)).await;
        let found = file.store(true).archive(&sid(session)).await;
        assert_eq!(found, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn stores_treat_prompts_alike(actions in actions()) {
        rye_testkit::store_contract::run(compare(&actions));
    }
}
