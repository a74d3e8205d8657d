//! The example works as documented.

#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::io::Write as _;
use std::process::{Command, Stdio};

fn run(answer: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_embed"))
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(answer.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(directory.path().join("sessions.db").is_file());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn example_asks_for_approval_and_prints_the_decision() {
    for action in ["approve", "deny"] {
        let expected =
            format!("deploy to production? [approve/deny]\nada said: {action}\nI asked.\n");
        assert_eq!(run(&format!("{action}\n")), expected);
    }
}

#[test]
fn documentation_shows_the_example() {
    let program = include_str!("../src/main.rs");
    assert!(
        program.lines().count() < 60,
        "the example is too long for the documentation"
    );
    let documentation = include_str!("../../../docs/embedding.md");
    let code = program.split_once("struct Deploy").unwrap().1;
    assert!(
        documentation.contains(code),
        "docs/embedding.md does not show the current example"
    );
}
