//! A record that proves itself, and can be taken elsewhere.

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
use rye_sandbox::Virtual;
use rye_store::MemoryStore;
use serde_json::{Value, json};

/// Runs once a person has let it, and says what ran.
struct Approved(ToolDef);

impl Tool for Approved {
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
        .sandbox(Arc::new(Virtual::new()))
        .tools(rye_engine::builtin::tools())
        .tool(Approved(def))
        .sign_with(SigningKey::from_pem(key.to_pem().as_bytes()).unwrap())
        .build()
        .unwrap()
}

async fn answered(engine: &Engine, session: &Session, prompt: &str) {
    let mut events = engine.feed();
    let prompt = session.prompt(prompt).await.unwrap();
    let gate = async {
        while let Ok(Some(notice)) = events.next().await {
            if let EventKind::DecisionGate { gate } = notice.event.kind {
                let decision = Decision {
                    action: "approve".to_owned(),
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

/// A session of two prompts, with its archive.
async fn told(engine: &Engine) -> Archive {
    let session = engine.create_session(NewSession::default()).await.unwrap();
    answered(engine, &session, "go").await;
    answered(engine, &session, "again").await;
    let archive = engine.export(session.id()).await.unwrap().remove(0);
    session.close().await.unwrap();
    archive
}

fn trusting(key: &SigningKey) -> impl Fn(&str) -> Option<PublicKey> {
    let public = key.public().clone();
    move |name| (public.fingerprint().to_string() == name).then(|| public.clone())
}

fn found(archive: &Archive, key: &SigningKey) -> Vec<FindingKind> {
    let verdict = audit::check(archive, trusting(key));
    verdict.findings.iter().map(|fault| fault.kind).collect()
}

#[tokio::test]
async fn a_record_that_nobody_touched_is_whole() {
    let key = SigningKey::generate().unwrap();
    let verdict = audit::check(&told(&engine(&key)).await, trusting(&key));
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
async fn whatever_is_done_to_an_entry_is_found() {
    let key = SigningKey::generate().unwrap();
    let whole = told(&engine(&key)).await;
    for at in 0..whole.entries.len() {
        let mut altered = whole.clone();
        altered.entries[at].created_at.0 += 1;
        assert!(
            found(&altered, &key).contains(&FindingKind::Altered),
            "{at}"
        );

        let mut removed = whole.clone();
        removed.entries.remove(at);
        assert!(
            found(&removed, &key).contains(&FindingKind::Missing),
            "{at}"
        );

        // Made to fit the one before, and those after it as well: only the seal tells.
        let mut rewritten = whole.clone();
        let text = Message::text(Role::Assistant, "nothing happened");
        rewritten.entries[at].kind = EntryKind::Message(text);
        rehash(&mut rewritten);
        assert!(!found(&rewritten, &key).is_empty(), "{at}");

        let mut added = whole.clone();
        let mut more = whole.entries[at].clone();
        more.id = EntryId::new();
        more.parent = Some(whole.entries[at].id.clone());
        more.hash = audit::entry_hash(&more, &whole.entries[at].hash);
        added.entries.push(more);
        assert_eq!(found(&added, &key), [FindingKind::Added], "{at}");

        if at > 0 {
            let mut reordered = whole.clone();
            reordered.entries.swap(at, at - 1);
            assert!(!found(&reordered, &key).is_empty(), "{at}");
        }
    }
}

/// A long record is looked at by several threads.
#[tokio::test]
async fn a_long_record_is_looked_at_to_its_end() {
    let key = SigningKey::generate().unwrap();
    let engine = engine(&key);
    let session = engine.create_session(NewSession::default()).await.unwrap();
    for _ in 0..200 {
        answered(&engine, &session, "go").await;
    }
    let whole = engine.export(session.id()).await.unwrap().remove(0);
    assert_eq!(found(&whole, &key), []);
    let count = whole.entries.len();
    for at in [0, 1, count / 2 - 1, count / 2, count / 2 + 1, count - 1] {
        let mut altered = whole.clone();
        altered.entries[at].created_at.0 += 1;
        let verdict = audit::check(&altered, trusting(&key));
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
        let verdict = audit::check(&altered, trusting(&key));
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
async fn a_turn_that_was_cut_off_is_missed() {
    let key = SigningKey::generate().unwrap();
    let mut cut = told(&engine(&key)).await;
    cut.entries.truncate(cut.entries.len() - 2);
    let last = cut.entries.last().unwrap();
    cut.threads[0].leaf = Some(last.id.clone());
    cut.threads[0].leaf_hash.clone_from(&last.hash);
    assert!(found(&cut, &key).contains(&FindingKind::Missing));
}

#[tokio::test]
async fn a_decision_that_nobody_made_is_found() {
    let key = SigningKey::generate().unwrap();
    let whole = told(&engine(&key)).await;
    let with = |change: &dyn Fn(&mut rye_engine::protocol::Resolution)| {
        let mut archive = whole.clone();
        if let GateStatus::Resolved { resolution } = &mut archive.gates[0].status {
            change(resolution);
        }
        found(&archive, &key)
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
    assert_eq!(found(&other, &key), [FindingKind::Altered]);
}

#[tokio::test]
async fn a_key_that_is_not_trusted_proves_nothing() {
    let key = SigningKey::generate().unwrap();
    let archive = told(&engine(&key)).await;
    let stranger = SigningKey::generate().unwrap();
    let troubles = found(&archive, &stranger);
    assert!(troubles.iter().all(|it| *it == FindingKind::UnknownKey));
    assert!(!troubles.is_empty());
}

fn written(archives: &[Archive], key: &SigningKey) -> Vec<u8> {
    let keys = [key.public().clone()];
    let file = transfer::Writer::new(Vec::new(), archives.to_vec(), &keys).unwrap();
    file.finish(Some(key)).unwrap()
}

#[tokio::test]
async fn a_file_with_any_bit_flipped_is_found_out() {
    let key = SigningKey::generate().unwrap();
    let archive = told(&engine(&key)).await;
    let file = written(std::slice::from_ref(&archive), &key);
    let back = transfer::read(&*file).unwrap();
    assert_eq!(back.archives, [archive]);
    assert!(back.signature.unwrap().is_valid_for(key.public()));
    // Any bit of any line: a step of an odd length meets all of them.
    for at in (0..file.len()).step_by(5) {
        let mut flipped = file.clone();
        flipped[at] ^= 1 << (at % 8);
        let whole = transfer::read(&*flipped).is_ok_and(|it| {
            let signed = it
                .signature
                .is_some_and(|signed| signed.is_valid_for(key.public()));
            signed && it.archives.iter().all(|one| found(one, &key).is_empty())
        });
        assert!(!whole, "a flipped bit in byte {at} was not found");
    }
    assert!(transfer::read(&file[..file.len() / 2]).is_err());
}

#[tokio::test]
async fn a_session_continues_where_it_was_taken() {
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
    let file = written(&here.export(&id).await.unwrap(), &key);
    here.shutdown().await.unwrap();

    let there = engine(&key);
    for archive in transfer::read(&*file).unwrap().archives {
        let doubts = there.import(archive, trusting(&key)).await.unwrap();
        assert_eq!(doubts, []);
    }
    let gate = there.pending_gates(None).await.unwrap().remove(0);
    let decision = Decision {
        action: "approve".to_owned(),
        value: Value::Null,
        by: "bob".to_owned(),
        source: "test".to_owned(),
    };
    there.decide(&gate.id, decision).await.unwrap();
    let session = there.open_session(&id, Claim::IfFree).await.unwrap();
    assert_eq!(session.wait_for_answer(&prompt).await.unwrap().text, "done");
    let archive = there.export(&id).await.unwrap().remove(0);
    assert_eq!(found(&archive, &key), []);
    let twice = there.import(archive, trusting(&key)).await;
    assert!(
        matches!(twice, Err(StoreError::Conflict { .. })),
        "{twice:?}"
    );
}

#[tokio::test]
async fn decisions_that_nobody_trusted_signed_do_not_count_elsewhere() {
    let key = SigningKey::generate().unwrap();
    let whole = told(&engine(&key)).await;
    let gate = whole.gates[0].id.clone();
    let imported = async |change: &dyn Fn(&mut Archive)| {
        let mut archive = whole.clone();
        change(&mut archive);
        let there = engine(&key);
        let doubts = there.import(archive, trusting(&key)).await.unwrap();
        let asked = there.pending_gates(None).await.unwrap();
        let doubts: Vec<_> = doubts.iter().map(|it| it.is_reopened).collect();
        (doubts, asked.iter().any(|it| it.id == gate))
    };
    let unsigned = |archive: &mut Archive, action: &str| {
        if let GateStatus::Resolved { resolution } = &mut archive.gates[0].status {
            resolution.receipt = None;
            resolution.action = action.to_owned();
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
async fn a_fork_shares_its_past_and_goes_its_own_way() {
    let key = SigningKey::generate().unwrap();
    let engine = engine(&key);
    let archive = told(&engine).await;
    let id: SessionId = archive.session.id.clone();
    for at in 0..archive.entries.len() {
        let leaf = &archive.entries[at].id;
        let fork = engine.fork(&id, Some(leaf)).await.unwrap();
        let session = engine.open_session(&fork, Claim::IfFree).await.unwrap();
        let branch = engine.export(&fork).await.unwrap().remove(0);
        assert_eq!(branch.entries.len(), at + 1);
        assert_eq!(branch.entries[at].hash, archive.entries[at].hash);
        answered(&engine, &session, "another way").await;
        let branch = engine.export(&fork).await.unwrap().remove(0);
        assert_eq!(found(&branch, &key), [], "forked at {at}");
    }
    let unknown = engine.fork(&id, Some(&EntryId::new())).await;
    assert!(matches!(unknown, Err(StoreError::NotFound { .. })));
    assert_eq!(engine.export(&id).await.unwrap().remove(0), archive);
}

/// Asks in a thread, and gives the gate at which that waits.
async fn ask(engine: &Engine, session: &Session, thread: &str) -> (PromptId, Gate) {
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

/// Two sessions which have all kinds of records between them: a gate that was answered and one
/// that was withdrawn, a gate that was shown in a channel, an aborted prompt, several threads,
/// and a turn that waits.
async fn with_all_records(engine: &Engine) -> [Archive; 2] {
    let new = || NewSession {
        workspace: Some("/project".to_owned()),
        ..NewSession::default()
    };
    let ended = engine.create_session(new()).await.unwrap();
    answered(engine, &ended, "go").await;
    let (prompt, gate) = ask(engine, &ended, "second").await;
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
    let (_, gate) = ask(engine, &waits, "default").await;
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

/// Fields that no seal covers: the time at which the store numbered an event. What happened has
/// a time of its own in entries, prompts, gates and seals.
fn is_not_covered(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    matches!(parts[..], ["", "events", _, "at"])
}

#[tokio::test]
async fn whatever_field_of_a_record_is_altered_it_is_not_verified() {
    let key = SigningKey::generate().unwrap();
    for whole in with_all_records(&engine(&key)).await {
        let verdict = audit::check(&whole, trusting(&key));
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
            // What cannot be read is found out where it is read.
            if let Ok(other) = serde_json::from_value::<Archive>(other)
                && other != whole
                && audit::check(&other, trusting(&key)).is_verified()
                && !is_not_covered(&path)
            {
                missed.push(path);
            }
        }
        assert_eq!(missed, [""; 0]);
    }
}

#[tokio::test]
async fn whatever_record_is_removed_it_is_not_verified() {
    let key = SigningKey::generate().unwrap();
    for whole in with_all_records(&engine(&key)).await {
        let json = serde_json::to_value(&whole).unwrap();
        for (list, records) in json.as_object().unwrap() {
            for at in 0..records.as_array().map_or(0, Vec::len) {
                let mut other = json.clone();
                other[list].as_array_mut().unwrap().remove(at);
                let other = serde_json::from_value(other).unwrap();
                let verdict = audit::check(&other, trusting(&key));
                assert!(!verdict.is_verified(), "{list} {at}");
            }
        }
    }
}

#[tokio::test]
async fn facts_that_never_change_are_bound_to_the_first_seal() {
    let key = SigningKey::generate().unwrap();
    let here = engine(&key);
    let session = here.create_session(NewSession::default()).await.unwrap();
    answered(&here, &session, "go").await;
    let mut archive = here.export(session.id()).await.unwrap().remove(0);
    here.shutdown().await.unwrap();
    // Somebody alters the record, and the session is used and sealed again.
    archive.session.workspace = Some("/elsewhere".to_owned());
    let there = engine(&key);
    let id = archive.session.id.clone();
    there.import(archive, trusting(&key)).await.unwrap();
    let session = there.open_session(&id, Claim::IfFree).await.unwrap();
    session.pause(None).await.unwrap();
    let archive = there.export(&id).await.unwrap().remove(0);
    assert_eq!(found(&archive, &key), [FindingKind::Altered]);
}
