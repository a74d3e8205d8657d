//! A task from `/init` to a reviewed diff and an undo. `cargo xtask chat-svg` records it.

use crate::chat::window::Window;
use crate::chat::{LOCAL, MODEL, env, wait_gate_grace};

/// The file to which the conversation is written with its colours, if it is set.
const RECORDING: &str = "RYE_RECORDING";

const SCRIPT: &str = r##"
steps:
  - tool_calls:
      - { name: glob, args: { pattern: "*" } }
      - { name: read, args: { path: README.md } }
  - tool_calls:
      - { name: write, args: { path: AGENTS.md, content: "# Greeter\n\nA shell script that greets people.\n\n- Test: `sh test.sh`\n" } }
  - text: "I wrote `AGENTS.md`: what the project is, and that `sh test.sh` runs its test."
  - tool_calls:
      - { name: plan, args: { steps: [{ text: see the test fail, status: in_progress }, { text: fix the greeting, status: pending }, { text: run the test again, status: pending }] } }
      - { name: bash, args: { command: sh test.sh } }
  - tool_calls:
      - { name: edit, args: { path: greet.sh, old: "Bye", new: "Hello" } }
  - tool_calls:
      - { name: bash, args: { command: sh test.sh } }
      - { name: plan, args: { steps: [{ text: see the test fail, status: done }, { text: fix the greeting, status: done }, { text: run the test again, status: done }] } }
  - text: "The greeting was wrong in `greet.sh:3`. It is fixed, and **the test passes**."
"##;

#[test]
fn task_from_init_to_a_reviewed_diff_and_an_undo() {
    let env = env(SCRIPT);
    env.write("project/README.md", "# Greeter\n\nGreets people.\n");
    let script = "#!/bin/sh\n# Greets one person.\necho \"Bye, $1!\"\n";
    env.write("project/greet.sh", script);
    let test = "sh greet.sh Ada | grep -qx 'Hello, Ada!' && echo 'ok' || { echo 'wrong greeting'; exit 1; }\n";
    env.write("project/test.sh", test);
    let window = Window::open(&env, &[MODEL, LOCAL].concat(), (96, 26));
    window.wait_ready();
    window.press("/init\r");
    // Agents follow the file, so a person reads it first.
    window.wait_gate();
    wait_gate_grace();
    window.press("y");
    window.wait_for("that sh test.sh runs its test");
    window.wait_ready();
    window.press("The test fails. Find out why and fix it.\r");
    window.wait_gate();
    wait_gate_grace();
    // The second run is the same command.
    window.press("a");
    window.wait_for("the test passes");
    window.wait_ready();
    window.press("/diff 2\r");
    window.wait_for("+echo \"Hello, $1!\"");
    window.press("/undo 2\r");
    window.wait_for("restored greet.sh");
    window.wait_for("the agent is told");
    assert_eq!(env.read("project/greet.sh"), script);
    assert!(env.path("project/AGENTS.md").exists());
    if let Some(file) = std::env::var_os(RECORDING) {
        let project = env.path("project").display().to_string();
        let lines = window.styled_lines().join("\n");
        std::fs::write(file, lines.replace(&project, "~/greeter")).unwrap();
    }
}
