//! Records of runs: truncated records are resumed, modified records are detected.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use lillux::Hash;
use lillux::keys::{PublicKey, SigningKey};
use rye_executor::RunContext;
use rye_executor::primitive::CallFailure;
use rye_graph::{
    DispatchFuture, Dispatcher, FindingKind, Graph, JournalOptions, NodeError, RunResult, RunState,
    RunStatus, RunStore, ToolCall, ToolTraits, TrustPolicy, VerifyReport, run_journaled,
};
use rye_items::ItemId;
use rye_items::metadata::EffectClass;
use rye_protocol::{Gate, Resolution};
use serde_json::{Value, json};

/// A repeatable tool that records its calls.
#[derive(Default)]
struct Echo(Mutex<Vec<Value>>);

impl Dispatcher for Echo {
    fn traits(&self, _: &ItemId) -> Result<ToolTraits, NodeError> {
        Ok(ToolTraits {
            effect: EffectClass::Pure,
            is_graph: false,
            hash: None,
        })
    }

    fn call(&self, call: ToolCall) -> DispatchFuture<'_> {
        self.0.lock().unwrap().push(call.params.clone());
        Box::pin(async move { Ok(call.params["n"].clone()) })
    }
}

fn graph() -> Graph {
    let text = r#"
permissions: ["rye.execute.tool.echo"]
config:
  start: one
  nodes:
    one: { action: { item_id: echo, params: { n: 1 } }, assign: { one: "${result}" }, next: each }
    each: { type: foreach, over: [1, 2, 3], as: n, collect: all, next: end,
            action: { item_id: echo, params: { n: "${n}" } } }
    end: { type: return, output: { one: "${state.one}", all: "${state.all}" } }
"#;
    Graph::parse(text.as_bytes()).unwrap().graph.unwrap()
}

async fn run_graph(project: &Path, key: Option<SigningKey>) -> Result<RunResult, CallFailure> {
    let options = JournalOptions {
        run: Some(RunContext {
            id: "run".to_owned(),
            depth: 0,
        }),
        key,
        ..JournalOptions::default()
    };
    run_journaled(&graph(), &Echo::default(), json!({}), project, options).await
}

fn verify(project: &Path, key: &PublicKey) -> VerifyReport {
    let runs = RunStore::new(project);
    let run = runs.find("run").unwrap();
    run.verify(&runs, &SingleKeyPolicy(key.clone())).unwrap()
}

/// Trusts a single key and rejects all decisions.
#[derive(Debug)]
struct SingleKeyPolicy(PublicKey);

impl TrustPolicy for SingleKeyPolicy {
    fn key(&self, fingerprint: &str) -> Option<PublicKey> {
        let is_trusted = self.0.fingerprint().to_string() == fingerprint;
        is_trusted.then(|| self.0.clone())
    }

    fn receipt(&self, _: &Gate, _: &Resolution) -> Result<bool, String> {
        Ok(false)
    }
}

/// Copies a key.
fn copy_key(key: &SigningKey) -> SigningKey {
    SigningKey::from_pem(key.to_pem().as_bytes()).unwrap()
}

/// A valid but unsigned line after `before`, as an attacker without a key can write it.
fn forged_line(before: &str, event: &Value) -> String {
    let last: Value = serde_json::from_str(before.lines().last().unwrap()).unwrap();
    let (seq, at) = (last["seq"].as_u64().unwrap() + 1, 0);
    let hash = last["hash"].as_str().unwrap();
    let hash = Hash::digest(format!("rye graph event 1\n{hash}\n{seq}\n{at}\n{event}")).to_hex();
    format!("{{\"seq\":{seq},\"at\":{at},\"event\":{event},\"hash\":\"{hash}\"}}\n")
}

/// Removes the signatures of a record.
fn without_signatures(record: &str) -> String {
    let lines = record.lines().map(|line| match line.find(",\"key\":") {
        Some(at) => format!("{}}}\n", &line[..at]),
        None => format!("{line}\n"),
    });
    lines.collect()
}

#[tokio::test]
async fn truncated_record_resumes_to_the_same_result() {
    let project = tempfile::tempdir().unwrap();
    let whole = run_graph(project.path(), None).await.unwrap();
    let path = RunStore::new(project.path()).find("run").unwrap().events();
    let bytes = fs::read(&path).unwrap();
    let cuts = (0..bytes.len()).filter(|cut| cut % 41 == 0 || bytes[*cut] == b'\n');
    for cut in cuts.collect::<Vec<_>>() {
        fs::write(&path, &bytes[..cut]).unwrap();
        // The snapshot file is written only after its journal line is flushed.
        let _ = fs::remove_file(path.with_file_name("snapshot"));
        let resumed = run_graph(project.path(), None).await;
        let resumed = resumed.unwrap_or_else(|failure| panic!("cut at {cut}: {failure:?}"));
        assert_eq!(resumed.output, whole.output, "cut at {cut}");
        assert_eq!(resumed.status, RunStatus::Completed);
        let run = RunStore::new(project.path())
            .find("run")
            .unwrap()
            .load()
            .unwrap();
        assert_eq!(run.state(), RunState::Ended(RunStatus::Completed));
    }
}

#[tokio::test]
async fn modified_record_is_detected() {
    let project = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    let public = key.public().clone();
    run_graph(project.path(), Some(key)).await.unwrap();
    let report = verify(project.path(), &public);
    assert_eq!(
        (report.findings.len(), report.unsigned),
        (0, 0),
        "{report:?}"
    );
    assert!(report.signed >= 3 && report.snapshots == 1, "{report:?}");
    let path = RunStore::new(project.path()).find("run").unwrap().events();
    let bytes = fs::read(&path).unwrap();
    let numbers = (0..bytes.len()).filter(|at| bytes[*at].is_ascii_digit());
    for at in numbers.step_by(17).collect::<Vec<_>>() {
        let mut altered = bytes.clone();
        altered[at] = if altered[at] == b'1' { b'2' } else { b'1' };
        if altered == bytes {
            continue;
        }
        fs::write(&path, &altered).unwrap();
        let report = verify(project.path(), &public);
        assert!(!report.findings.is_empty(), "byte {at} of the record");
    }
    let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    for removed in 0..lines.len() - 1 {
        let mut fewer = lines.clone();
        fewer.remove(removed);
        fs::write(&path, fewer.concat()).unwrap();
        let report = verify(project.path(), &public);
        assert!(!report.findings.is_empty(), "line {removed} is missing");
    }
    // The same record with an untrusted key.
    fs::write(&path, &bytes).unwrap();
    let other = SigningKey::generate().unwrap();
    assert!(!verify(project.path(), other.public()).findings.is_empty());
}

#[tokio::test]
async fn truncated_signed_record_resumes_to_the_same_result() {
    let project = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    let whole = run_graph(project.path(), Some(copy_key(&key)))
        .await
        .unwrap();
    let path = RunStore::new(project.path()).find("run").unwrap().events();
    let bytes = fs::read(&path).unwrap();
    let cuts = (0..bytes.len()).filter(|cut| cut % 41 == 0 || bytes[*cut] == b'\n');
    for cut in cuts.collect::<Vec<_>>() {
        for cut in [cut, cut + 1] {
            fs::write(&path, &bytes[..cut]).unwrap();
            let _ = fs::remove_file(path.with_file_name("snapshot"));
            let result = run_graph(project.path(), Some(copy_key(&key))).await;
            let result = result.unwrap_or_else(|failure| panic!("cut at {cut}: {failure:?}"));
            assert_eq!(result.output, whole.output, "cut at {cut}");
            let report = verify(project.path(), key.public());
            assert_eq!(
                (report.findings.len(), report.unsigned),
                (0, 0),
                "{report:?}"
            );
        }
    }
}

#[tokio::test]
async fn unsigned_or_untrusted_record_is_not_resumed() {
    let project = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    run_graph(project.path(), Some(copy_key(&key)))
        .await
        .unwrap();
    let handle = RunStore::new(project.path()).find("run").unwrap();
    let whole = fs::read_to_string(handle.events()).unwrap();
    let findings = |record: &str| {
        fs::write(handle.events(), record).unwrap();
        verify(project.path(), key.public()).findings
    };
    // Emptied, or truncated at a signature although the snapshot is newer.
    let part: String = whole.split_inclusive('\n').take(3).collect();
    for cut in ["", &part] {
        assert!(!findings(cut).is_empty(), "{cut}");
    }
    let failure = run_graph(project.path(), Some(copy_key(&key)))
        .await
        .unwrap_err();
    assert_eq!(failure.code, "record_altered", "{failure:?}");
    fs::write(handle.run_dir().join("snapshot"), "0000\n").unwrap();
    assert_eq!(findings(&whole).len(), 1);
    fs::remove_file(handle.run_dir().join("snapshot")).unwrap();
    assert_eq!(findings(&whole), []);
    // Signatures removed.
    let bare = without_signatures(&part);
    assert_eq!(findings(&bare)[0].kind, FindingKind::Unsigned);
    let failure = run_graph(project.path(), Some(copy_key(&key)))
        .await
        .unwrap_err();
    assert_eq!(failure.code, "record_unsigned", "{failure:?}");
    // Signed with an untrusted key.
    fs::write(handle.events(), &part).unwrap();
    let other = SigningKey::generate().unwrap();
    let failure = run_graph(project.path(), Some(other)).await.unwrap_err();
    assert_eq!(failure.code, "record_untrusted", "{failure:?}");
    // In the directory of another run.
    let other_dir = project.path().join(".ai/state/graphs/other");
    fs::create_dir(&other_dir).unwrap();
    fs::write(other_dir.join("events.jsonl"), &part).unwrap();
    let runs = RunStore::new(project.path());
    let moved = runs
        .find("other")
        .unwrap()
        .verify(&runs, &SingleKeyPolicy(key.public().clone()));
    assert_eq!(moved.unwrap().findings[0].kind, FindingKind::Altered);
    // Unsigned lines at the end are ignored.
    let step = json!({ "type": "step", "step": 1, "node": "one", "outcome": "done", "set": { "one": 99 }, "next": "end", "duration_us": 1 });
    let signed: String = whole.split_inclusive('\n').take(2).collect();
    fs::write(
        handle.events(),
        format!("{signed}{}", forged_line(&signed, &step)),
    )
    .unwrap();
    assert_eq!(verify(project.path(), key.public()).unsigned, 1);
    let result = run_graph(project.path(), Some(copy_key(&key)))
        .await
        .unwrap();
    assert_eq!(result.output, json!({ "one": 1, "all": [1, 2, 3] }));
    assert_eq!(verify(project.path(), key.public()).findings, []);
    // Unsigned lines of kinds that are always signed were forged.
    let end = json!({ "type": "end", "status": "failed", "node": "one" });
    let added = format!("{signed}{}", forged_line(&signed, &end));
    fs::remove_file(handle.run_dir().join("snapshot")).unwrap();
    assert_eq!(findings(&added)[0].kind, FindingKind::Altered);
}

/// The same tool with the effect class `at_most_once`.
struct Once(Echo);

impl Dispatcher for Once {
    fn traits(&self, item: &ItemId) -> Result<ToolTraits, NodeError> {
        let effect = EffectClass::AtMostOnce;
        Ok(ToolTraits {
            effect,
            ..self.0.traits(item)?
        })
    }

    fn call(&self, call: ToolCall) -> DispatchFuture<'_> {
        self.0.call(call)
    }
}

#[tokio::test]
async fn item_in_unsigned_lines_counts_as_interrupted() {
    let project = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    run_graph(project.path(), Some(copy_key(&key)))
        .await
        .unwrap();
    let handle = RunStore::new(project.path()).find("run").unwrap();
    let whole = fs::read_to_string(handle.events()).unwrap();
    let is_start = |line: &&str| line.contains("\"node\":\"each\"");
    let before = whole.lines().position(|line| is_start(&line)).unwrap();
    let lines = whole.split_inclusive('\n').take(before + 1);
    let mut record: String = lines.collect();
    record += &forged_line(&record, &json!({ "type": "item_begin", "index": 0 }));
    record += &forged_line(
        &record,
        &json!({ "type": "item_end", "index": 0, "result": 99 }),
    );
    fs::write(handle.events(), record).unwrap();
    fs::remove_file(handle.run_dir().join("snapshot")).unwrap();
    let options = JournalOptions {
        run: Some(RunContext {
            id: "run".to_owned(),
            depth: 0,
        }),
        key: Some(copy_key(&key)),
        ..JournalOptions::default()
    };
    let tool = Once(Echo::default());
    let graph = graph();
    let result = run_journaled(&graph, &tool, json!({}), project.path(), options);
    let result = result.await.unwrap();
    let all = &result.state["all"];
    assert_eq!(all[0]["code"], "interrupted", "{all}");
    assert_eq!((&all[1], &all[2]), (&json!(2), &json!(3)), "{all}");
    let called = tool.0.0.lock().unwrap().clone();
    assert_eq!(called, [json!({ "n": 2 }), json!({ "n": 3 })]);
}

#[tokio::test]
async fn run_stopped_by_an_io_error_can_be_resumed() {
    let project = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    let store = project.path().join(".ai/state/graphs/store");
    fs::create_dir_all(store.parent().unwrap()).unwrap();
    fs::write(&store, "not a directory").unwrap();
    run_graph(project.path(), Some(copy_key(&key)))
        .await
        .unwrap_err();
    let run = RunStore::new(project.path())
        .find("run")
        .unwrap()
        .load()
        .unwrap();
    assert_eq!(run.state(), RunState::Ended(RunStatus::Failed));
    assert!(run.error().unwrap().message.contains("store"), "{run:?}");
    fs::remove_file(&store).unwrap();
    let result = run_graph(project.path(), Some(copy_key(&key)))
        .await
        .unwrap();
    assert_eq!(result.status, RunStatus::Completed);
    assert_eq!(verify(project.path(), key.public()).findings, []);
}

#[tokio::test]
async fn run_cannot_be_executed_by_two_processes() {
    let project = tempfile::tempdir().unwrap();
    run_graph(project.path(), None).await.unwrap();
    let handle = RunStore::new(project.path()).find("run").unwrap();
    let lines = fs::read_to_string(handle.events()).unwrap();
    let first: String = lines.split_inclusive('\n').take(3).collect();
    fs::write(handle.events(), first).unwrap();
    fs::remove_file(handle.run_dir().join("snapshot")).unwrap();
    let lock = fs::File::open(handle.events()).unwrap();
    lock.lock().unwrap();
    let failure = run_graph(project.path(), None).await.unwrap_err();
    assert_eq!(failure.code, "run_in_use", "{failure:?}");
    drop(lock);
    assert!(run_graph(project.path(), None).await.is_ok());
}

#[tokio::test]
async fn failed_steps_are_counted() {
    let text = r#"
permissions: ["rye.execute.tool.echo"]
config:
  start: one
  nodes:
    one: { type: foreach, over: "${inputs.none}", action: { item_id: echo }, on_error: two }
    two: { action: { item_id: "${inputs.tool}" } }
"#;
    let graph = Graph::parse(text.as_bytes()).unwrap().graph.unwrap();
    let project = tempfile::tempdir().unwrap();
    let tool = Echo::default();
    let result = run_journaled(
        &graph,
        &tool,
        json!({ "tool": "other" }),
        project.path(),
        JournalOptions::default(),
    );
    let result = result.await.unwrap();
    assert_eq!((result.status, result.steps), (RunStatus::Failed, 2));
    let runs = RunStore::new(project.path());
    let run = runs.all().unwrap().remove(0).load().unwrap();
    assert_eq!(run.steps(), 2);
    assert_eq!(run.node(), Some("two"));
}
