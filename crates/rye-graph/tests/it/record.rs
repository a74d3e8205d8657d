//! Records: cut anywhere they go on, altered anywhere they are found out.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use lillux::Hash;
use lillux::keys::{PublicKey, SigningKey};
use rye_executor::RunContext;
use rye_executor::primitive::CallFailure;
use rye_graph::{
    DispatchFuture, Dispatcher, Graph, JournalOptions, NodeError, RunResult, RunState, RunStatus,
    RunStore, ToolCall, ToolTraits, TrustPolicy, VerifyReport, run_journaled,
};
use rye_items::ItemId;
use rye_items::metadata::Effect;
use rye_protocol::{Gate, Resolution};
use serde_json::{Value, json};

/// A tool that may be repeated and notes that it was called.
#[derive(Default)]
struct Echo(Mutex<Vec<Value>>);

impl Dispatcher for Echo {
    fn traits(&self, _: &ItemId) -> Result<ToolTraits, NodeError> {
        Ok(ToolTraits {
            effect: Effect::Pure,
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

async fn walked(project: &Path, key: Option<SigningKey>) -> Result<RunResult, CallFailure> {
    let writing = JournalOptions {
        run: Some(RunContext {
            id: "run".to_owned(),
            depth: 0,
        }),
        key,
        ..JournalOptions::default()
    };
    run_journaled(&graph(), &Echo::default(), json!({}), project, writing).await
}

fn verified(project: &Path, key: &PublicKey) -> VerifyReport {
    let runs = RunStore::new(project);
    let found = runs.find("run").unwrap();
    found.verify(&runs, &Only(key.clone())).unwrap()
}

/// Trust in one key, with which nobody decides anything.
#[derive(Debug)]
struct Only(PublicKey);

impl TrustPolicy for Only {
    fn key(&self, name: &str) -> Option<PublicKey> {
        let is_it = self.0.fingerprint().to_string() == name;
        is_it.then(|| self.0.clone())
    }

    fn receipt(&self, _: &Gate, _: &Resolution) -> Result<bool, String> {
        Ok(false)
    }
}

/// The same key once more.
fn again(key: &SigningKey) -> SigningKey {
    SigningKey::from_pem(key.to_pem().as_bytes()).unwrap()
}

/// A line that follows others, as whoever has no key can write it.
fn forged(before: &str, event: &Value) -> String {
    let last: Value = serde_json::from_str(before.lines().last().unwrap()).unwrap();
    let (seq, at) = (last["seq"].as_u64().unwrap() + 1, 0);
    let hash = last["hash"].as_str().unwrap();
    let hash = Hash::digest(format!("rye graph event 1\n{hash}\n{seq}\n{at}\n{event}")).to_hex();
    format!("{{\"seq\":{seq},\"at\":{at},\"event\":{event},\"hash\":\"{hash}\"}}\n")
}

/// A record without its signatures.
fn unsigned(record: &str) -> String {
    let lines = record.lines().map(|line| match line.find(",\"key\":") {
        Some(at) => format!("{}}}\n", &line[..at]),
        None => format!("{line}\n"),
    });
    lines.collect()
}

#[tokio::test]
async fn a_record_that_is_cut_anywhere_goes_on_to_the_same_end() {
    let folder = tempfile::tempdir().unwrap();
    let whole = walked(folder.path(), None).await.unwrap();
    let path = RunStore::new(folder.path()).find("run").unwrap().events();
    let bytes = fs::read(&path).unwrap();
    // Every byte of the last lines, and some of the first, which is the longest.
    let cuts = (0..bytes.len()).filter(|cut| cut % 41 == 0 || bytes[*cut] == b'\n');
    for cut in cuts.collect::<Vec<_>>() {
        fs::write(&path, &bytes[..cut]).unwrap();
        // Which a walker names only after the line that tells of it is on the disk.
        let _ = fs::remove_file(path.with_file_name("snapshot"));
        let again = walked(folder.path(), None).await;
        let again = again.unwrap_or_else(|failed| panic!("cut at {cut}: {failed:?}"));
        assert_eq!(again.output, whole.output, "cut at {cut}");
        assert_eq!(again.status, RunStatus::Completed);
        let run = RunStore::new(folder.path())
            .find("run")
            .unwrap()
            .read()
            .unwrap();
        assert_eq!(run.state(), RunState::Ended(RunStatus::Completed));
    }
}

#[tokio::test]
async fn a_record_that_is_altered_anywhere_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    let public = key.public().clone();
    walked(folder.path(), Some(key)).await.unwrap();
    let report = verified(folder.path(), &public);
    assert_eq!((report.findings.len(), report.open), (0, 0), "{report:?}");
    assert!(report.signed >= 3 && report.snapshots == 1, "{report:?}");
    let path = RunStore::new(folder.path()).find("run").unwrap().events();
    let bytes = fs::read(&path).unwrap();
    let numbers = (0..bytes.len()).filter(|at| bytes[*at].is_ascii_digit());
    for at in numbers.step_by(17).collect::<Vec<_>>() {
        let mut altered = bytes.clone();
        altered[at] = if altered[at] == b'1' { b'2' } else { b'1' };
        if altered == bytes {
            continue;
        }
        fs::write(&path, &altered).unwrap();
        let report = verified(folder.path(), &public);
        assert!(!report.findings.is_empty(), "byte {at} of the record");
    }
    let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    for gone in 0..lines.len() - 1 {
        let mut fewer = lines.clone();
        fewer.remove(gone);
        fs::write(&path, fewer.concat()).unwrap();
        let report = verified(folder.path(), &public);
        assert!(!report.findings.is_empty(), "line {gone} is gone");
    }
    // The same record under a key that nobody trusts.
    fs::write(&path, &bytes).unwrap();
    let other = SigningKey::generate().unwrap();
    assert!(!verified(folder.path(), other.public()).findings.is_empty());
}

#[tokio::test]
async fn a_signed_record_that_is_cut_anywhere_goes_on_to_the_same_end() {
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    let whole = walked(folder.path(), Some(again(&key))).await.unwrap();
    let path = RunStore::new(folder.path()).find("run").unwrap().events();
    let bytes = fs::read(&path).unwrap();
    let cuts = (0..bytes.len()).filter(|cut| cut % 41 == 0 || bytes[*cut] == b'\n');
    for cut in cuts.collect::<Vec<_>>() {
        for cut in [cut, cut + 1] {
            fs::write(&path, &bytes[..cut]).unwrap();
            let _ = fs::remove_file(path.with_file_name("snapshot"));
            let ended = walked(folder.path(), Some(again(&key))).await;
            let ended = ended.unwrap_or_else(|failed| panic!("cut at {cut}: {failed:?}"));
            assert_eq!(ended.output, whole.output, "cut at {cut}");
            let report = verified(folder.path(), key.public());
            assert_eq!((report.findings.len(), report.open), (0, 0), "{report:?}");
        }
    }
}

#[tokio::test]
async fn what_nobody_signed_is_never_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    walked(folder.path(), Some(again(&key))).await.unwrap();
    let found = RunStore::new(folder.path()).find("run").unwrap();
    let whole = fs::read_to_string(found.events()).unwrap();
    let faults = |record: &str| {
        fs::write(found.events(), record).unwrap();
        verified(folder.path(), key.public()).findings
    };
    // Emptied, or cut where a signature is, though a later state is known.
    let part: String = whole.split_inclusive('\n').take(3).collect();
    for cut in ["", &part] {
        assert!(!faults(cut).is_empty(), "{cut}");
    }
    let failed = walked(folder.path(), Some(again(&key))).await.unwrap_err();
    assert_eq!(failed.code, "record_altered", "{failed:?}");
    fs::write(found.folder().join("snapshot"), "0000\n").unwrap();
    assert_eq!(faults(&whole).len(), 1);
    fs::remove_file(found.folder().join("snapshot")).unwrap();
    assert_eq!(faults(&whole), []);
    // Without its signatures, by whoever can write there.
    let bare = unsigned(&part);
    assert!(faults(&bare)[0].message.starts_with("nobody signed it"));
    let failed = walked(folder.path(), Some(again(&key))).await.unwrap_err();
    assert_eq!(failed.code, "record_unsigned", "{failed:?}");
    // With the signatures of a stranger.
    fs::write(found.events(), &part).unwrap();
    let other = SigningKey::generate().unwrap();
    let failed = walked(folder.path(), Some(other)).await.unwrap_err();
    assert_eq!(failed.code, "record_untrusted", "{failed:?}");
    // In the folder of another run.
    let elsewhere = folder.path().join(".ai/state/graphs/other");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("events.jsonl"), &part).unwrap();
    let runs = RunStore::new(folder.path());
    let moved = runs
        .find("other")
        .unwrap()
        .verify(&runs, &Only(key.public().clone()));
    assert!(moved.unwrap().findings[0].message.contains("another run"));
    // Lines that no signature stands for are as if they had never been written.
    let step = json!({ "type": "step", "step": 1, "node": "one", "outcome": "done", "set": { "one": 99 }, "next": "end", "duration_us": 1 });
    let signed: String = whole.split_inclusive('\n').take(2).collect();
    fs::write(
        found.events(),
        format!("{signed}{}", forged(&signed, &step)),
    )
    .unwrap();
    assert_eq!(verified(folder.path(), key.public()).open, 1);
    let ended = walked(folder.path(), Some(again(&key))).await.unwrap();
    assert_eq!(ended.output, json!({ "one": 1, "all": [1, 2, 3] }));
    assert_eq!(verified(folder.path(), key.public()).findings, []);
    // Those that every walker signs were added by somebody else.
    let end = json!({ "type": "end", "status": "failed", "node": "one" });
    let added = format!("{signed}{}", forged(&signed, &end));
    fs::remove_file(found.folder().join("snapshot")).unwrap();
    assert!(faults(&added)[0].message.starts_with("it was added"));
}

/// The same tool, which must not be called twice.
struct Once(Echo);

impl Dispatcher for Once {
    fn traits(&self, item: &ItemId) -> Result<ToolTraits, NodeError> {
        let effect = Effect::AtMostOnce;
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
async fn of_an_item_that_unsigned_lines_tell_of_nobody_knows_whether_it_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    walked(folder.path(), Some(again(&key))).await.unwrap();
    let found = RunStore::new(folder.path()).find("run").unwrap();
    let whole = fs::read_to_string(found.events()).unwrap();
    let is_begun = |line: &&str| line.contains("\"node\":\"each\"");
    let before = whole.lines().position(|line| is_begun(&line)).unwrap();
    let lines = whole.split_inclusive('\n').take(before + 1);
    let mut record: String = lines.collect();
    record += &forged(&record, &json!({ "type": "item_begin", "index": 0 }));
    record += &forged(
        &record,
        &json!({ "type": "item_end", "index": 0, "result": 99 }),
    );
    fs::write(found.events(), record).unwrap();
    fs::remove_file(found.folder().join("snapshot")).unwrap();
    let writing = JournalOptions {
        run: Some(RunContext {
            id: "run".to_owned(),
            depth: 0,
        }),
        key: Some(again(&key)),
        ..JournalOptions::default()
    };
    let tool = Once(Echo::default());
    let graph = graph();
    let ended = run_journaled(&graph, &tool, json!({}), folder.path(), writing);
    let ended = ended.await.unwrap();
    let all = &ended.state["all"];
    assert_eq!(all[0]["code"], "interrupted", "{all}");
    assert_eq!((&all[1], &all[2]), (&json!(2), &json!(3)), "{all}");
    let called = tool.0.0.lock().unwrap().clone();
    assert_eq!(called, [json!({ "n": 2 }), json!({ "n": 3 })]);
}

#[tokio::test]
async fn a_run_that_the_disk_stopped_has_failed_with_that_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    let store = folder.path().join(".ai/state/graphs/store");
    fs::create_dir_all(store.parent().unwrap()).unwrap();
    fs::write(&store, "in the way").unwrap();
    walked(folder.path(), Some(again(&key))).await.unwrap_err();
    let run = RunStore::new(folder.path())
        .find("run")
        .unwrap()
        .read()
        .unwrap();
    assert_eq!(run.state(), RunState::Ended(RunStatus::Failed));
    assert!(run.error().unwrap().message.contains("store"), "{run:?}");
    fs::remove_file(&store).unwrap();
    let ended = walked(folder.path(), Some(again(&key))).await.unwrap();
    assert_eq!(ended.status, RunStatus::Completed);
    assert_eq!(verified(folder.path(), key.public()).findings, []);
}

#[tokio::test]
async fn two_processes_do_not_walk_one_run() {
    let folder = tempfile::tempdir().unwrap();
    walked(folder.path(), None).await.unwrap();
    let found = RunStore::new(folder.path()).find("run").unwrap();
    let lines = fs::read_to_string(found.events()).unwrap();
    let first: String = lines.split_inclusive('\n').take(3).collect();
    fs::write(found.events(), first).unwrap();
    fs::remove_file(found.folder().join("snapshot")).unwrap();
    let held = fs::File::open(found.events()).unwrap();
    held.lock().unwrap();
    let failed = walked(folder.path(), None).await.unwrap_err();
    assert_eq!(failed.code, "run_in_use", "{failed:?}");
    drop(held);
    assert!(walked(folder.path(), None).await.is_ok());
}

#[tokio::test]
async fn steps_that_did_nothing_count_and_no_number_is_given_twice() {
    let text = r#"
permissions: ["rye.execute.tool.echo"]
config:
  start: one
  nodes:
    one: { type: foreach, over: "${inputs.none}", action: { item_id: echo }, on_error: two }
    two: { action: { item_id: "${inputs.tool}" } }
"#;
    let graph = Graph::parse(text.as_bytes()).unwrap().graph.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let tool = Echo::default();
    let ended = run_journaled(
        &graph,
        &tool,
        json!({ "tool": "other" }),
        folder.path(),
        JournalOptions::default(),
    );
    let ended = ended.await.unwrap();
    assert_eq!((ended.status, ended.steps), (RunStatus::Failed, 2));
    let runs = RunStore::new(folder.path());
    let run = runs.all().unwrap().remove(0).read().unwrap();
    assert_eq!(run.steps(), 2);
    assert_eq!(run.node(), Some("two"));
}
