//! Work that an agent gives to another.

use crate::support::World;
use crate::window::Window;
use crate::{LOCAL, MODEL, gate, ran, same, session, settle, still, world};

/// A model that gives work to another, which asks before it does it.
fn with_task() -> World {
    let world = world(
        "steps:\n  - tool_calls: [{ name: task, args: { prompt: 'look after it', model: 'scripted:child.yaml' } }]\n  \
         - text: 'They said: ${last_tool_result}'\n",
    );
    let child = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo once >> ran.txt; cat ran.txt' } }]\n  \
                 - text: 'It is ${last_tool_result}'\n";
    world.write("project/child.yaml", child);
    world
}

#[test]
fn the_gate_of_a_task_is_asked_here_and_goes_away_when_it_is_answered_elsewhere() {
    for (name, size) in [("task_wide", (80, 24)), ("task_narrow", (36, 30))] {
        let world = with_task();
        let window = Window::open(&world, &[MODEL, LOCAL].concat(), size);
        window.ready();
        window.press("go\r");
        let asked = window.shows("m more");
        let approved = world.run(&["gate", "approve", &gate(&world)]);
        assert!(approved.status.success(), "{approved:?}");
        window.shows("They said: It is once");
        // Two sessions tell of it, each in its own order.
        window.until("the end", |screen| {
            screen.contains("ready ·") && screen.contains("approved by ada (cli)")
        });
        same!(name, asked);
        assert_eq!(ran(&world), 1);
    }
}

#[test]
fn after_a_kill_the_gate_of_a_task_waits_and_all_is_as_it_was() {
    for (name, size) in [
        ("task_resumed_wide", (80, 24)),
        ("task_resumed_narrow", (36, 30)),
    ] {
        let world = with_task();
        let window = Window::open(&world, &[MODEL, LOCAL].concat(), size);
        window.ready();
        window.press("go\r");
        window.shows("m more");
        window.kill();
        // It knows its model, and where its tools work.
        let window = Window::open(&world, &["--session", &session(&world)], size);
        let asked = window.shows("m more");
        same!(name, still(&asked));
        assert_eq!(ran(&world), 0);
        settle();
        window.press("y");
        window.shows("approved by ada (chat)");
        window.shows("They said: It is once");
        window.ready();
        assert_eq!(ran(&world), 1);
    }
}
