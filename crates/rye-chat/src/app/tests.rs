//! Sequences of keys and events, and their effects.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rye_engine::protocol::{
    Entry, EntryKind, Event, EventKind, IncompleteReason, Message, Millis, QueueMode, Role,
    StatusKind,
};

use super::*;

mod gates;

fn app() -> App {
    let mut app = App::new(SessionInfo::default(), "default");
    app.ready = true;
    app
}

fn busy() -> App {
    let mut app = app();
    app.pane_mut().status = StatusKind::Thinking;
    app
}

fn press(app: &mut App, keys: &str, now: Instant) -> Vec<Effect> {
    let mut effects = Vec::new();
    for key in keys.chars() {
        let (code, modifiers) = match key {
            '\r' => (KeyCode::Enter, KeyModifiers::NONE),
            '\x1b' => (KeyCode::Esc, KeyModifiers::NONE),
            '\t' => (KeyCode::Tab, KeyModifiers::NONE),
            control @ '\x01'..='\x1a' => {
                let letter = char::from(u8::try_from(control).unwrap() + b'a' - 1);
                (KeyCode::Char(letter), KeyModifiers::CONTROL)
            }
            letter => (KeyCode::Char(letter), KeyModifiers::NONE),
        };
        effects.extend(app.on_key(KeyEvent::new(code, modifiers), now));
    }
    effects
}

fn prompt(text: &str, mode: Option<QueueMode>) -> Effect {
    Effect::Prompt {
        thread: "default".to_owned(),
        text: text.to_owned(),
        mode,
    }
}

fn abort() -> Effect {
    Effect::Abort {
        thread: "default".to_owned(),
    }
}

#[test]
fn keys_send_steer_stop_and_quit() {
    let table: [(App, &str, Vec<Effect>); 10] = [
        (app(), "hi\r", vec![prompt("hi", None)]),
        (busy(), "hi\r", vec![prompt("hi", None)]),
        (busy(), "hi\x13", vec![prompt("hi", Some(QueueMode::Steer))]),
        (busy(), "hi\x03", vec![prompt("hi", Some(QueueMode::Steer))]),
        (busy(), "\x1b", vec![abort()]),
        (busy(), "\x03\x03", vec![abort(), Effect::Quit]),
        // A command is not a prompt for the agent, also after white space.
        (busy(), "\x0a/hi\x03", vec![]),
        (app(), "\x1b", vec![]),
        (app(), "hi\x03\x03\x03", vec![Effect::Quit]),
        (app(), "   \r\x04", vec![]),
    ];
    for (mut app, keys, expected) in table {
        let effects = press(&mut app, keys, Instant::now());
        assert_eq!(effects, expected, "{keys:?}");
    }
}

#[test]
fn escape_twice_edits_the_last_prompt_only_without_a_draft() {
    let table: [(App, &str, Vec<Effect>); 4] = [
        (app(), "\x1b\x1b", vec![Effect::EditLastPrompt]),
        (app(), "\x1bx\x7f\x1b", vec![]),
        (app(), "draft\x1b\x1b", vec![]),
        (busy(), "\x1b\x1b", vec![abort(), abort()]),
    ];
    for (mut app, keys, expected) in table {
        let effects = press(&mut app, keys, Instant::now());
        assert_eq!(effects, expected, "{keys:?}");
    }
}

#[test]
fn bare_command_opens_its_choices_and_enter_takes_the_best_match() {
    let mut app = app();
    app.completions.models = ["openai/large", "local/small"].map(Into::into).to_vec();
    app.open_picker("model");
    let model = |name: &str| vec![Effect::Command(Command::Model(Some(name.to_owned())))];
    assert_eq!(
        press(&mut app, "sml\r", Instant::now()),
        model("local/small")
    );
    // A name that is not listed is sent as it is.
    let unlisted = press(&mut app, "/model scripted:x\r", Instant::now());
    assert_eq!(unlisted, model("scripted:x"));
    // A new thread is not one whose name is similar.
    app.completions.threads = vec!["default".into()];
    press(&mut app, "/thread def\r", Instant::now());
    assert_eq!(app.pane().key, "def");
    app.open_picker("model");
    press(&mut app, "\x1b", Instant::now());
    assert_eq!(app.editor.text(), "");
}

#[test]
fn output_of_own_commands_goes_with_the_next_prompt_once() {
    use std::os::unix::process::ExitStatusExt as _;
    let mut app = app();
    let effects = press(&mut app, "!make x\r", Instant::now());
    assert!(matches!(&effects[..], [Effect::Shell(shell)] if shell.line == "make x"));
    app.on_shell_ended("default", "make x", "error\n", ExitStatus::from_raw(2 << 8));
    let text = "I ran `make x` (exit code 2):\n```\nerror\n```\n\nfix it";
    let sent = press(&mut app, "fix it\r", Instant::now());
    assert_eq!(sent, [prompt(text, None)]);
    assert_eq!(
        press(&mut app, "and\r", Instant::now()),
        [prompt("and", None)]
    );
}

#[test]
fn unsent_prompt_returns_to_the_input_or_the_history() {
    let mut app = app();
    app.restore_draft("lost?");
    assert_eq!(app.editor.text(), "lost?");
    app.restore_draft("another");
    assert_eq!(app.editor.text(), "lost?");
    press(&mut app, "\x10", Instant::now());
    assert_eq!(app.editor.text(), "another");
}

fn apply(app: &mut App, kind: EventKind) {
    let event = Event {
        sequence: None,
        session: "s".parse().unwrap(),
        thread: Some("t".parse().unwrap()),
        at: Millis(1),
        kind,
    };
    app.on_event(&event, None);
}

fn entry(message: Message) -> Entry {
    Entry {
        id: "e".parse().unwrap(),
        session: "s".parse().unwrap(),
        thread: "t".parse().unwrap(),
        parent: None,
        prompt: None,
        kind: EntryKind::Message(message),
        created_at: Millis(1),
        hash: String::new(),
    }
}

#[test]
fn incomplete_answer_is_marked() {
    let mut app = app();
    let mut message = Message::text(Role::Assistant, "one, two");
    message.stop_reason = Some("max_tokens".to_owned());
    let incomplete = IncompleteReason::OutputLimit;
    message.incomplete = Some(incomplete);
    app.pane_mut().on_entry(&entry(message));
    let lines: Vec<_> = app.finished_lines(90).iter().map(Line::text).collect();
    let notice = format!("{incomplete} (max_tokens)");
    assert_eq!(lines, ["", "one, two", &notice]);
}

#[test]
fn answer_with_lost_deltas_is_complete_at_its_end() {
    let mut app = app();
    apply(
        &mut app,
        EventKind::ThreadStart {
            key: "default".to_owned(),
        },
    );
    apply(&mut app, EventKind::MessageStart);
    for text in ["one\n\n", "tw"] {
        apply(
            &mut app,
            EventKind::TextDelta {
                text: text.to_owned(),
            },
        );
    }
    apply(&mut app, EventKind::Lagged { missed: 1 });
    apply(
        &mut app,
        EventKind::TextDelta {
            text: "ee\n\n".to_owned(),
        },
    );
    let complete = Message::text(Role::Assistant, "one\n\ntwo\n\nthree\n\n");
    app.pane_mut().on_entry(&entry(complete));
    let lines: Vec<_> = app.finished_lines(40).iter().map(Line::text).collect();
    assert_eq!(lines, ["", "one", "", "two", "", "three"]);
}

#[test]
fn long_tool_output_is_bounded() {
    let mut app = app();
    apply(
        &mut app,
        EventKind::ThreadStart {
            key: "default".to_owned(),
        },
    );
    let call = "c".parse::<rye_engine::protocol::CallId>().unwrap();
    let tool = "bash".to_owned();
    apply(
        &mut app,
        EventKind::ToolStart {
            call: call.clone(),
            tool,
        },
    );
    for number in 0..100_000 {
        let text = format!("line {number}\n");
        apply(
            &mut app,
            EventKind::ToolOutput {
                call: call.clone(),
                text,
            },
        );
    }
    assert!(app.pane().running[0].output.len() < 64 * 1024);
    app.expanded = true;
    let size = Size {
        width: 40,
        height: 12,
    };
    let region = app.live_region(size);
    assert!(region.lines.len() < 12, "{}", region.lines.len());
    assert!(
        region
            .lines
            .iter()
            .any(|line| line.text().contains("line 99999"))
    );
}
