//! `rye prompt` where somebody sits.

use crate::support::json;
use crate::window::Window;
use crate::{WIDE, ran, same, session, with_deploy};

/// A question for something that comes by a pipe is asked at the terminal, and answered there.
#[test]
fn at_a_gate_a_person_is_asked_also_where_a_pipe_is_read() {
    for (name, size) in [("asked_wide", WIDE), ("asked_narrow", (36, 40))] {
        for (answer, times) in [("y", 1), ("", 0), ("no", 0)] {
            let world = with_deploy();
            let script = "printf 'by a pipe\\n' | $RYE prompt 'ship it' --model scripted:agent.yaml > answer.txt; \
                          echo \"exit code $?\"";
            let window = Window::shell(&world, script, size);
            window.shows("[y/N]");
            window.press(&format!("{answer}\r"));
            window.shows("exit code 0");
            let (_, screen) = window.exit();
            if times == 1 {
                same!(name, screen);
                assert_eq!(world.read("project/answer.txt"), "It said: once\n");
            }
            assert_eq!(ran(&world), times, "{answer:?}: {screen}");
            let shown = world.run(&["session", "show", &session(&world), "--json"]);
            let asked = &json(&shown)["threads"][0]["entries"][0]["kind"]["parts"][0]["text"];
            assert_eq!(*asked, "ship it\n\n<stdin>\nby a pipe\n</stdin>");
        }
    }
}

/// Neither what is piped nor a terminal that shows nothing of it can answer.
#[test]
fn who_sees_nothing_of_a_gate_is_not_asked() {
    let world = with_deploy();
    let script = "printf 'y\\ny\\n' | $RYE prompt 'ship it' --model scripted:agent.yaml --no-wait > answer.txt \
                  2> errors.txt; echo \"exit code $?\"";
    let window = Window::shell(&world, script, WIDE);
    window.shows("exit code 5");
    assert_eq!(ran(&world), 0);
    let told = world.read("project/errors.txt");
    assert!(told.contains("it waits for a decision"), "{told}");
}

/// Input ends while somebody is asked: nothing is decided, and the gate waits.
#[test]
fn who_goes_away_has_said_neither_yes_nor_no() {
    let world = with_deploy();
    let script = "printf x | $RYE prompt 'ship it' --model scripted:agent.yaml > answer.txt; echo \"exit code $?\"";
    let window = Window::shell(&world, script, WIDE);
    window.shows("[y/N]");
    window.press("\x04");
    window.shows("exit code 5");
    assert_eq!(ran(&world), 0);
    let listed = json(&world.run(&["gate", "list", "--json"]));
    assert_eq!(listed["gates"].as_array().map(Vec::len), Some(1));
}
