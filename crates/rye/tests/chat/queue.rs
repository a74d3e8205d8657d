//! What is sent while the agent works.

use crate::window::Window;
use crate::{MODEL, NARROW, SLOW, WIDE, same, still, world};

#[test]
fn what_is_sent_while_the_agent_works_waits_and_can_be_changed() {
    for (name, size) in [("queue_wide", WIDE), ("queue_narrow", NARROW)] {
        let world = world(SLOW);
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("first\r");
        window.shows("› first");
        window.press("second\r");
        window.press("third\r");
        let queued = window.shows("2. third");
        same!(name, still(&queued));
        window.press("/queue edit 1\r");
        window.shows("› second");
        window.press(" changed\r");
        window.shows("2. second changed");
        window.press("/queue rm 1\r");
        window.shows("taken out: third");
        window.shows("1. second changed");
        window.press("now this");
        window.press("\x13");
        // It is asked at once, and what waited still waits.
        window.until("the steered prompt", |screen| {
            let ended = screen.find("ended");
            let asked = screen.find("› now this");
            let waits = screen.find("1. second changed");
            ended.is_some() && ended < asked && asked < waits
        });
    }
}

#[test]
fn one_can_steer_and_end_the_work_and_what_is_written_stays() {
    for (name, size) in [("steered_wide", WIDE), ("steered_narrow", NARROW)] {
        let world = world(SLOW);
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("first\r");
        window.shows("(Esc ends it)");
        window.press("second\x13");
        let steered = window.until("the second", |screen| {
            let ended = screen.find("ended");
            ended.is_some() && ended < screen.find("› second") && screen.contains("(Esc ends it)")
        });
        window.press("half a thou");
        window.shows("› half a thou");
        window.press("\x1b");
        window.until("both have ended", |screen| {
            screen.matches("\nended").count() == 2
        });
        let ended = window.ready();
        assert!(ended.contains("› half a thou"), "{ended}");
        same!(name, format!("{}\n=== Esc\n{ended}", still(&steered)));
    }
}

#[test]
fn what_waited_is_given_back_when_the_work_is_ended() {
    for (name, size) in [("ended_wide", WIDE), ("ended_narrow", NARROW)] {
        let world = world(SLOW);
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("first\r");
        window.shows("› first");
        window.press("second\rthird\r");
        window.shows("2. third");
        window.press("\x1b");
        let ended = window.until("what waited", |screen| {
            screen.contains("› second\n\n  third\nready ·")
        });
        same!(name, ended);
        // Where something is being written, it is one key up.
        window.press("\x03fourth\r");
        window.shows("› fourth");
        window.press("fifth\r");
        window.shows("1. fifth");
        window.press("half written\x1b");
        window.shows("what was not asked is one key up");
        window.press("\x1b[A");
        window.shows("› fifth\nready ·");
    }
}

#[test]
fn who_speaks_goes_on_speaking_while_something_waits() {
    let script = "steps:\n  - { text: 'first second', chunk_chars: 6, chunk_ms: 600000 }\n";
    let world = world(script);
    let window = Window::open(&world, MODEL, WIDE);
    window.ready();
    window.press("go\r");
    window.shows("speaks (Esc ends it)");
    window.press("more\r");
    let queued = window.shows("1. more");
    assert!(queued.contains("speaks (Esc ends it)"), "{queued}");
}
