//! The processor time that a streamed token costs, beside that of another library on the
//! same stream.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rye_engine::model::{Deltas, Model as _};
use rye_model::{Api, HttpModel, Price};
use rye_model_wire::{Completion, MockProvider, Reply};

use super::{history, middle, model};
use crate::table::Row;

/// Where `@mariozechner/pi-ai` is installed, and the Node that runs it.
const PEER: &str = "RYE_BENCH_PI";
const NODE: &str = "RYE_BENCH_NODE";

const ROUNDS: usize = 15;
const TOKENS: usize = 20_000;
/// A fifth.
const GOAL: f64 = 1.0 / 5.0;

/// Reads one answer of many tokens, again and again.
pub(super) fn run() -> Result<Row> {
    let said = Completion::text("word ".repeat(TOKENS));
    let stream = rye_model_wire::Api::OpenAiChat.stream(&said);
    let events = stream.matches("data: ").count();
    ensure!(events > TOKENS / 2, "{events} events are few");
    let wire = MockProvider::new(move |_, _| Reply::stream(stream.clone()));
    let mut peer = Peer::start(&format!("{}/v1", wire.url()))?;
    let (provider, target) = model(Api::OpenAiChat, &wire.url());
    let model = HttpModel::new(provider, target, Price::default());
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let floor = peer.read()?;
        let own = read(&model)?;
        // What is compiled as it runs is let run for a while first.
        if round >= ROUNDS / 3 {
            floors.push(floor);
            ours.push(own);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "tens of thousands")]
    let events = events as f64;
    Ok(Row::time(
        "processor time of a streamed token, beside pi-ai",
        (middle(floors) / events, middle(ours) / events),
        GOAL,
    ))
}

/// Reads an answer in a thread of its own, and says what that cost it.
fn read(model: &HttpModel) -> Result<f64> {
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let before = processor_time()?;
            let deltas: Deltas = Arc::new(|delta| drop(std::hint::black_box(delta)));
            runtime.block_on(model.call(history(0), deltas))?;
            Ok(processor_time()? - before)
        });
        match work.join() {
            Ok(time) => time,
            Err(_) => anyhow::bail!("it broke down"),
        }
    })
}

/// How long this thread has been at work, in seconds.
fn processor_time() -> Result<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split(' ').next().context("there is no time in it")?;
    Ok(nanoseconds.parse::<f64>()? / 1e9)
}

struct Peer {
    child: Child,
    tell: ChildStdin,
    told: Lines<BufReader<ChildStdout>>,
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
        let tell = child.stdin.take().context("it has no input")?;
        let told = child.stdout.take().context("it has no output")?;
        Ok(Self {
            child,
            tell,
            told: BufReader::new(told).lines(),
            address: address.to_owned(),
        })
    }

    fn read(&mut self) -> Result<f64> {
        writeln!(self.tell, "{}", self.address)?;
        let line = self.told.next().context("it ended")??;
        Ok(line.parse()?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
