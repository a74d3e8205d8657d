//! Stories of keys and news.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rye_engine::protocol::{
    Entry, EntryKind, Event, EventKind, Message, Millis, QueueMode, Role, StatusKind,
};

use super::*;

mod gates;

fn app() -> App {
    let mut app = App::new(Facts::default(), "default");
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
        effects.extend(app.key(KeyEvent::new(code, modifiers), now));
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
fn keys_send_steer_end_and_leave() {
    let table: [(App, &str, Vec<Effect>); 9] = [
        (app(), "hi\r", vec![prompt("hi", None)]),
        (busy(), "hi\r", vec![prompt("hi", None)]),
        (busy(), "hi\x13", vec![prompt("hi", Some(QueueMode::Steer))]),
        (busy(), "hi\x03", vec![prompt("hi", Some(QueueMode::Steer))]),
        (busy(), "\x1b", vec![abort()]),
        (busy(), "\x03\x03", vec![abort(), Effect::Quit]),
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
fn what_could_not_be_sent_comes_back() {
    let mut app = app();
    app.give_back("lost?");
    assert_eq!(app.editor.text(), "lost?");
    app.give_back("another");
    assert_eq!(app.editor.text(), "lost?");
    press(&mut app, "\x10", Instant::now());
    assert_eq!(app.editor.text(), "another");
}

fn told(app: &mut App, kind: EventKind) {
    let event = Event {
        sequence: None,
        session: "s".parse().unwrap(),
        thread: Some("t".parse().unwrap()),
        at: Millis(1),
        kind,
    };
    app.news(&event, None);
}

fn written(message: Message) -> Entry {
    Entry {
        id: "e".parse().unwrap(),
        session: "s".parse().unwrap(),
        thread: "t".parse().unwrap(),
        parent: None,
        item: None,
        kind: EntryKind::Message(message),
        created_at: Millis(1),
        hash: String::new(),
    }
}

#[test]
fn an_answer_that_is_not_whole_says_so() {
    let mut app = app();
    let mut message = Message::text(Role::Assistant, "one, two");
    message.stop_reason = Some("max_tokens".to_owned());
    app.pane_mut().entry(&written(message));
    let lines: Vec<_> = app.finished(90).iter().map(Line::text).collect();
    let cut = "the answer is truncated: the model reached its output limit (max_tokens)";
    assert_eq!(lines, ["", "one, two", cut]);
}

#[test]
fn what_was_missed_amid_an_answer_is_shown_whole_at_its_end() {
    let mut app = app();
    told(
        &mut app,
        EventKind::ThreadStart {
            key: "default".to_owned(),
        },
    );
    told(&mut app, EventKind::MessageStart);
    for text in ["one\n\n", "tw"] {
        told(
            &mut app,
            EventKind::TextDelta {
                text: text.to_owned(),
            },
        );
    }
    told(&mut app, EventKind::Lagged { missed: 1 });
    told(
        &mut app,
        EventKind::TextDelta {
            text: "ee\n\n".to_owned(),
        },
    );
    let whole = Message::text(Role::Assistant, "one\n\ntwo\n\nthree\n\n");
    app.pane_mut().entry(&written(whole));
    let lines: Vec<_> = app.finished(40).iter().map(Line::text).collect();
    assert_eq!(lines, ["", "one", "", "two", "", "three"]);
}

#[test]
fn a_flood_of_output_is_kept_short() {
    let mut app = app();
    told(
        &mut app,
        EventKind::ThreadStart {
            key: "default".to_owned(),
        },
    );
    let call = "c".parse::<rye_engine::protocol::CallId>().unwrap();
    let tool = "bash".to_owned();
    told(
        &mut app,
        EventKind::ToolStart {
            call: call.clone(),
            tool,
        },
    );
    for number in 0..100_000 {
        let text = format!("line {number}\n");
        told(
            &mut app,
            EventKind::ToolOutput {
                call: call.clone(),
                text,
            },
        );
    }
    assert!(app.pane().running[0].output.len() < 64 * 1024);
    app.unfolded = true;
    let size = Size {
        width: 40,
        height: 12,
    };
    let bottom = app.bottom(size);
    assert!(bottom.lines.len() < 12, "{}", bottom.lines.len());
    assert!(
        bottom
            .lines
            .iter()
            .any(|line| line.text().contains("line 99999"))
    );
}
