//! A project with tools of every temper, and `rye mcp serve` in front of it.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "each test program compiles this anew, uses its part, and fails by panicking"
)]

pub mod http;
pub mod stdio;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use lillux::process::Handle;
use serde_json::{Value, json};

use crate::support::TestEnv;

/// How long anything is waited for that must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

const TIDY: &str = r#"# Tidy

<directive name="tidy" version="1.0.0">
  <metadata><description>Tidies up</description></metadata>
  <inputs><input name="where" type="string" required="true">Where</input></inputs>
</directive>
"#;

/// A user with a key and a project with tools; `fresh` is not signed. Beside them a folder
/// `elsewhere` that has nothing.
pub fn env() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    fs::create_dir(env.path("elsewhere")).unwrap();
    tool(&env, "greet", "echo hello; cat");
    tool(&env, "fails", "echo why >&2; exit 7");
    tool(&env, "careful", "touch approved");
    let careful = env.read("project/.ai/tools/careful.yaml");
    let careful = format!("requires_approval: true\n{careful}");
    env.write("project/.ai/tools/careful.yaml", &careful);
    // It tells the process that must not be left when it is ended.
    let slow = "sleep 600 & echo $! >pid.new; mv pid.new pid; echo started; wait";
    tool(&env, "slow", slow);
    // It ends when somebody makes a file.
    let held = "touch held; until [ -e go ]; do sleep 0.02; done; echo done; touch ended";
    tool(&env, "held", held);
    env.write("project/.ai/directives/tidy.md", TIDY);
    let signed = env.run(&["sign", "--all"]);
    assert!(signed.status.success(), "{signed:?}");
    tool(&env, "fresh", "echo fresh");
    env
}

/// Writes a tool that is a line of shell.
pub fn tool(env: &TestEnv, name: &str, command: &str) {
    let text = format!(
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\n\
         description: The tool {name}\nconfig:\n  command: '{command}'\n"
    );
    env.write(&format!("project/.ai/tools/{name}.yaml"), &text);
}

/// The parameters of `tools/call` that run a tool of the project.
pub fn execute(tool: &str) -> Value {
    json!({ "name": "execute", "arguments": { "item_type": "tool", "item_id": tool } })
}

/// Waits until a file is there, and gives what is in it.
pub fn appears(path: &Path) -> String {
    until(|| fs::read_to_string(path).ok(), &path.display())
}

/// Waits until a process is gone.
pub fn ends(pid: &str) {
    // One that is not there has ended.
    if let Ok(process) = Handle::from_pid(pid.trim().parse().unwrap()) {
        let gone = process.wait(Some(PATIENCE)).unwrap();
        assert!(gone, "{process} does not end");
    }
}

/// How a process of ours ended, once it has.
pub fn ended(child: &mut Child) -> ExitStatus {
    ends(&child.id().to_string());
    child.wait().unwrap()
}

fn until<T>(look: impl Fn() -> Option<T>, what: &dyn std::fmt::Display) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "in vain waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The processes that run in a project: tools, and what they started.
pub fn processes_in(folder: &Path) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let inside = all.filter(|process| {
        let cwd = fs::read_link(process.path().join("cwd"));
        cwd.is_ok_and(|cwd| cwd.starts_with(folder))
    });
    inside
        .map(|process| {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ")
        })
        .collect()
}

/// The folder of something that `cargo xtask test` keeps for tests: `target/tools/NAME-…`.
pub fn kept(name: &str) -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let folders = fs::read_dir(&tools).into_iter().flatten().flatten();
    let versions = folders.map(|folder| folder.path()).filter(|folder| {
        let found = folder.file_name().unwrap_or_default().to_string_lossy();
        let version = found.strip_prefix(name).and_then(|it| it.strip_prefix('-'));
        let is_version = |it: &str| it.starts_with(|c: char| c.is_ascii_digit());
        version.is_some_and(is_version) && !found.ends_with(".partial")
    });
    versions.max().unwrap_or_else(|| {
        panic!("no {name} in target/tools; `cargo xtask test --only tests` puts it there")
    })
}
