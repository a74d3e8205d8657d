//! Several threads, and resumed sessions.

use crate::chat::window::Window;
use crate::chat::{
    MODEL, NARROW, WIDE, assert_screen, env, run_count, session, wait_gate_grace, with_deploy,
};

#[test]
fn each_thread_has_its_own_conversation() {
    for (name, size) in [("threads_wide", WIDE), ("threads_narrow", NARROW)] {
        let env = env("{ steps: [], after_last: { text: noted } }");
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("in the first\r");
        window.wait_for("noted");
        window.wait_ready();
        window.press("/thread side\r");
        window.wait_until("an empty thread", |screen| !screen.contains("in the first"));
        window.press("in the second\r");
        window.wait_for("noted");
        window.wait_for("○side");
        assert_screen!(name, window.wait_ready());
        window.press("\x14");
        window.wait_for("› in the first");
        window.press("/threads\r");
        window.wait_for("default  idle, current");
        window.press("\x1b[B\r");
        window.wait_for("› in the second");
    }
}

#[test]
fn pending_gate_marks_its_thread_and_does_not_block_others() {
    for (name, size) in [
        ("pending_gate_wide", (80, 30)),
        ("pending_gate_narrow", (40, 40)),
    ] {
        let env = with_deploy();
        env.write(
            "project/side.yaml",
            "{ steps: [], after_last: { text: noted } }",
        );
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("ship it\r");
        window.wait_gate();
        window.press("/thread side\r");
        window.wait_until("an empty thread", |screen| !screen.contains("› ship it"));
        window.choose_model("scripted:side.yaml");
        window.press("meanwhile\r");
        window.wait_for("noted");
        assert_screen!(
            name,
            window.wait_until("both", |screen| {
                screen.contains("◆default") && screen.contains("○side")
            })
        );
        assert_eq!(run_count(&env), 0);
    }
}

#[test]
fn history_and_gate_are_restored_after_a_kill() {
    for (name, size) in [("resumed_wide", (80, 30)), ("resumed_narrow", (40, 40))] {
        let env = with_deploy();
        let window = Window::open(&env, MODEL, size);
        window.wait_ready();
        window.press("ship it\r");
        window.wait_gate();
        window.kill();
        let id = session(&env);
        let args = ["--session", &id, "--model", "scripted:agent.yaml"];
        let window = Window::open(&env, &args, size);
        window.wait_for("› ship it");
        window.wait_gate();
        assert_screen!(name, window.wait_for("waiting for you"));
        assert_eq!(run_count(&env), 0);
        wait_gate_grace();
        window.press("y");
        window.wait_for("It said: once");
        window.wait_ready();
        assert_eq!(run_count(&env), 1);
        window.press("/verify\r");
        window.wait_for("verified");
    }
}

#[test]
fn session_in_use_is_an_error_on_a_clean_screen() {
    for (name, size) in [("in_use_wide", WIDE), ("in_use_narrow", NARROW)] {
        let env = env("{ steps: [], after_last: { text: noted } }");
        let first = Window::open(&env, MODEL, size);
        first.wait_ready();
        let second = Window::open(&env, &["--session", &session(&env)], size);
        let (code, screen) = second.exit();
        assert_eq!(code, 4, "{screen}");
        assert_screen!(name, screen);
    }
}

#[test]
fn answer_restarted_after_a_kill_is_streamed() {
    let script = "steps:\n  - { text: 'beginning and end', chunk_chars: 9, chunk_ms: 600000 }\n";
    let env = env(script);
    let window = Window::open(&env, MODEL, WIDE);
    window.wait_ready();
    window.press("go\r");
    window.wait_for("beginning");
    window.kill();
    let window = Window::open(&env, &["--session", &session(&env)], WIDE);
    let screen = window.wait_for("beginning");
    assert!(screen.contains("responding"), "{screen}");
}
