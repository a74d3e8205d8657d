//! What is typed behind a slash, and what is said first.

use crate::window::Window;
use crate::{MODEL, NARROW, PAGE, WIDE, same, world};

#[test]
fn who_has_no_key_is_told_what_to_set_and_can_look_around() {
    for (name, size) in [("no_key_wide", WIDE), ("no_key_narrow", NARROW)] {
        let world = world(PAGE);
        let window = Window::open(&world, &[], size);
        same!(name, window.ready());
        window.press("/model scripted:demo\r");
        window.shows("answers from the next");
        window.press("hi\r");
        window.shows("It said:");
        window.ready();
    }
}

/// Each command that answers, on one long screen.
#[test]
fn commands_answer() {
    for (name, size) in [("answers_wide", (80, 150)), ("answers_narrow", (40, 240))] {
        let world = world("{ steps: [], after_last: { text: noted } }");
        assert!(world.run(&["init"]).status.success());
        let window = Window::open(&world, MODEL, size);
        window.ready();
        // Before anything was said.
        for typed in ["/compact", "/undo", "/fork"] {
            window.press(typed);
            window.press("\r");
            window.shows(&format!("› {typed}\nnothing was said yet"));
        }
        window.press("hello\r");
        window.shows("noted");
        window.ready();
        for (typed, shown) in [
            ("/help", "Ctrl-D"),
            ("/tools", "Writes a text file"),
            ("/cost", "$0"),
            ("/gates", "nothing waits for a decision"),
            ("/queue", "nothing waits\n"),
            ("/model", "/model NAME chooses one"),
            ("/threads", "/thread KEY goes to one"),
            ("/compact", "there is nothing to sum up"),
            ("/undo", "there is no summary to take back"),
            ("/verify", "verified"),
            ("/fork", "forked: rye chat"),
        ] {
            window.press(typed);
            window.press("\r");
            window.until(shown, |screen| {
                let at = screen.rfind(&format!("› {typed}\n"));
                at.is_some_and(|at| screen[at..].contains(shown))
            });
        }
        same!(name, window.ready());
        for (typed, hint) in [
            ("/model nonsense", "there is no model nonsense"),
            ("/modelx", "there is /model"),
            ("/queue rm 1", "there is no number 1"),
        ] {
            window.press(typed);
            window.press("\r");
            window.shows(hint);
            window.press("\x15");
        }
        window.press("/export out.jsonl\r");
        window.shows("out.jsonl");
        window.press("/steer now\r");
        window.shows("› now");
        window.press("/quit\r");
        let (code, screen) = window.exit();
        assert_eq!(code, 0, "{screen}");
        assert!(world.path("project/out.jsonl").exists());
    }
}

#[test]
fn a_history_is_summed_up_and_the_summary_taken_back() {
    let script = "context_window: 20000\nmax_output: 500\nsteps:\n  - tool_calls: [{ name: bash, args: { command: \
                  'seq 8000' } }]\n  - { text: the answer, usage: { input: 19000, output: 900 } }\nafter_last: { text: \
                  noted }\n";
    for (name, size) in [("summed_up_wide", WIDE), ("summed_up_narrow", (36, 30))] {
        let world = world(script);
        let window = Window::open(&world, MODEL, size);
        window.ready();
        window.press("go\r");
        // It is told to go on by itself.
        window.shows("noted");
        window.ready();
        window.press("/undo\r");
        window.shows("the summary was taken back");
        same!(name, window.ready());
    }
}
