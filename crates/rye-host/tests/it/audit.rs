//! Verification, export and import of sessions.

use std::sync::Arc;

use lillux::keys::{PublicKey, SigningKey};
use rye_engine::audit::{self, FindingKind, Verdict};
use rye_engine::protocol::{
    Archive, EntryId, EntryKind, EventKind, Gate, GateRef, GateStatus, Message, PromptId,
    PromptStatus, Role, SessionId, TurnEnd,
};
use rye_engine::store::{Claim, StoreError};
use rye_engine::tool::{DecisionRequest, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Decision, Engine, NewSession, Prompt, Session};
use rye_host::transfer;
use rye_model::Catalogue;
use rye_sandbox::VirtualSandbox;
use rye_store::MemoryStore;
use serde_json::{Value, json};

/// Asks for approval, and returns its arguments.
struct ApprovedTool(ToolDef);

impl Tool for ApprovedTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> rye_engine::BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let mut request = DecisionRequest::approval("run", "may it?");
            let hash = json!("c0ffee");
            request.context.insert(audit::CHAIN_HASH.into(), hash);
            let args = json!(audit::args_hash(&args));
            request.context.insert(audit::ARGS_HASH.into(), args);
            context.request_decision(request).await?;
            Ok(ToolOutput {
                data: json!({ "chain_hash": "c0ffee", "share": 0.1 }),
                ..ToolOutput::text("ran")
            })
        })
    }
}

const SCRIPT: &str = "
steps:
  - tool_calls: [{ name: approved, args: { b: 1.0e-7, a: 2 } }, { name: read, args: { path: none } }]
  - text: done
  - text: again
after_last: { text: 'and again' }
";

fn engine(key: &SigningKey) -> Engine {
    let def = ToolDef::new("approved", "asks", json!({ "type": "object" }));
    Engine::builder()
        .store(MemoryStore::new())
        .models(Catalogue::new(".").with("scripted:test", SCRIPT.parse().unwrap()))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tools(rye_tools::tools())
        .tool(ApprovedTool(def))
        .sign_with(SigningKey::from_pem(key.to_pem().as_bytes()).unwrap())
        .build()
        .unwrap()
}

async fn run_prompt(engine: &Engine, session: &Session, prompt: &str) {
    let mut events = engine.feed();
    let prompt = session.prompt(prompt).await.unwrap();
    let gate = async {
        while let Ok(Some(notice)) = events.next().await {
            if let EventKind::DecisionGate { gate } = notice.event.kind {
                let decision = Decision {
                    action: "approve".into(),
                    value: Value::Null,
                    by: "ada".to_owned(),
                    source: "test".to_owned(),
                };
                engine.decide(&gate.id, decision).await.unwrap();
            }
        }
    };
    tokio::select! {
        answer = session.wait_for_answer(&prompt) => assert_eq!(answer.unwrap().reason, TurnEnd::EndTurn),
        () = gate => unreachable!("the engine is gone"),
    }
}

/// The archive of a session with two prompts.
async fn recorded_session(engine: &Engine) -> Archive {
    let session = engine.create_session(NewSession::default()).await.unwrap();
    run_prompt(engine, &session, "go").await;
    run_prompt(engine, &session, "again").await;
    let archive = engine.export(session.id()).await.unwrap().remove(0);
    session.close().await.unwrap();
    archive
}

fn trust_only(key: &SigningKey) -> impl Fn(&str) -> Option<PublicKey> {
    let public = key.public().clone();
    move |name| (public.fingerprint().to_string() == name).then(|| public.clone())
}

fn findings(archive: &Archive, key: &SigningKey) -> Vec<FindingKind> {
    let verdict = audit::check(archive, trust_only(key));
    verdict.findings.iter().map(|fault| fault.kind).collect()
}

#[tokio::test]
async fn unchanged_session_verifies() {
    let key = SigningKey::generate().unwrap();
    let verdict = audit::check(&recorded_session(&engine(&key)).await, trust_only(&key));
    let Verdict {
        entries,
        unsealed_entries,
        receipts,
        findings,
        unsealed_rows,
        ..
    } = verdict;
    assert_eq!((findings, unsealed_rows), (vec![], vec![]));
    assert_eq!((entries, unsealed_entries, receipts), (8, 0, 1));
}

#[tokio::test]
async fn any_change_of_an_entry_is_detected() {
    let key = SigningKey::generate().unwrap();
    let whole = recorded_session(&engine(&key)).await;
    for at in 0..whole.entries.len() {
        let mut altered = whole.clone();
        altered.entries[at].created_at.0 += 1;
        assert!(
            findings(&altered, &key).contains(&FindingKind::Altered),
            "{at}"
        );

        let mut removed = whole.clone();
        removed.entries.remove(at);
        assert!(
            findings(&removed, &key).contains(&FindingKind::Missing),
            "{at}"
        );

        // All hashes are recomputed, so that only the seal differs.
        let mut rewritten = whole.clone();
        let text = Message::text(Role::Assistant, "nothing happened");
        rewritten.entries[at].kind = EntryKind::Message(text);
        rehash(&mut rewritten);
        assert!(!findings(&rewritten, &key).is_empty(), "{at}");

        let mut added = whole.clone();
        let mut more = whole.entries[at].clone();
        more.id = EntryId::new();
        more.parent = Some(whole.entries[at].id.clone());
        more.hash = audit::entry_hash(&more, &whole.entries[at].hash);
        added.entries.push(more);
        assert_eq!(findings(&added, &key), [FindingKind::Added], "{at}");

        if at > 0 {
            let mut reordered = whole.clone();
            reordered.entries.swap(at, at - 1);
            assert!(!findings(&reordered, &key).is_empty(), "{at}");
        }
    }
}

/// A long history is checked by several threads.
#[tokio::test]
async fn long_history_is_checked_completely() {
    let key = SigningKey::generate().unwrap();
    let engine = engine(&key);
    let session = engine.create_session(NewSession::default()).await.unwrap();
    for _ in 0..200 {
        run_prompt(&engine, &session, "go").await;
    }
    let whole = engine.export(session.id()).await.unwrap().remove(0);
    assert_eq!(findings(&whole, &key), []);
    let count = whole.entries.len();
    for at in [0, 1, count / 2 - 1, count / 2, count / 2 + 1, count - 1] {
        let mut altered = whole.clone();
        altered.entries[at].created_at.0 += 1;
        let verdict = audit::check(&altered, trust_only(&key));
        let places: Vec<_> = verdict.findings.iter().map(|it| &it.location).collect();
        assert_eq!(places, [altered.entries[at].id.as_str()], "{at}");
    }
    for at in [0, 1, 99, 100, 101, 199] {
        let mut altered = whole.clone();
        let seals = altered
            .events
            .iter_mut()
            .filter_map(|it| match &mut it.kind {
                EventKind::Sealed { seal } => Some(seal),
                _ => None,
            });
        let seal = seals.filter(|it| it.leaf.is_some()).nth(at).unwrap();
        let another = lillux::Hash::digest("another");
        let purpose = lillux::keys::Purpose::new("seal");
        seal.signature = key.sign_for(purpose, &another).to_string();
        let place = seal.leaf.as_ref().unwrap().to_string();
        let verdict = audit::check(&altered, trust_only(&key));
        let faults = verdict.findings.iter().map(|it| (it.kind, &it.location));
        let faults: Vec<_> = faults.collect();
        assert_eq!(faults, [(FindingKind::Signature, &place)], "{at}");
    }
}

fn rehash(archive: &mut Archive) {
    let mut before = String::new();
    for entry in &mut archive.entries {
        entry.hash = audit::entry_hash(entry, &before);
        before.clone_from(&entry.hash);
    }
    archive.threads[0].leaf_hash = before;
}

#[tokio::test]
async fn removed_turn_is_detected() {
    let key = SigningKey::generate().unwrap();
    let mut cut = recorded_session(&engine(&key)).await;
    cut.entries.truncate(cut.entries.len() - 2);
    let last = cut.entries.last().unwrap();
    cut.threads[0].leaf = Some(last.id.clone());
    cut.threads[0].leaf_hash.clone_from(&last.hash);
    assert!(findings(&cut, &key).contains(&FindingKind::Missing));
}

#[tokio::test]
async fn forged_decision_is_detected() {
    let key = SigningKey::generate().unwrap();
    let whole = recorded_session(&engine(&key)).await;
    let with = |change: &dyn Fn(&mut rye_engine::protocol::Resolution)| {
        let mut archive = whole.clone();
        if let GateStatus::Resolved { resolution } = &mut archive.gates[0].status {
            change(resolution);
        }
        findings(&archive, &key)
    };
    assert_eq!(with(&|_| ()), []);
    assert_eq!(with(&|it| it.by = "bob".into()), [FindingKind::Altered]);
    assert_eq!(with(&|it| it.receipt = None), [FindingKind::Signature]);
    let forged = with(&|it| {
        it.by = "bob".into();
        it.receipt.as_mut().unwrap().by = "bob".into();
    });
    assert_eq!(forged, [FindingKind::Signature]);
    let mut other = whole.clone();
    let hash = json!("decaf");
    other.gates[0]
        .context
        .insert(audit::CHAIN_HASH.into(), hash);
    assert_eq!(findings(&other, &key), [FindingKind::Altered]);
}

#[tokio::test]
async fn seal_of_an_untrusted_key_is_a_finding() {
    let key = SigningKey::generate().unwrap();
    let archive = recorded_session(&engine(&key)).await;
    let stranger = SigningKey::generate().unwrap();
    let troubles = findings(&archive, &stranger);
    assert!(troubles.iter().all(|it| *it == FindingKind::UnknownKey));
    assert!(!troubles.is_empty());
}

fn export(archives: &[Archive], key: &SigningKey) -> Vec<u8> {
    let keys = [key.public().clone()];
    let file = transfer::Writer::new(Vec::new(), archives.to_vec(), &keys).unwrap();
    file.finish(Some(key)).unwrap()
}

#[tokio::test]
async fn any_bit_flip_in_an_export_is_detected() {
    let key = SigningKey::generate().unwrap();
    let archive = recorded_session(&engine(&key)).await;
    let file = export(std::slice::from_ref(&archive), &key);
    let back = transfer::read(&*file).unwrap();
    assert_eq!(back.archives, [archive]);
    assert!(back.signature.unwrap().is_valid_for(key.public()));
    // The odd step width covers all bit positions.
    for at in (0..file.len()).step_by(5) {
        let mut flipped = file.clone();
        flipped[at] ^= 1 << (at % 8);
        let whole = transfer::read(&*flipped).is_ok_and(|it| {
            let signed = it
                .signature
                .is_some_and(|signed| signed.is_valid_for(key.public()));
            signed && it.archives.iter().all(|one| findings(one, &key).is_empty())
        });
        assert!(!whole, "a flipped bit in byte {at} was not found");
    }
    assert!(transfer::read(&file[..file.len() / 2]).is_err());
}

#[tokio::test]
async fn imported_session_continues() {
    let key = SigningKey::generate().unwrap();
    let here = engine(&key);
    let session = here.create_session(NewSession::default()).await.unwrap();
    let id = session.id().clone();
    let mut events = here.feed();
    let prompt = session.prompt("go").await.unwrap();
    while let Ok(Some(notice)) = events.next().await {
        if matches!(notice.event.kind, EventKind::DecisionGate { .. }) {
            break;
        }
    }
    let file = export(&here.export(&id).await.unwrap(), &key);
    here.shutdown().await.unwrap();

    let there = engine(&key);
    for archive in transfer::read(&*file).unwrap().archives {
        let doubts = there.import(archive, trust_only(&key)).await.unwrap();
        assert_eq!(doubts, []);
    }
    let gate = there.pending_gates(None).await.unwrap().remove(0);
    let decision = Decision {
        action: "approve".into(),
        value: Value::Null,
        by: "bob".to_owned(),
        source: "test".to_owned(),
    };
    there.decide(&gate.id, decision).await.unwrap();
    let session = there.open_session(&id, Claim::IfFree).await.unwrap();
    assert_eq!(session.wait_for_answer(&prompt).await.unwrap().text, "done");
    let archive = there.export(&id).await.unwrap().remove(0);
    assert_eq!(findings(&archive, &key), []);
    let twice = there.import(archive, trust_only(&key)).await;
    assert!(
        matches!(twice, Err(StoreError::Conflict { .. })),
        "{twice:?}"
    );
}

#[tokio::test]
async fn imported_decisions_need_a_trusted_signature() {
    let key = SigningKey::generate().unwrap();
    let whole = recorded_session(&engine(&key)).await;
    let gate = whole.gates[0].id.clone();
    let imported = async |change: &dyn Fn(&mut Archive)| {
        let mut archive = whole.clone();
        change(&mut archive);
        let there = engine(&key);
        let doubts = there.import(archive, trust_only(&key)).await.unwrap();
        let asked = there.pending_gates(None).await.unwrap();
        let doubts: Vec<_> = doubts.iter().map(|it| it.is_reopened).collect();
        (doubts, asked.iter().any(|it| it.id == gate))
    };
    let unsigned = |archive: &mut Archive, action: &str| {
        if let GateStatus::Resolved { resolution } = &mut archive.gates[0].status {
            resolution.receipt = None;
            resolution.action = action.into();
        }
    };
    let runs = |archive: &mut Archive| archive.prompts[0].status = PromptStatus::Running;
    assert_eq!(imported(&|_| ()).await, (vec![], false));
    assert_eq!(imported(&runs).await, (vec![], false));
    let past = imported(&|it| unsigned(it, "approve")).await;
    assert_eq!(past, (vec![], false), "it is history");
    let for_session = imported(&|it| unsigned(it, "approve_session")).await;
    assert_eq!(for_session, (vec![false], false));
    let under_way = imported(&|it| {
        runs(it);
        unsigned(it, "approve");
    })
    .await;
    assert_eq!(under_way, (vec![true], true));
    let of_another = imported(&|it| {
        unsigned(it, "approve");
        it.gates[0].origin.resume_key = "other".to_owned();
    })
    .await;
    assert_eq!(of_another, (vec![true], true));
}

#[tokio::test]
async fn fork_shares_its_history_and_continues_independently() {
    let key = SigningKey::generate().unwrap();
    let engine = engine(&key);
    let archive = recorded_session(&engine).await;
    let id: SessionId = archive.session.id.clone();
    for at in 0..archive.entries.len() {
        let leaf = &archive.entries[at].id;
        let fork = engine.fork(&id, Some(leaf)).await.unwrap();
        let session = engine.open_session(&fork, Claim::IfFree).await.unwrap();
        let branch = engine.export(&fork).await.unwrap().remove(0);
        assert_eq!(branch.entries.len(), at + 1);
        assert_eq!(branch.entries[at].hash, archive.entries[at].hash);
        run_prompt(&engine, &session, "another way").await;
        let branch = engine.export(&fork).await.unwrap().remove(0);
        assert_eq!(findings(&branch, &key), [], "forked at {at}");
    }
    let unknown = engine.fork(&id, Some(&EntryId::new())).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { .. })));
    assert_eq!(engine.export(&id).await.unwrap().remove(0), archive);
}

/// Sends a prompt to a thread, and returns the gate at which it waits.
async fn prompt_until_gate(engine: &Engine, session: &Session, thread: &str) -> (PromptId, Gate) {
    let mut events = engine.feed();
    let prompt = Prompt {
        thread: Some(thread.to_owned()),
        ..Prompt::from("go")
    };
    let prompt = session.prompt(prompt).await.unwrap();
    while let Ok(Some(notice)) = events.next().await {
        if let EventKind::DecisionGate { gate } = notice.event.kind {
            return (prompt, *gate);
        }
    }
    unreachable!("the engine is gone");
}

/// Two sessions with all kinds of records: decided, withdrawn and displayed gates, an aborted
/// prompt, several threads, and a suspended turn.
async fn with_all_records(engine: &Engine) -> [Archive; 2] {
    let new = || NewSession {
        workspace: Some("/project".to_owned()),
        ..NewSession::default()
    };
    let ended = engine.create_session(new()).await.unwrap();
    run_prompt(engine, &ended, "go").await;
    let (prompt, gate) = prompt_until_gate(engine, &ended, "second").await;
    let shown = GateRef {
        gate: gate.id.clone(),
        channel: "chat".to_owned(),
        message: "17".to_owned(),
    };
    ended.record_gate_ref(shown).await.unwrap();
    ended.abort(Some("second")).await.unwrap();
    let answer = ended.wait_for_answer(&prompt).await.unwrap();
    assert_eq!(answer.reason, TurnEnd::Abort);
    ended.pause(None).await.unwrap();
    let waits = engine.create_session(new()).await.unwrap();
    let (_, gate) = prompt_until_gate(engine, &waits, "default").await;
    let mut archives = Vec::new();
    for session in [&ended, &waits] {
        archives.extend(engine.export(session.id()).await.unwrap());
    }
    assert!(gate.status.is_pending());
    archives.try_into().unwrap()
}

/// Paths to all fields of a JSON document.
fn fields(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(all) => {
            for (name, value) in all {
                let name = name.replace('~', "~0").replace('/', "~1");
                fields(value, &format!("{path}/{name}"), found);
            }
        }
        Value::Array(all) => {
            for (at, value) in all.iter().enumerate() {
                fields(value, &format!("{path}/{at}"), found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

fn altered(value: &Value) -> Value {
    match value {
        Value::Null => json!("x"),
        Value::Bool(is) => json!(!is),
        Value::Number(number) => match number.as_u64() {
            Some(number) => json!(number + 1),
            None => json!(0.5),
        },
        Value::String(text) => json!(format!("{text}x")),
        other => other.clone(),
    }
}

/// Fields that no seal covers: the times of events. Entries, prompts, gates and seals have their
/// own times.
fn is_not_covered(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    matches!(parts[..], ["", "events", _, "at"])
}

#[tokio::test]
async fn change_of_any_field_is_detected() {
    let key = SigningKey::generate().unwrap();
    for whole in with_all_records(&engine(&key)).await {
        let verdict = audit::check(&whole, trust_only(&key));
        assert_eq!((verdict.findings, verdict.unsealed_rows), (vec![], vec![]));
        let json = serde_json::to_value(&whole).unwrap();
        let mut paths = Vec::new();
        fields(&json, "", &mut paths);
        assert!(paths.len() > 300, "{}", paths.len());
        let mut missed = Vec::new();
        for path in paths {
            let mut other = json.clone();
            let field = other.pointer_mut(&path).unwrap();
            *field = altered(field);
            // An invalid value fails to parse.
            if let Ok(other) = serde_json::from_value::<Archive>(other)
                && other != whole
                && audit::check(&other, trust_only(&key)).is_verified()
                && !is_not_covered(&path)
            {
                missed.push(path);
            }
        }
        assert_eq!(missed, [""; 0]);
    }
}

#[tokio::test]
async fn removal_of_any_record_is_detected() {
    let key = SigningKey::generate().unwrap();
    for whole in with_all_records(&engine(&key)).await {
        let json = serde_json::to_value(&whole).unwrap();
        for (list, records) in json.as_object().unwrap() {
            for at in 0..records.as_array().map_or(0, Vec::len) {
                let mut other = json.clone();
                other[list].as_array_mut().unwrap().remove(at);
                let other = serde_json::from_value(other).unwrap();
                let verdict = audit::check(&other, trust_only(&key));
                assert!(!verdict.is_verified(), "{list} {at}");
            }
        }
    }
}

#[tokio::test]
async fn immutable_fields_are_bound_to_the_first_seal() {
    let key = SigningKey::generate().unwrap();
    let here = engine(&key);
    let session = here.create_session(NewSession::default()).await.unwrap();
    run_prompt(&here, &session, "go").await;
    let mut archive = here.export(session.id()).await.unwrap().remove(0);
    here.shutdown().await.unwrap();
    // The session is altered, then used and sealed again.
    archive.session.workspace = Some("/elsewhere".to_owned());
    let there = engine(&key);
    let id = archive.session.id.clone();
    there.import(archive, trust_only(&key)).await.unwrap();
    let session = there.open_session(&id, Claim::IfFree).await.unwrap();
    session.pause(None).await.unwrap();
    let archive = there.export(&id).await.unwrap().remove(0);
    assert_eq!(findings(&archive, &key), [FindingKind::Altered]);
}
