//! Generates the page of clients: how to connect each, and what the tests do with the ones that
//! they run. The rows are read from the tests.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::paths;
use crate::tools;

/// Path of the page in the workspace.
pub(super) const PAGE: &str = "docs/clients/README.md";

const START: &str = "<!-- Generated from the tests by `cargo xtask docs`. Edit xtask/src/docs/clients.rs instead. -->

# Clients

How to connect a client: [Claude Code](claude-code.md), [Claude Desktop](claude-desktop.md), [Codex](codex.md), [Cursor](cursor.md), [Gemini](gemini.md), [opencode](opencode.md), [VS Code](vscode.md), [Windsurf](windsurf.md) and [Zed](zed.md) use signed items over MCP. [Zed](zed-agent.md), [JetBrains](jetbrains.md), [neovim](neovim.md) and [Emacs](emacs.md) run an agent with the Agent Client Protocol. Clients of the [OpenAI API](../openai.md) and of [AG-UI](../ag-ui.md) need only an address and a token.

`cargo xtask test` runs these clients, in these versions, with the real binary.
";

/// Tests of the Agent Client Protocol with both SDKs.
const ACP_TESTS: &str = "crates/rye/tests/it/acp_clients.rs";
/// Tests of the protocol over WebSocket, with the TypeScript SDK.
const SOCKET_TESTS: &str = "crates/rye/tests/it/acp_socket.rs";
/// Tests of `rye mcp serve` with other people's clients.
const MCP_TESTS: &str = "crates/rye/tests/it/mcp_clients.rs";
/// The clients of `rye serve`. Each names its scenarios.
const HTTP_CLIENTS: [&str; 4] = [
    "crates/rye-server/tests/clients/openai_python.py",
    "crates/rye-server/tests/clients/openai_node.mjs",
    "crates/rye-server/tests/clients/ag_ui_node.mjs",
    "crates/rye-server/tests/clients/ag_ui_python.py",
];

/// Generates the page.
pub(super) fn page() -> Result<String> {
    let mut text = START.to_owned();
    let mut section = |title: &str, rows: &[(String, String)]| {
        let _ = write!(text, "\n## {title}\n\n| client | scenario |\n|---|---|\n");
        for (client, scenario) in rows {
            let _ = writeln!(text, "| {client} | {scenario} |");
        }
    };
    section("Agent Client Protocol", &acp_rows()?);
    let rows = http_rows()?;
    let is_ag_ui = |row: &&(String, String)| row.0.contains("ag-ui");
    let openai: Vec<_> = rows.iter().filter(|row| !is_ag_ui(row)).cloned().collect();
    section("OpenAI API", &openai);
    let ag_ui: Vec<_> = rows.iter().filter(is_ag_ui).cloned().collect();
    section("AG-UI", &ag_ui);
    section("Model Context Protocol", &mcp_rows()?);
    Ok(text)
}

fn acp_rows() -> Result<Vec<(String, String)>> {
    let tests = read(ACP_TESTS)?;
    let names = tests.split_once("with_both_sdks!(\n");
    let names = names.and_then(|(_, rest)| rest.split_once(");"));
    let (names, _) = names.with_context(|| format!("{ACP_TESTS} does not name its tests"))?;
    let names: Vec<_> = names.split(',').map(str::trim).collect();
    let names = names.into_iter().filter(|name| !name.is_empty());
    let names: Vec<_> = names.map(sentence).collect();
    let mut rows = Vec::new();
    for client in ["acp-typescript", "acp-python"] {
        let client = label(client)?;
        rows.extend(names.iter().map(|name| (client.clone(), name.clone())));
    }
    for name in test_names(&read(SOCKET_TESTS)?) {
        if name.starts_with("editor_") {
            rows.push((label("acp-typescript")?, sentence(name)));
        }
    }
    for name in test_names(&tests) {
        if name.starts_with("acpx_") {
            rows.push((label("acpx")?, sentence(name)));
        }
    }
    Ok(rows)
}

fn http_rows() -> Result<Vec<(String, String)>> {
    let mut rows = Vec::new();
    for script in HTTP_CLIENTS {
        let found = scenarios(&read(script)?);
        if found.is_empty() {
            bail!("{script} names no scenarios");
        }
        for (client, scenario) in found {
            rows.push((label(&client)?, scenario));
        }
    }
    Ok(rows)
}

fn mcp_rows() -> Result<Vec<(String, String)>> {
    let tests = read(MCP_TESTS)?;
    let mut rows = Vec::new();
    for name in test_names(&tests) {
        let (client, scenario) = match name.split_once("_over_") {
            Some(("python_client", rest)) => ("mcp-python", rest),
            Some(("typescript_client", rest)) => ("mcp-typescript", rest),
            Some(("inspector", rest)) => ("mcp-inspector", rest),
            _ => bail!("{MCP_TESTS}: the test {name} names no client"),
        };
        let scenario = format!("`rye mcp serve` over {}", sentence(scenario));
        rows.push((label(client)?, scenario));
    }
    Ok(rows)
}

/// Name and version of a client.
fn label(client: &str) -> Result<String> {
    let (name, version) = tools::client_version(client)
        .with_context(|| format!("tests run the unknown client {client}"))?;
    Ok(format!("{name} {version}"))
}

/// The client and the name of each scenario of a script: the first two texts in calls of the
/// function `scenario`.
fn scenarios(script: &str) -> Vec<(String, String)> {
    let calls = script.lines().filter_map(|line| {
        let (before, call) = line.split_once("scenario(")?;
        let is_call = !before.contains("def ") && !before.contains("function ");
        let call = call.trim_start();
        let quote = call
            .chars()
            .next()
            .filter(|it| is_call && "'\"".contains(*it))?;
        let mut texts = call.split(quote).skip(1).step_by(2);
        Some((texts.next()?.to_owned(), texts.next()?.to_owned()))
    });
    calls.collect()
}

/// The names of the tests in a file.
fn test_names(tests: &str) -> Vec<&str> {
    let functions = tests.split("#[test]\nfn ").skip(1);
    let names = functions.filter_map(|function| function.split('(').next());
    names.collect()
}

fn sentence(name: &str) -> String {
    name.replace('_', " ")
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(paths::workspace().join(file)).with_context(|| format!("cannot read {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_calls_with_two_texts() {
        let script = "def scenario(client, name, check):\n\
            async function scenario(client, name, check) {\n\
            x = scenario(\"a\", \"it's listed\", check)\n\
            await scenario('b', 'runs', async () => {\n\
            // see scenario(client)\n";
        let expected = [("a", "it's listed"), ("b", "runs")];
        let expected = expected.map(|(client, name)| (client.to_owned(), name.to_owned()));
        assert_eq!(scenarios(script), expected);
    }

    #[test]
    fn page_has_a_row_for_each_client() {
        let page = page().unwrap();
        for client in tools::CLIENTS {
            let (name, version) = tools::client_version(client).unwrap();
            assert!(page.contains(&format!("| {name} {version} |")), "{client}");
        }
    }
}
