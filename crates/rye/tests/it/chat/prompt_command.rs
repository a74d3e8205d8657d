//! `rye prompt` on a terminal.

use crate::chat::window::Window;
use crate::chat::{WIDE, assert_screen, run_count, session, with_deploy};
use crate::support::{World, json};

#[test]
fn gate_is_answered_on_the_terminal_while_stdin_is_a_pipe() {
    for (name, size) in [
        ("gate_answered_wide", WIDE),
        ("gate_answered_narrow", (36, 40)),
    ] {
        for (answer, times) in [("y", 1), ("", 0), ("no", 0)] {
            let world = with_deploy();
            let script = "printf 'by a pipe\\n' | $RYE prompt 'ship it' --model scripted:agent.yaml > answer.txt; \
                          echo \"exit code $?\"";
            let window = Window::shell(&world, script, size);
            window.wait_for("[y/N]");
            window.press(&format!("{answer}\r"));
            window.wait_for("exit code 0");
            let (_, screen) = window.exit();
            if times == 1 {
                assert_screen!(name, screen);
                assert_eq!(world.read("project/answer.txt"), "It said: once\n");
            }
            assert_eq!(run_count(&world), times, "{answer:?}: {screen}");
            let shown = world.run(&["session", "show", &session(&world), "--json"]);
            let prompt = &json(&shown)["threads"][0]["entries"][0]["kind"]["parts"][0]["text"];
            assert_eq!(*prompt, "ship it\n\n<stdin>\nby a pipe\n</stdin>");
        }
    }
}

#[test]
fn gate_is_not_answered_by_the_pipe_if_the_terminal_does_not_show_it() {
    let world = with_deploy();
    let script = "printf 'y\\ny\\n' | $RYE prompt 'ship it' --model scripted:agent.yaml --no-wait > answer.txt \
                  2> errors.txt; echo \"exit code $?\"";
    let window = Window::shell(&world, script, WIDE);
    window.wait_for("exit code 5");
    assert_eq!(run_count(&world), 0);
    assert_eq!(pending_gates(&world), 1);
}

#[test]
fn end_of_input_at_a_gate_leaves_it_pending() {
    let world = with_deploy();
    let script = "printf x | $RYE prompt 'ship it' --model scripted:agent.yaml > answer.txt; echo \"exit code $?\"";
    let window = Window::shell(&world, script, WIDE);
    window.wait_for("[y/N]");
    window.press("\x04");
    window.wait_for("exit code 5");
    assert_eq!(run_count(&world), 0);
    assert_eq!(pending_gates(&world), 1);
}

fn pending_gates(world: &World) -> usize {
    let listed = json(&world.run(&["gate", "list", "--json"]));
    listed["gates"].as_array().map_or(0, Vec::len)
}
