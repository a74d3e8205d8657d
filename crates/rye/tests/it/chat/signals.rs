//! Termination signals, and Ctrl-C that arrives as a signal.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lillux::process::Handle;
use rustix::process::{Pid, Signal, kill_process};
use rye_engine::protocol::short_id;

use crate::chat::window::{RESUME_HINT, Window};
use crate::chat::{LOCAL, MODEL, SLOW, WIDE, env, session, wait_gate_grace};
use crate::support::TestEnv;

/// A shell that runs the chat and prints its exit code and the terminal modes afterwards.
fn open_in_shell<'a>(env: &'a TestEnv, args: &str) -> Window<'a> {
    let chat = format!("sh -c 'echo $$ > pid.txt; exec \"$RYE\" chat {args}'");
    let modes = "stty -a | grep -oE -- '-?(icanon|echo|isig)\\b' | xargs echo modes";
    let script = format!("trap : INT QUIT; {chat}; echo \"ended $?\"; {modes}; read line");
    Window::shell(env, &script, WIDE)
}

/// Waits until a file contains a process id.
fn wait_pid(path: &PathBuf) -> i32 {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Some(number) = text.strip_suffix('\n') {
            return number.parse().unwrap();
        }
        assert!(Instant::now() < end, "{} has no process id", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn send(env: &TestEnv, signal: Signal) {
    let pid = Pid::from_raw(wait_pid(&env.path("project/pid.txt"))).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn signal_ends_the_chat_and_restores_the_terminal() {
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::INT, 130),
        (Signal::QUIT, 131),
    ] {
        for args in ["", "--plain"] {
            // With --plain, SIGINT stops the agent instead.
            if signal == Signal::INT && args == "--plain" {
                continue;
            }
            let env = env("{ steps: [], after_last: { text: noted } }");
            let window = open_in_shell(&env, &format!("--model scripted:agent.yaml {args}"));
            window.wait_until("the prompt", |screen| {
                screen.contains("ready ·") || screen == ">"
            });
            send(&env, signal);
            let screen = window.wait_for("modes isig icanon echo");
            assert!(screen.contains(&format!("ended {code}")), "{screen}");
            let hint = format!("{RESUME_HINT} {}\n", short_id(&session(&env)));
            assert!(screen.contains(&hint), "{screen}");
            let bytes = String::from_utf8_lossy(&window.bytes()).into_owned();
            assert!(bytes.rfind("\x1b[?2004h") <= bytes.rfind("\x1b[?2004l"));
        }
    }
}

#[test]
fn signal_ends_the_tools_and_the_session_can_be_resumed() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo $$ > tool.txt; \
                  sleep 600' } }]\nafter_last: { text: noted }\n";
    let env = env(script);
    assert!(env.run(&["init"]).status.success());
    let window = open_in_shell(&env, "--model scripted:agent.yaml --sandbox local");
    window.wait_ready();
    window.press("go\r");
    window.wait_gate();
    wait_gate_grace();
    window.press("y");
    let tool = wait_pid(&env.path("project/tool.txt"));
    let tool = Handle::from_pid(tool).unwrap();
    send(&env, Signal::TERM);
    window.wait_for("ended 143");
    assert!(
        tool.wait(Some(Duration::from_mins(1))).unwrap(),
        "the tool is still running"
    );
    let id = session(&env);
    let window = Window::open(&env, &["--session", &id], WIDE);
    window.wait_for("› go");
    window.wait_for("noted");
    window.press("/verify\r");
    window.wait_for("verified");
}

#[test]
fn ctrl_c_in_the_editor_keeps_the_draft() {
    let mut env = env(SLOW);
    env.write("editor.sh", "#!/bin/sh\necho $$ > editing.txt\nsleep 600\n");
    let editor = format!("sh {}", env.path("editor.sh").display());
    // An empty variable counts as unset.
    env.set("VISUAL", "");
    env.set("EDITOR", &editor);
    for key in ["\x03", "\x1c"] {
        let _ = std::fs::remove_file(env.path("project/editing.txt"));
        let window = Window::open(&env, MODEL, WIDE);
        window.wait_ready();
        window.press("a long draft\x07");
        wait_pid(&env.path("project/editing.txt"));
        window.press(key);
        let screen = window.wait_for("interrupted;");
        assert!(screen.contains("› a long draft"), "{screen}");
        window.press(" and more");
        window.wait_for("› a long draft and more");
    }
}

#[test]
fn plain_ctrl_c_stops_the_agent_and_twice_quits() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'echo hi' } }]\n  - { text: \
                  slow, delay_ms: 600000 }\n";
    let env = env(script);
    let window = Window::open(&env, &[MODEL, LOCAL, &["--plain"]].concat(), (80, 40));
    window.wait_plain_prompt();
    window.press("go\r");
    window.wait_plain_gate(1);
    wait_gate_grace();
    window.press("y\r");
    window.wait_for("● bash echo hi");
    window.press("\x03");
    window.wait_until("the stop", |screen| screen.ends_with("stopped\n>"));
    window.press("/queue\r");
    window.wait_until("the empty queue", |screen| {
        screen.ends_with("the queue is empty\n>")
    });
    window.press("\x03");
    window.wait_until("a hint", |screen| {
        screen.ends_with("press Ctrl-C again to quit; the session is kept\n>")
    });
    window.press("\x03");
    let (code, screen) = window.exit();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains(RESUME_HINT), "{screen}");
}
