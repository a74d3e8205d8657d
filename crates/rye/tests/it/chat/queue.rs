//! Prompts that are sent while the agent works.

use crate::chat::window::{BUSY, Window};
use crate::chat::{MODEL, NARROW, SLOW, WIDE, assert_screen, env, without_spinner};

#[test]
fn queued_prompts_can_be_edited_removed_and_overtaken() {
    for (name, size) in [("queue_wide", WIDE), ("queue_narrow", NARROW)] {
        let env = env(SLOW);
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("first\r");
        window.wait_for("› first");
        window.press("second\r");
        window.press("third\r");
        let queued = window.wait_for("2. third");
        assert_screen!(name, without_spinner(&queued));
        window.press("/queue edit 1\r");
        window.wait_for("› second");
        window.press(" changed\r");
        window.wait_for("2. second changed");
        window.press("/queue rm 1\r");
        window.wait_for("removed: third");
        window.wait_for("1. second changed");
        window.press("now this");
        window.press("\x13");
        // The steered prompt starts at once, and the queued one stays queued.
        window.wait_until("the steered prompt", |screen| {
            let stopped = screen.find("stopped");
            let started = screen.find("› now this");
            let queued = screen.find("1. second changed");
            stopped.is_some() && stopped < started && started < queued
        });
    }
}

#[test]
fn agent_can_be_steered_and_stopped_and_the_draft_stays() {
    for (name, size) in [("steered_wide", WIDE), ("steered_narrow", NARROW)] {
        let env = env(SLOW);
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("first\r");
        window.wait_for(BUSY);
        window.press("second\x13");
        let steered = window.wait_until("the second", |screen| {
            let stopped = screen.find("stopped");
            stopped.is_some() && stopped < screen.find("› second") && screen.contains(BUSY)
        });
        window.press("half a thou");
        window.wait_for("› half a thou");
        window.press("\x1b");
        window.wait_until("two stops", |screen| {
            screen.matches("\nstopped").count() == 2
        });
        let ended = window.wait_ready();
        assert!(ended.contains("› half a thou"), "{ended}");
        assert_screen!(
            name,
            format!("{}\n=== Esc\n{ended}", without_spinner(&steered))
        );
    }
}

#[test]
fn queued_prompts_return_to_the_input_when_the_agent_is_stopped() {
    for (name, size) in [("aborted_wide", WIDE), ("aborted_narrow", NARROW)] {
        let env = env(SLOW);
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("first\r");
        window.wait_for("› first");
        window.press("second\rthird\r");
        window.wait_for("2. third");
        window.press("\x1b");
        let ended = window.wait_until("the queued prompts", |screen| {
            screen.contains("› second\n\n  third\nready ·")
        });
        assert_screen!(name, ended);
        // With a draft in the input, they go to the history.
        window.press("\x03fourth\r");
        window.wait_for("› fourth");
        window.press("fifth\r");
        window.wait_for("1. fifth");
        window.press("half written\x1b");
        window.wait_for("unsent prompt saved");
        window.press("\x1b[A");
        window.wait_for("› fifth\nready ·");
    }
}

#[test]
fn answer_keeps_streaming_while_a_prompt_is_queued() {
    let script = "steps:\n  - { text: 'first second', chunk_chars: 6, chunk_ms: 600000 }\n";
    let env = env(script);
    let window = Window::open(&env, MODEL, WIDE);
    window.wait_ready();
    window.press("go\r");
    window.wait_for("responding (Esc to stop)");
    window.press("more\r");
    let queued = window.wait_for("1. more");
    assert!(queued.contains("responding (Esc to stop)"), "{queued}");
}
