//! The process that walks and is killed.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lillux::durable::IfExists;
use lillux::keys::{PublicKey, SigningKey};
use rye_executor::RunContext;
use rye_graph::{
    DispatchFuture, Dispatcher, Event, EventListener, Graph, JournalLine, JournalOptions,
    NodeError, NodeOutcome, RunStore, ToolCall, ToolTraits, TrustPolicy, run_journaled,
};
use rye_items::ItemId;
use rye_items::metadata::Effect;
use rye_protocol::{Gate, Millis, Resolution};
use serde_json::{Value, json};

pub(crate) const SCENARIO: &str = "RYE_GRAPH_CRASH_SCENARIO";
pub(crate) const FOLDER: &str = "RYE_GRAPH_CRASH_FOLDER";
pub(crate) const POINT: &str = "RYE_GRAPH_CRASH_POINT";

#[path = "scenarios.rs"]
mod scenarios;

pub(crate) use scenarios::SCENARIOS;

/// The run that is walked.
const RUN: &str = "crash";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A place where the process may be killed.
fn point() {
    let wanted = std::env::var(POINT).ok().and_then(|text| text.parse().ok());
    if wanted == Some(COUNT.fetch_add(1, Ordering::SeqCst)) {
        let me = rustix::process::getpid();
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

/// Tools that leave a line in a file.
struct Tools {
    folder: PathBuf,
}

impl Tools {
    fn leave(&self, file: &str, params: &Value) {
        let line = format!("{} {}\n", params["node"].as_str().unwrap(), params["n"]);
        let path = self.folder.join(file);
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
            "pure" | "second" => Effect::Pure,
            "idempotent" => Effect::Idempotent,
            "ask" | "hook-ask" => Effect::Ask,
            _ => Effect::AtMostOnce,
        };
        Ok(ToolTraits {
            effect,
            is_graph: item.as_str() == "graph",
            hash: None,
        })
    }

    fn call(&self, call: ToolCall) -> DispatchFuture<'_> {
        Box::pin(async move {
            point();
            let given = match call.item.as_str() {
                "pure" => Ok(json!("pure")),
                "idempotent" => {
                    let name = format!("same-{}", call.params["n"]);
                    fs::write(self.folder.join(name), "same").unwrap();
                    Ok(json!("same"))
                }
                // The second attempt of all processes together is good.
                "second" => {
                    self.leave("tries", &call.params);
                    let tries = fs::read_to_string(self.folder.join("tries")).unwrap();
                    match tries.lines().count() {
                        1 => Err(NodeError::new("tool_failed", "not yet")),
                        _ => Ok(json!("good")),
                    }
                }
                "graph" => inner(self, call.run.unwrap()).await,
                "fails" => {
                    self.leave("effects", &call.params);
                    Err(NodeError::new("tool_failed", "it always does"))
                }
                // A person may want it to run again.
                "ask" | "hook-ask" => {
                    self.leave("asked", &call.params);
                    Ok(json!("asked"))
                }
                _ => {
                    self.leave("effects", &call.params);
                    Ok(call.params["n"].clone())
                }
            };
            point();
            // Others get their turn, where several are at it.
            tokio::task::yield_now().await;
            given
        })
    }
}

/// A graph within the graph, whose one node must not be done twice.
async fn inner(tools: &Tools, run: RunContext) -> Result<Value, NodeError> {
    let graph = graph(
        r#"
    start: { type: gate, assign: { n: 7 }, next: same }
    same: { action: { item_id: idempotent, params: { n: "${state.n}" } }, assign: { same: "${result}" }, next: end }
    end: { type: return, output: "${state.same}" }
"#,
    );
    let writing = JournalOptions {
        run: Some(run),
        key: Some(key(&tools.folder)),
        watcher: Some(EventListener::new(|_| point())),
        ..JournalOptions::default()
    };
    let ended = Box::pin(run_journaled(
        &graph,
        tools,
        json!({}),
        &tools.folder,
        writing,
    ))
    .await;
    let ended = ended.map_err(|failed| NodeError::new(failed.code, failed.message))?;
    Ok(ended.output)
}

fn graph(nodes: &str) -> Graph {
    let start = nodes.trim_start().split(':').next().unwrap();
    let text = format!(
        "permissions: [\"rye.execute.tool.*\"]\nconfig:\n  start: {start}\n  nodes:{nodes}"
    );
    let reading = Graph::parse(text.as_bytes()).unwrap();
    let problems = reading.problems;
    reading.graph.unwrap_or_else(|| panic!("{problems:?}"))
}

/// The key with which all processes of a folder sign.
fn key(folder: &Path) -> SigningKey {
    let path = folder.join("key.pem");
    let written = fs::read(&path);
    written.map_or_else(
        |_| {
            let key = SigningKey::generate().unwrap();
            // Whole or not at all: who makes it may be killed as well.
            lillux::durable::write(&path, key.to_pem().as_bytes(), 0o600, IfExists::Fail).unwrap();
            key
        },
        |pem| SigningKey::from_pem(pem).unwrap(),
    )
}

/// One to whom every answer counts.
#[derive(Debug)]
struct Credulous;

impl TrustPolicy for Credulous {
    fn key(&self, _: &str) -> Option<PublicKey> {
        None
    }

    fn receipt(&self, _: &Gate, _: &Resolution) -> Result<bool, String> {
        Ok(true)
    }
}

/// A person who answers whatever is asked, from another thread.
fn answer_all(project: &Path) {
    let runs = RunStore::new(project);
    loop {
        let questions = runs.gate_files().unwrap_or_default();
        for question in questions
            .iter()
            .filter(|it| it.status(&Credulous).is_pending())
        {
            let action = question.gate.actions[0].id.clone();
            let resolution = Resolution {
                action,
                value: Value::Null,
                by: "ada".to_owned(),
                at: Millis(0),
                source: "test".to_owned(),
                receipt: None,
            };
            point();
            question.resolve(&resolution, &Credulous).unwrap();
            point();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn main(name: &str) {
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let scenario = SCENARIOS.iter().find(|it| it.name == name).unwrap();
    let graph = graph(scenario.nodes);
    let tools = Tools {
        folder: folder.clone(),
    };
    let project = folder.clone();
    std::thread::spawn(move || answer_all(&project));
    let writing = JournalOptions {
        run: Some(RunContext {
            id: RUN.to_owned(),
            depth: 0,
        }),
        key: Some(key(&folder)),
        watcher: Some(EventListener::new(|_| point())),
        trust: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ended = runtime.block_on(run_journaled(&graph, &tools, json!({}), &folder, writing));
    let ended = ended.unwrap();
    point();
    let run = RunStore::new(&folder).find(RUN).unwrap().read().unwrap();
    let interrupted = run.lines().iter().filter_map(|line| match &line.event {
        Event::Step {
            node,
            outcome: NodeOutcome::Interrupted,
            ..
        } => Some(node.clone()),
        _ => None,
    });
    let mut interrupted: Vec<_> = interrupted.collect();
    let is_cut_short = |line: &&JournalLine| match &line.event {
        Event::HookEnd { error, .. } => error.as_ref().is_some_and(|it| it.code == "interrupted"),
        _ => false,
    };
    if run.lines().iter().any(|line| is_cut_short(&line)) {
        interrupted.push("hook".to_owned());
    }
    let hooks = |begun: bool| {
        let lines = run.lines().iter();
        let hooks = lines.filter_map(|line| match line.event {
            Event::HookBegin { hook, step, .. } if begun => Some((hook, step)),
            Event::HookEnd { hook, step, .. } if !begun => Some((hook, step)),
            _ => None,
        });
        hooks.collect::<BTreeSet<_>>()
    };
    assert_eq!(
        hooks(true),
        hooks(false),
        "hooks that were begun and not ended"
    );
    let effects = fs::read_to_string(folder.join("effects")).unwrap_or_default();
    let effects: Vec<_> = effects.lines().collect();
    let told = json!({ "status": ended.status, "output": ended.output, "interrupted": interrupted, "effects": effects });
    fs::write(folder.join("told.json"), told.to_string()).unwrap();
    std::process::exit(0);
}
