use super::*;

fn gates() -> (tempfile::TempDir, CallGates) {
    let folder = tempfile::tempdir().unwrap();
    let gates = CallGates(folder.path().join("gates"));
    (folder, gates)
}

fn call(chain: &str, parameters: Value) -> Gated {
    let piece = |name: &str, hash: &str| Piece {
        name: name.to_owned(),
        hash: hash.to_owned(),
    };
    Gated {
        title: "Run it for an MCP client?".to_owned(),
        tool: "my/tool".to_owned(),
        parameters,
        chain: Hash::of(chain),
        pieces: vec![piece("my/tool", chain), piece("bash", "same")],
        question: "Run my/tool?".to_owned(),
    }
}

fn waits(gates: &CallGates, call: &Gated) -> String {
    match gates.decided(Path::new("/p"), call).unwrap() {
        Decided::Waits { gate } => gate,
        other => panic!("{other:?}"),
    }
}

fn say(gates: &CallGates, id: &str, action: &str) -> Given {
    let answer = Answer {
        action: action.to_owned(),
        by: "me".to_owned(),
        at: "now".to_owned(),
    };
    gates.give(id, &answer).unwrap()
}

#[test]
fn the_same_call_waits_at_the_same_gate_and_an_answer_counts_once() {
    let (_folder, gates) = gates();
    let (once, turned) = (
        call("x", json!({ "a": 1, "b": 2 })),
        call("x", json!({ "b": 2, "a": 1 })),
    );
    let gate = waits(&gates, &once);
    assert_eq!(waits(&gates, &turned), gate);
    assert_eq!(gates.pending().unwrap().len(), 1);
    assert_eq!(say(&gates, &gate, "approve"), Given::Written);
    assert_eq!(say(&gates, &gate, "approve"), Given::Written);
    assert!(matches!(say(&gates, &gate, "deny"), Given::Conflict(_)));
    assert!(gates.pending().unwrap().is_empty());
    let decided = gates.decided(Path::new("/p"), &turned).unwrap();
    assert_eq!(decided, Decided::Approved);
    assert_eq!(say(&gates, &gate, "approve"), Given::Gone);
    assert_eq!(waits(&gates, &once), gate);
    say(&gates, &gate, "deny");
    assert_eq!(
        gates.decided(Path::new("/p"), &once).unwrap(),
        Decided::Denied
    );
    assert_eq!(waits(&gates, &once), gate);
}

#[test]
fn of_many_that_make_an_approved_call_one_may() {
    let (_folder, gates) = gates();
    let call = call("x", json!({}));
    let gate = waits(&gates, &call);
    say(&gates, &gate, "approve");
    let all: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| gates.decided(Path::new("/p"), &call).unwrap()))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let approved = all.iter().filter(|it| **it == Decided::Approved);
    assert_eq!(approved.count(), 1, "{all:?}");
}

#[test]
fn other_bytes_and_other_parameters_are_asked_about_with_what_changed() {
    let (_folder, gates) = gates();
    let first = call("x", json!({ "a": 1, "gone": true }));
    say(&gates, &waits(&gates, &first), "approve");
    let other = waits(&gates, &call("x", json!({ "a": 2 })));
    let body = |id: &str| {
        let all = gates.pending().unwrap();
        all.into_iter().find(|gate| gate.id == id).unwrap().body
    };
    let expected = "It was approved, and has changed since:\n\
        - parameter `a` was 1 and is 2\n\
        - parameter `gone` was true and is not given\n\nRun my/tool?";
    assert_eq!(body(&other), expected);
    // The call that was approved still may.
    let bytes = waits(&gates, &call("y", json!({ "a": 1, "gone": true })));
    let expected = "It was approved, and has changed since:\n\
        - my/tool was x and is y\n\nRun my/tool?";
    assert_eq!(body(&bytes), expected);
    // Its bytes are gone, and with them the approval.
    waits(&gates, &first);
}

#[test]
fn another_project_is_another_call_and_there_is_an_end_to_waiting() {
    let (_folder, gates) = gates();
    let one = call("x", json!({}));
    say(&gates, &waits(&gates, &one), "approve");
    let elsewhere = gates.decided(Path::new("/q"), &one).unwrap();
    assert!(matches!(elsewhere, Decided::Waits { .. }));
    for number in 0..MOST {
        let _ = gates.decided(Path::new("/p"), &call("x", json!({ "n": number })));
    }
    let error = gates.decided(Path::new("/p"), &call("x", json!({ "n": -1 })));
    assert_eq!(error.unwrap_err().code, "too_many_gates");
    // One that is too old is forgotten.
    let old = gates.pending().unwrap().swap_remove(0);
    let aged = CallGate {
        created_at: 0,
        ..old.clone()
    };
    fs::write(gates.file(&old.id), serde_json::to_vec(&aged).unwrap()).unwrap();
    assert_eq!(gates.all().unwrap().len(), MOST - 1);
}
