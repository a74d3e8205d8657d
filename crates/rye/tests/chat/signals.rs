//! Being told to end, and Ctrl-C where it is a signal.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lillux::process::Handle;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::World;
use crate::window::Window;
use crate::{LOCAL, MODEL, SLOW, WIDE, session, settle, world};

/// A shell that says how a chat ended, and how it found the terminal.
fn in_a_shell<'a>(world: &'a World, args: &str) -> Window<'a> {
    let chat = format!("sh -c 'echo $$ > pid.txt; exec \"$RYE\" chat {args}'");
    let modes = "stty -a | grep -oE -- '-?(icanon|echo|isig)\\b' | xargs echo modes";
    let script = format!("trap : INT QUIT; {chat}; echo \"ended $?\"; {modes}; read line");
    Window::shell(world, &script, WIDE)
}

/// The number that something has written down.
fn pid(path: &PathBuf) -> i32 {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Some(number) = text.strip_suffix('\n') {
            return number.parse().unwrap();
        }
        assert!(Instant::now() < end, "nothing is in {}", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn send(world: &World, signal: Signal) {
    let pid = Pid::from_raw(pid(&world.path("project/pid.txt"))).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_as_it_was() {
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::INT, 130),
        (Signal::QUIT, 131),
    ] {
        for args in ["", "--plain"] {
            // There, Ctrl-C is a signal that ends what is done.
            if signal == Signal::INT && args == "--plain" {
                continue;
            }
            let world = world("{ steps: [], after_last: { text: noted } }");
            let window = in_a_shell(&world, &format!("--model scripted:agent.yaml {args}"));
            window.until("where to write", |screen| {
                screen.contains("ready ·") || screen == ">"
            });
            send(&world, signal);
            let screen = window.shows("modes isig icanon echo");
            assert!(screen.contains(&format!("ended {code}")), "{screen}");
            let words = format!("it goes on with: rye chat --session {}", session(&world));
            assert!(screen.contains(&words), "{screen}");
            let bytes = String::from_utf8_lossy(&window.bytes()).into_owned();
            assert!(bytes.rfind("\x1b[?2004h") <= bytes.rfind("\x1b[?2004l"));
        }
    }
}

/// As with a process that is killed: its tools end, and all that was written down is there.
#[test]
fn a_session_that_a_signal_ended_goes_on_and_its_tools_have_ended() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo $$ > tool.txt; \
                  sleep 600' } }]\nafter_last: { text: noted }\n";
    let world = world(script);
    assert!(world.run(&["init"]).status.success());
    let window = in_a_shell(&world, "--model scripted:agent.yaml --sandbox local");
    window.ready();
    window.press("go\r");
    window.shows("m more");
    settle();
    window.press("y");
    let tool = pid(&world.path("project/tool.txt"));
    let tool = Handle::of_running(tool).unwrap();
    send(&world, Signal::TERM);
    window.shows("ended 143");
    assert!(
        tool.wait(Some(Duration::from_mins(1))).unwrap(),
        "it runs on"
    );
    let id = session(&world);
    let window = Window::open(&world, &["--session", &id], WIDE);
    window.shows("› go");
    window.shows("noted");
    window.press("/verify\r");
    window.shows("verified");
}

#[test]
fn ctrl_c_in_an_editor_is_the_editors_and_what_was_written_stays() {
    let mut world = world(SLOW);
    world.write("editor.sh", "#!/bin/sh\necho $$ > editing.txt\nsleep 600\n");
    let editor = format!("sh {}", world.path("editor.sh").display());
    // One that is empty says nothing.
    world.set("VISUAL", "");
    world.set("EDITOR", &editor);
    for key in ["\x03", "\x1c"] {
        let _ = std::fs::remove_file(world.path("project/editing.txt"));
        let window = Window::open(&world, MODEL, WIDE);
        window.ready();
        window.press("a long draft\x07");
        pid(&world.path("project/editing.txt"));
        window.press(key);
        let screen = window.shows("it was interrupted");
        assert!(screen.contains("› a long draft"), "{screen}");
        window.press(" and more");
        window.shows("› a long draft and more");
    }
}

#[test]
fn line_by_line_ctrl_c_ends_the_work_and_twice_it_leaves() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo hi' } }]\n  - { text: \
                  slow, delay_ms: 600000 }\n";
    let world = world(script);
    let window = Window::open(&world, &[MODEL, LOCAL, &["--plain"]].concat(), (80, 40));
    window.until("the place to write", |screen| screen == ">");
    window.press("go\r");
    window.until("the gate", |screen| screen.ends_with("m more\n>"));
    settle();
    window.press("y\r");
    window.shows("● bash echo hi");
    window.press("\x03");
    window.until("its end", |screen| screen.ends_with("ended\n>"));
    window.press("/queue\r");
    window.until("an answer", |screen| screen.ends_with("nothing waits\n>"));
    window.press("\x03");
    window.until("a hint", |screen| {
        screen.ends_with("Ctrl-C again leaves; the session stays\n>")
    });
    window.press("\x03");
    let (code, screen) = window.exit();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("it goes on with: rye chat"), "{screen}");
}
