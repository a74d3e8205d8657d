//! Turns in memory, compared with pi-agent-core.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use rye_store::MemoryStore;
use tokio::task::JoinSet;

use super::fixture::{BenchSession, engine};
use super::runtime;
use crate::measure::median;
use crate::table::Row;

/// Where `@mariozechner/pi-agent-core` is installed, and the Node that runs it.
const PEER: &str = "RYE_BENCH_PI";
const NODE: &str = "RYE_BENCH_NODE";

const ROUNDS: usize = 15;
/// Turns per session.
const TURNS: u32 = 200;
const AT_ONCE: u32 = 10;
/// One fifth of the time.
const GOAL: f64 = 1.0 / 5.0;

/// Sequential and concurrent sessions.
pub(super) fn run() -> Result<Vec<Row>> {
    let mut peer = Peer::start()?;
    let rows = [
        (1, "turn in memory vs. pi-agent-core"),
        (AT_ONCE, "the same, 10 concurrent sessions"),
    ];
    let rows = rows.map(|(sessions, what)| {
        let (mut baselines, mut all_ours) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let (baseline, ours) = (peer.turns(sessions)?, turns(sessions)?);
            // The first third is a warm-up for the JIT compiler.
            if round >= ROUNDS / 3 {
                baselines.push(baseline);
                all_ours.push(ours);
            }
        }
        let count = f64::from(sessions * TURNS);
        let times = (median(baselines) / count, median(all_ours) / count);
        Ok(Row::time(what, times, GOAL))
    });
    rows.into_iter().collect()
}

fn turns(sessions: u32) -> Result<f64> {
    runtime()?.block_on(async {
        let engine = engine(MemoryStore::new(), "look")?;
        let start = Instant::now();
        let mut all = JoinSet::new();
        for _ in 0..sessions {
            let engine = engine.clone();
            all.spawn(async move {
                let mut session = BenchSession::start(&engine).await?;
                for _ in 0..TURNS {
                    session.turn().await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(end) = all.join_next().await {
            end??;
        }
        Ok(start.elapsed().as_secs_f64())
    })
}

/// A Node process that runs the same turns with pi-agent-core.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start() -> Result<Self> {
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
        let output = BufReader::new(output).lines();
        Ok(Self {
            child,
            input,
            output,
        })
    }

    fn turns(&mut self, agents: u32) -> Result<f64> {
        writeln!(self.input, "{agents} {TURNS}")?;
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
