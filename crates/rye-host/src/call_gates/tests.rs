use lillux::durable::IfExists;
use rye_engine::store::{InboxMessage, PostOutcome};
use rye_executor::Roots;
use rye_items::UserKeys;
use rye_mcp::Component;
use tempfile::TempDir;

use super::*;

struct TestEnv {
    dir: TempDir,
    key: SigningKey,
    gates: CallGates,
}

fn env() -> TestEnv {
    let dir = tempfile::tempdir().unwrap();
    let user = dir.path().join("user");
    let key = UserKeys::new(&user)
        .generate("ada", IfExists::Fail)
        .unwrap();
    let gates = open(dir.path(), Some(clone_key(&key)));
    TestEnv { dir, key, gates }
}

fn clone_key(key: &SigningKey) -> SigningKey {
    SigningKey::from_pem(key.to_pem().as_bytes()).unwrap()
}

fn open(dir: &Path, key: Option<SigningKey>) -> CallGates {
    let mut roots = Roots::new(dir.join("project"), dir.join("cache"));
    roots.user = Some(dir.join("user"));
    let store = SqliteStore::open(dir.join("sessions.db")).unwrap();
    CallGates::new(store, TrustedKeys::new(&roots), key.map(Arc::new))
}

fn call(chain: &str, parameters: Value) -> GatedCall {
    let component = |name: &str, hash: &str| Component {
        name: name.to_owned(),
        hash: hash.to_owned(),
        signed_by: None,
    };
    GatedCall {
        title: "Run a tool for an MCP client?".to_owned(),
        tool: "my/tool".to_owned(),
        parameters,
        chain: Hash::digest(chain),
        components: vec![component("my/tool", chain), component("bash", "same")],
        question: "Run my/tool?".to_owned(),
    }
}

fn is_approved(decision: &CallDecision) -> bool {
    matches!(decision, CallDecision::Approved { .. })
}

impl TestEnv {
    async fn decision(&self, call: &GatedCall) -> CallDecision {
        self.gates.decision(Path::new("/p"), call).await.unwrap()
    }

    async fn pending_gate(&self, call: &GatedCall) -> String {
        match self.decision(call).await {
            CallDecision::Pending { gate, .. } => gate,
            other => panic!("{other:?}"),
        }
    }

    async fn gate(&self, id: &str) -> Gate {
        let found = self.gates.store.gate(&GateId::from(id.to_owned())).await;
        found.unwrap().unwrap()
    }

    async fn pending_count(&self) -> usize {
        self.gates.store.pending_gates(None).await.unwrap().len()
    }

    /// Posts a decision like `rye gate`, signed if there is a key.
    async fn decide(&self, id: &str, action: &str, key: Option<&SigningKey>) -> PostOutcome {
        let gate = self.gate(id).await;
        let mut resolution = Resolution {
            action: action.into(),
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
        let posted = self.decide(id, "approve", Some(&self.key)).await;
        assert_eq!(posted, PostOutcome::Written);
    }
}

#[tokio::test]
async fn same_call_waits_at_the_same_gate_and_consumes_its_decision() {
    let env = env();
    let once = call("x", json!({ "a": 1, "b": 2 }));
    let reordered = call("x", json!({ "b": 2, "a": 1 }));
    let gate = env.pending_gate(&once).await;
    assert_eq!(env.pending_gate(&reordered).await, gate);
    assert_eq!(env.pending_count().await, 1);
    env.approve(&gate).await;
    assert_eq!(
        env.decide(&gate, "approve", None).await,
        PostOutcome::Duplicate
    );
    let other = env.decide(&gate, "deny", None).await;
    assert!(matches!(other, PostOutcome::Conflict(_)), "{other:?}");
    assert!(is_approved(&env.decision(&reordered).await));
    let second = env.pending_gate(&once).await;
    assert_ne!(second, gate);
    env.decide(&second, "deny", Some(&env.key)).await;
    assert_eq!(env.decision(&once).await, CallDecision::Denied);
    env.pending_gate(&once).await;
}

#[tokio::test]
async fn decision_without_a_trusted_receipt_requires_a_new_gate() {
    let env = env();
    let call = call("x", json!({}));
    let foreign = SigningKey::generate().unwrap();
    for key in [None, Some(&foreign)] {
        let gate = env.pending_gate(&call).await;
        env.decide(&gate, "approve", key).await;
        let again = env.pending_gate(&call).await;
        assert_ne!(again, gate);
    }
    // A key that only the project trusts is not sufficient.
    let keys = UserKeys::new(&env.dir.path().join("project"));
    let file = rye_items::trust::TrustFile {
        key: foreign.public().clone(),
        owner: None,
        attestation: None,
        decisions_only: false,
    };
    keys.trust(&file, &env.key).unwrap();
    let gate = env.pending_gate(&call).await;
    env.decide(&gate, "approve", Some(&foreign)).await;
    assert_ne!(env.pending_gate(&call).await, gate);
}

#[tokio::test]
async fn receipt_of_another_question_is_invalid() {
    let env = env();
    let (approved_call, other_call) = (call("x", json!({ "n": 1 })), call("x", json!({ "n": 2 })));
    let approved = env.pending_gate(&approved_call).await;
    env.approve(&approved).await;
    let GateStatus::Resolved { resolution } = env.gate(&approved).await.status else {
        panic!("the gate is resolved");
    };
    // A receipt is copied to another call.
    let gate = env.gate(&env.pending_gate(&other_call).await).await;
    let post = InboxMessage::Resolve {
        gate: gate.id.clone(),
        resolution: resolution.clone(),
    };
    let session = gate.origin.session.clone();
    env.gates.store.post(&session, post).await.unwrap();
    assert_ne!(env.pending_gate(&other_call).await, gate.id.to_string());
    // The stored question does not describe the call.
    let gate = env.gate(&env.pending_gate(&other_call).await).await;
    let forged = Gate {
        title: "Print a greeting?".to_owned(),
        body: "Print a greeting?".to_owned(),
        ..gate.clone()
    };
    let lease = env.gates.store.claim(&gate.origin.session, Claim::IfFree);
    let lease = lease.await.unwrap();
    let mut batch = rye_engine::protocol::Batch::default();
    batch.push(rye_engine::protocol::Op::PutGate(forged.into()));
    env.gates.store.commit(&lease, batch).await.unwrap();
    env.gates.store.release(&lease).await.unwrap();
    env.approve(gate.id.as_str()).await;
    assert_ne!(env.pending_gate(&other_call).await, gate.id.to_string());
    assert!(is_approved(&env.decision(&approved_call).await));
}

#[tokio::test]
async fn one_of_several_concurrent_calls_consumes_the_approval() {
    let env = env();
    let other = open(env.dir.path(), Some(clone_key(&env.key)));
    let call = call("x", json!({}));
    let gate = env.pending_gate(&call).await;
    env.approve(&gate).await;
    let mut approved = 0;
    for _ in 0..8 {
        let project = Path::new("/p");
        let (one, two) = tokio::join!(
            env.gates.decision(project, &call),
            other.decision(project, &call)
        );
        let all = [one.unwrap(), two.unwrap()];
        approved += all.iter().filter(|it| is_approved(it)).count();
    }
    assert_eq!(approved, 1);
}

#[tokio::test]
async fn gate_lists_changes_since_a_similar_approved_call() {
    let env = env();
    let first = call("x", json!({ "a": 1, "extra": true }));
    env.approve(&env.pending_gate(&first).await).await;
    let other = env.pending_gate(&call("x", json!({ "a": 2 }))).await;
    let expected = "Changed since the approval:\n\
        - parameter `a` changed from 1 to 2\n\
        - parameter `extra` changed from true to unset\n\nRun my/tool?";
    assert_eq!(env.gate(&other).await.body, expected);
    // The approved call can run until its bytes change.
    let bytes = call("y", json!({ "a": 1, "extra": true }));
    let bytes = env.pending_gate(&bytes).await;
    let expected = "Changed since the approval:\n\
        - my/tool changed from x to y\n\nRun my/tool?";
    assert_eq!(env.gate(&bytes).await.body, expected);
    env.pending_gate(&first).await;
}

#[tokio::test]
async fn calls_are_scoped_to_a_project_and_their_number_is_limited() {
    let env = env();
    let one = call("x", json!({}));
    env.approve(&env.pending_gate(&one).await).await;
    let elsewhere = env.gates.decision(Path::new("/q"), &one).await.unwrap();
    assert!(matches!(elsewhere, CallDecision::Pending { .. }));
    for number in 1..MAX_PENDING {
        env.pending_gate(&call("x", json!({ "n": number }))).await;
    }
    let more = call("x", json!({ "n": -1 }));
    let error = env.gates.decision(Path::new("/p"), &more).await;
    assert!(matches!(error, Err(CallGateError::TooMany)), "{error:?}");
    assert_eq!(env.pending_count().await, MAX_PENDING);
}

#[tokio::test]
async fn decision_in_a_client_form_is_recorded_and_not_reused() {
    let env = env();
    let call = call("x", json!({}));
    let project = Path::new("/p");
    let without_key = open(env.dir.path(), None);
    for (is_approved, gates) in [(true, &env.gates), (false, &without_key)] {
        let recorded = gates.record(project, &call, is_approved, "ada");
        recorded.await.unwrap();
    }
    let gates = env.gates.store.gates_matching("gate:form-").await.unwrap();
    let resolutions: Vec<_> = gates
        .iter()
        .map(|gate| match &gate.status {
            GateStatus::Resolved { resolution } => (
                resolution.action.as_str(),
                resolution.source.as_str(),
                check_receipt(gate, resolution, |name| env.gates.trust.user_key(name)),
            ),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        ("approve", ELICITATION, Ok(true)),
        ("deny", ELICITATION, Ok(false)),
    ];
    assert_eq!(resolutions, expected);
    env.pending_gate(&call).await;
}

#[tokio::test]
async fn approved_call_is_recorded_with_its_result() {
    let env = env();
    let project = Path::new("/p");
    let call = call("x", json!({ "a": 1 }));
    let gate = env.pending_gate(&call).await;
    env.approve(&gate).await;
    let by_gate = match env.decision(&call).await {
        CallDecision::Approved { record } => record,
        other => panic!("{other:?}"),
    };
    // While the call runs, its decision is used up.
    assert_ne!(env.pending_gate(&call).await, gate);
    let by_form = env.gates.record(project, &call, true, "ada").await.unwrap();
    for (record, end, status) in [
        (by_gate, CallEnd::Completed, RunStatus::Completed),
        (by_form, CallEnd::Failed, RunStatus::Failed),
    ] {
        let id: SessionId = record.parse().unwrap();
        let snapshot = env.gates.store.snapshot(&id).await.unwrap().unwrap();
        let running = snapshot.session.run.unwrap();
        assert_eq!((running.status, running.steps), (RunStatus::Running, 1));
        let result = json!({ "data": "done", "metadata": { "chain_hash": "abc" } });
        let recorded = env.gates.record_result(&record, end, &result);
        recorded.await.unwrap();
        let snapshot = env.gates.store.snapshot(&id).await.unwrap().unwrap();
        let leaf = snapshot.threads[0].leaf.clone().unwrap();
        assert_eq!(snapshot.session.run.unwrap().status, status);
        let entries = env.gates.store.path(&id, &leaf).await.unwrap();
        let EntryKind::Message(message) = &entries.last().unwrap().kind else {
            panic!("{entries:?}");
        };
        let Part::ToolResult { text, data, .. } = &message.parts[0] else {
            panic!("{message:?}");
        };
        assert_eq!(text, "done");
        assert_eq!(data[CHAIN_HASH], "abc");
        assert_eq!(data[ARGS_HASH], json!(args_hash(&call.parameters)));
    }
}

#[tokio::test]
async fn calls_and_decisions_expire_after_a_day() {
    let env = env();
    let project = Path::new("/p");
    let old = |call: &GatedCall| {
        let hash = call_hash(project, call);
        let session = format!("{CALL_PREFIX}{}-1", short_hash(&hash))
            .parse()
            .unwrap();
        let gate = gate(&session, project, call, &hash, call.question.clone());
        Gate {
            created_at: Millis(1),
            expires_at: Some(expiry(Millis(1))),
            ..gate
        }
    };
    let (decided, pending) = (call("x", json!({ "n": 1 })), call("x", json!({ "n": 2 })));
    let approved = old(&decided);
    let mut resolution = Resolution {
        action: ActionId::Approve,
        value: Value::Null,
        by: "ada".to_owned(),
        at: Millis(2),
        source: "cli".to_owned(),
        receipt: None,
    };
    resolution.receipt = Some(Box::new(receipt(&approved, &resolution, &env.key)));
    let written = env
        .gates
        .write(&approved, project, &decided, Some(resolution));
    written.await.unwrap().release().await.unwrap();
    let expired = old(&pending);
    let written = env.gates.write(&expired, project, &pending, None);
    written.await.unwrap().release().await.unwrap();
    assert_ne!(env.pending_gate(&decided).await, approved.id.to_string());
    let found = env.gates.store.gate(&expired.id).await.unwrap();
    assert_eq!(found, None);
}
