//! The chat line by line, on a terminal and in a pipe.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use crate::chat::window::{LAST_ANSWER, RESUME_HINT, Window};
use crate::chat::{
    LOCAL, MODEL, assert_screen, env, run_count, session, wait_gate_grace, with_deploy,
};
use crate::support::json;

#[test]
fn piped_chat_prints_lines_and_a_later_one_answers_the_gate() {
    let env = with_deploy();
    let args = [&["chat", "--plain"], MODEL].concat();
    let output = env.feed(&args, b"ship it\n");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_screen!("piped", printed);
    assert_eq!(run_count(&env), 0);
    let id = session(&env);
    let output = env.feed(&["chat", "--plain", "--session", &id], b"y\n");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("It said: once"), "{printed}");
    assert!(!printed.contains('\x1b'), "{printed}");
    assert_eq!(run_count(&env), 1);
}

#[test]
fn plain_gate_is_shown_and_answered_on_a_dumb_terminal() {
    for (name, size) in [("gate_wide", (80, 90)), ("gate_narrow", (36, 130))] {
        let env = with_deploy();
        let window = Window::with(&env, MODEL, size, &[("TERM", "dumb")]);
        window.wait_plain_prompt();
        window.press("ship it\r");
        window.wait_plain_gate(1);
        wait_gate_grace();
        window.press("?\r");
        window.wait_until("the details", |screen| {
            screen.contains("\"signed_by\"") && screen.ends_with("\n>")
        });
        window.press("y\r");
        window.wait_until("the answer", |screen| screen.ends_with("It said: once\n>"));
        window.press("/model nonsense\r");
        window.wait_until("a hint", |screen| {
            screen.contains("unknown model") && screen.ends_with("\n>")
        });
        window.press("\x04");
        let (code, screen) = window.exit();
        assert_eq!(code, 0, "{screen}");
        assert_screen!(name, screen);
        assert_eq!(run_count(&env), 1);
    }
}

#[test]
fn plain_arguments_are_edited() {
    for (name, size) in [
        ("edit_arguments_wide", (80, 90)),
        ("edit_arguments_narrow", (36, 120)),
    ] {
        let env = with_deploy();
        let window = Window::open(&env, &[MODEL, &["--plain"]].concat(), size);
        window.wait_plain_prompt();
        window.press("ship it\r");
        window.wait_plain_gate(1);
        wait_gate_grace();
        window.press("e\r");
        window.wait_until("the instructions", |screen| screen.ends_with("cancels\n>"));
        window.press("nonsense\r");
        window.wait_until("the error", |screen| {
            screen.contains("invalid JSON") && screen.ends_with("\n>")
        });
        // An empty line cancels, and the gate is shown again.
        window.press("\r");
        window.wait_plain_gate(2);
        wait_gate_grace();
        window.press("e\r");
        window.wait_until("the instructions", |screen| screen.ends_with("cancels\n>"));
        // Arguments that do not match the schema are refused, and the gate is shown again.
        window.press("{\"to\": 1}\r");
        window.wait_plain_gate(3);
        wait_gate_grace();
        window.press("e\r");
        window.wait_until("the instructions", |screen| screen.ends_with("cancels\n>"));
        window.press("{\"to\": \"test\"}\r");
        window.wait_until("the answer", |screen| screen.ends_with("once\n>"));
        window.press("/quit\r");
        let (code, screen) = window.exit();
        assert_eq!(code, 0, "{screen}");
        assert_screen!(name, screen);
        assert_eq!(run_count(&env), 1);
    }
}

#[test]
fn plain_gates_are_shown_in_sequence_and_an_edited_prompt_is_printed() {
    let script = "steps:\n  - tool_calls:\n      - { name: bash, args: { command: 'echo once >> ran.txt' } }\n      \
                  - { name: write, args: { path: ../out.txt, content: out } }\n  - text: done\nafter_last: { text: slow, \
                  delay_ms: 600000 }\n";
    let env = env(script);
    let window = Window::open(&env, &[MODEL, LOCAL, &["--plain"]].concat(), (80, 60));
    window.wait_plain_prompt();
    window.press("go\r");
    for gate in 1..=2 {
        window.wait_plain_gate(gate);
        wait_gate_grace();
        window.press("y\r");
    }
    window.wait_until("the end", |screen| screen.ends_with("done\n>"));
    window.press("first\rsecond\r");
    window.wait_for("queued: second");
    window.press("/queue edit 1\r");
    assert_screen!(
        "gates_in_sequence",
        window.wait_for("edit and resend: second")
    );
    assert_eq!((run_count(&env), env.read("out.txt").as_str()), (1, "out"));
}

#[test]
fn piped_chat_ends_after_the_complete_answer() {
    let script = "context_window: 20000\nmax_output: 500\nsteps:\n  - tool_calls: [{ name: bash, args: { command: \
                  'seq 8000' } }]\n  - { text: the answer, usage: { input: 19000, output: 900 } }\nafter_last: { text: \
                  noted, delay_ms: 200 }\n";
    let env = env(script);
    let output = env.feed(&[&["chat", "--plain"], MODEL].concat(), b"go\n");
    let printed = String::from_utf8_lossy(&output.stdout);
    let position = |text: &str| {
        printed
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {printed}"))
    };
    assert!(position("the answer") < position("compacted:"), "{printed}");
    assert!(
        position("continuing: ") < position("\nnoted\n"),
        "{printed}"
    );
}

/// Also if a line that started before the gate ends after it.
#[test]
fn piped_input_answers_a_gate_only_if_it_arrives_after_the_gate() {
    for (before, after, runs) in [
        ("ship it\ny\n", "", 0),
        ("ship it\ny", "\n", 0),
        ("ship it\n", "y\n", 1),
    ] {
        let env = with_deploy();
        let mut command = env.command();
        command.arg("chat").args(MODEL).stdin(Stdio::piped());
        let mut chat = command.stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (chat.stdin.take().unwrap(), chat.stdout.take().unwrap());
        input.write_all(before.as_bytes()).unwrap();
        let mut lines = BufReader::new(output).lines().map(Result::unwrap);
        let mut printed = Vec::new();
        while !printed
            .last()
            .is_some_and(|line: &String| line.ends_with(LAST_ANSWER))
        {
            printed.push(lines.next().unwrap());
        }
        input.write_all(after.as_bytes()).unwrap();
        drop(input);
        printed.extend(lines);
        assert!(chat.wait().unwrap().success());
        let printed = printed.join("\n");
        let is_queued = printed.contains("queued: y");
        assert_eq!(run_count(&env), runs, "{before:?} {after:?}: {printed}");
        assert!(runs == 1 || is_queued, "{before:?} {after:?}: {printed}");
    }
}

/// A complete line becomes a prompt, a partial one is discarded.
#[test]
fn plain_input_typed_before_a_gate_does_not_answer_it() {
    for (typed, is_queued) in [("ship it\ry\r", true), ("ship it\ry", false)] {
        let env = with_deploy();
        let window = Window::open(&env, &[MODEL, &["--plain"]].concat(), (80, 60));
        window.wait_plain_prompt();
        window.press(typed);
        window.wait_gate();
        if is_queued {
            window.wait_for("queued: y");
        }
        wait_gate_grace();
        // If the earlier `y` had been an answer, no gate would be left for this one.
        window.press("\rn\r");
        window.wait_for("denied by ada");
        window.press("last\r");
        window.wait_for("noted");
        let screen = window.full_text();
        assert!(!screen.contains("approved by"), "{screen}");
        assert_eq!(run_count(&env), 0);
    }
}

#[test]
fn piped_invalid_utf8_ends_the_chat_after_the_earlier_prompts_are_answered() {
    let env = env("{ steps: [], after_last: { text: noted } }");
    let args = [&["chat"], MODEL].concat();
    let output = env.feed(&args, b"hello\nfoo\xffbar\nthird\n");
    let printed = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}{error}");
    assert!(error.contains("not valid UTF-8: line 2, byte 3"), "{error}");
    assert!(printed.contains("› hello\n\nnoted"), "{printed}");
    assert!(!printed.contains("third"), "{printed}");
    assert!(printed.contains(RESUME_HINT), "{printed}");
}

#[test]
fn with_json_the_conversation_goes_to_standard_error() {
    let env = env("{ steps: [], after_last: { text: noted } }");
    let args = [&["chat", "--json"], MODEL].concat();
    let output = env.feed(&args, b"hello\n");
    assert_eq!(json(&output)["session"], session(&env).as_str());
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("› hello\n\nnoted"), "{printed}");
    assert!(printed.contains(RESUME_HINT), "{printed}");
}

#[test]
fn outside_of_a_project_the_chat_says_how_to_work_on_files() {
    let env = env("{ steps: [], after_last: { text: noted } }");
    let outside = env.path("outside");
    std::fs::create_dir(&outside).unwrap();
    let mut command = env.command();
    command.args(["chat", "--plain", "--model", "scripted:demo"]);
    let output = command.current_dir(outside).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("`rye init`"), "{output:?}");
    let output = env.feed(&[&["chat", "--plain"], MODEL].concat(), b"hello\n");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(!printed.contains("rye init"), "{output:?}");
}

#[test]
fn error_is_shown_once_live_and_after_resuming() {
    let env = env("steps:\n  - { error: invalid_request }\n");
    let output = env.feed(&[&["chat"], MODEL].concat(), b"hello\n");
    let live = String::from_utf8_lossy(&output.stdout).into_owned();
    let output = env.feed(&["chat", "--session", &session(&env)], b"");
    let resumed = String::from_utf8_lossy(&output.stdout).into_owned();
    for printed in [live, resumed] {
        let errors = printed.lines().filter(|line| line.starts_with("✗"));
        assert_eq!(errors.count(), 1, "{printed}");
    }
}
