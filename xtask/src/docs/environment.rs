//! Generates the reference of environment variables from `rye config variables`.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::{capture, program};

/// Path of the page in the workspace.
pub(super) const PAGE: &str = "docs/reference/environment.md";

/// Generates the page from the binary's output.
pub(super) fn page(rye: &Path) -> Result<String> {
    let json = capture(&mut program(rye, ["config", "variables", "--json"]))?;
    let variables =
        serde_json::from_str(&json).context("`rye config variables` did not print JSON")?;
    Ok(markdown(&variables))
}

fn markdown(variables: &Value) -> String {
    let mut text = "<!-- Generated from `rye config variables` by `cargo xtask docs`. Edit the list in the code instead. -->\n\n\
        # Environment variables\n\n\
        ## Variables that rye reads\n\n\
        Options take precedence over variables, variables over files, files over defaults: see \
        [configuration](../configuration.md).\n\n\
        | variable | meaning |\n|---|---|\n"
        .to_owned();
    let read_at =
        |when: &'static str| rows(variables, "read").filter(move |row| row["read"] == when);
    for row in read_at("call") {
        let _ = writeln!(
            text,
            "| {} | {} |",
            code(&row["name"]),
            cell(&row["description"])
        );
    }
    text.push_str("\nAt build time:\n\n| variable | meaning |\n|---|---|\n");
    for row in read_at("build") {
        let _ = writeln!(
            text,
            "| {} | {} |",
            code(&row["name"]),
            cell(&row["description"])
        );
    }
    text.push_str(
        "\n## Variables that tools receive\n\n\
        The [runtimes](../runtimes.md) that ship with rye set these, in addition to the variables of the call and with \
        precedence over them. A project's runtime sets its own; `rye execute --trace` shows each with its origin.\n\n\
        | variable | runtimes | value |\n|---|---|---|\n",
    );
    for row in rows(variables, "passed") {
        let runtimes: Vec<_> = rows(row, "runtimes").map(code).collect();
        let (name, runtimes) = (code(&row["name"]), runtimes.join(", "));
        let _ = writeln!(text, "| {name} | {runtimes} | {} |", code(&row["value"]));
    }
    let withheld: Vec<_> = rows(variables, "withheld").map(code).collect();
    let _ = writeln!(
        text,
        "\n## Variables that tools never receive\n\nRye's own secrets: {}; {}.",
        withheld.join(", "),
        variables["withheld_patterns"].as_str().unwrap_or_default()
    );
    text
}

fn rows<'a>(variables: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    variables[list].as_array().into_iter().flatten()
}

/// Escapes a text for a table cell.
fn cell(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace('|', "\\|")
}

fn code(value: &Value) -> String {
    format!("`{}`", cell(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_variable_is_in_its_table() {
        let page = markdown(&json!({
            "read": [
                {"name": "HOME", "read": "call", "description": "a | b"},
                {"name": "KEY", "read": "build", "description": "c"},
            ],
            "passed": [{"name": "PY", "runtimes": ["a", "b"], "value": "it"}],
            "withheld": ["TOKEN"],
        }));
        let at = |row: &str| {
            page.find(row)
                .unwrap_or_else(|| panic!("{row} is missing in {page}"))
        };
        assert!(at("| `HOME` | a \\| b |\n") < at("At build time"));
        assert!(at("At build time") < at("| `KEY` | c |\n"));
        assert!(at("never receive") < at("`TOKEN`"));
        assert!(at("tools receive") < at("| `PY` | `a`, `b` | `it` |\n"));
    }
}
