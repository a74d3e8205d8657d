//! The page of variables, as `rye config variables` tells them.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run::{output, program};

/// Where it is, from the workspace's folder.
pub(super) const PAGE: &str = "docs/reference/environment.md";

/// Asks the binary for its variables.
pub(super) fn page(rye: &Path) -> Result<String> {
    let told = output(&mut program(rye, ["config", "variables", "--json"]))?;
    let told = serde_json::from_str(&told).context("rye told its variables, but not as JSON")?;
    Ok(markdown(&told))
}

fn markdown(told: &Value) -> String {
    let mut text = "<!-- Generated from `rye config variables` by `cargo xtask docs`. Edit the list in the code, not this. -->\n\n\
        # Variables of the environment\n\n\
        ## What rye reads\n\n\
        An option goes before a variable, a variable before a file, a file before the default: see \
        [configuration](../configuration.md).\n\n\
        | variable | says |\n|---|---|\n"
        .to_owned();
    let read_at = |when: &'static str| rows(told, "read").filter(move |row| row["read"] == when);
    for row in read_at("call") {
        let _ = writeln!(text, "| {} | {} |", code(&row["name"]), cell(&row["says"]));
    }
    text.push_str("\nWhen rye itself is built:\n\n| variable | says |\n|---|---|\n");
    for row in read_at("build") {
        let _ = writeln!(text, "| {} | {} |", code(&row["name"]), cell(&row["says"]));
    }
    text.push_str(
        "\n## What tools are given\n\n\
        Beside the variables of the call, and over them, by the [runtimes](../runtimes.md) that ship with rye. \
        A runtime of a project gives its own; `rye execute --trace` shows each with its origin.\n\n\
        | variable | runtimes | holds |\n|---|---|---|\n",
    );
    for row in rows(told, "given") {
        let runtimes: Vec<_> = rows(row, "runtimes").map(code).collect();
        let (name, runtimes) = (code(&row["name"]), runtimes.join(", "));
        let _ = writeln!(text, "| {name} | {runtimes} | {} |", code(&row["holds"]));
    }
    let withheld: Vec<_> = rows(told, "withheld").map(code).collect();
    let _ = writeln!(
        text,
        "\n## What tools are never given\n\nThe program's own secrets: {}; {}.",
        withheld.join(", "),
        told["withheld_too"].as_str().unwrap_or_default()
    );
    text
}

fn rows<'a>(told: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    told[list].as_array().into_iter().flatten()
}

/// A text that does not end the cell it stands in.
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
    fn each_variable_is_a_row_of_the_table_it_belongs_to() {
        let page = markdown(&json!({
            "read": [
                {"name": "HOME", "read": "call", "says": "a | b"},
                {"name": "KEY", "read": "build", "says": "c"},
            ],
            "given": [{"name": "PY", "runtimes": ["a", "b"], "holds": "it"}],
            "withheld": ["TOKEN"],
        }));
        let at = |row: &str| {
            page.find(row)
                .unwrap_or_else(|| panic!("{row} is not in {page}"))
        };
        assert!(at("| `HOME` | a \\| b |\n") < at("is built"));
        assert!(at("is built") < at("| `KEY` | c |\n"));
        assert!(at("never given") < at("`TOKEN`"));
        assert!(at("are given") < at("| `PY` | `a`, `b` | `it` |\n"));
    }
}
