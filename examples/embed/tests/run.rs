//! The example does what its page says.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write as _;
use std::process::{Command, Stdio};

fn run(answer: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_embed"))
        .current_dir(folder.path())
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
    assert!(folder.path().join("sessions.db").is_file());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_example_asks_and_tells_what_was_decided() {
    for action in ["approve", "deny"] {
        let said = format!("deploy to production? [approve/deny]\nada said: {action}\nI asked.\n");
        assert_eq!(run(&format!("{action}\n")), said);
    }
}

#[test]
fn the_example_is_short_and_its_page_shows_it() {
    let program = include_str!("../src/main.rs");
    assert!(program.lines().count() < 60, "it is no longer short");
    let page = include_str!("../../../docs/embedding.md");
    let shown = program.split_once("struct Deploy").unwrap().1;
    assert!(
        page.contains(shown),
        "docs/embedding.md shows another program"
    );
}
