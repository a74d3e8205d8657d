//! Turns in memory, beside another runtime of agents that keeps nothing either.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use rye_store::Memory;
use tokio::task::JoinSet;

use super::durable::middle;
use super::runtime;
use super::work::{Talk, engine};
use crate::table::Row;

/// Where `@mariozechner/pi-agent-core` is installed, and the Node that runs it.
const PEER: &str = "RYE_BENCH_PI";
const NODE: &str = "RYE_BENCH_NODE";

const ROUNDS: usize = 15;
/// Turns of one session.
const TURNS: u32 = 200;
const AT_ONCE: u32 = 10;
/// Five times as many turns a second.
const GOAL: f64 = 1.0 / 5.0;

/// One after the other, and ten at once.
pub(super) fn run() -> Result<Vec<Row>> {
    let mut peer = Peer::start()?;
    let rows = [
        (1, "a turn in memory, beside pi-agent-core"),
        (AT_ONCE, "the same, ten at once"),
    ];
    let rows = rows.map(|(sessions, what)| {
        let (mut floors, mut all_ours) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let (floor, ours) = (peer.turns(sessions)?, turns(sessions)?);
            // What is compiled as it runs is let run for a while first.
            if round >= ROUNDS / 3 {
                floors.push(floor);
                all_ours.push(ours);
            }
        }
        let count = f64::from(sessions * TURNS);
        let times = (middle(floors) / count, middle(all_ours) / count);
        Ok(Row::time(what, times, GOAL))
    });
    rows.into_iter().collect()
}

fn turns(sessions: u32) -> Result<f64> {
    runtime()?.block_on(async {
        let engine = engine(Memory::new(), "look")?;
        let start = Instant::now();
        let mut all = JoinSet::new();
        for _ in 0..sessions {
            let engine = engine.clone();
            all.spawn(async move {
                let mut talk = Talk::begin(&engine).await?;
                for _ in 0..TURNS {
                    talk.turn().await?;
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

/// A process that does the same turns when told to.
struct Peer {
    child: Child,
    tell: ChildStdin,
    told: Lines<BufReader<ChildStdout>>,
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
        let tell = child.stdin.take().context("it has no input")?;
        let told = child.stdout.take().context("it has no output")?;
        let told = BufReader::new(told).lines();
        Ok(Self { child, tell, told })
    }

    fn turns(&mut self, agents: u32) -> Result<f64> {
        writeln!(self.tell, "{agents} {TURNS}")?;
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
