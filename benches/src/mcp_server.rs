//! What the way through the five tools costs, beside the least that the SDK can do.
//!
//! Both servers are this program, started again: one that only echoes, and the real one
//! with a primitive that does nothing behind `execute`, so that what is measured is the
//! protocol, the chain and its verification, and no process. A third is what most people
//! would write, with FastMCP.

mod client;
mod fastmcp;
pub mod serve;

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::measure::try_interleaved;
use crate::table::{Row, Unit};
use client::{Http, Stdio as StdioClient};

/// Calls that are timed together.
const CALLS: usize = 100;
/// Calls that are under way together.
const AT_ONCE: usize = 64;
const ROUNDS: usize = 15;

/// Calls over both transports, the start, and the memory of a server at rest.
pub fn run() -> Result<Vec<Row>> {
    let rye = std::env::var("RYE_BIN").context("RYE_BIN is not set: cargo xtask bench")?;
    let mut echo = StdioClient::start(&mut serve::again("echo", "stdio")?)?;
    let mut ours = StdioClient::start(&mut serve::again("noop", "stdio")?)?;
    let alone = try_interleaved(
        ROUNDS,
        || echo.calls(CALLS, 1, "echo"),
        || ours.calls(CALLS, 1, "execute"),
    )?;
    let together = try_interleaved(
        ROUNDS,
        || echo.calls(CALLS * 4, AT_ONCE, "echo"),
        || ours.calls(CALLS * 4, AT_ONCE, "execute"),
    )?;
    let mut python = StdioClient::start(&mut fastmcp::server()?)?;
    let beside_python = try_interleaved(
        ROUNDS,
        || python.calls(CALLS, 1, "execute"),
        || ours.calls(CALLS, 1, "execute"),
    )?;
    let mut echo = Http::start(&mut serve::again("echo", "http")?)?;
    let mut ours = Http::start(&mut serve::again("noop", "http")?)?;
    let over_http = try_interleaved(
        ROUNDS,
        || echo.calls(CALLS, "echo"),
        || ours.calls(CALLS, "execute"),
    )?;
    let start = try_interleaved(50, run_true, || {
        StdioClient::start(Command::new(&rye).args(["mcp", "serve"])).map(drop)
    })?;
    let idle = StdioClient::start(Command::new(&rye).args(["mcp", "serve"]))?;
    // 0.7 of its calls a second is 1/0.7 of its time.
    Ok(vec![
        Row::time(
            "100 calls of nothing over stdio, beside an echo",
            alone,
            1.43,
        ),
        Row::time("400 of them, 64 at once", together, 1.43),
        Row::time("100 of them, beside FastMCP", beside_python, 0.1),
        Row::time("100 over HTTP, beside an echo", over_http, 1.43),
        Row::time(
            "start to the answer to initialize, beside /bin/true",
            start,
            3.0,
        ),
        Row {
            what: "memory of a server at rest, beside 20 MiB".to_owned(),
            ours: idle.resident()?,
            floor: f64::from(20 << 20),
            goal: 1.0,
            unit: Unit::Bytes,
        },
    ])
}

fn run_true() -> Result<()> {
    let mut child = Command::new("/bin/true").stdin(Stdio::null()).spawn()?;
    ensure!(child.wait()?.success());
    Ok(())
}
