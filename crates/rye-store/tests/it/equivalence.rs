//! Property tests: all session stores behave alike.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rye_engine::clock::Clock;
use rye_engine::store::{
    Claim, CommandKind, InboxMessage, Lease, SessionCommand, SessionFilter, SessionStore,
    StoreError,
};
use rye_protocol::{
    Batch, CommandId, EntryKind, EventKind, GateRef, GateStatus, Message, Millis, Op, PromptStatus,
    Role, Usage,
};
use rye_store::{MemoryStore, SqliteStore};
use rye_testkit::store_contract::sample;

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Millis {
        Millis(43_200_000)
    }
}

/// An action on a store.
#[derive(Debug, Clone)]
enum Action {
    Claim(&'static str, Claim),
    /// With a lease that was granted earlier; 0 is the latest.
    Commit(usize, Vec<Op>),
    Release(usize),
    PendingCommands(usize),
    Remove(usize),
    Post(&'static str, InboxMessage),
}

fn session() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just("s"), 1 => Just("t")]
}

fn entry() -> impl Strategy<Value = rye_protocol::Entry> {
    let names = || select(vec!["e0", "e1", "e2", "e3", "e4"]);
    let parent = prop_oneof![Just(None), names().prop_map(Some)];
    let thread = prop_oneof![9 => Just("main"), 1 => Just("side")];
    let text = select(vec!["one", "two"]);
    (session(), names(), parent, thread, text).prop_map(|(session, name, parent, thread, text)| {
        let mut entry = sample::entry(session, name, parent);
        entry.thread = sample::id(thread);
        entry.kind = EntryKind::Message(Message::text(Role::User, text));
        entry
    })
}

fn prompt() -> impl Strategy<Value = rye_protocol::QueuedPrompt> {
    let status = select(vec![
        PromptStatus::Waiting,
        PromptStatus::Running,
        PromptStatus::Done,
    ]);
    let name = select(vec!["q0", "q1", "q2"]);
    let thread = prop_oneof![4 => Just("main"), 1 => Just("side")];
    (session(), name, 0..3u64, status, thread, 0..4u8).prop_map(
        |(session, name, order, status, thread, changed)| {
            let mut prompt = sample::prompt(session, name, order);
            prompt.status = status;
            prompt.thread = sample::id(thread);
            if changed == 0 {
                prompt.content.push_str(", now");
            }
            prompt
        },
    )
}

fn gate() -> impl Strategy<Value = rye_protocol::Gate> {
    let status = prop_oneof![
        3 => Just(GateStatus::Pending),
        1 => Just(GateStatus::Expired { at: Millis(1) }),
        1 => Just(GateStatus::Withdrawn { reason: "abort".into(), at: Millis(2) }),
    ];
    let deadline = prop_oneof![2 => Just(None), 1 => Just(Some(Millis(5_000)))];
    let (prompt, key) = (select(vec!["q0", "q1"]), select(vec!["k0", "k1"]));
    (session(), prompt, key, status, deadline, 0..6u8).prop_map(
        |(session, prompt, key, status, deadline, moved)| {
            let mut gate = sample::gate(session, prompt, key);
            gate.status = status;
            gate.expires_at = deadline;
            if moved == 0 {
                gate.origin.tool = "another".into();
            }
            gate
        },
    )
}

fn event() -> impl Strategy<Value = Op> {
    prop_oneof![
        Just(sample::status_event()),
        entry().prop_map(|entry| sample::message_event(&entry)),
        entry().prop_map(|entry| {
            let entry = entry.id;
            Op::Event(None, Arc::new(EventKind::MessageUpdate { entry }))
        }),
    ]
}

/// Operations of a batch; entries are appended together with their event.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let usage = Usage {
        turns: 1,
        output_tokens: 7,
        ..Usage::default()
    };
    let session_op = (session(), 0..5u8).prop_map(|(name, changed)| {
        let mut session = sample::session(name);
        match changed {
            0 => session.user_id = None,
            1 => session.workspace = None,
            _ => {}
        }
        sample::put_session(session)
    });
    let thread_op =
        (session(), select(vec!["main", "side"]), 0..5u8).prop_map(|(session, name, changed)| {
            let mut thread = sample::thread(session, name);
            match changed {
                0 => thread.key = "other".into(),
                1 => thread.summary = Some("a summary".into()),
                _ => {}
            }
            sample::put_thread(thread)
        });
    let one = prop_oneof![
        2 => session_op.prop_map(|op| vec![op]),
        2 => thread_op.prop_map(|op| vec![op]),
        4 => entry().prop_map(|entry| vec![sample::append(entry.clone()), sample::message_event(&entry)]),
        2 => entry().prop_map(|entry| vec![sample::replace(entry.clone()), sample::message_event(&entry)]),
        2 => prompt().prop_map(|prompt| vec![sample::put_prompt(prompt)]),
        1 => prompt().prop_map(|prompt| vec![Op::RemovePrompt(prompt.id)]),
        2 => gate().prop_map(|gate| vec![sample::put_gate(gate)]),
        1 => gate().prop_map(|gate| vec![Op::PutGateRef(GateRef {
            gate: gate.id,
            channel: "web".into(),
            message: gate.origin.tool,
        })]),
        1 => Just(vec![Op::AddUsage(usage)]),
        1 => command_id().prop_map(|id| vec![Op::CompleteCommand(id)]),
        2 => event().prop_map(|op| vec![op]),
    ];
    vec(one, 0..4).prop_map(|ops| ops.concat())
}

fn command_id() -> impl Strategy<Value = CommandId> {
    select(vec!["c0", "c1"]).prop_map(sample::id)
}

fn post() -> impl Strategy<Value = InboxMessage> {
    let kind = select(vec![
        CommandKind::Abort,
        CommandKind::Pause,
        CommandKind::Resume,
    ]);
    let thread = select(vec![None, Some("main"), Some("side")]);
    let decision = (gate(), select(vec!["approve", "deny"]), 4_999..5_001u64);
    prop_oneof![
        prompt().prop_map(InboxMessage::prompt),
        decision.prop_map(|(gate, action, at)| {
            let mut resolution = sample::decision(action);
            resolution.at = Millis(at);
            InboxMessage::Resolve {
                gate: gate.id,
                resolution,
            }
        }),
        (kind, thread, command_id()).prop_map(|(kind, thread, id)| {
            let thread = thread.map(sample::id);
            InboxMessage::Command(SessionCommand { id, thread, kind })
        }),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let claim = prop_oneof![Just(Claim::IfFree), Just(Claim::TakeOver)];
    // Usually the latest lease.
    let lease = || prop_oneof![6 => Just(0usize), 1 => 1..3usize];
    prop_oneof![
        1 => (session(), claim).prop_map(|(session, claim)| Action::Claim(session, claim)),
        12 => (lease(), ops()).prop_map(|(lease, ops)| Action::Commit(lease, ops)),
        1 => lease().prop_map(Action::Release),
        2 => lease().prop_map(Action::PendingCommands),
        1 => lease().prop_map(Action::Remove),
        5 => (session(), post()).prop_map(|(session, post)| Action::Post(session, post)),
    ]
}

/// Performs an action and returns the result in a comparable form.
async fn perform(store: &dyn SessionStore, action: &Action, leases: &mut Vec<Lease>) -> String {
    let lease = |back: &usize| leases.iter().rev().nth(*back).cloned();
    match action {
        Action::Claim(session, claim) => match store.claim(&sample::sid(session), *claim).await {
            Ok(lease) => {
                leases.push(lease.clone());
                format!("{lease:?}")
            }
            Err(StoreError::InUse { session, .. }) => format!("{session} in use"),
            Err(error) => error.to_string(),
        },
        Action::Post(session, post) => {
            format!(
                "{:?}",
                store.post(&sample::sid(session), post.clone()).await
            )
        }
        Action::Commit(back, ops) => match lease(back) {
            Some(lease) => {
                let batch = Batch { ops: ops.clone() };
                format!("{:?}", store.commit(&lease, batch).await)
            }
            None => String::new(),
        },
        Action::Release(back) => match lease(back) {
            Some(lease) => format!("{:?}", store.release(&lease).await),
            None => String::new(),
        },
        Action::PendingCommands(back) => match lease(back) {
            Some(lease) => format!("{:?}", store.pending_commands(&lease).await),
            None => String::new(),
        },
        Action::Remove(back) => match lease(back) {
            Some(lease) => format!("{:?}", store.remove(&[lease]).await),
            None => String::new(),
        },
    }
}

/// Everything that can be read.
async fn read_everything(store: &dyn SessionStore) -> Vec<String> {
    let mut results = Vec::new();
    let filter = |user: Option<&str>| SessionFilter {
        user: user.map(str::to_owned),
        limit: 9,
        ..SessionFilter::default()
    };
    for user in [None, Some("ada")] {
        results.push(format!("{:?}", store.sessions(filter(user)).await));
    }
    results.push(format!("{:?}", store.pending_gates(None).await));
    for name in ["s", "t"] {
        let session = sample::sid(name);
        results.push(format!("{:?}", store.snapshot(&session).await));
        results.push(format!("{:?}", store.archive(&session).await));
        results.push(format!("{:?}", store.events(&session, 1, 2).await));
        results.push(format!("{:?}", store.events(&session, 0, 999).await));
        results.push(format!("{:?}", store.pending_gates(Some(&session)).await));
        for thread in ["main", "side"] {
            let entries = store
                .entries(&session, &sample::tid(thread), None, 99)
                .await;
            results.push(format!("{entries:?}"));
        }
        for leaf in ["e0", "e1", "e2", "e3", "e4"] {
            let leaf = sample::eid(leaf);
            results.push(format!("{:?}", store.path(&session, &leaf).await));
        }
        for (prompt, key) in [("q0", "k0"), ("q0", "k1"), ("q1", "k0"), ("q1", "k1")] {
            let gate = sample::gate(name, prompt, key).id;
            results.push(format!("{:?}", store.gate(&gate).await));
            results.push(format!("{:?}", store.gate_refs(&gate).await));
        }
    }
    results
}

/// Performs the actions on the memory store and on another one, and returns what can be read.
async fn compare(actions: &[Action], other: &dyn SessionStore) -> Vec<String> {
    let memory = MemoryStore::with_clock(Arc::new(FixedClock));
    let (mut memory_leases, mut other_leases) = (Vec::new(), Vec::new());
    // Most actions need a session.
    sample::create_session(&memory, "s").await;
    sample::create_session(other, "s").await;
    let claim = Action::Claim("s", Claim::TakeOver);
    for action in std::iter::once(&claim).chain(actions) {
        let expected = perform(&memory, action, &mut memory_leases).await;
        assert_eq!(
            perform(other, action, &mut other_leases).await,
            expected,
            "{action:?}"
        );
    }
    let expected = read_everything(&memory).await;
    assert_eq!(read_everything(other).await, expected);
    expected
}

async fn compare_sqlite(actions: &[Action]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    let sqlite = SqliteStore::open_with_clock(&file, Arc::new(FixedClock)).unwrap();
    let expected = compare(actions, &sqlite).await;
    drop(sqlite);
    let again = SqliteStore::open(&file).unwrap();
    assert_eq!(read_everything(&again).await, expected, "after reopening");
}

#[cfg(feature = "cluster")]
async fn compare_postgres(actions: &[Action]) {
    let url = rye_testkit::postgres::server().create_database();
    let url = url.parse().unwrap();
    let postgres = rye_store::PostgresStore::open_with_clock(url, Arc::new(FixedClock)).unwrap();
    compare(actions, &postgres).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sqlite_and_memory_behave_alike(actions in vec(action(), 1..24)) {
        rye_testkit::store_contract::run(compare_sqlite(&actions));
    }
}

#[cfg(feature = "cluster")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn postgres_and_memory_behave_alike(actions in vec(action(), 1..24)) {
        rye_testkit::store_contract::run(compare_postgres(&actions));
    }
}
