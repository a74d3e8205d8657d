//! The same tool as a FastMCP server.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

/// Variable with the directory of FastMCP, which has its Python in `bin`.
const DIRECTORY: &str = "RYE_BENCH_FASTMCP";

/// Returns its parameters, as ours does.
const SERVER: &str = r#"
from fastmcp import FastMCP

server = FastMCP("bench")

@server.tool
def execute(item_type: str, item_id: str, parameters: dict) -> dict:
    return parameters

server.run(show_banner=False)
"#;

pub(super) fn server() -> Result<Command> {
    let directory = std::env::var_os(DIRECTORY).map(PathBuf::from);
    let directory =
        directory.with_context(|| format!("{DIRECTORY} is not set: cargo xtask bench"))?;
    let mut python = Command::new(directory.join("bin/python"));
    python
        .args(["-c", SERVER])
        .env("PYTHONPATH", &directory)
        .env("FASTMCP_LOG_LEVEL", "ERROR")
        .env("FASTMCP_CHECK_FOR_UPDATES", "off");
    Ok(python)
}
