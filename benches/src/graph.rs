//! Overhead of graphs.

mod peer;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use lillux::durable::IfExists;
use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_engine::store::{SessionFilter, SessionStore};
use rye_executor::{Executor, Request, Roots, Status};
use rye_graph::{
    DispatchFuture, Dispatcher, EffectClass, Graph, Limits, NodeError, RecordOptions, StateGraph,
    ToolCall, ToolTraits, run_in_memory, run_recorded,
};
use rye_items::{ItemId, UserKeys};
use rye_protocol::{Event, EventKind};
use rye_store::SqliteStore;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::executor::write_signed;
use crate::measure::try_interleaved;
use crate::table::{Row, Unit};

/// Numbers of nodes in a chain.
const LENGTHS: [usize; 3] = [10, 100, 1000];
/// Budget of a node in memory, in seconds.
const NODE_BUDGET: f64 = 50e-6;
/// Items of a foreach.
const ITEMS: usize = 1000;
/// Concurrency of a foreach.
const CONCURRENCY: usize = 8;

/// A tool that adds one. Its effect class decides how often the run waits for the disk.
struct AddsOne(EffectClass);

impl Dispatcher for AddsOne {
    fn traits(&self, _: &ItemId) -> Result<ToolTraits, NodeError> {
        Ok(ToolTraits {
            effect: self.0,
            is_graph: false,
            hash: None,
        })
    }

    fn call(&self, call: ToolCall) -> DispatchFuture<'_> {
        Box::pin(async move {
            let sum = call.params["n"].as_i64().unwrap_or_default() + 1;
            Ok(json!({ "n": sum }))
        })
    }
}

/// Nodes in memory and on disk, compared with `LangGraph` if it is installed, and a foreach
/// compared with xargs.
pub fn run() -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let (mut rows, mut nodes) = (Vec::new(), Vec::new());
    for length in LENGTHS {
        let graph = chain(length)?;
        let node = in_memory(&runtime, &graph, length)?;
        nodes.push(node);
        rows.push(Row {
            name: format!("node in memory, chain of {length} vs. 50 µs"),
            ours: node,
            baseline: NODE_BUDGET,
            goal: 1.0,
            unit: Unit::Seconds,
        });
    }
    let directory = project(&runtime)?;
    for length in LENGTHS {
        let graph = chain(length)?;
        let (_, commits) = journaled(
            &runtime,
            &graph,
            length,
            EffectClass::AtMostOnce,
            &directory,
        )?;
        rows.push(Row {
            name: format!("durable commits of {length} nodes vs. one per node"),
            ours: commits,
            baseline: count(length),
            goal: 1.3,
            unit: Unit::Count,
        });
    }
    for (lengths, nodes) in LENGTHS.windows(2).zip(nodes.windows(2)) {
        let (&[less, more], &[baseline, ours]) = (lengths, nodes) else {
            continue;
        };
        rows.push(growth("in memory", less, more, (baseline, ours)));
        let (some, many) = (chain(less)?, chain(more)?);
        // A pure tool, so that our time counts and not the disk's.
        let on_disk = try_interleaved(
            9,
            || journaled(&runtime, &some, less, EffectClass::Pure, &directory),
            || journaled(&runtime, &many, more, EffectClass::Pure, &directory),
        )?;
        let on_disk = (on_disk.0 / count(less), on_disk.1 / count(more));
        rows.push(growth("journaled", less, more, on_disk));
    }
    rows.extend(peer::rows(&runtime, &directory)?);
    rows.push(foreach()?);
    Ok(rows)
}

/// Checks that the time per node does not grow with the length of the chain.
fn growth(what: &str, less: usize, more: usize, times: (f64, f64)) -> Row {
    let what = format!("node {what}, chain of {more} vs. {less}");
    Row::time(&what, times, 1.3)
}

#[expect(clippy::cast_precision_loss, reason = "some thousands")]
fn count(length: usize) -> f64 {
    length as f64
}

/// A chain of nodes that each add one.
fn chain(length: usize) -> Result<Graph> {
    use std::fmt::Write as _;
    let mut text = format!(
        "permissions: [\"rye.execute.tool.add\"]\nconfig:\n  start: n0\n  max_steps: {}\n  nodes:\n",
        length + 1
    );
    for index in 0..length {
        let next = match index + 1 {
            last if last == length => String::new(),
            next => format!(", next: n{next}"),
        };
        writeln!(
            text,
            "    n{index}: {{ action: {{ item_id: add, params: {{ n: \"${{state.n || 0}}\" }} }}, \
             assign: {{ n: \"${{result.n}}\" }}{next} }}"
        )?;
    }
    let reading = Graph::parse(text.as_bytes())?;
    reading.graph.context("the graph is invalid")
}

/// Seconds per node, the best of several runs.
fn in_memory(runtime: &Runtime, graph: &Graph, length: usize) -> Result<f64> {
    let tool = AddsOne(EffectClass::Pure);
    let mut best = f64::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        let ended = runtime.block_on(run_in_memory(graph, &tool, json!({}), Limits::default()));
        best = best.min(start.elapsed().as_secs_f64());
        ensure!(ended.output == json!({ "n": length }), "{ended:?}");
    }
    Ok(best / count(length))
}

/// A project on a disk, because syncing a directory in memory is free. Its first run is a
/// warm-up.
fn project(runtime: &Runtime) -> Result<TempDir> {
    let directory = tempfile::tempdir_in(std::env::current_dir()?)?;
    journaled(runtime, &chain(1)?, 1, EffectClass::Pure, &directory)?;
    Ok(directory)
}

/// Seconds per journaled and signed node, and the number of durable commits.
fn journaled(
    runtime: &Runtime,
    graph: &Graph,
    length: usize,
    effect: EffectClass,
    directory: &TempDir,
) -> Result<(f64, f64)> {
    let tool = AddsOne(effect);
    let options = RecordOptions {
        key: Some(SigningKey::generate()?),
        ..RecordOptions::default()
    };
    let store = Arc::new(SqliteStore::open(directory.path().join("sessions.db"))?);
    let start = Instant::now();
    let recorded = Arc::clone(&store) as Arc<dyn SessionStore>;
    let ended = run_recorded(graph, &tool, json!({}), recorded, directory.path(), options);
    let ended = runtime.block_on(ended);
    let time = start.elapsed().as_secs_f64();
    let ended = ended.map_err(|failed| anyhow::anyhow!(failed.message))?;
    ensure!(ended.output == json!({ "n": length }), "{ended:?}");
    // Every commit seals what it writes.
    let commits = runtime.block_on(async {
        let newest = SessionFilter {
            limit: 1,
            ..SessionFilter::default()
        };
        let sessions = store.sessions(newest).await?;
        let id = &sessions.first().context("the run has no session")?.id;
        let events = store.events(id, 0, usize::MAX).await?;
        let is_seal = |event: &Event| matches!(event.kind, EventKind::Sealed { .. });
        anyhow::Ok(events.into_iter().filter(is_seal).count())
    })?;
    Ok((time / count(length), count(commits)))
}

/// 1,000 processes, 8 at a time, by a graph and by xargs.
fn foreach() -> Result<Row> {
    let fixture = Fixture::new()?;
    let times = try_interleaved(7, xargs, || fixture.foreach())?;
    Ok(Row::time(
        "foreach of 1,000 /bin/true, 8 at a time vs. xargs -P8",
        times,
        1.15,
    ))
}

fn xargs() -> Result<()> {
    let mut child = Command::new("xargs")
        .args(["-P8", "-n1", "/bin/true"])
        .stdin(Stdio::piped())
        .spawn()?;
    let input = (0..ITEMS).map(|item| format!("{item}\n"));
    let mut stdin = child.stdin.take().context("no standard input")?;
    std::io::Write::write_all(&mut stdin, input.collect::<String>().as_bytes())?;
    drop(stdin);
    ensure!(child.wait()?.success());
    Ok(())
}

/// A project with a graph.
struct Fixture {
    _directory: TempDir,
    executor: Executor,
    runtime: Runtime,
}

impl Fixture {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir_in(std::env::current_dir()?)?;
        let (project, user) = (
            directory.path().join("project"),
            directory.path().join("user"),
        );
        let key = UserKeys::new(&user).generate("bench", IfExists::Fail)?;
        let tools: PathBuf = project.join(".ai/tools");
        write_signed(
            &tools.join("lib/nothing.yaml"),
            "version: \"1.0.0\"\nexecutor_id: rye/core/primitives/execute\n\
             config: { command: /bin/true, args: [\"{n}\"] }\n",
            &key,
        )?;
        let graph = format!(
            "version: \"1.0.0\"\ntool_type: graph\n\
             executor_id: rye/core/runtimes/state-graph/runtime\n\
             permissions: [\"rye.execute.tool.lib.nothing\"]\n\
             config:\n  start: all\n  nodes:\n    \
             all: {{ type: foreach, over: \"${{inputs.items}}\", as: n, parallel: true, \
             max_concurrency: {CONCURRENCY}, collect: all, \
             action: {{ item_id: lib/nothing, params: {{ n: \"${{n}}\" }} }} }}\n"
        );
        write_signed(&tools.join("flows/all.yaml"), &graph, &key)?;
        let roots = Roots {
            user: Some(user),
            ..Roots::new(&project, directory.path().join("cache"))
        };
        let mut executor = Executor::new(roots, Arc::new(Supervisor::start()?));
        let database = directory.path().join("sessions.db");
        let open = move || {
            let store = SqliteStore::open(&database)?;
            Ok(Arc::new(store) as Arc<dyn SessionStore>)
        };
        let cache = directory.path().join("cache");
        let graphs = StateGraph::new(&project, Arc::new(open), &cache, Some(Arc::new(key)));
        let id = StateGraph::ID.parse()?;
        executor
            .primitives_mut()
            .register(id, Vec::new(), Arc::new(graphs));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_io()
            .enable_time()
            .build()?;
        Ok(Self {
            _directory: directory,
            executor,
            runtime,
        })
    }

    fn foreach(&self) -> Result<()> {
        let items: Vec<_> = (0..ITEMS).collect();
        let request = Request::new("flows/all".parse()?).with_parameters(json!({ "items": items }));
        let result = self.runtime.block_on(self.executor.execute(request));
        ensure!(result.status == Status::Success, "{:?}", result.error);
        let done = result.data["all"].as_array().map_or(0, Vec::len);
        ensure!(done == ITEMS, "{done} items done");
        Ok(())
    }
}
