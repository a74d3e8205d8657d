//! A project with test tools, and clients of `rye mcp serve`.

pub(crate) mod http;
pub(crate) mod stdio;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use lillux::process::Handle;
use serde_json::{Value, json};

use crate::support::TestEnv;

/// Timeout for events that must happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

const TIDY: &str = r#"# Tidy

<directive name="tidy" version="1.0.0">
  <metadata><description>Tidies up</description></metadata>
  <inputs><input name="where" type="string" required="true">Where</input></inputs>
</directive>
"#;

/// A user with a key and a project with tools; `fresh` is not signed. Next to it, an empty
/// directory `elsewhere`.
pub(crate) fn env() -> TestEnv {
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
    // Writes the id of a process that must not survive.
    let slow = "sleep 600 & echo $! >pid.new; mv pid.new pid; echo started; wait";
    tool(&env, "slow", slow);
    // Ends when a file is created.
    let held = "touch held; until [ -e go ]; do sleep 0.02; done; echo done; touch ended";
    tool(&env, "held", held);
    env.write("project/.ai/directives/tidy.md", TIDY);
    let signed = env.run(&["sign", "--all"]);
    assert!(signed.status.success(), "{signed:?}");
    tool(&env, "fresh", "echo fresh");
    env
}

/// Writes a tool that runs a shell command.
pub(crate) fn tool(env: &TestEnv, name: &str, command: &str) {
    let text = format!(
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\n\
         description: The tool {name}\nconfig:\n  command: '{command}'\n"
    );
    env.write(&format!("project/.ai/tools/{name}.yaml"), &text);
}

/// Parameters of `tools/call` that execute a tool of the project.
pub(crate) fn execute(tool: &str) -> Value {
    json!({ "name": "execute", "arguments": { "item_type": "tool", "item_id": tool } })
}

/// Waits until a file exists and returns its content.
pub(crate) fn wait_for_file(path: &Path) -> String {
    poll_until(|| fs::read_to_string(path).ok(), &path.display())
}

/// Waits until a process has ended.
pub(crate) fn wait_for_exit(pid: &str) {
    // A missing process has ended.
    if let Ok(process) = Handle::from_pid(pid.trim().parse().unwrap()) {
        let gone = process.wait(Some(TIMEOUT)).unwrap();
        assert!(gone, "{process} does not end");
    }
}

/// Waits for the exit status of a child process.
pub(crate) fn wait_for_status(child: &mut Child) -> ExitStatus {
    wait_for_exit(&child.id().to_string());
    child.wait().unwrap()
}

fn poll_until<T>(poll: impl Fn() -> Option<T>, what: &dyn std::fmt::Display) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(start.elapsed() < TIMEOUT, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Processes with their working directory in a project: tools and their descendants.
pub(crate) fn processes_in(folder: &Path) -> Vec<String> {
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

/// A directory that `cargo xtask test` installs for tests: `target/tools/NAME-…`.
pub(crate) fn tools_dir(name: &str) -> PathBuf {
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
