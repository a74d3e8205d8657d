//! Stories of keys and news.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rye_engine::protocol::{
    Action, Event, EventKind, Gate, GateId, GateKind, GateOrigin, GateStatus, Millis, QueueMode,
    StatusKind,
};
use serde_json::{Map, Value, json};

use super::*;

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

fn prompt(text: &str, mode: QueueMode) -> Effect {
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

fn gate(actions: &[&str]) -> Gate {
    let action = |id: &&str| Action {
        id: (*id).to_owned(),
        label: (*id).to_owned(),
    };
    Gate {
        id: GateId::from("gate:s:t:i:k".to_owned()),
        kind: GateKind::Approval,
        title: "deploy".to_owned(),
        body: "risk: high".to_owned(),
        actions: actions.iter().map(action).collect(),
        status: GateStatus::Pending,
        origin: GateOrigin {
            session: "s".parse().unwrap(),
            thread: "t".parse().unwrap(),
            item: "i".parse().unwrap(),
            call: "c".parse().unwrap(),
            tool: "call_tool".to_owned(),
            resume_key: "k".to_owned(),
        },
        expires_at: None,
        context: Map::new(),
        created_at: Millis(1),
    }
}

/// A gate, painted at a time.
fn painted(app: &mut App, gate: Gate, now: Instant) {
    app.ask(gate);
    let size = Size {
        width: 80,
        height: 24,
    };
    let picture = app.bottom(size);
    app.painted(&picture, now);
}

#[test]
fn keys_send_steer_end_and_leave() {
    let table: [(App, &str, Vec<Effect>); 9] = [
        (app(), "hi\r", vec![prompt("hi", QueueMode::Followup)]),
        (busy(), "hi\r", vec![prompt("hi", QueueMode::Followup)]),
        (busy(), "hi\x13", vec![prompt("hi", QueueMode::Steer)]),
        (busy(), "hi\x03", vec![prompt("hi", QueueMode::Steer)]),
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
fn a_gate_takes_letters_only_once_it_was_seen_and_nothing_is_being_written() {
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    let decide = |action: &str| Effect::Decide {
        gate: gate(&[]).id,
        action: action.to_owned(),
        value: Value::Null,
    };
    let all = ["approve", "approve_session", "approve_project", "deny"];
    for (key, action) in [("y", all[0]), ("a", all[1]), ("p", all[2]), ("N", all[3])] {
        let mut app = app();
        painted(&mut app, gate(&all), now);
        assert_eq!(press(&mut app, key, now), [], "too early");
        app.editor.take();
        assert_eq!(press(&mut app, key, later), [decide(action)]);
    }
    let mut app = app();
    painted(&mut app, gate(&all), now);
    assert_eq!(press(&mut app, "xy", later), []);
    assert_eq!(app.editor.text(), "xy");
    assert_eq!(press(&mut app, "\ty", later), [decide("approve")]);
    app.answered(&gate(&[]).id);
    assert_eq!(press(&mut app, "y", later), [], "once is enough");
}

#[test]
fn words_answer_a_question_and_other_arguments_must_be_json() {
    let now = Instant::now() + Duration::from_secs(1);
    let mut app = app();
    painted(&mut app, gate(&[]), Instant::now());
    let effects = press(&mut app, "blue\r", now);
    let expected = Effect::Decide {
        gate: gate(&[]).id,
        action: "answer".to_owned(),
        value: Value::String("blue".to_owned()),
    };
    assert_eq!(effects, [expected]);

    let mut app = self::app();
    painted(&mut app, gate(&["approve", "deny"]), Instant::now());
    assert_eq!(press(&mut app, "e", now), []);
    assert_eq!(app.editor.text(), "e", "there are no arguments to edit");

    let mut app = self::app();
    let mut editable = gate(&["approve", "deny"]);
    editable
        .context
        .insert("params".to_owned(), json!({ "to": "prod" }));
    editable.context.insert("editable".to_owned(), json!(true));
    painted(&mut app, editable, Instant::now());
    assert_eq!(press(&mut app, "e", now), []);
    app.editor.set("{ no json");
    assert_eq!(press(&mut app, "\r", now), []);
    assert_eq!(app.editor.text(), "{ no json", "what is written stays");
    app.editor.set("{\"to\": \"test\"}");
    let effects = press(&mut app, "\r", now);
    let [Effect::Decide { action, value, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(
        (action.as_str(), &value["arguments"]["to"]),
        ("approve", &Value::from("test"))
    );
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

#[test]
fn what_was_missed_amid_an_answer_is_shown_whole_at_its_end() {
    use rye_engine::protocol::{Entry, EntryKind, Message, Role};
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
    let entry = Entry {
        id: "e".parse().unwrap(),
        session: "s".parse().unwrap(),
        thread: "t".parse().unwrap(),
        parent: None,
        item: None,
        kind: EntryKind::Message(Message::text(Role::Assistant, "one\n\ntwo\n\nthree\n\n")),
        created_at: Millis(1),
        hash: String::new(),
    };
    app.pane_mut().entry(&entry);
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

/// All of what is asked about is there, and once.
#[test]
fn a_command_is_shown_whole_and_once_and_a_change_as_its_difference() {
    let change = json!({ "path": "a", "content": "one" });
    let unfit =
        "It does not fit:\n│ {\"path\":1}\nOutside.\nrisk: high\n│ {\n│   \"path\": \"a\"\n│ }";
    for (tool, title, body, shown) in [
        ("bash", "run: ls", "risk: high\n│ ls", "risk: high"),
        (
            "bash",
            "run: ls …",
            "risk: high\n│ ls\n│ risk: low",
            "risk: high|│ ls|│ risk: low",
        ),
        (
            "bash",
            "run: ls",
            "risk: high\n│ ls\n│ rm x\n│ ls",
            "risk: high|│ ls|│ rm x|│ ls",
        ),
        ("bash", "run: ls", "in /tmp:\n│ ls", "in /tmp:"),
        (
            "write",
            "write: a",
            "Outside.\nrisk: high\n│ {\n│   \"path\": \"a\"\n│ }",
            "Outside.|risk: high|│  +one",
        ),
        (
            "write",
            "write: a",
            unfit,
            "It does not fit:|│ {\"path\":1}|Outside.|risk: high|│  +one",
        ),
    ] {
        let mut gate = gate(&["approve", "deny"]);
        gate.origin.tool = tool.to_owned();
        (gate.title, gate.body) = (title.to_owned(), body.to_owned());
        gate.context.insert("params".to_owned(), change.clone());
        let mut app = app();
        painted(&mut app, gate, Instant::now());
        let lines = app.gate_lines(80, usize::MAX, usize::MAX);
        let lines: Vec<_> = lines
            .iter()
            .map(|line| line.text().trim().to_owned())
            .collect();
        let between = lines[1..lines.len() - 1].join("|");
        assert_eq!(between, shown, "{body}");
    }
}

/// What does not fit on a line goes on where no line begins, also where all is shown.
#[test]
fn a_long_command_looks_like_no_line_of_the_gate() {
    let command = format!("echo {}risk: low", "x ".repeat(30));
    let mut gate = gate(&["approve", "deny"]);
    gate.title = format!("run: {command}");
    gate.body = format!("risk: high\n│ {command}\n│ {command}");
    let mut app = app();
    painted(&mut app, gate, Instant::now());
    let mut lines = app.gate_lines(40, usize::MAX, usize::MAX);
    app.answer_key('m', Instant::now() + SETTLES * 2);
    for block in app.pane_mut().take_new() {
        lines.extend(block.lines(40, false));
    }
    let lines: Vec<_> = lines.iter().map(Line::text).collect();
    let risks = lines.iter().filter(|it| it.contains("risk:"));
    let risks: Vec<_> = risks.map(|it| it.trim_end().to_owned()).collect();
    assert_eq!(risks.len(), 8, "{lines:?}");
    for risk in risks {
        let is_true = risk == "  risk: high";
        assert!(is_true || risk.starts_with("  ┊ "), "{lines:?}");
    }
}
