//! What the chat shows about the session and the workspace.

use crate::chat::window::Window;
use crate::chat::{MODEL, SIZES, SMALL, assert_screen, env};

#[test]
fn first_screen_says_what_runs_where() {
    for (name, size) in SIZES {
        let env = env("{ steps: [], after_last: { text: noted } }");
        let window = Window::open(&env, MODEL, size);
        window.wait_until("ready", |screen| screen.contains("ready"));
        let name = format!("first_screen_{name}");
        assert_screen!(name, window.full_text());
        window.press("go\r");
        window.wait_until("the answer", |screen| {
            screen.contains("noted") && screen.contains("ready")
        });
    }
}

#[test]
fn edit_is_shown_with_context_and_line_numbers() {
    let script = "steps:\n  - tool_calls: [{ name: edit, args: { path: a.txt, old: 'line 50', new: \
                  'line fifty' } }]\n  - text: \"first line\\nsecond line\"\n";
    for (name, size) in SIZES {
        let env = env(script);
        let lines: Vec<_> = (1..=100).map(|it| format!("line {it}\n")).collect();
        env.write("project/a.txt", &lines.concat());
        let window = Window::open(&env, MODEL, size);
        window.wait_until("ready", |screen| screen.contains("ready"));
        window.press("go\r");
        window.wait_until("the answer", |screen| {
            screen.contains("second line") && screen.contains("ready")
        });
        let all = window.full_text();
        let from = all.find("› go").unwrap();
        assert_screen!(format!("edit_{name}"), &all[from..]);
    }
}

#[test]
fn completion_offers_the_files_that_the_agent_sees() {
    let script = "steps:\n  - tool_calls: [{ name: write, args: { path: made/by_agent.txt, content: x } }]\n  \
                  - text: done\n";
    // In memory, files of the project do not exist for the agent.
    for (sandbox, sees_project) in [("confined", true), ("virtual", false)] {
        let env = env(script);
        env.write("project/src/main.rs", "");
        let args = [MODEL, &["--sandbox", sandbox]].concat();
        let window = Window::open(&env, &args, (80, 24));
        window.wait_ready();
        window.press("go\r");
        window.wait_for("done");
        window.wait_ready();
        window.press("@byagnt");
        window.wait_for("▸ made/by_agent.txt");
        window.press("\x15@main");
        if sees_project {
            window.wait_for("▸ src/main.rs");
        } else {
            window.wait_until("no file", |screen| {
                screen.contains("› @main") && !screen.contains("src/main.rs")
            });
        }
    }
}

#[test]
fn status_line_shows_the_git_branch() {
    let env = env("{ steps: [], after_last: { text: noted } }");
    env.write("project/.git/HEAD", "ref: refs/heads/topic\n");
    let window = Window::open(&env, MODEL, (80, 24));
    window.wait_for("git:topic");
    env.write("project/.git/HEAD", "ref: refs/heads/other\n");
    window.press("go\r");
    window.wait_for("git:other");
}

#[test]
fn theme_of_the_settings_decides_the_colours() {
    let env = env("{ steps: [], after_last: { text: noted } }");
    env.write("user/.ai/config/rye.yaml", "chat: { theme: light }\n");
    let window = Window::open(&env, MODEL, (80, 24));
    window.wait_ready();
    window.press("go\r");
    window.wait_for("noted");
    let line = window.formatted_line("› go");
    assert!(line.contains("\x1b[38;5;30m"), "{line:?}");
}

#[test]
fn user_is_alerted_while_the_terminal_has_no_focus() {
    // Each terminal gets the notification that it understands.
    let terminals = [
        ("xterm-256color", "\x1b]9;rye: the agent is done"),
        ("foot", "\x1b]777;notify;rye;the agent is done"),
    ];
    for (term, notification) in terminals {
        let env = env("{ steps: [], after_last: { text: noted } }");
        let window = Window::with(&env, MODEL, (80, 24), &[("TERM", term)]);
        window.wait_ready();
        let alerts = || {
            let bytes = window.bytes();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.matches(notification).count()
        };
        // Focus lost, prompt, focus gained, prompt.
        window.press("\x1b[O");
        window.press("one\r");
        window.wait_for("noted");
        window.wait_ready();
        window.press("\x1b[I");
        window.press("two\r");
        window.wait_until("both answers", |screen| {
            screen.matches("noted").count() == 2 && screen.contains("ready ·")
        });
        // The alert is sent before the paint that says `ready`.
        assert_eq!(alerts(), 1, "{term}");
    }
}

#[test]
fn commands_in_the_background_are_in_the_status_line_until_they_end() {
    let script = "steps:\n  - tool_calls: [{ name: bash, args: { command: 'until test -e go; do sleep 0.05; \
                  done; exit 3', background: true } }]\n  - text: started\n";
    for (_, size) in SIZES {
        let env = env(script);
        let window = Window::open(&env, MODEL, size);
        window.wait_until("ready", |screen| screen.contains("ready"));
        window.press("go\r");
        window.wait_for_text("started");
        if size != SMALL {
            window.wait_for("· bg-1 until test -e go");
        }
        window.press("/status\r");
        window.wait_for_words("background bg-1 until test");
        env.write("project/go", "");
        window.wait_for_words("bg-1 exit code 3: until test");
        window.wait_until("no command", |screen| !screen.contains("· bg-1"));
    }
}
