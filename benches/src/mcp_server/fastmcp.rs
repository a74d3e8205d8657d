//! The same tool as a Python program.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

/// Where FastMCP is installed, with the Python that runs it in `bin`.
const PLACE: &str = "RYE_BENCH_FASTMCP";

/// It gives what it is given, as ours does.
const SERVER: &str = r#"
from fastmcp import FastMCP

server = FastMCP("bench")

@server.tool
def execute(item_type: str, item_id: str, parameters: dict) -> dict:
    return parameters

server.run(show_banner=False)
"#;

pub(super) fn server() -> Result<Command> {
    let place = std::env::var_os(PLACE).map(PathBuf::from);
    let place = place.with_context(|| format!("{PLACE} is not set: cargo xtask bench"))?;
    let mut python = Command::new(place.join("bin/python"));
    python
        .args(["-c", SERVER])
        .env("PYTHONPATH", &place)
        .env("FASTMCP_LOG_LEVEL", "ERROR")
        .env("FASTMCP_CHECK_FOR_UPDATES", "off");
    Ok(python)
}
