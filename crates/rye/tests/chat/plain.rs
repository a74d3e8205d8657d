//! The same line by line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use crate::support::json;
use crate::window::Window;
use crate::{LOCAL, MODEL, ran, same, session, settle, with_deploy, world};

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
        settle();
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
        settle();
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
        settle();
        window.press("e\r");
        window.until("how again", |screen| screen.ends_with("goes back\n>"));
        // What does not fit is asked about again.
        window.press("{\"to\": 1}\r");
        window.until("the next gate", |screen| {
            screen.matches("m more").count() == 3 && screen.ends_with("m more\n>")
        });
        settle();
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
        settle();
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

/// What was written before a gate was shown is a prompt, also if its line ends later.
#[test]
fn by_a_pipe_what_was_there_before_a_gate_is_no_answer_and_what_comes_after_is() {
    for (before, after, runs) in [
        ("ship it\ny\n", "", 0),
        ("ship it\ny", "\n", 0),
        ("ship it\n", "y\n", 1),
    ] {
        let world = with_deploy();
        let mut command = world.command();
        command.arg("chat").args(MODEL).stdin(Stdio::piped());
        let mut chat = command.stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (chat.stdin.take().unwrap(), chat.stdout.take().unwrap());
        input.write_all(before.as_bytes()).unwrap();
        let mut lines = BufReader::new(output).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with("m more")));
        input.write_all(after.as_bytes()).unwrap();
        drop(input);
        let said: Vec<_> = lines.collect();
        assert!(chat.wait().unwrap().success());
        let said = said.join("\n");
        let waits = said.contains("waits for its turn: y");
        assert_eq!(ran(&world), runs, "{before:?} {after:?}: {said}");
        assert!(runs == 1 || waits, "{before:?} {after:?}: {said}");
    }
}

/// The same where somebody types: a whole line is a prompt, half of one is forgotten.
#[test]
fn line_by_line_what_was_typed_before_a_gate_is_no_answer() {
    for (typed, waits) in [("ship it\ry\r", true), ("ship it\ry", false)] {
        let world = with_deploy();
        let window = Window::open(&world, &[MODEL, &["--plain"]].concat(), (80, 60));
        window.until("the place to write", |screen| screen == ">");
        window.press(typed);
        window.shows("m more");
        if waits {
            window.shows("waits for its turn: y");
        }
        settle();
        // Had this been an answer, there would be no gate for the next.
        window.press("\rn\r");
        window.shows("denied by ada");
        window.press("last\r");
        window.shows("noted");
        let screen = window.scrolled();
        assert!(!screen.contains("approved by"), "{screen}");
        assert_eq!(ran(&world), 0);
    }
}

#[test]
fn by_a_pipe_a_line_that_is_no_text_ends_it_and_what_was_said_before_is_answered() {
    let world = world("{ steps: [], after_last: { text: noted } }");
    let args = [&["chat"], MODEL].concat();
    let output = world.feed(&args, b"hello\nfoo\xffbar\nthird\n");
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}{error}");
    assert!(error.contains("no UTF-8 text: line 2, byte 3"), "{error}");
    assert!(said.contains("› hello\n\nnoted"), "{said}");
    assert!(!said.contains("third"), "{said}");
    assert!(said.contains("it goes on with"), "{said}");
}

/// Standard output is one document, all else is on standard error.
#[test]
fn with_json_the_conversation_is_on_standard_error() {
    let world = world("{ steps: [], after_last: { text: noted } }");
    let args = [&["chat", "--json"], MODEL].concat();
    let output = world.feed(&args, b"hello\n");
    assert_eq!(json(&output)["session"], session(&world).as_str());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("› hello\n\nnoted"), "{said}");
    assert!(said.contains("it goes on with"), "{said}");
}

/// Live, and when the session goes on.
#[test]
fn what_went_wrong_is_said_once() {
    let world = world("steps:\n  - { error: invalid_request }\n");
    let output = world.feed(&[&["chat"], MODEL].concat(), b"hello\n");
    let live = String::from_utf8_lossy(&output.stdout).into_owned();
    let output = world.feed(&["chat", "--session", &session(&world)], b"");
    let later = String::from_utf8_lossy(&output.stdout).into_owned();
    for said in [live, later] {
        let errors = said.lines().filter(|line| line.starts_with("✗"));
        assert_eq!(errors.count(), 1, "{said}");
    }
}
