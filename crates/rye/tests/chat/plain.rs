//! The same line by line.

use crate::window::Window;
use crate::{LOCAL, MODEL, ran, same, session, with_deploy, world};

#[test]
fn by_a_pipe_it_says_the_same_line_by_line() {
    let world = with_deploy();
    let args = [&["chat", "--plain"], MODEL].concat();
    let output = world.feed(&args, b"ship it\n");
    let said = String::from_utf8_lossy(&output.stdout);
    same!("piped", said);
    assert_eq!(ran(&world), 0);
    let id = session(&world);
    let output = world.feed(&["chat", "--plain", "--session", &id], b"y\n");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("It said: once"), "{said}");
    assert!(!said.contains('\x1b'), "{said}");
    assert_eq!(ran(&world), 1);
}

/// At a terminal that cannot be painted on: what was typed is not said again, and each gate
/// is asked about.
#[test]
fn line_by_line_a_gate_is_asked_and_answered() {
    for (name, size) in [("gate_wide", (80, 90)), ("gate_narrow", (36, 130))] {
        let world = with_deploy();
        let window = Window::with(&world, MODEL, size, &[("TERM", "dumb")]);
        window.until("the place to write", |screen| screen == ">");
        window.press("ship it\r");
        window.until("the gate", |screen| screen.ends_with("m more\n>"));
        window.press("m\r");
        window.until("all of it", |screen| {
            screen.contains("\"signed_by\"") && screen.ends_with("\n>")
        });
        window.press("y\r");
        window.until("the answer", |screen| screen.ends_with("It said: once\n>"));
        window.press("/model nonsense\r");
        window.until("a hint", |screen| {
            screen.contains("there is no model") && screen.ends_with("\n>")
        });
        window.press("\x04");
        let (code, screen) = window.exit();
        assert_eq!(code, 0, "{screen}");
        same!(name, screen);
        assert_eq!(ran(&world), 1);
    }
}

#[test]
fn line_by_line_the_arguments_are_edited() {
    for (name, size) in [("edit_wide", (80, 90)), ("edit_narrow", (36, 120))] {
        let world = with_deploy();
        let window = Window::open(&world, &[MODEL, &["--plain"]].concat(), size);
        window.until("the place to write", |screen| screen == ">");
        window.press("ship it\r");
        window.until("the gate", |screen| screen.ends_with("m more\n>"));
        window.press("e\r");
        window.until("how", |screen| screen.ends_with("goes back\n>"));
        window.press("nonsense\r");
        window.until("why not", |screen| {
            screen.contains("that is no JSON") && screen.ends_with("\n>")
        });
        // Back, and asked once more.
        window.press("\r");
        window.until("the gate again", |screen| {
            screen.matches("m more").count() == 2 && screen.ends_with("m more\n>")
        });
        window.press("e\r");
        window.until("how again", |screen| screen.ends_with("goes back\n>"));
        // What does not fit is asked about again.
        window.press("{\"to\": 1}\r");
        window.until("the next gate", |screen| {
            screen.matches("m more").count() == 3 && screen.ends_with("m more\n>")
        });
        window.press("e\r");
        window.until("how once more", |screen| screen.ends_with("goes back\n>"));
        window.press("{\"to\": \"test\"}\r");
        window.until("the answer", |screen| screen.ends_with("once\n>"));
        window.press("/quit\r");
        let (code, screen) = window.exit();
        assert_eq!(code, 0, "{screen}");
        same!(name, screen);
        assert_eq!(ran(&world), 1);
    }
}

#[test]
fn line_by_line_one_gate_is_asked_after_the_other_and_what_comes_back_is_said() {
    let script = "steps:\n  - tool_calls:\n      - { name: bash, args: { command: 'echo once >> ran.txt' } }\n      \
                  - { name: write, args: { path: ../out.txt, content: out } }\n  - text: done\nafter_last: { text: slow, \
                  delay_ms: 600000 }\n";
    let world = world(script);
    let window = Window::open(&world, &[MODEL, LOCAL, &["--plain"]].concat(), (80, 60));
    window.until("the place to write", |screen| screen == ">");
    window.press("go\r");
    for gate in 1..=2 {
        window.until("a gate", |screen| {
            screen.matches("m more").count() == gate && screen.ends_with("m more\n>")
        });
        window.press("y\r");
    }
    window.until("the end", |screen| screen.ends_with("done\n>"));
    window.press("first\rsecond\r");
    window.shows("waits for its turn: second");
    window.press("/queue edit 1\r");
    same!(
        "one_after_the_other",
        window.shows("to be written anew: second")
    );
    assert_eq!((ran(&world), world.read("out.txt").as_str()), (1, "out"));
}

/// Who has said all there is to say still hears all of the answer.
#[test]
fn by_a_pipe_it_ends_when_nothing_more_comes() {
    let script = "context_window: 20000\nmax_output: 500\nsteps:\n  - tool_calls: [{ name: bash, args: { command: \
                  'seq 8000' } }]\n  - { text: the answer, usage: { input: 19000, output: 900 } }\nafter_last: { text: \
                  noted, delay_ms: 200 }\n";
    let world = world(script);
    let output = world.feed(&[&["chat", "--plain"], MODEL].concat(), b"go\n");
    let said = String::from_utf8_lossy(&output.stdout);
    let place = |text: &str| said.find(text).unwrap_or_else(|| panic!("{text}: {said}"));
    assert!(place("the answer") < place("summed up"), "{said}");
    assert!(place("goes on: Continue") < place("\nnoted\n"), "{said}");
}
