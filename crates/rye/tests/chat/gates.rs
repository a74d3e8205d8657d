//! Where a person must decide.

use crate::window::Window;
use crate::{LOCAL, MODEL, gate, ran, same, settle, with_deploy, world};

#[test]
fn a_gate_shows_what_will_run_and_who_signed_it() {
    for (name, size) in [("gate_wide", (80, 30)), ("gate_narrow", (36, 40))] {
        let world = with_deploy();
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("ship it\r");
        let asked = window.shows("m more");
        same!(name, asked);
        settle();
        window.press("y");
        window.shows("approved by ada");
        window.shows("It said: once");
        window.ready();
        assert_eq!(ran(&world), 1);
    }
}

/// A command and a file outside: exactly what is done, the risk, and one answer for all that
/// is the same.
#[test]
fn an_agents_own_tools_ask_with_the_risk_and_the_difference() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo once >> ran.txt' } }]\n  \
                  - tool_calls: [{ name: bash, args: { command: 'echo once >> ran.txt' } }]\n  \
                  - tool_calls: [{ name: write, args: { path: ../out.txt, content: \"one\\ntwo\\n\" } }]\n  \
                  - text: done\n";
    for (name, size) in [("own_wide", (80, 30)), ("own_narrow", (36, 40))] {
        let world = world(script);
        let window = Window::open(&world, &[MODEL, LOCAL].concat(), size);
        window.ready();
        window.press("go\r");
        let command = window.shows("m more");
        settle();
        window.press("a");
        // The second command is the same, and not asked about.
        let file = window.until("the file", |screen| {
            screen.contains("+two") && screen.contains("m more")
        });
        assert_eq!(ran(&world), 2);
        settle();
        window.press("n");
        window.shows("done");
        let all = format!("{command}\n=== a\n{file}\n=== n\n{}", window.ready());
        same!(name, all);
        assert!(!world.path("out.txt").exists());
    }
}

#[test]
fn at_a_gate_one_can_say_no_see_more_and_want_other_arguments() {
    for (name, size) in [("more_wide", (80, 80)), ("more_narrow", (40, 100))] {
        let world = with_deploy();
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("ship it\r");
        window.shows("m more");
        settle();
        window.press("m");
        same!(name, window.shows("\"signed_by\""));
        window.press("e");
        window.shows("yes, with these arguments");
        window.press("\x1b");
        window.until("the gate again", |screen| {
            !screen.contains("yes, with these arguments")
        });
        window.press("n");
        window.shows("denied by ada");
        window.ready();
        assert_eq!(ran(&world), 0);
    }
}

#[test]
fn arguments_are_edited_and_what_was_written_is_what_runs() {
    for (name, size) in [("edit_wide", (80, 40)), ("edit_narrow", (40, 40))] {
        let world = with_deploy();
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("ship it\r");
        window.shows("m more");
        settle();
        window.press("e");
        same!(name, window.shows("yes, with these arguments"));
        // It is a document of three lines.
        window.press("\x15\x7f\x15\x7f\x15{\"to\": \"test\"}\r");
        window.shows("approved with other arguments");
        window.shows("{\"to\":\"test\"}");
        window.ready();
        assert_eq!(ran(&world), 1);
        window.press("/verify\r");
        window.shows("verified");
    }
}

#[test]
fn what_is_typed_into_a_gate_that_just_came_is_writing_not_an_answer() {
    let world = with_deploy();
    let window = Window::open(&world, MODEL, (80, 30));
    window.ready();
    // All of it comes at once, as from somebody who types ahead.
    window.press("ship it\ryes please");
    window.shows("m more");
    window.shows("› yes please");
    assert_eq!(ran(&world), 0);
    window.press("\t");
    window.shows("one key up");
    settle();
    window.press("y");
    window.shows("It said: once");
    window.press("\x1b[A");
    window.shows("› yes please");
}

/// Somebody else is quicker: what was asked here is not any more, and it goes on.
#[test]
fn a_gate_that_is_answered_elsewhere_goes_away() {
    for (name, size) in [("elsewhere_wide", (80, 30)), ("elsewhere_narrow", (36, 40))] {
        let world = with_deploy();
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("ship it\r");
        window.shows("m more");
        window.press("half written");
        let asked = window.shows("› half written");
        let approved = world.run(&["gate", "approve", &gate(&world)]);
        assert!(approved.status.success(), "{approved:?}");
        window.shows("It said: once");
        let gone = window.ready();
        assert!(gone.contains("› half written"), "{gone}");
        same!(name, format!("{asked}\n=== rye gate approve\n{gone}"));
        assert_eq!(ran(&world), 1);
    }
}

/// A question that cannot be read has no answer: what is pressed there is writing.
#[test]
fn a_gate_that_has_no_room_takes_no_letters() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo once >> ran.txt' } }]\n  \
                  - text: done\n";
    for size in [(80, 3), (20, 4), (80, 5), (30, 8)] {
        let world = world(script);
        let window = Window::open(&world, &[MODEL, LOCAL].concat(), size);
        window.until("ready", |screen| screen.contains("ready"));
        window.press("go\r");
        window.shows("terminal too small");
        settle();
        window.press("y");
        window.shows("› y");
        assert_eq!(ran(&world), 0, "{size:?}");
        window.resized(80, 24);
        window.shows("may it?  run: echo once");
        window.press("\t");
        window.shows("one key up");
        settle();
        // Seen once, and not any more.
        window.resized(size.0, size.1);
        window.shows("terminal too small");
        window.press("y");
        window.shows("› y");
        window.resized(80, 10);
        let screen = window.shows("m more");
        assert!(screen.contains("may it?  run: echo once"), "{screen}");
        window.press("\t");
        window.shows("one key up");
        settle();
        window.press("y");
        window.shows("done");
        assert_eq!(ran(&world), 1, "{size:?}");
    }
}
