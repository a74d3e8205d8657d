//! The child process that runs a graph and is killed.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::durable::IfExists;
use lillux::keys::SigningKey;
use rye_engine::audit;
use rye_engine::store::{InboxMessage, SessionStore};
use rye_executor::RunContext;
use rye_graph::{
    DispatchFuture, Dispatcher, EffectClass, EventListener, Graph, NodeError, NodeOutcome,
    RecordOptions, RunEvent, RunRecord, ToolCall, ToolTraits, run_recorded,
};
use rye_items::ItemId;
use rye_protocol::{Resolution, SessionId};
use rye_store::SqliteStore;
use rye_testkit::wrapped_store::{Killer, WrappedStore, kill_point};
use serde_json::{Value, json};

pub(crate) const SCENARIO: &str = "RYE_GRAPH_CRASH_SCENARIO";
pub(crate) const DIR: &str = "RYE_GRAPH_CRASH_DIR";
#[path = "scenarios.rs"]
mod scenarios;

pub(crate) use scenarios::SCENARIOS;

/// Id of the run.
const RUN: &str = "crash";

/// A store that is killed at its commits.
pub(crate) type KillingStore = WrappedStore<Killer>;

/// Tools that append a line to a file.
struct Tools {
    dir: PathBuf,
    store: Arc<KillingStore>,
}

impl Tools {
    fn append(&self, file: &str, params: &Value) {
        let line = format!("{} {}\n", params["node"].as_str().unwrap(), params["n"]);
        let path = self.dir.join(file);
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

impl Dispatcher for Tools {
    fn traits(&self, item: &ItemId) -> Result<ToolTraits, NodeError> {
        let effect = match item.as_str() {
            "pure" | "second" => EffectClass::Pure,
            "idempotent" => EffectClass::Idempotent,
            "ask" | "hook-ask" => EffectClass::Ask,
            _ => EffectClass::AtMostOnce,
        };
        Ok(ToolTraits {
            effect,
            is_graph: item.as_str() == "graph",
            hash: None,
        })
    }

    fn call(&self, call: ToolCall) -> DispatchFuture<'_> {
        Box::pin(async move {
            kill_point();
            let result = match call.item.as_str() {
                "pure" => Ok(json!("pure")),
                "idempotent" => {
                    let name = format!("same-{}", call.params["n"]);
                    fs::write(self.dir.join(name), "same").unwrap();
                    Ok(json!("same"))
                }
                // Succeeds at the second attempt, counted over all processes.
                "second" => {
                    self.append("tries", &call.params);
                    let tries = fs::read_to_string(self.dir.join("tries")).unwrap();
                    match tries.lines().count() {
                        1 => Err(NodeError::new("tool_failed", "not yet")),
                        _ => Ok(json!("good")),
                    }
                }
                "graph" => inner(self, call.run.unwrap()).await,
                "fails" => {
                    self.append("effects", &call.params);
                    Err(NodeError::new("tool_failed", "always fails"))
                }
                // No node handles the error, so the user is asked.
                "fails-asked" => {
                    self.append("asked", &call.params);
                    Err(NodeError::new("tool_failed", "always fails"))
                }
                // The user may choose to repeat the call.
                "ask" | "hook-ask" => {
                    self.append("asked", &call.params);
                    Ok(json!("asked"))
                }
                _ => {
                    self.append("effects", &call.params);
                    Ok(call.params["n"].clone())
                }
            };
            kill_point();
            // Let concurrent calls run.
            tokio::task::yield_now().await;
            result
        })
    }
}

/// A nested graph with an idempotent node.
async fn inner(tools: &Tools, run: RunContext) -> Result<Value, NodeError> {
    let graph = graph(
        r#"
    start: { type: gate, assign: { n: 7 }, next: same }
    same: { action: { item_id: idempotent, params: { n: "${state.n}" } }, assign: { same: "${result}" }, next: end }
    end: { type: return, output: "${state.same}" }
"#,
    );
    let options = RecordOptions {
        run: Some(run),
        key: Some(key(&tools.dir)),
        listener: Some(EventListener::new(|_| kill_point())),
        ..RecordOptions::default()
    };
    let store = Arc::clone(&tools.store) as Arc<dyn SessionStore>;
    let result = run_recorded(&graph, tools, json!({}), store, &tools.dir, options);
    let result = Box::pin(result).await;
    let result = result.map_err(|failure| NodeError::new(failure.code, failure.message))?;
    Ok(result.output)
}

fn graph(nodes: &str) -> Graph {
    let start = nodes.trim_start().split(':').next().unwrap();
    let text = format!(
        "permissions: [\"rye.execute.tool.*\"]\nconfig:\n  start: {start}\n  nodes:{nodes}"
    );
    let parsed = Graph::parse(text.as_bytes()).unwrap();
    let problems = parsed.problems;
    parsed.graph.unwrap_or_else(|| panic!("{problems:?}"))
}

/// The signing key of a test directory.
fn key(dir: &Path) -> SigningKey {
    let path = dir.join("key.pem");
    let written = fs::read(&path);
    written.map_or_else(
        |_| {
            let key = SigningKey::generate().unwrap();
            // Written atomically, because the process may be killed here.
            lillux::durable::write(&path, key.to_pem().as_bytes(), 0o600, IfExists::Fail).unwrap();
            key
        },
        |pem| SigningKey::from_pem(pem).unwrap(),
    )
}

/// The session store of a test directory.
pub(crate) fn store(dir: &Path) -> SqliteStore {
    SqliteStore::open(dir.join("sessions.db")).unwrap()
}

/// Resolves all gates, from another thread.
fn resolve_all_gates(store: &KillingStore, key: &SigningKey) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        loop {
            for gate in store.pending_gates(None).await.unwrap() {
                let mut resolution = Resolution {
                    action: gate.actions[0].id.clone(),
                    value: Value::Null,
                    by: "ada".to_owned(),
                    at: rye_engine::record::now(),
                    source: "test".to_owned(),
                    receipt: None,
                };
                let receipt = audit::receipt(&gate, &resolution, key);
                resolution.receipt = Some(Box::new(receipt));
                let post = InboxMessage::Resolve {
                    gate: gate.id.clone(),
                    resolution,
                };
                store.post(&gate.origin.session, post).await.unwrap();
            }
            store.wrapper.committed.notified().await;
        }
    });
}

pub(crate) fn main(name: &str) {
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    let scenario = SCENARIOS.iter().find(|it| it.name == name).unwrap();
    let graph = graph(scenario.nodes);
    let store = Arc::new(WrappedStore::new(store(&dir), Killer::default()));
    let tools = Tools {
        dir: dir.clone(),
        store: Arc::clone(&store),
    };
    let (answering, signing) = (Arc::clone(&store), key(&dir));
    std::thread::spawn(move || resolve_all_gates(&answering, &signing));
    let options = RecordOptions {
        run: Some(RunContext {
            id: RUN.to_owned(),
            depth: 0,
        }),
        key: Some(key(&dir)),
        listener: Some(EventListener::new(|_| kill_point())),
        trust: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let recorded = Arc::clone(&store) as Arc<dyn SessionStore>;
    let result = run_recorded(&graph, &tools, json!({}), recorded, &dir, options);
    let result = runtime.block_on(result);
    let result = result.unwrap();
    kill_point();
    let id: SessionId = RUN.parse().unwrap();
    let run = runtime.block_on(RunRecord::load(&*store, &id));
    let run = run.unwrap().unwrap();
    let interrupted = run.lines().iter().filter_map(|line| match &line.event {
        RunEvent::Step {
            node,
            outcome: NodeOutcome::Interrupted,
            ..
        } => Some(node.clone()),
        _ => None,
    });
    let mut interrupted: Vec<_> = interrupted.collect();
    let is_interrupted = |line: &&rye_graph::JournalLine| match &line.event {
        RunEvent::HookEnd { error, .. } => {
            error.as_ref().is_some_and(|it| it.code == "interrupted")
        }
        _ => false,
    };
    if run.lines().iter().any(|line| is_interrupted(&line)) {
        interrupted.push("hook".to_owned());
    }
    let hooks = |is_start: bool| {
        let lines = run.lines().iter();
        let hooks = lines.filter_map(|line| match line.event {
            RunEvent::HookBegin { hook, step, .. } if is_start => Some((hook, step)),
            RunEvent::HookEnd { hook, step, .. } if !is_start => Some((hook, step)),
            _ => None,
        });
        hooks.collect::<BTreeSet<_>>()
    };
    assert_eq!(
        hooks(true),
        hooks(false),
        "hooks that started but did not end"
    );
    let effects = fs::read_to_string(dir.join("effects")).unwrap_or_default();
    let effects: Vec<_> = effects.lines().collect();
    let report = json!({ "status": result.status, "output": result.output, "interrupted": interrupted, "effects": effects });
    fs::write(dir.join("report.json"), report.to_string()).unwrap();
    std::process::exit(0);
}
