use lillux::durable::IfExists;
use rye_engine::store::{InboxMessage, PostOutcome};
use rye_executor::Roots;
use rye_items::UserKeys;
use rye_mcp::Component;
use tempfile::TempDir;

use super::*;

struct World {
    folder: TempDir,
    key: SigningKey,
    gates: CallGates,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let user = folder.path().join("user");
    let key = UserKeys::new(&user)
        .generate("ada", IfExists::Fail)
        .unwrap();
    let gates = open(folder.path(), Some(copy(&key)));
    World { folder, key, gates }
}

fn copy(key: &SigningKey) -> SigningKey {
    SigningKey::from_pem(key.to_pem().as_bytes()).unwrap()
}

fn open(folder: &Path, key: Option<SigningKey>) -> CallGates {
    let mut roots = Roots::new(folder.join("project"), folder.join("cache"));
    roots.user = Some(folder.join("user"));
    let store = SqliteStore::open(folder.join("sessions.db")).unwrap();
    CallGates::new(store, Trusted::of(&roots), key)
}

fn call(chain: &str, parameters: Value) -> GatedCall {
    let component = |name: &str, hash: &str| Component {
        name: name.to_owned(),
        hash: hash.to_owned(),
    };
    GatedCall {
        title: "Run it for an MCP client?".to_owned(),
        tool: "my/tool".to_owned(),
        parameters,
        chain: Hash::digest(chain),
        components: vec![component("my/tool", chain), component("bash", "same")],
        question: "Run my/tool?".to_owned(),
    }
}

impl World {
    async fn decided(&self, call: &GatedCall) -> CallDecision {
        self.gates.decided(Path::new("/p"), call).await.unwrap()
    }

    async fn waits(&self, call: &GatedCall) -> String {
        match self.decided(call).await {
            CallDecision::Pending { gate, .. } => gate,
            other => panic!("{other:?}"),
        }
    }

    async fn gate(&self, id: &str) -> Gate {
        let found = self.gates.store.gate(&GateId::from(id.to_owned())).await;
        found.unwrap().unwrap()
    }

    async fn pending(&self) -> usize {
        self.gates.store.pending_gates(None).await.unwrap().len()
    }

    /// Decides as `rye gate` does, with a key or without.
    async fn say(&self, id: &str, action: &str, key: Option<&SigningKey>) -> PostOutcome {
        let gate = self.gate(id).await;
        let mut resolution = Resolution {
            action: action.to_owned(),
            value: Value::Null,
            by: "ada".to_owned(),
            at: now(),
            source: "cli".to_owned(),
            receipt: None,
        };
        resolution.receipt = key.map(|key| Box::new(receipt(&gate, &resolution, key)));
        let session = gate.origin.session;
        let post = InboxMessage::Resolve {
            gate: gate.id,
            resolution,
        };
        self.gates.store.post(&session, post).await.unwrap()
    }

    async fn approve(&self, id: &str) {
        let posted = self.say(id, APPROVE, Some(&self.key)).await;
        assert_eq!(posted, PostOutcome::Written);
    }
}

#[tokio::test]
async fn the_same_call_waits_at_the_same_gate_and_a_decision_counts_once() {
    let world = world();
    let once = call("x", json!({ "a": 1, "b": 2 }));
    let reordered = call("x", json!({ "b": 2, "a": 1 }));
    let gate = world.waits(&once).await;
    assert_eq!(world.waits(&reordered).await, gate);
    assert_eq!(world.pending().await, 1);
    world.approve(&gate).await;
    assert_eq!(
        world.say(&gate, APPROVE, None).await,
        PostOutcome::Duplicate
    );
    let other = world.say(&gate, DENY, None).await;
    assert!(matches!(other, PostOutcome::Conflict(_)), "{other:?}");
    assert_eq!(world.decided(&reordered).await, CallDecision::Approved);
    let second = world.waits(&once).await;
    assert_ne!(second, gate);
    world.say(&second, DENY, Some(&world.key)).await;
    assert_eq!(world.decided(&once).await, CallDecision::Denied);
    world.waits(&once).await;
}

#[tokio::test]
async fn a_decision_without_a_receipt_of_a_trusted_key_is_asked_again() {
    let world = world();
    let call = call("x", json!({}));
    let foreign = SigningKey::generate().unwrap();
    for key in [None, Some(&foreign)] {
        let gate = world.waits(&call).await;
        world.say(&gate, APPROVE, key).await;
        let again = world.waits(&call).await;
        assert_ne!(again, gate);
    }
    // A project's word does not count, though the user's key vouches for it.
    let keys = UserKeys::new(&world.folder.path().join("project"));
    let file = rye_items::trust::TrustFile {
        key: foreign.public().clone(),
        owner: None,
        attestation: None,
    };
    keys.trust(&file, &world.key).unwrap();
    let gate = world.waits(&call).await;
    world.say(&gate, APPROVE, Some(&foreign)).await;
    assert_ne!(world.waits(&call).await, gate);
}

#[tokio::test]
async fn a_receipt_for_another_question_does_not_count() {
    let world = world();
    let (good, evil) = (call("x", json!({ "n": 1 })), call("x", json!({ "n": 2 })));
    let approved = world.waits(&good).await;
    world.approve(&approved).await;
    let GateStatus::Resolved { resolution } = world.gate(&approved).await.status else {
        panic!("it was approved");
    };
    // The receipt of one call copied to another.
    let gate = world.gate(&world.waits(&evil).await).await;
    let post = InboxMessage::Resolve {
        gate: gate.id.clone(),
        resolution: resolution.clone(),
    };
    let session = gate.origin.session.clone();
    world.gates.store.post(&session, post).await.unwrap();
    assert_ne!(world.waits(&evil).await, gate.id.to_string());
    // The user was shown a question that is not about the call.
    let gate = world.gate(&world.waits(&evil).await).await;
    let lying = Gate {
        title: "Say hello?".to_owned(),
        body: "Say hello?".to_owned(),
        ..gate.clone()
    };
    let lease = world.gates.store.claim(&gate.origin.session, Claim::IfFree);
    let lease = lease.await.unwrap();
    let mut batch = rye_engine::protocol::Batch::default();
    batch.push(rye_engine::protocol::Op::PutGate(lying.into()));
    world.gates.store.commit(&lease, batch).await.unwrap();
    world.gates.store.release(&lease).await.unwrap();
    world.approve(gate.id.as_str()).await;
    assert_ne!(world.waits(&evil).await, gate.id.to_string());
    assert_eq!(world.decided(&good).await, CallDecision::Approved);
}

#[tokio::test]
async fn of_many_that_make_an_approved_call_one_may() {
    let world = world();
    let other = open(world.folder.path(), Some(copy(&world.key)));
    let call = call("x", json!({}));
    let gate = world.waits(&call).await;
    world.approve(&gate).await;
    let mut approved = 0;
    for _ in 0..8 {
        let project = Path::new("/p");
        let (one, two) = tokio::join!(
            world.gates.decided(project, &call),
            other.decided(project, &call)
        );
        let all = [one.unwrap(), two.unwrap()];
        approved += all
            .iter()
            .filter(|it| **it == CallDecision::Approved)
            .count();
    }
    assert_eq!(approved, 1);
}

#[tokio::test]
async fn other_bytes_and_other_parameters_are_asked_about_with_what_changed() {
    let world = world();
    let first = call("x", json!({ "a": 1, "gone": true }));
    world.approve(&world.waits(&first).await).await;
    let other = world.waits(&call("x", json!({ "a": 2 }))).await;
    let expected = "It was approved, and has changed since:\n\
        - parameter `a` was 1 and is 2\n\
        - parameter `gone` was true and is not given\n\nRun my/tool?";
    assert_eq!(world.gate(&other).await.body, expected);
    // The call that was approved still may run, until its bytes change.
    let bytes = call("y", json!({ "a": 1, "gone": true }));
    let bytes = world.waits(&bytes).await;
    let expected = "It was approved, and has changed since:\n\
        - my/tool was x and is y\n\nRun my/tool?";
    assert_eq!(world.gate(&bytes).await.body, expected);
    world.waits(&first).await;
}

#[tokio::test]
async fn another_project_is_another_call_and_the_number_of_calls_that_wait_is_bounded() {
    let world = world();
    let one = call("x", json!({}));
    world.approve(&world.waits(&one).await).await;
    let elsewhere = world.gates.decided(Path::new("/q"), &one).await.unwrap();
    assert!(matches!(elsewhere, CallDecision::Pending { .. }));
    for number in 1..MOST {
        world.waits(&call("x", json!({ "n": number }))).await;
    }
    let more = call("x", json!({ "n": -1 }));
    let error = world.gates.decided(Path::new("/p"), &more).await;
    assert!(matches!(error, Err(CallGateError::TooMany)), "{error:?}");
    assert_eq!(world.pending().await, MOST);
}

#[tokio::test]
async fn the_decision_of_a_person_at_the_client_is_recorded_and_not_used_again() {
    let world = world();
    let call = call("x", json!({}));
    let project = Path::new("/p");
    let without_key = open(world.folder.path(), None);
    for (is_approved, gates) in [(true, &world.gates), (false, &without_key)] {
        let recorded = gates.record(project, &call, is_approved, "ada");
        recorded.await.unwrap();
    }
    let gates = world
        .gates
        .store
        .gates_matching("gate:form-")
        .await
        .unwrap();
    let resolutions: Vec<_> = gates
        .iter()
        .map(|gate| match &gate.status {
            GateStatus::Resolved { resolution } => (
                resolution.action.as_str(),
                resolution.source.as_str(),
                check_receipt(gate, resolution, |name| world.gates.trust.user_key(name)),
            ),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        (APPROVE, ELICITATION, Ok(true)),
        (DENY, ELICITATION, Ok(false)),
    ];
    assert_eq!(resolutions, expected);
    world.waits(&call).await;
}

#[tokio::test]
async fn calls_and_decisions_hold_for_a_day() {
    let world = world();
    let project = Path::new("/p");
    let old = |call: &GatedCall| {
        let hash = call_hash(project, call);
        let session = format!("{CALL}{}-1", short(&hash)).parse().unwrap();
        let gate = gate(&session, project, call, &hash, call.question.clone());
        Gate {
            created_at: Millis(1),
            expires_at: Some(after(Millis(1))),
            ..gate
        }
    };
    let (decided, pending) = (call("x", json!({ "n": 1 })), call("x", json!({ "n": 2 })));
    let mut approved = old(&decided);
    let mut resolution = Resolution {
        action: APPROVE.to_owned(),
        value: Value::Null,
        by: "ada".to_owned(),
        at: Millis(2),
        source: "cli".to_owned(),
        receipt: None,
    };
    resolution.receipt = Some(Box::new(receipt(&approved, &resolution, &world.key)));
    approved.status = GateStatus::Resolved { resolution };
    world.gates.write(&approved, project).await.unwrap();
    let forgotten = old(&pending);
    world.gates.write(&forgotten, project).await.unwrap();
    assert_ne!(world.waits(&decided).await, approved.id.to_string());
    let found = world.gates.store.gate(&forgotten.id).await.unwrap();
    assert_eq!(found, None);
}
