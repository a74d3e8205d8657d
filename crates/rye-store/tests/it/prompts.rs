//! Whatever becomes of prompts, whoever writes them and in whichever order of ids: a file holds
//! them as the memory store does, also when it is closed and opened in between.

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
use rye_store_contract::sample::{
    append, begin, entry, id, prompt, put_prompt, put_thread, sid, thread, told, write,
};
use tempfile::TempDir;

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Millis {
        Millis(43_200_000)
    }
}

const THREADS: [&str; 3] = ["main", "side", "third"];

/// Something that is done in a session, of which there are two.
#[derive(Debug, Clone)]
enum Act {
    /// By its holder, in one batch.
    Commit(&'static str, Vec<Change>),
    /// From outside, and perhaps through another store on the same file.
    InboxMessage(&'static str, Box<QueuedPrompt>, bool),
    /// The file is closed, and opened again.
    Reopen,
}

#[derive(Debug, Clone)]
enum Change {
    Put(Box<QueuedPrompt>),
    Remove(String),
    Thread(&'static str),
    /// Entries, which lie between prompts, and of which the last is told.
    Steps(usize),
    Tell,
}

fn session() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("s"), 1 => Just("t")]
}

/// Most often later than those before.
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
        // One of an id is most often of the same thread each time.
        let own = THREADS[usize::from(name.as_bytes()[1]) % 3];
        let mut prompt = prompt("s", &name, order);
        prompt.thread = id(if order == 0 { thread } else { own });
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
        1 => Just(Change::Tell),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (session(), vec(change(), 1..5)).prop_map(|(of, all)| Act::Commit(of, all)),
        3 => (session(), any_prompt(), any::<bool>()).prop_map(|(of, it, far)| Act::InboxMessage(of, it, far)),
        1 => Just(Act::Reopen),
    ]
}

/// Turns one after the other, as most sessions have them, and then anything.
fn acts() -> impl Strategy<Value = Vec<Act>> {
    let turns = (0..12usize).prop_map(|turns| {
        let turn = |n: usize| {
            let mut runs = prompt("s", &format!("q{n:02}"), 1);
            runs.status = PromptStatus::Running;
            let mut over = runs.clone();
            over.status = PromptStatus::Done;
            [runs, over].map(|put| {
                let main = Change::Thread("main");
                Act::Commit(
                    "s",
                    vec![Change::Steps(2), Change::Put(Box::new(put)), main],
                )
            })
        };
        (0..turns).flat_map(turn).collect::<Vec<_>>()
    });
    (turns, vec(act(), 0..30)).prop_map(|(turns, rest)| [turns, rest].concat())
}

/// The batch of changes; entries are numbered through.
fn batch(session: &str, changes: &[Change], entries: &mut usize) -> Vec<Op> {
    let mut ops = Vec::new();
    for change in changes {
        match change {
            Change::Put(prompt) => ops.push(put_prompt(at_home(prompt, session))),
            Change::Remove(name) => ops.push(Op::RemovePrompt(id(name))),
            Change::Thread(name) => ops.push(put_thread(thread(session, name))),
            Change::Steps(count) => {
                for _ in 0..*count {
                    *entries += 1;
                    ops.push(append(entry(session, &format!("e{entries:05}"), None)));
                }
                ops.push(told());
            }
            Change::Tell => ops.push(told()),
        }
    }
    ops
}

fn at_home(prompt: &QueuedPrompt, session: &str) -> QueuedPrompt {
    let mut prompt = prompt.clone();
    prompt.session = sid(session);
    prompt
}

/// Two stores on one file, and the leases of the first.
struct File {
    folder: TempDir,
    stores: Option<[SqliteStore; 2]>,
    leases: Vec<Lease>,
}

fn open(file: &Path) -> [SqliteStore; 2] {
    [(), ()].map(|()| SqliteStore::open_with_clock(file, Arc::new(Noon)).unwrap())
}

impl File {
    async fn reopen(&mut self) {
        self.stores = None;
        let stores = open(&self.folder.path().join("s.db"));
        self.leases.clear();
        for session in ["s", "t"] {
            let lease = stores[0].claim(&sid(session), Claim::TakeOver).await;
            self.leases.push(lease.unwrap());
        }
        self.stores = Some(stores);
    }

    fn store(&self, far: bool) -> &SqliteStore {
        &self.stores.as_ref().unwrap()[usize::from(far)]
    }
}

/// Makes both sessions with their threads.
async fn prepare(store: &dyn SessionStore) -> Vec<Lease> {
    let mut leases = Vec::new();
    for session in ["s", "t"] {
        let lease = begin(store, session).await;
        let more = THREADS[1..]
            .iter()
            .map(|name| put_thread(thread(session, name)));
        write(store, &lease, more.collect()).await.unwrap();
        leases.push(lease);
    }
    leases
}

async fn records(store: &dyn SessionStore) -> String {
    let mut all = String::new();
    for session in ["s", "t"] {
        writeln!(all, "{:#?}", store.snapshot(&sid(session)).await).unwrap();
    }
    all
}

async fn compare(acts: &[Act]) {
    let memory = MemoryStore::with_clock(Arc::new(Noon));
    let folder = tempfile::tempdir().unwrap();
    let leases = prepare(&memory).await;
    let mut file = File {
        stores: Some(open(&folder.path().join("s.db"))),
        folder,
        leases: Vec::new(),
    };
    file.leases = prepare(file.store(false)).await;
    let mut entries = 0;
    for act in acts {
        match act {
            Act::Commit(session, changes) => {
                let at = usize::from(*session == "t");
                let ops = batch(session, changes, &mut entries);
                let expected = write(&memory, &leases[at], ops.clone()).await;
                let gave = write(file.store(false), &file.leases[at], ops).await;
                assert_eq!(gave, expected, "{act:?}");
            }
            Act::InboxMessage(session, prompt, far) => {
                let post = || InboxMessage::Prompt(Box::new(at_home(prompt, session)));
                let expected = memory.post(&sid(session), post()).await;
                let gave = file.store(*far).post(&sid(session), post()).await;
                assert_eq!(gave, expected, "{act:?}");
            }
            Act::Reopen => file.reopen().await,
        }
        let expected = records(&memory).await;
        assert_eq!(records(file.store(true)).await, expected, "{act:?}");
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
    fn prompts_are_held_as_the_memory_store_holds_them(acts in acts()) {
        rye_store_contract::run(compare(&acts));
    }
}
