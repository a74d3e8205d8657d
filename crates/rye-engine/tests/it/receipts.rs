//! Receipts: signatures under questions and decisions.

use std::sync::Arc;

use lillux::keys::{PublicKey, SigningKey};
use rye_engine::BoxFuture;
use rye_engine::audit::{self, FindingKind, Verdict};
use rye_engine::protocol::{
    Archive, EntryKind, EventKind, Gate, GateKind, GateStatus, Millis, Part, Resolution,
};
use rye_engine::store::PostOutcome;
use rye_engine::tool::{DecisionRequest, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{DecideError, Decision, Engine, NewSession};
use rye_model::Catalogue;
use rye_sandbox::VirtualSandbox;
use rye_store::{MemoryStore, SqliteStore};
use serde_json::{Value, json};

/// Asks a person for a colour.
struct ColourTool(ToolDef);

impl Tool for ColourTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let mut request = DecisionRequest::approval("paint", "paint the house?");
            request.body = String::from("In blue.\nrisk: high");
            request.context.insert("colour".to_owned(), json!("blue"));
            let answer = context.request_decision(request).await?;
            Ok(ToolOutput::text(format!(
                "{} {}",
                answer.action, answer.value
            )))
        })
    }
}

const SCRIPT: &str = "steps: [{ tool_calls: [{ name: paint, args: {} }] }, { text: done }]";

/// The archive of a session with a decided gate.
async fn recorded_session(key: &SigningKey) -> Archive {
    let def = ToolDef::new("paint", "asks", json!({ "type": "object" }));
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .models(Catalogue::new(".").with("scripted:test", SCRIPT.parse().unwrap()))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tool(ColourTool(def))
        .sign_with(SigningKey::from_pem(key.to_pem().as_bytes()).unwrap())
        .build()
        .unwrap();
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let mut events = engine.feed();
    let prompt = session.prompt("go").await.unwrap();
    let gate = loop {
        let notice = events.next().await.unwrap().unwrap();
        if let EventKind::DecisionGate { gate } = notice.event.kind {
            break gate;
        }
    };
    let decision = Decision {
        action: "approve".into(),
        value: json!({ "note": "but not the door" }),
        by: "ada".to_owned(),
        source: "test".to_owned(),
    };
    engine.decide(&gate.id, decision).await.unwrap();
    session.wait_for_answer(&prompt).await.unwrap();
    engine.export(session.id()).await.unwrap().remove(0)
}

fn check(archive: &Archive, key: &PublicKey) -> Verdict {
    let name = key.fingerprint().to_string();
    audit::check(archive, |asked| (asked == name).then(|| key.clone()))
}

type Change = (&'static str, fn(&mut Gate));

/// Changes of each field of a question.
const QUESTIONS: [Change; 14] = [
    ("kind", |it| it.kind = GateKind::Question),
    ("title", |it| it.title.push('?')),
    ("body", |it| it.body = it.body.replace("high", "low")),
    ("no body", |it| it.body.clear()),
    ("label", |it| it.actions[0].label.push('!')),
    ("action", |it| it.actions[1].id = "deny!".into()),
    ("fewer actions", |it| drop(it.actions.pop())),
    ("context", |it| {
        it.context.insert("colour".into(), json!("red"));
    }),
    ("more context", |it| {
        it.context.insert("signed".into(), json!(true));
    }),
    ("less context", |it| drop(it.context.remove("colour"))),
    ("deadline", |it| it.expires_at = Some(Millis(1))),
    ("time", |it| it.created_at.0 += 1),
    ("tool", |it| it.origin.tool.push('x')),
    ("key", |it| it.origin.resume_key.push('x')),
];

fn resolution(gate: &mut Gate) -> &mut Resolution {
    match &mut gate.status {
        GateStatus::Resolved { resolution } => resolution,
        other => unreachable!("{other:?}"),
    }
}

/// Changes of each field of a decision.
const ANSWERS: [Change; 6] = [
    ("action", |it| resolution(it).action = "deny".into()),
    ("value", |it| {
        resolution(it).value = json!({ "note": "and the door" });
    }),
    ("no value", |it| resolution(it).value = Value::Null),
    ("resolved_by", |it| resolution(it).by = "bob".into()),
    ("resolved_at", |it| resolution(it).at.0 += 1),
    ("source", |it| resolution(it).source = "web".into()),
];

/// Copies the changed gates to their events.
fn update_events(archive: &mut Archive) {
    let gate = archive.gates[0].clone();
    for event in &mut archive.events {
        match (&mut event.kind, &gate.status) {
            (EventKind::DecisionGate { gate: event_gate }, _) => {
                **event_gate = gate.clone();
                event_gate.status = GateStatus::Pending;
            }
            (
                EventKind::DecisionGateResolved {
                    resolution: event_resolution,
                    ..
                },
                GateStatus::Resolved { resolution },
            ) => *event_resolution = resolution.clone(),
            _ => {}
        }
    }
}

#[tokio::test]
async fn any_change_of_a_question_or_decision_is_detected() {
    let key = SigningKey::generate().unwrap();
    let whole = recorded_session(&key).await;
    let verdict = check(&whole, key.public());
    assert_eq!((verdict.findings, verdict.receipts), (vec![], 1));
    for (name, change) in QUESTIONS.into_iter().chain(ANSWERS) {
        let mut altered = whole.clone();
        change(&mut altered.gates[0]);
        let found = check(&altered, key.public()).findings;
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert_eq!(found[0].kind, FindingKind::Altered, "{name}");
        assert_eq!(found[0].location, whole.gates[0].id.as_str(), "{name}");

        update_events(&mut altered);
        let found = check(&altered, key.public()).findings;
        assert!(!found.is_empty(), "{name}, and its events");

        // Without a receipt.
        resolution(&mut altered.gates[0]).receipt = None;
        update_events(&mut altered);
        let found = check(&altered, key.public()).findings;
        let unsigned = |it: &audit::Finding| it.kind == FindingKind::Signature;
        assert!(found.iter().any(unsigned), "{name}: {found:?}");
    }
}

#[tokio::test]
async fn any_change_of_an_event_about_a_gate_is_detected() {
    let key = SigningKey::generate().unwrap();
    let whole = recorded_session(&key).await;
    for (name, change) in QUESTIONS.into_iter().chain(ANSWERS) {
        let mut altered = whole.clone();
        change(&mut altered.gates[0]);
        update_events(&mut altered);
        altered.gates.clone_from(&whole.gates);
        let found = check(&altered, key.public()).findings;
        let is_gate = |it: &&audit::Finding| it.location == whole.gates[0].id.as_str();
        let of_gate: Vec<_> = found.iter().filter(is_gate).collect();
        assert_eq!(of_gate.len(), 1, "{name}: {found:?}");
        assert_eq!(of_gate[0].kind, FindingKind::Altered, "{name}: {found:?}");
    }
}

/// A process with access to the store writes a decision.
#[tokio::test]
async fn decision_without_a_trusted_signature_is_not_acted_on() {
    let trusted = SigningKey::generate().unwrap();
    let stranger = SigningKey::generate().unwrap();
    for (signer, expected) in [
        (Some(&trusted), "approve null"),
        (Some(&stranger), "denied"),
        (None, "denied"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let engine = |key: Option<&SigningKey>| {
            let store = SqliteStore::open(dir.path().join("sessions.db")).unwrap();
            let def = ToolDef::new("paint", "asks", json!({ "type": "object" }));
            let models = Catalogue::new(".").with("scripted:test", SCRIPT.parse().unwrap());
            let builder = Engine::builder()
                .store(store)
                .models(models)
                .sandbox(Arc::new(VirtualSandbox::new()))
                .tool(ColourTool(def));
            match key {
                Some(key) => builder.sign_with(clone_key(key)),
                None => builder,
            }
        };
        let public = trusted.public().clone();
        let name = public.fingerprint().to_string();
        let host = engine(Some(&trusted))
            .require_signed_decisions(move |asked| (asked == name).then(|| public.clone()))
            .build()
            .unwrap();
        let session = host.create_session(NewSession::default()).await.unwrap();
        let mut events = host.feed();
        let prompt = session.prompt("go").await.unwrap();
        let gate = loop {
            let notice = events.next().await.unwrap().unwrap();
            if let EventKind::DecisionGate { gate } = notice.event.kind {
                break gate;
            }
        };
        let other = engine(signer).build().unwrap();
        let decision = Decision::new("approve", "mallory", "test");
        other.decide(&gate.id, decision).await.unwrap();
        session.wait_for_answer(&prompt).await.unwrap();
        let archive = host.export(session.id()).await.unwrap().remove(0);
        assert_eq!(outcome(&archive), expected);
    }
}

fn clone_key(key: &SigningKey) -> SigningKey {
    SigningKey::from_pem(key.to_pem().as_bytes()).unwrap()
}

/// The result of the tool call: its text, or the code of its error.
fn outcome(archive: &Archive) -> String {
    let messages = archive
        .entries
        .iter()
        .filter_map(|entry| match &entry.kind {
            EntryKind::Message(message) => Some(message),
            _ => None,
        });
    let mut parts = messages.flat_map(|message| &message.parts);
    let result = parts.find_map(|part| match part {
        Part::ToolResult { text, error, .. } => Some(match error {
            Some(error) => json!(error.code).as_str().unwrap().to_owned(),
            None => text.clone(),
        }),
        _ => None,
    });
    result.unwrap()
}

#[tokio::test]
async fn fields_cannot_be_removed_from_a_receipt() {
    let key = SigningKey::generate().unwrap();
    let whole = recorded_session(&key).await;
    for change in [
        (|it| (it.question, it.answer) = (None, None)) as fn(&mut rye_engine::protocol::Receipt),
        |it| it.question = None,
        |it| it.answer = None,
    ] {
        let mut altered = whole.clone();
        change(resolution(&mut altered.gates[0]).receipt.as_mut().unwrap());
        update_events(&mut altered);
        let found = check(&altered, key.public()).findings;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].kind, FindingKind::Signature);
    }
}

#[tokio::test]
async fn decision_that_a_person_signed_counts_only_as_it_was_signed() {
    let [own, browser, stranger] = [0; 3].map(|_| SigningKey::generate().unwrap());
    let trusted = [own.public().clone(), browser.public().clone()];
    let def = ToolDef::new("paint", "asks", json!({ "type": "object" }));
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .models(Catalogue::new(".").with("scripted:test", SCRIPT.parse().unwrap()))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tool(ColourTool(def))
        .sign_with(own)
        .require_signed_decisions(move |name| {
            let mut keys = trusted.iter();
            keys.find(|key| key.fingerprint().to_string() == name)
                .cloned()
        })
        .build()
        .unwrap();
    let session = engine.create_session(NewSession::default()).await.unwrap();
    let mut events = engine.feed();
    let prompt = session.prompt("go").await.unwrap();
    let gate = loop {
        let notice = events.next().await.unwrap().unwrap();
        if let EventKind::DecisionGate { gate } = notice.event.kind {
            break gate;
        }
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = Millis(u64::try_from(now.unwrap().as_millis()).unwrap());
    let signed = |gate: &Gate, at: Millis, key: &SigningKey| {
        let mut resolution = Resolution {
            action: "approve".into(),
            value: Value::Null,
            by: "ada".to_owned(),
            at,
            source: "web".to_owned(),
            receipt: None,
        };
        resolution.receipt = Some(Box::new(audit::receipt(gate, &resolution, key)));
        resolution
    };
    let good = signed(&gate, now, &browser);
    let mut shown = (*gate).clone();
    shown.body.push('!');
    for (case, resolution) in [
        ("a stranger's key", signed(&gate, now, &stranger)),
        ("another question", signed(&shown, now, &browser)),
        (
            "long ago",
            signed(&gate, Millis(now.0 - 3_600_000), &browser),
        ),
        (
            "another answer",
            Resolution {
                action: "deny".into(),
                ..good.clone()
            },
        ),
        (
            "no signature",
            Resolution {
                receipt: None,
                ..good.clone()
            },
        ),
    ] {
        let refused = engine.decide_signed(&gate.id, resolution).await;
        assert!(
            matches!(refused, Err(DecideError::InvalidReceipt { .. })),
            "{case}: {refused:?}"
        );
    }
    let posted = engine.decide_signed(&gate.id, good.clone()).await;
    assert_eq!(posted, Ok(PostOutcome::Written));
    session.wait_for_answer(&prompt).await.unwrap();
    let archive = engine.export(session.id()).await.unwrap().remove(0);
    let GateStatus::Resolved { resolution } = &archive.gates[0].status else {
        panic!("{:?}", archive.gates[0].status);
    };
    assert_eq!(*resolution, good);
}
