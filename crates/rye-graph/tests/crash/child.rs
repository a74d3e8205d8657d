//! The process that walks and is killed.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lillux::keys::SigningKey;
use rye_executor::Run;
use rye_graph::{
    Dispatch, Event, Graph, Known, Later, NodeError, Outcome, Runs, ToolCall, Watcher, Writing,
    walk_written,
};
use rye_items::ItemId;
use rye_items::metadata::Effect;
use rye_protocol::{Millis, Resolution};
use serde_json::{Value, json};

pub(crate) const SCENARIO: &str = "RYE_GRAPH_CRASH_SCENARIO";
pub(crate) const FOLDER: &str = "RYE_GRAPH_CRASH_FOLDER";
pub(crate) const POINT: &str = "RYE_GRAPH_CRASH_POINT";

/// The run that is walked.
const RUN: &str = "crash";

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    nodes: &'static str,
}

/// One for each kind of node, and one for what surrounds them. What a node gives is in the
/// output under its name.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "actions",
        nodes: r#"
    pure: { action: { item_id: pure, params: { node: pure } }, assign: { pure: "${result}" }, next: same }
    same: { action: { item_id: idempotent, params: { node: same } }, assign: { same: "${result}" }, next: once }
    once: { action: { item_id: once, params: { node: once } }, assign: { once: "${result}" }, on_error: twice, next: twice }
    twice: { action: { item_id: once, params: { node: twice } }, assign: { twice: "${result}" }, on_error: end, next: end }
    end: { type: return, output: { pure: "${state.pure}", same: "${state.same}", once: "${state.once}", twice: "${state.twice}" } }
"#,
    },
    Scenario {
        name: "foreach",
        nodes: r#"
    start: { type: foreach, over: [1, 2, 3], as: n, collect: start, on_error: many, next: many,
             action: { item_id: once, params: { node: start, n: "${n}" } } }
    many: { type: foreach, over: [1, 2, 3, 4, 5], as: n, parallel: true, max_concurrency: 3, collect: many, on_error: end, next: end,
             action: { item_id: once, params: { node: many, n: "${n}" } } }
    end: { type: return, output: { start: "${state.start}", many: "${state.many}" } }
"#,
    },
    Scenario {
        name: "repeatable",
        nodes: r#"
    start: { type: foreach, over: [1, 2, 3], as: n, parallel: true, collect: start, next: end,
             action: { item_id: idempotent, params: { node: start, n: "${n}" } } }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "gates",
        nodes: r#"
    start: { type: gate, assign: { start: "${state.start || ''}x" },
             next: [{ to: start, when: { path: state.start, op: ne, value: xxx } }, { to: end }] }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "decision",
        nodes: r#"
    start: { type: decision, title: "may it?", assign: { start: "${result.action}" }, next: once }
    once: { action: { item_id: once, params: { node: once } }, assign: { once: "${result}" }, on_error: end, next: end }
    end: { type: return, output: { start: "${state.start}", once: "${state.once}" } }
"#,
    },
    Scenario {
        name: "ask",
        nodes: r#"
    start: { action: { item_id: ask, params: { node: start } }, assign: { start: "${result}" }, next: end }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "nested",
        nodes: r#"
    start: { action: { item_id: graph, params: { node: start } }, assign: { start: "${result}" }, next: end }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "retry",
        nodes: r#"
    start: { action: { item_id: second, params: { node: start } }, retry: { max: 3 }, assign: { start: "${result}" }, next: end }
    end: { type: return, output: { start: "${state.start}" } }
"#,
    },
    Scenario {
        name: "hooks",
        nodes: r#"
    start: { type: gate, assign: { start: 1 }, next: end }
    end: { type: return, output: { start: "${state.start}" } }
  hooks:
    - { event: graph_started, action: { item_id: hook, params: { node: hook, n: started } } }
    - { event: after_step, action: { item_id: hook, params: { node: hook, n: "${result.step}" } } }
    - { event: graph_completed, action: { item_id: hook, params: { node: hook, n: completed } } }
"#,
    },
];

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

impl Dispatch for Tools {
    fn look(&self, item: &ItemId) -> Result<Known, NodeError> {
        let effect = match item.as_str() {
            "pure" | "second" => Effect::Pure,
            "idempotent" => Effect::Idempotent,
            "ask" => Effect::Ask,
            _ => Effect::AtMostOnce,
        };
        Ok(Known {
            effect,
            is_graph: item.as_str() == "graph",
            hash: None,
        })
    }

    fn call(&self, call: ToolCall) -> Later<'_, Result<Value, NodeError>> {
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
                // A person may want it to run again.
                "ask" => {
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
async fn inner(tools: &Tools, run: Run) -> Result<Value, NodeError> {
    let graph = graph(
        r#"
    start: { type: gate, assign: { n: 7 }, next: same }
    same: { action: { item_id: idempotent, params: { n: "${state.n}" } }, assign: { same: "${result}" }, next: end }
    end: { type: return, output: "${state.same}" }
"#,
    );
    let writing = Writing {
        run: Some(run),
        watcher: Some(Watcher::new(|_| point())),
        ..Writing::default()
    };
    let ended = Box::pin(walk_written(
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
    let reading = Graph::read(text.as_bytes()).unwrap();
    let problems = reading.problems;
    reading.graph.unwrap_or_else(|| panic!("{problems:?}"))
}

/// A person who answers whatever is asked, from another thread.
fn answer_all(project: &Path) {
    let runs = Runs::of(project);
    loop {
        let questions = runs.questions().unwrap_or_default();
        for question in questions.iter().filter(|it| it.status().is_pending()) {
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
            question.answer(&resolution).unwrap();
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
    let writing = Writing {
        run: Some(Run {
            id: RUN.to_owned(),
            depth: 0,
        }),
        key: Some(SigningKey::generate().unwrap()),
        watcher: Some(Watcher::new(|_| point())),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ended = runtime.block_on(walk_written(&graph, &tools, json!({}), &folder, writing));
    let ended = ended.unwrap();
    point();
    let run = Runs::of(&folder).find(RUN).unwrap().read().unwrap();
    let interrupted = run.lines().iter().filter_map(|line| match &line.event {
        Event::Step {
            node,
            outcome: Outcome::Interrupted,
            ..
        } => Some(node.clone()),
        _ => None,
    });
    let mut interrupted: Vec<_> = interrupted.collect();
    let hooks = |begun: bool| {
        let lines = run.lines().iter();
        let fits = lines.filter(|line| match line.event {
            Event::HookBegin { .. } => begun,
            Event::HookEnd { .. } => !begun,
            _ => false,
        });
        fits.count()
    };
    if hooks(true) != hooks(false) {
        interrupted.push("hook".to_owned());
    }
    let effects = fs::read_to_string(folder.join("effects")).unwrap_or_default();
    let effects: Vec<_> = effects.lines().collect();
    let told = json!({ "output": ended.output, "interrupted": interrupted, "effects": effects });
    fs::write(folder.join("told.json"), told.to_string()).unwrap();
    std::process::exit(0);
}
