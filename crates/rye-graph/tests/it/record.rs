//! Records of runs in the session store: interrupted runs are resumed, modified records are
//! refused.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lillux::keys::SigningKey;
use rye_engine::audit;
use rye_engine::store::{Claim, Lease, SessionStore, StoreError, StoreFuture};
use rye_executor::RunContext;
use rye_executor::primitive::CallFailure;
use rye_graph::{
    DispatchFuture, Dispatcher, EffectClass, Graph, NodeError, RecordOptions, RunRecord, RunResult,
    RunStatus, ToolCall, ToolTraits, run_recorded,
};
use rye_items::ItemId;
use rye_protocol::{
    Archive, Batch, EntryId, EntryKind, Op, Purpose, RunEvent, SessionId, SessionStatus,
};
use rye_store::MemoryStore;
use rye_testkit::wrapped_store::{StoreWrapper, WrappedStore};
use serde_json::{Value, json};

/// A tool that records its calls.
struct Echo(EffectClass, Mutex<Vec<Value>>);

impl Echo {
    fn new(effect: EffectClass) -> Self {
        Self(effect, Mutex::default())
    }
}

impl Dispatcher for Echo {
    fn traits(&self, _: &ItemId) -> Result<ToolTraits, NodeError> {
        Ok(ToolTraits {
            effect: self.0,
            is_graph: false,
            hash: None,
        })
    }

    fn call(&self, call: ToolCall) -> DispatchFuture<'_> {
        self.1.lock().unwrap().push(call.params.clone());
        Box::pin(async move { Ok(call.params["n"].clone()) })
    }
}

/// Fails all commits after a number of them.
struct Failing {
    commits_left: AtomicUsize,
}

impl StoreWrapper for Failing {
    fn commit<'a>(
        &'a self,
        store: &'a dyn SessionStore,
        lease: &'a Lease,
        batch: Batch,
    ) -> StoreFuture<'a, u64> {
        let left = self.commits_left.load(Ordering::SeqCst);
        if left == 0 {
            let error = StoreError::Unavailable("the disk is full".to_owned());
            return Box::pin(std::future::ready(Err(error)));
        }
        self.commits_left.store(left - 1, Ordering::SeqCst);
        store.commit(lease, batch)
    }
}

fn graph() -> Graph {
    let text = r#"
permissions: ["rye.execute.tool.echo"]
config:
  start: one
  nodes:
    one: { action: { item_id: echo, params: { n: 1 } }, assign: { one: "${result}" }, next: each }
    each: { type: foreach, over: [1, 2, 3], as: n, collect: all, next: end,
            action: { item_id: echo, params: { n: "${n}" } } }
    end: { type: return, output: { one: "${state.one}", all: "${state.all}" } }
"#;
    Graph::parse(text.as_bytes()).unwrap().graph.unwrap()
}

fn run_id() -> SessionId {
    "run".parse().unwrap()
}

async fn run_graph(
    store: Arc<dyn SessionStore>,
    key: Option<SigningKey>,
) -> Result<RunResult, CallFailure> {
    let options = RecordOptions {
        run: Some(RunContext {
            id: "run".to_owned(),
            depth: 0,
        }),
        key,
        ..RecordOptions::default()
    };
    let tool = Echo::new(EffectClass::Pure);
    run_recorded(
        &graph(),
        &tool,
        json!({}),
        store,
        Path::new("/project"),
        options,
    )
    .await
}

/// A run whose store fails after a number of commits. Returns whether the run completed.
async fn run_with_commits(
    store: &Arc<MemoryStore>,
    commits: usize,
    key: Option<SigningKey>,
) -> bool {
    let failing = WrappedStore {
        store: store.clone(),
        wrapper: Failing {
            commits_left: AtomicUsize::new(commits),
        },
    };
    run_graph(Arc::new(failing), key).await.is_ok()
}

/// Copies a key.
fn copy_key(key: &SigningKey) -> SigningKey {
    SigningKey::from_pem(key.to_pem().as_bytes()).unwrap()
}

async fn archive(store: &MemoryStore) -> Archive {
    store.archive(&run_id()).await.unwrap().unwrap()
}

#[tokio::test]
async fn run_is_a_session_with_its_progress() {
    let store = Arc::new(MemoryStore::default());
    let result = run_graph(store.clone(), None).await.unwrap();
    let session = archive(&store).await.session;
    assert_eq!(session.purpose, Purpose::Workflow);
    assert_eq!(session.status, SessionStatus::Terminated);
    assert_eq!(session.workspace.as_deref(), Some("/project"));
    let run = session.run.unwrap();
    assert_eq!((run.status, run.steps), (RunStatus::Completed, 3));
    assert!(run.ended_at.is_some());
    let record = RunRecord::load(&*store, &run_id()).await.unwrap().unwrap();
    assert_eq!(record.output(), Some(&result.output));
    assert_eq!(store.holders(None).await.unwrap(), []);
}

#[tokio::test]
async fn run_that_stopped_after_any_commit_resumes_to_the_same_result() {
    let key = SigningKey::generate().unwrap();
    for key in [None, Some(&key)] {
        let store = Arc::new(MemoryStore::default());
        let whole = run_graph(store, key.map(copy_key)).await.unwrap();
        for commits in 0.. {
            let store = Arc::new(MemoryStore::default());
            let is_complete = run_with_commits(&store, commits, key.map(copy_key)).await;
            let resumed = run_graph(store.clone(), key.map(copy_key)).await;
            let resumed =
                resumed.unwrap_or_else(|failure| panic!("{commits} commits: {failure:?}"));
            assert_eq!(resumed.output, whole.output, "{commits} commits");
            assert_eq!(resumed.status, RunStatus::Completed);
            if let Some(key) = key {
                let verdict = audit::check(&archive(&store).await, |_| Some(key.public().clone()));
                assert_eq!(verdict.findings, [], "{commits} commits");
                assert!(verdict.is_verified(), "{verdict:?}");
            }
            if is_complete {
                break;
            }
        }
    }
}

#[tokio::test]
async fn modified_record_is_detected() {
    let key = SigningKey::generate().unwrap();
    let store = Arc::new(MemoryStore::default());
    run_graph(store.clone(), Some(copy_key(&key)))
        .await
        .unwrap();
    let archive = archive(&store).await;
    let check = |archive: &Archive| audit::check(archive, |_| Some(key.public().clone()));
    assert!(check(&archive).is_verified());
    for index in 0..archive.entries.len() {
        let mut altered = archive.clone();
        let EntryKind::Run { events } = &mut altered.entries[index].kind else {
            continue;
        };
        events.push(RunEvent::Warning {
            node: "one".to_owned(),
            message: "added".to_owned(),
        });
        assert!(!check(&altered).findings.is_empty(), "entry {index}");
        let mut fewer = archive.clone();
        fewer.entries.remove(index);
        assert!(
            !check(&fewer).findings.is_empty(),
            "entry {index} is missing"
        );
    }
    let mut altered = archive.clone();
    altered.session.run.as_mut().unwrap().steps = 7;
    assert!(!check(&altered).findings.is_empty());
}

#[tokio::test]
async fn unsigned_untrusted_or_modified_record_is_not_resumed() {
    let (key, other) = (
        SigningKey::generate().unwrap(),
        SigningKey::generate().unwrap(),
    );
    let code = async |store: &Arc<MemoryStore>, key: Option<&SigningKey>| {
        let resumed = run_graph(store.clone(), key.map(copy_key)).await;
        resumed.unwrap_err().code
    };
    let unsigned = Arc::new(MemoryStore::default());
    assert!(!run_with_commits(&unsigned, 2, None).await);
    assert_eq!(code(&unsigned, Some(&key)).await, "record_unsigned");
    let signed = Arc::new(MemoryStore::default());
    assert!(!run_with_commits(&signed, 2, Some(copy_key(&key))).await);
    assert_eq!(code(&signed, Some(&other)).await, "record_untrusted");
    // Signed lines follow, but there is no key.
    assert_eq!(code(&signed, None).await, "record_untrusted");
    // A step that was added without the key.
    let lease = signed.claim(&run_id(), Claim::IfFree).await.unwrap();
    let archive = archive(&signed).await;
    let mut entry = archive.entries.last().unwrap().clone();
    entry.parent = Some(entry.id);
    entry.id = EntryId::new();
    let before = archive.threads[0].leaf_hash.clone();
    entry.kind = EntryKind::Run {
        events: vec![RunEvent::Step {
            step: 1,
            node: "one".to_owned(),
            outcome: rye_graph::NodeOutcome::Done,
            set: serde_json::Map::from_iter([("one".to_owned(), json!(99))]),
            error: None,
            output: None,
            result: Value::Null,
            is_result_omitted: false,
            next: Some("end".to_owned()),
            fatal: false,
            duration_us: 1,
        }],
    };
    entry.hash = audit::entry_hash(&entry, &before);
    let mut thread = archive.threads[0].clone();
    thread.leaf = Some(entry.id.clone());
    thread.leaf_hash.clone_from(&entry.hash);
    let batch = Batch {
        ops: vec![
            Op::PutThread(Arc::new(thread)),
            Op::AppendEntry(Arc::new(entry)),
        ],
    };
    signed.commit(&lease, batch).await.unwrap();
    signed.release(&lease).await.unwrap();
    assert_eq!(code(&signed, Some(&key)).await, "record_altered");
    assert_eq!(signed.holders(None).await.unwrap(), []);
}

#[tokio::test]
async fn run_cannot_be_executed_by_two_processes() {
    let store = Arc::new(MemoryStore::default());
    let lease = store.claim(&run_id(), Claim::IfFree).await.unwrap();
    let failure = run_graph(store.clone(), None).await.unwrap_err();
    assert_eq!(failure.code, "run_in_use", "{failure:?}");
    store.release(&lease).await.unwrap();
    assert!(run_graph(store, None).await.is_ok());
}

#[tokio::test]
async fn each_node_costs_one_commit() {
    let text = r#"
permissions: ["rye.execute.tool.echo"]
config:
  start: one
  nodes:
    one: { action: { item_id: echo, params: { n: 1 } }, assign: { one: "${result}" }, next: two }
    two: { action: { item_id: echo, params: { n: 2 } }, next: three }
    three: { action: { item_id: echo, params: { n: 3 } }, next: end }
    end: { type: return, output: "${state.one}" }
"#;
    let graph = Graph::parse(text.as_bytes()).unwrap().graph.unwrap();
    let failing = Failing {
        commits_left: AtomicUsize::new(100),
    };
    let failing = Arc::new(WrappedStore::new(MemoryStore::new(), failing));
    let tool = Echo::new(EffectClass::AtMostOnce);
    let options = RecordOptions::default();
    let project = Path::new("/project");
    let result = run_recorded(&graph, &tool, json!({}), failing.clone(), project, options);
    assert_eq!(result.await.unwrap().status, RunStatus::Completed);
    // One before each call, and the end.
    assert_eq!(100 - failing.wrapper.commits_left.load(Ordering::SeqCst), 4);
    assert_eq!(tool.1.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn failed_steps_are_counted() {
    let text = r#"
permissions: ["rye.execute.tool.echo"]
config:
  start: one
  nodes:
    one: { type: foreach, over: "${inputs.none}", action: { item_id: echo }, on_error: two }
    two: { action: { item_id: "${inputs.tool}" } }
"#;
    let graph = Graph::parse(text.as_bytes()).unwrap().graph.unwrap();
    let store = Arc::new(MemoryStore::default());
    let tool = Echo::new(EffectClass::Pure);
    let options = RecordOptions {
        run: Some(RunContext {
            id: "run".to_owned(),
            depth: 0,
        }),
        ..RecordOptions::default()
    };
    let inputs = json!({ "tool": "other" });
    let project = Path::new("/project");
    let result = run_recorded(&graph, &tool, inputs, store.clone(), project, options);
    let result = result.await.unwrap();
    assert_eq!((result.status, result.steps), (RunStatus::Failed, 2));
    let record = RunRecord::load(&*store, &run_id()).await.unwrap().unwrap();
    assert_eq!((record.steps(), record.node()), (2, Some("two")));
}
