//! Several threads, and sessions that go on.

use crate::window::Window;
use crate::{MODEL, NARROW, WIDE, ran, same, session, settle, with_deploy, world};

#[test]
fn threads_are_told_apart() {
    for (name, size) in [("threads_wide", WIDE), ("threads_narrow", NARROW)] {
        let world = world("{ steps: [], after_last: { text: noted } }");
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("in the first\r");
        window.shows("noted");
        window.ready();
        window.press("/thread side\r");
        window.until("an empty thread", |screen| !screen.contains("in the first"));
        window.press("in the second\r");
        window.shows("noted");
        window.shows("○side");
        same!(name, window.ready());
        window.press("\x14");
        window.shows("› in the first");
        window.press("/threads\r");
        window.shows("/thread KEY goes to one");
    }
}

/// One thread waits for a person while another goes on.
#[test]
fn a_thread_that_waits_is_marked_and_does_not_hold_up_the_others() {
    for (name, size) in [("waits_wide", (80, 30)), ("waits_narrow", (40, 40))] {
        let world = with_deploy();
        world.write(
            "project/side.yaml",
            "{ steps: [], after_last: { text: noted } }",
        );
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("ship it\r");
        window.shows("m more");
        window.press("/thread side\r");
        window.until("an empty thread", |screen| !screen.contains("› ship it"));
        window.press("/model scripted:side.yaml\r");
        window.shows("answers from the next");
        window.press("meanwhile\r");
        window.shows("noted");
        same!(
            name,
            window.until("both", |screen| {
                screen.contains("◆default") && screen.contains("○side")
            })
        );
        assert_eq!(ran(&world), 0);
    }
}

#[test]
fn after_a_kill_all_is_there_and_the_gate_waits() {
    for (name, size) in [("resumed_wide", (80, 30)), ("resumed_narrow", (40, 40))] {
        let world = with_deploy();
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("ship it\r");
        window.shows("m more");
        window.kill();
        let id = session(&world);
        let args = ["--session", &id, "--model", "scripted:agent.yaml"];
        let window = Window::open(&world, &args, size);
        window.shows("› ship it");
        window.shows("m more");
        same!(name, window.shows("waits for you"));
        assert_eq!(ran(&world), 0);
        settle();
        window.press("y");
        window.shows("It said: once");
        window.ready();
        assert_eq!(ran(&world), 1);
        window.press("/verify\r");
        window.shows("verified");
    }
}

#[test]
fn who_cannot_have_a_session_is_told_why_on_a_clean_screen() {
    for (name, size) in [("in_use_wide", WIDE), ("in_use_narrow", NARROW)] {
        let world = world("{ steps: [], after_last: { text: noted } }");
        let first = Window::open(&world, MODEL, size);
        first.ready();
        let second = Window::open(&world, &["--session", &session(&world)], size);
        let (code, screen) = second.exit();
        assert_eq!(code, 4, "{screen}");
        same!(name, screen);
    }
}

/// What is being said is seen, also if it was begun for the second time.
#[test]
fn after_a_kill_what_the_model_says_is_seen_as_it_comes() {
    let script = "steps:\n  - { text: 'beginning and end', chunk_chars: 9, chunk_ms: 600000 }\n";
    let world = world(script);
    let window = Window::open(&world, MODEL, WIDE);
    window.ready();
    window.press("go\r");
    window.shows("beginning");
    window.kill();
    let window = Window::open(&world, &["--session", &session(&world)], WIDE);
    let screen = window.shows("beginning");
    assert!(screen.contains("speaks"), "{screen}");
}
