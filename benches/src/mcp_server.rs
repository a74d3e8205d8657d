//! Overhead of our MCP server, compared with a minimal server of the SDK.
//!
//! Both servers are child processes of this program: an echo server, and ours with an empty
//! primitive behind `execute`, so that the protocol, the chain and its verification are
//! measured, but no process. A third server uses FastMCP.

mod client;
mod fastmcp;
pub mod serve;

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::measure::try_interleaved;
use crate::table::{Row, Unit};
use client::{Http, Stdio as StdioClient};

/// Calls per measurement.
const CALLS: usize = 100;
/// Concurrent calls.
const CONCURRENCY: usize = 64;
const ROUNDS: usize = 15;

/// Calls over both transports, start time, and memory of an idle server.
pub fn run() -> Result<Vec<Row>> {
    let rye = std::env::var("RYE_BIN").context("RYE_BIN is not set: cargo xtask bench")?;
    let mut echo = StdioClient::start(&mut serve::child_command("echo", "stdio")?)?;
    let mut ours = StdioClient::start(&mut serve::child_command("noop", "stdio")?)?;
    let sequential = try_interleaved(
        ROUNDS,
        || echo.calls(CALLS, 1, "echo"),
        || ours.calls(CALLS, 1, "execute"),
    )?;
    let concurrent = try_interleaved(
        ROUNDS,
        || echo.calls(CALLS * 4, CONCURRENCY, "echo"),
        || ours.calls(CALLS * 4, CONCURRENCY, "execute"),
    )?;
    let mut python = StdioClient::start(&mut fastmcp::server()?)?;
    let vs_fastmcp = try_interleaved(
        ROUNDS,
        || python.calls(CALLS, 1, "execute"),
        || ours.calls(CALLS, 1, "execute"),
    )?;
    let mut echo = Http::start(&mut serve::child_command("echo", "http")?)?;
    let mut ours = Http::start(&mut serve::child_command("noop", "http")?)?;
    let over_http = try_interleaved(
        ROUNDS,
        || echo.calls(CALLS, "echo"),
        || ours.calls(CALLS, "execute"),
    )?;
    let start = try_interleaved(50, run_true, || {
        StdioClient::start(Command::new(&rye).args(["mcp", "serve"])).map(drop)
    })?;
    let idle = StdioClient::start(Command::new(&rye).args(["mcp", "serve"]))?;
    // 70 % of the echo server's throughput: 1 / 0.7 of its time.
    Ok(vec![
        Row::time(
            "100 empty calls over stdio vs. echo server",
            sequential,
            1.43,
        ),
        Row::time(
            "400 of them, 64 concurrent vs. echo server",
            concurrent,
            1.43,
        ),
        Row::time("100 of them vs. FastMCP", vs_fastmcp, 0.1),
        Row::time("100 empty calls over HTTP vs. echo server", over_http, 1.43),
        Row::time("start to the initialize response vs. /bin/true", start, 4.0),
        Row {
            name: "memory of an idle server vs. 20 MiB".to_owned(),
            ours: idle.resident()?,
            baseline: f64::from(20 << 20),
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
