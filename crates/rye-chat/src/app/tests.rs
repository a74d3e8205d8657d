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
