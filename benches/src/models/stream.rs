//! CPU time per streamed token, compared with pi-ai on the same stream.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rye_engine::model::{Deltas, Model as _};
use rye_model::{Api, HttpModel, Price};
use rye_testkit::provider::{Completion, MockProvider, Reply};

use super::{history, model};
use crate::measure::median;
use crate::table::Row;

/// Where `@mariozechner/pi-ai` is installed, and the Node that runs it.
const PEER: &str = "RYE_BENCH_PI";
const NODE: &str = "RYE_BENCH_NODE";

const ROUNDS: usize = 15;
const TOKENS: usize = 20_000;
/// One fifth of the CPU time.
const GOAL: f64 = 1.0 / 5.0;

/// Reads an answer of `TOKENS` tokens repeatedly.
pub(super) fn run() -> Result<Row> {
    let completion = Completion::text("word ".repeat(TOKENS));
    let stream = rye_testkit::provider::Api::OpenAiChat.stream(&completion);
    let events = stream.matches("data: ").count();
    ensure!(events > TOKENS / 2, "too few events: {events}");
    let mock = MockProvider::new(move |_, _| Reply::stream(stream.clone()));
    let mut peer = Peer::start(&format!("{}/v1", mock.url()))?;
    let (provider, target) = model(Api::OpenAiChat, &mock.url());
    let model = HttpModel::new(provider, target, Price::default());
    let (mut baselines, mut ours) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let baseline = peer.read()?;
        let own = read(&model)?;
        // The first third is a warm-up for the JIT compiler.
        if round >= ROUNDS / 3 {
            baselines.push(baseline);
            ours.push(own);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "tens of thousands")]
    let events = events as f64;
    Ok(Row::time(
        "CPU time per streamed token vs. pi-ai",
        (median(baselines) / events, median(ours) / events),
        GOAL,
    ))
}

/// Reads an answer on its own thread and returns the CPU time.
fn read(model: &HttpModel) -> Result<f64> {
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let before = cpu_time()?;
            let deltas: Deltas = Arc::new(|delta| drop(std::hint::black_box(delta)));
            runtime.block_on(model.call(history(0), deltas))?;
            Ok(cpu_time()? - before)
        });
        match work.join() {
            Ok(time) => time,
            Err(_) => anyhow::bail!("the reader panicked"),
        }
    })
}

/// CPU time of this thread, in seconds.
fn cpu_time() -> Result<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split(' ').next().context("schedstat is empty")?;
    Ok(nanoseconds.parse::<f64>()? / 1e9)
}

/// A Node process that reads the same stream with pi-ai.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    address: String,
}

impl Peer {
    fn start(address: &str) -> Result<Self> {
        let find = |name| {
            std::env::var(name).with_context(|| format!("{name} is not set: cargo xtask bench"))
        };
        let mut child = Command::new(find(NODE)?)
            .args(["--input-type=module", "--eval", include_str!("peer.mjs")])
            .arg(find(PEER)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start node")?;
        let input = child
            .stdin
            .take()
            .context("the peer has no standard input")?;
        let output = child
            .stdout
            .take()
            .context("the peer has no standard output")?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output).lines(),
            address: address.to_owned(),
        })
    }

    fn read(&mut self) -> Result<f64> {
        writeln!(self.input, "{}", self.address)?;
        let line = self.output.next().context("the peer ended")??;
        Ok(line.parse()?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
