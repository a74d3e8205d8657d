//! When a gate is readable and which input answers it.

use std::time::Duration;

use rye_engine::protocol::{Action, GateKind, GateOrigin, GateStatus};
use serde_json::{Map, json};

use super::*;

fn gate(actions: &[&str]) -> Gate {
    let action = |id: &&str| Action::new(*id, *id);
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
            prompt: "i".parse().unwrap(),
            call: "c".parse().unwrap(),
            tool: "call_tool".to_owned(),
            resume_key: "k".to_owned(),
        },
        expires_at: None,
        context: Map::new(),
        created_at: Millis(1),
    }
}

/// Adds a gate and paints it at `now`.
fn paint_gate(app: &mut App, gate: Gate, now: Instant) {
    app.add_gate(gate);
    let size = Size {
        width: 80,
        height: 24,
    };
    let region = app.live_region(size);
    app.on_painted(&region, now);
}

#[test]
fn gate_takes_keys_only_after_the_grace_period_and_without_a_draft() {
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    let decide = |action: &str| Effect::Decide {
        gate: gate(&[]).id,
        action: action.into(),
        value: Value::Null,
    };
    let all = ["approve", "approve_session", "approve_project", "deny"];
    for (key, action) in [("y", all[0]), ("a", all[1]), ("p", all[2])] {
        let mut app = app();
        paint_gate(&mut app, gate(&all), now);
        assert_eq!(press(&mut app, key, now), [], "too early");
        app.editor.take_text();
        assert_eq!(press(&mut app, key, later), [decide(action)]);
    }
    let mut app = app();
    paint_gate(&mut app, gate(&all), now);
    assert_eq!(press(&mut app, "xy", later), []);
    assert_eq!(app.editor.text(), "xy");
    assert_eq!(press(&mut app, "\ty", later), [decide("approve")]);
    app.mark_answered(&gate(&[]).id);
    assert_eq!(press(&mut app, "y", later), [], "once is enough");
}

#[test]
fn denial_takes_an_optional_reason() {
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    let deny = |reason: Value| Effect::Decide {
        gate: gate(&[]).id,
        action: ActionId::Deny,
        value: reason,
    };
    for (keys, expected) in [
        ("N\r", vec![deny(Value::Null)]),
        ("nwrong file\r", vec![deny("wrong file".into())]),
        ("nwrong\x1by", vec![]),
    ] {
        let mut app = app();
        paint_gate(&mut app, gate(&["deny"]), now);
        assert_eq!(press(&mut app, keys, later), expected, "{keys:?}");
    }
    // A limit that is not raised ends the turn, so the agent would not read a reason.
    let mut limit = gate(&["deny"]);
    limit.context.insert("limit".to_owned(), json!(1));
    let mut app = app();
    paint_gate(&mut app, limit, now);
    assert_eq!(press(&mut app, "n", later), [deny(Value::Null)]);
    // Line by line, the reason is on the line of the key.
    let mut app = self::app();
    app.plain = true;
    app.add_gate(gate(&["deny"]));
    app.mark_shown(&gate(&[]).id, now);
    let denied = app.deny_with_reason("n wrong file", later);
    assert_eq!(denied, Some(deny("wrong file".into())));
    assert_eq!(app.deny_with_reason("not yet", later), None);
}

#[test]
fn text_answers_a_question_and_edited_arguments_must_be_json() {
    let now = Instant::now() + Duration::from_secs(1);
    let mut app = app();
    paint_gate(&mut app, gate(&[]), Instant::now());
    let effects = press(&mut app, "blue\r", now);
    let expected = Effect::Decide {
        gate: gate(&[]).id,
        action: "answer".into(),
        value: Value::String("blue".to_owned()),
    };
    assert_eq!(effects, [expected]);

    let mut app = self::app();
    paint_gate(&mut app, gate(&["approve", "deny"]), Instant::now());
    assert_eq!(press(&mut app, "e", now), []);
    assert_eq!(app.editor.text(), "e", "the gate has no editable arguments");

    let mut app = self::app();
    let mut editable = gate(&["approve", "deny"]);
    editable
        .context
        .insert("params".to_owned(), json!({ "to": "prod" }));
    editable.context.insert("editable".to_owned(), json!(true));
    paint_gate(&mut app, editable, Instant::now());
    assert_eq!(press(&mut app, "e", now), []);
    app.editor.set_text("{ no json");
    assert_eq!(press(&mut app, "\r", now), []);
    assert_eq!(app.editor.text(), "{ no json", "the draft is kept");
    app.editor
        .set_text("{\"to\": 123456789012345678901234567890}");
    let effects = press(&mut app, "\r", now);
    let [Effect::Decide { action, value, .. }] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(
        (action.as_str(), &value["arguments"]["to"]),
        ("approve", &Value::from("123456789012345678901234567890"))
    );
}

#[test]
fn second_gate_takes_keys_only_after_it_was_painted() {
    let now = Instant::now();
    let (first, mut second) = (gate(&["approve"]), gate(&["approve"]));
    second.id = GateId::from("gate:s:t:i:other".to_owned());
    let mut app = app();
    app.add_gate(first.clone());
    paint_gate(&mut app, second.clone(), now);
    let later = now + GATE_GRACE * 2;
    let [Effect::Decide { gate, .. }] = &press(&mut app, "y", later)[..] else {
        panic!("expected a decision on the first gate");
    };
    assert_eq!(*gate, first.id);
    app.mark_answered(&first.id);
    assert_eq!(press(&mut app, "y", later), [], "not painted yet");
    app.editor.take_text();
    paint_gate(&mut app, second.clone(), later);
    assert_eq!(press(&mut app, "y", later), [], "painted just now");
    app.editor.take_text();
    let [Effect::Decide { gate, .. }] = &press(&mut app, "y", later + GATE_GRACE * 2)[..] else {
        panic!("expected a decision on the second gate");
    };
    assert_eq!(*gate, second.id);
}

#[test]
fn text_sent_before_a_question_was_readable_is_a_prompt() {
    let now = Instant::now();
    let mut app = app();
    press(&mut app, "go left", now);
    paint_gate(&mut app, gate(&[]), now);
    let expected = [prompt("go left", None)];
    assert_eq!(press(&mut app, "\r", now), expected);
}

#[test]
fn answerable_gate_is_readable_at_any_terminal_size() {
    let mut long = gate(&["approve", "deny"]);
    long.title = "run: make …".to_owned();
    long.body = format!("risk: high\n│ make it\n│ {}", "and then\n│ ".repeat(40));
    for (width, height) in (1..100).flat_map(|width| (1..40).map(move |height| (width, height))) {
        let mut app = app();
        app.add_gate(long.clone());
        let region = app.live_region(Size { width, height });
        let lines: Vec<_> = region.lines.iter().map(Line::text).collect();
        assert!(lines.len() <= height.max(3), "{width} {height}: {lines:?}");
        let text = lines.concat().replace([' ', '┊'], "");
        let parts = [
            "approve?run:make…",
            "risk:high",
            "│makeit",
            "yyes",
            "nno",
            "?more",
        ];
        let shown = parts.iter().all(|part| text.contains(part));
        assert_eq!(
            region.readable_gate.is_some(),
            shown,
            "{width} {height}: {lines:?}"
        );
        if !shown && width >= 60 {
            assert!(text.contains("terminaltoosmall"), "{width} {height}");
        }
    }
}

#[test]
fn command_is_shown_once_and_file_change_as_a_diff() {
    let change = json!({ "path": "a", "content": "one" });
    let misfit =
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
            misfit,
            "It does not fit:|│ {\"path\":1}|Outside.|risk: high|│  +one",
        ),
    ] {
        let mut gate = gate(&["approve", "deny"]);
        gate.origin.tool = tool.to_owned();
        (gate.title, gate.body) = (title.to_owned(), body.to_owned());
        gate.context.insert("params".to_owned(), change.clone());
        let mut app = app();
        paint_gate(&mut app, gate, Instant::now());
        let lines = app.gate_lines(80, usize::MAX, usize::MAX);
        let lines: Vec<_> = lines
            .iter()
            .map(|line| line.text().trim().to_owned())
            .collect();
        let between = lines[1..lines.len() - 1].join("|");
        assert_eq!(between, shown, "{body}");
    }
}

#[test]
fn wrapped_command_cannot_imitate_a_line_of_the_gate() {
    let command = format!("echo {}risk: low", "x ".repeat(30));
    let mut gate = gate(&["approve", "deny"]);
    gate.title = format!("run: {command}");
    gate.body = format!("risk: high\n│ {command}\n│ {command}");
    let mut app = app();
    paint_gate(&mut app, gate, Instant::now());
    let mut lines = app.gate_lines(40, usize::MAX, usize::MAX);
    app.on_gate_key('m', Instant::now() + GATE_GRACE * 2);
    for block in app.pane_mut().take_unpainted() {
        lines.extend(block.lines(40, false));
    }
    let lines: Vec<_> = lines.iter().map(Line::text).collect();
    let risks = lines.iter().filter(|it| it.contains("risk:"));
    let risks: Vec<_> = risks.map(|it| it.trim_end().to_owned()).collect();
    assert_eq!(risks.len(), 8, "{lines:?}");
    for risk in risks {
        let is_genuine = risk == "  risk: high";
        assert!(is_genuine || risk.starts_with("  ┊ "), "{lines:?}");
    }
}

#[test]
fn single_files_of_a_review_can_be_chosen() {
    let now = Instant::now() + Duration::from_secs(1);
    let mut app = app();
    let mut review = gate(&["approve", "deny"]);
    let summary = json!({ "hash": "1", "paths": ["a", "b"] });
    review.context.insert("change_set".to_owned(), summary);
    paint_gate(&mut app, review, Instant::now());
    assert_eq!(press(&mut app, "f", now), []);
    let listed: Value = serde_json::from_str(app.editor.text()).unwrap();
    assert_eq!(listed, json!({ "only": ["a", "b"] }));
    app.editor.set_text("{\"only\": [\"a\"]}");
    let expected = Effect::Decide {
        gate: gate(&[]).id,
        action: ActionId::Approve,
        value: json!({ "only": ["a"] }),
    };
    assert_eq!(press(&mut app, "\r", now), [expected]);
}
