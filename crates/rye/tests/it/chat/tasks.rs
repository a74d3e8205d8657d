//! Gates of tasks, shown in the parent's chat.

use crate::chat::window::Window;
use crate::chat::{
    LOCAL, MODEL, assert_screen, env, gate, run_count, session, wait_gate_grace, without_spinner,
};
use crate::support::TestEnv;

/// A project with an agent that starts a task whose command needs approval.
fn with_task() -> TestEnv {
    let env = env(
        "steps:\n  - tool_calls: [{ name: task, args: { prompt: 'look after it', model: 'scripted:child.yaml' } }]\n  \
         - text: 'They said: ${last_tool_result}'\n",
    );
    let child = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo once >> ran.txt; cat ran.txt' } }]\n  \
                 - text: 'It is ${last_tool_result}'\n";
    env.write("project/child.yaml", child);
    env
}

#[test]
fn task_gate_is_shown_and_closes_when_answered_elsewhere() {
    for (name, size) in [("task_wide", (80, 24)), ("task_narrow", (36, 30))] {
        let env = with_task();
        let window = Window::open(&env, &[MODEL, LOCAL].concat(), size);
        window.wait_ready();
        window.press("go\r");
        let gate_screen = window.wait_gate();
        let approved = env.run(&["gate", "approve", &gate(&env)]);
        assert!(approved.status.success(), "{approved:?}");
        window.wait_for("They said: It is once");
        // Events of the two sessions arrive in any order.
        window.wait_until("the end", |screen| {
            screen.contains("ready ·") && screen.contains("approved by ada (cli)")
        });
        assert_screen!(name, gate_screen);
        assert_eq!(run_count(&env), 1);
    }
}

#[test]
fn task_gate_is_still_pending_after_a_kill() {
    for (name, size) in [
        ("task_resumed_wide", (80, 24)),
        ("task_resumed_narrow", (36, 30)),
    ] {
        let env = with_task();
        let window = Window::open(&env, &[MODEL, LOCAL].concat(), size);
        window.wait_ready();
        window.press("go\r");
        window.wait_gate();
        window.kill();
        // The session has stored its model and sandbox.
        let window = Window::open(&env, &["--session", &session(&env)], size);
        let gate_screen = window.wait_gate();
        assert_screen!(name, without_spinner(&gate_screen));
        assert_eq!(run_count(&env), 0);
        wait_gate_grace();
        window.press("y");
        window.wait_for("approved by ada (chat)");
        window.wait_for("They said: It is once");
        window.wait_ready();
        assert_eq!(run_count(&env), 1);
    }
}
