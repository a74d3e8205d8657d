//! `rye prompt` on a terminal.

use crate::chat::window::Window;
use crate::chat::{WIDE, assert_screen, run_count, session, with_deploy};
use crate::support::{TestEnv, json};

#[test]
fn gate_is_answered_on_the_terminal_while_stdin_is_a_pipe() {
    for (name, size) in [
        ("gate_answered_wide", WIDE),
        ("gate_answered_narrow", (36, 40)),
    ] {
        for (answer, times) in [("y", 1), ("", 0), ("no", 0)] {
            let env = with_deploy();
            let script = "printf 'by a pipe\\n' | $RYE prompt 'ship it' --model scripted:agent.yaml > answer.txt; \
                          echo \"exit code $?\"";
            let window = Window::shell(&env, script, size);
            window.wait_for("[y/N]");
            window.press(&format!("{answer}\r"));
            window.wait_for("exit code 0");
            let (_, screen) = window.exit();
            if times == 1 {
                assert_screen!(name, screen);
                assert_eq!(env.read("project/answer.txt"), "It said: once\n");
            }
            assert_eq!(run_count(&env), times, "{answer:?}: {screen}");
            let shown = env.run(&["session", "show", &session(&env), "--json"]);
            let prompt = &json(&shown)["threads"][0]["entries"][0]["kind"]["parts"][0]["text"];
            assert_eq!(*prompt, "ship it\n\n<stdin>\nby a pipe\n</stdin>");
        }
    }
}

#[test]
fn gate_is_not_answered_by_the_pipe_if_the_terminal_does_not_show_it() {
    let env = with_deploy();
    let script = "printf 'y\\ny\\n' | $RYE prompt 'ship it' --model scripted:agent.yaml --no-wait > answer.txt \
                  2> errors.txt; echo \"exit code $?\"";
    let window = Window::shell(&env, script, WIDE);
    window.wait_for("exit code 5");
    assert_eq!(run_count(&env), 0);
    assert_eq!(pending_gates(&env), 1);
}

#[test]
fn end_of_input_at_a_gate_leaves_it_pending() {
    let env = with_deploy();
    let script = "printf x | $RYE prompt 'ship it' --model scripted:agent.yaml > answer.txt; echo \"exit code $?\"";
    let window = Window::shell(&env, script, WIDE);
    window.wait_for("[y/N]");
    window.press("\x04");
    window.wait_for("exit code 5");
    assert_eq!(run_count(&env), 0);
    assert_eq!(pending_gates(&env), 1);
}

fn pending_gates(env: &TestEnv) -> usize {
    let listed = json(&env.run(&["gate", "list", "--json"]));
    listed["gates"].as_array().map_or(0, Vec::len)
}
