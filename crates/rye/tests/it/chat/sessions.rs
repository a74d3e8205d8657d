//! Several sessions in one chat.

use crate::chat::window::{RESUME_HINT, Window};
use crate::chat::{MODEL, SIZES, env};
use crate::support::json;

const NOTED: &str = "{ steps: [], after_last: { text: noted } }";

fn sessions(env: &crate::support::TestEnv) -> Vec<serde_json::Value> {
    let listed = json(&env.run(&["session", "list", "--json"]));
    listed["sessions"].as_array().unwrap().clone()
}

/// The line above the status line.
fn draft(screen: &str) -> &str {
    screen.lines().rev().nth(1).unwrap_or_default()
}

#[test]
fn newest_session_is_continued_and_another_one_picked() {
    for (_, size) in SIZES {
        let env = env(NOTED);
        for text in ["build the first", "paint the second"] {
            let output = env.run(&["prompt", text, "--model", "scripted:agent.yaml"]);
            assert!(output.status.success(), "{output:?}");
        }
        let window = Window::open(&env, &["--continue"], size);
        window.wait_until("ready", |screen| screen.contains("ready"));
        assert!(window.full_text().contains("› paint the second"));
        window.press("/sessions\r");
        window.wait_for("› /sessions");
        // Fuzzy search in the title.
        window.press("bfirst");
        window.wait_until("the first session", |screen| screen.contains('▸'));
        window.press("\r");
        window.wait_for_text("› build the first");
        window.press("again\r");
        window.wait_for_text("› again");
        window.wait_until("an answer", |screen| screen.contains("ready"));
        window.press("\x04");
        let (code, screen) = window.exit();
        assert_eq!(code, 0, "{screen}");
        let ids: Vec<_> = sessions(&env)
            .into_iter()
            .filter(|it| it["title"] == "build the first")
            .collect();
        let text = env.run(&["session", "show", ids[0]["id"].as_str().unwrap()]);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("again"), "{text}");
    }
}

#[test]
fn without_a_session_there_is_nothing_to_continue() {
    let env = env(NOTED);
    let output = env.run(&["chat", "--continue", "--plain", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(json(&output)["error"]["code"], "not_found", "{output:?}");
}

#[test]
fn second_escape_edits_the_last_prompt_in_a_fork() {
    let script =
        "steps:\n  - text: answer one\n  - text: answer two\nafter_last: { text: noted }\n";
    let env = env(script);
    let window = Window::open(&env, MODEL, (80, 24));
    window.wait_ready();
    for (prompt, answer) in [("first", "answer one"), ("second", "answer two")] {
        window.press(&format!("{prompt}\r"));
        window.wait_for(answer);
        window.wait_ready();
    }
    window.press("\x1b");
    window.wait_for("press Esc again");
    window.press("\x1b");
    // The fork has the first prompt, and the second one is the draft.
    window.wait_until("the draft", |screen| {
        screen.matches("› first").count() == 2 && draft(screen) == "› second"
    });
    window.press(" thought\r");
    window.wait_for("› second thought");
    window.wait_ready();
    assert_eq!(sessions(&env).len(), 2);
    // The first prompt has nothing before it: a new session.
    let window = Window::open(&env, MODEL, (80, 24));
    window.wait_ready();
    window.press("only\r");
    window.wait_for("answer one");
    window.wait_ready();
    window.press("\x1b");
    window.wait_for("press Esc again");
    window.press("\x1b");
    window.wait_until("the draft", |screen| {
        screen.matches("/help lists").count() == 2 && draft(screen) == "› only"
    });
    window.press("\x04\x15\x04");
    window.wait_for(RESUME_HINT);
    assert_eq!(sessions(&env).len(), 4);
}

#[test]
fn new_session_starts_empty() {
    let env = env(NOTED);
    let window = Window::open(&env, MODEL, (80, 24));
    window.wait_ready();
    window.press("one\r");
    window.wait_for("noted");
    window.wait_ready();
    window.press("/new\r");
    window.wait_until("the second first screen", |screen| {
        screen.matches("/help lists commands").count() == 2
    });
    window.press("two\r");
    window.wait_until("the second answer", |screen| {
        screen.matches("noted").count() == 2
    });
    assert_eq!(sessions(&env).len(), 2);
}
