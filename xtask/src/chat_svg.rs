//! `cargo xtask chat-svg`: records a conversation with `rye chat` as an animated SVG of a terminal.
//!
//! A scripted model takes the place of a provider; everything else is real: the tools run in the
//! default sandbox of a project, and the diff is that of the tool.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::demo_svg::{Picture, write_picture};
use crate::docs::build_binary;
use crate::output::print_line;

/// Path of the picture in the workspace.
const PICTURE: &str = "docs/chat.svg";

const SHOP: &str = "\
def total(prices, discount=0):
    \"\"\"Sum of the prices, less a discount in per cent.\"\"\"
    result = 0
    for price in prices:
        result += price
    return result - discount


def mean(prices):
    return total(prices) / len(prices)
";

const TEST: &str = "\
import unittest
from shop import total


class TotalTest(unittest.TestCase):
    def test_discount_is_per_cent(self):
        self.assertEqual(total([100, 100], discount=10), 180)


if __name__ == '__main__':
    unittest.main()
";

const SCRIPT: &str = r"
steps:
  - tool_calls:
      - { name: glob, args: { pattern: '**/*' } }
      - { name: read, args: { path: shop.py } }
  - tool_calls:
      - name: write
        args:
          path: AGENTS.md
          content: |
            # Shop

            Prices in Python, without dependencies.

            - Tests: `python3 test_shop.py`; one of them: add its name.
            - Amounts are numbers; a discount is in per cent.
  - text: I wrote **AGENTS.md**. It says what the project is and how to test it.
  - tool_calls: [{ name: bash, args: { command: 'python3 test_shop.py' } }]
  - tool_calls:
      - name: edit
        args:
          path: shop.py
          old: '    return result - discount'
          new: '    return result * (100 - discount) / 100'
  - tool_calls: [{ name: bash, args: { command: 'python3 test_shop.py' } }]
  - text: |
      `total` subtracted the discount as an amount.
      Now it is **per cent**, as its docstring says, and the test passes.
";

/// What the user types, and the text after which the next line is typed.
const LINES: [(&str, &str); 3] = [
    ("/init", "how to test it"),
    (
        "The discount is wrong. Fix it and run the tests.",
        "the test passes",
    ),
    ("/verify", "verified"),
];

/// Builds `rye`, has the conversation and writes the picture.
pub(crate) fn main() -> Result<()> {
    let rye = build_binary("rye")?;
    let home = std::env::temp_dir().join(format!("rye-chat-svg-{}", std::process::id()));
    let recorded = record(&rye, &home);
    // Best effort: it is a temporary directory.
    let _ = fs::remove_dir_all(&home);
    let picture = Picture {
        title: "rye chat",
        label: "A terminal in which an agent writes AGENTS.md, fixes a bug and runs the tests; \
                the chat shows the diff, and the record is verified",
        command: "cargo xtask chat-svg",
    };
    write_picture(PICTURE, &picture, &recorded?)?;
    print_line!("wrote {PICTURE}");
    Ok(())
}

fn record(rye: &Path, home: &Path) -> Result<String> {
    let project = home.join("shop");
    fs::create_dir_all(project.join(".ai"))?;
    fs::write(project.join("shop.py"), SHOP)?;
    fs::write(project.join("test_shop.py"), TEST)?;
    fs::write(home.join("agent.yaml"), SCRIPT)?;
    let model = format!("scripted:{}", home.join("agent.yaml").display());
    let mut chat = Command::new(rye)
        .args(["chat", "--plain", "--color", "always", "--model", &model])
        .current_dir(&project)
        .env("HOME", home)
        .env("USER", "ada")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start rye chat")?;
    let mut input = chat.stdin.take().context("no standard input")?;
    let mut output = BufReader::new(chat.stdout.take().context("no standard output")?);
    let mut text = String::from("$ rye chat\n");
    for (line, last) in LINES {
        writeln!(input, "{line}")?;
        let from = text.len();
        while !text[from..].contains(last) {
            if output.read_line(&mut text)? == 0 {
                bail!("the chat ended before it printed {last:?}:\n{text}");
            }
        }
    }
    drop(input);
    while output.read_line(&mut text)? > 0 {}
    ensure!(chat.wait()?.success(), "rye chat failed:\n{text}");
    Ok(text)
}
