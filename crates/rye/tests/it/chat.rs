//! `rye chat`, on a real terminal and with a scripted model.

mod commands;
mod first_screen;
mod gates;
mod input;
mod plain;
mod prompt_command;
mod queue;
mod random_keys;
mod recording;
mod rendering;
mod sessions;
mod signals;
mod sizes;
mod tasks;
mod threads;
mod user_commands;
mod window;

use crate::support::{TestEnv, json};

const WIDE: (u16, u16) = (80, 24);
const NARROW: (u16, u16) = (36, 16);

const SMALL: (u16, u16) = (20, 4);

/// The smallest size that works, the usual one and a large one.
const SIZES: [(&str, (u16, u16)); 3] =
    [("small", SMALL), ("normal", (80, 24)), ("large", (200, 60))];

/// Compares with a snapshot, without what differs from run to run.
macro_rules! assert_screen {
    ($name:expr, $screen:expr) => {
        insta::with_settings!({ filters => [
            (r"/tmp/\.tmp\w+/[a-z]{2}\s+[a-z]{5}\b", "TMP/project"),
            (r"/tmp/\.tmp\w+", "TMP"),
            (r"rye \d+\.\d+\.\d+", "rye VERSION"),
            // Ids may be wrapped.
            (r"gate:[0-9a-f\s┊:-]+:(approve:)?call", "gate:ID:call"),
            (r"task-(?:[0-9a-f][\s┊]*){31}[0-9a-f]", "task-ID"),
            (r"\b(?:[0-9a-f][\s┊]*){63}[0-9a-f]\b", "HASH"),
            (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]+", "ID"),
            (r"\b[0-9a-f]{16}\b", "HASH"),
            (r"\b[0-9a-f]{8}\b", "SHORT_ID"),
            (r"signed[\s┊]+by[\s┊]+\S+", "signed by KEY"),
            (r"in use by process \d+ on \S+", "in use by process PID on HOST"),
        ] }, { insta::assert_snapshot!($name, $screen) });
    };
}
use assert_screen;

fn env(script: &str) -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write("project/agent.yaml", script);
    env
}

const MODEL: &[&str] = &["--model", "scripted:agent.yaml"];
const LOCAL: &[&str] = &["--sandbox", "local"];

/// A project with a signed tool that needs approval, and an agent that calls it.
fn with_deploy() -> TestEnv {
    let script = "steps:\n  - tool_calls: [{ name: call_tool, args: { tool_id: 'rye:deploy', \
                  params: { to: prod }, summary: ship it } }]\n  - text: 'It said: ${last_tool_result}'\n\
                  after_last: { text: noted }\n";
    let env = env(script);
    assert!(env.run(&["init"]).status.success());
    let tool = "version: \"1.0.0\"\ndescription: Puts it into production\nrisk_level: high\n\
                executor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: 'echo once >> ran.txt; cat ran.txt'\n\
                config_schema:\n  type: object\n  properties: { to: { type: string } }\n";
    env.write("project/.ai/tools/deploy.yaml", tool);
    assert!(env.run(&["sign", "deploy"]).status.success());
    env
}

/// How often the `deploy` tool ran.
fn run_count(env: &TestEnv) -> usize {
    let text = std::fs::read_to_string(env.path("project/ran.txt")).unwrap_or_default();
    text.lines().count()
}

/// Waits until the gate on the screen takes answers.
fn wait_gate_grace() {
    std::thread::sleep(std::time::Duration::from_millis(450));
}

/// The id of the top-level session.
fn session(env: &TestEnv) -> String {
    let listed = json(&env.run(&["session", "list", "--json"]));
    let sessions = listed["sessions"].as_array().unwrap();
    let top = sessions.iter().find(|it| it["parent"].is_null());
    top.unwrap()["id"].as_str().unwrap().to_owned()
}

/// The id of the pending gate.
fn gate(env: &TestEnv) -> String {
    let listed = json(&env.run(&["gate", "list", "--json"]));
    listed["gates"][0]["id"].as_str().unwrap().to_owned()
}

/// Replaces the spinner, whose frame depends on the time.
fn without_spinner(screen: &str) -> String {
    screen.replace(['⠋', '⠙', '⠸', '⠴', '⠦', '⠇', '⠏', '⠹'], "*")
}

const SLOW: &str = "steps:\n  - { text: slow, delay_ms: 600000 }\n";

const PAGE: &str = r"
steps:
  - text: |
      # Hello

      Some *words*, a [link](https://example.org) and `code`:

      ```python
      def f(x):
          return x + 1  # one more
      ```

      | name | what |
      |------|------|
      | a    | the first of them |
      | b    | the second |

      1. one
      2. two
    chunk_chars: 7
    chunk_ms: 1
";
