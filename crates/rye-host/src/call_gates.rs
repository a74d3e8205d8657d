//! Gates of MCP clients' calls, in the session store.
//!
//! A call that needs a person's approval is a session of purpose `run` with one gate. The person
//! decides with `rye gate`, which signs the decision; the client then makes the same call again,
//! and it runs if the decision has a receipt of a key that the user trusts, for exactly this
//! call. A decision is used once: the session is terminated before the call runs.

mod changes;
mod records;

use std::path::Path;
use std::time::Duration;

use lillux::keys::SigningKey;
use lillux::{Hash, canonical, time};
use rye_engine::audit::{ARGS_HASH, CHAIN_HASH, args_hash, check_receipt, receipt};
use rye_engine::meta_tools::APPROVE;
use rye_engine::protocol::{
    Action, Gate, GateId, GateKind, GateStatus, Millis, Resolution, SessionId, SessionStatus,
};
use rye_engine::store::{Claim, SessionStore as _, StoreError};
use rye_mcp::{CallDecision, GatedCall};
use rye_store::SqliteStore;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::Trusted;

/// How long a call waits for its decision, and a decision for its call.
const HOLDS: Duration = Duration::from_hours(24);

/// How many calls may wait: a client that asks again and again must not fill the disk.
const MOST: usize = 256;

/// How the ids of sessions begin: calls that wait for a terminal, and calls that the person at
/// the client decided about.
const CALL: &str = "call-";
const FORM: &str = "form-";

/// The action that refuses a call.
const DENY: &str = "deny";

/// Where a gate's context has the project, and the hash of the call.
const PROJECT: &str = "project";
const CALL_HASH: &str = "call_hash";

/// Who decided through a client's form.
const ELICITATION: &str = "mcp:elicitation";

/// Why a call's decision is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallGateError {
    /// Too many calls wait.
    #[error("{MOST} calls wait for a person's decision already")]
    TooMany,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The calls of MCP clients that wait for a person, or were decided about.
#[derive(Debug)]
pub struct CallGates {
    store: SqliteStore,
    trust: Trusted,
    /// Seals the records, and signs what the person at a client decided.
    key: Option<SigningKey>,
    /// One call of this process is looked at after the other.
    alone: Mutex<()>,
}

impl CallGates {
    /// Those in a store. A decision counts with a receipt of a key that this trusts.
    pub fn new(store: SqliteStore, trust: Trusted, key: Option<SigningKey>) -> Self {
        Self {
            store,
            trust,
            key,
            alone: Mutex::default(),
        }
    }

    /// What a person has decided about a call; a call that nobody was asked about is recorded.
    /// A decision is given once.
    pub async fn decided(
        &self,
        project: &Path,
        call: &GatedCall,
    ) -> Result<CallDecision, CallGateError> {
        let _alone = self.alone.lock().await;
        let (hash, now) = (call_hash(project, call), now());
        let (mut waiting, mut number) = (0, 0);
        let (mut own, mut alike) = (None, Vec::new());
        for gate in self.gates().await? {
            let is_own = text(&gate, CALL_HASH) == Some(&hash.to_hex());
            if is_own {
                number = number.max(number_of(&gate));
            }
            if gate.expires_at.is_none_or(|until| until <= now) {
                if gate.status.is_pending() {
                    self.forget(&gate).await?;
                }
                continue;
            }
            waiting += usize::from(gate.status.is_pending());
            if is_own {
                own = Some(gate);
            } else if gate.origin.tool == call.tool && is_in(&gate, project) {
                alike.push(gate);
            }
        }
        if let Some(gate) = own {
            let is_genuine = is_genuine(&gate, project, call, &hash);
            match self.settle(&gate, is_genuine).await? {
                Some(decided) => return Ok(decided),
                None => waiting -= usize::from(gate.status.is_pending()),
            }
        }
        if waiting >= MOST {
            return Err(CallGateError::TooMany);
        }
        let body = self.body(alike, call).await?;
        let session = session_id(format!("{CALL}{}-{}", short(&hash), number + 1))?;
        let gate = gate(&session, project, call, &hash, body);
        match self.write(&gate, project).await {
            // Another server has just asked the same.
            Ok(()) | Err(StoreError::InUse { .. } | StoreError::Conflict { .. }) => {
                Ok(waits(&gate))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn write(&self, gate: &Gate, project: &Path) -> Result<(), StoreError> {
        let lease = self
            .store
            .claim(&gate.origin.session, Claim::IfFree)
            .await?;
        let written = self
            .store
            .commit(&lease, records::asked(gate, project, self.key.as_ref()));
        let written = written.await;
        self.store.release(&lease).await?;
        written.map(drop)
    }

    /// Records what the person at a client decided, in its own form, about a call that is
    /// carried out now or not at all.
    pub async fn record(
        &self,
        project: &Path,
        call: &GatedCall,
        is_approved: bool,
        by: &str,
    ) -> Result<(), CallGateError> {
        let session = session_id(format!("{FORM}{}", SessionId::new()))?;
        let hash = call_hash(project, call);
        let mut gate = gate(&session, project, call, &hash, call.question.clone());
        let mut resolution = Resolution {
            action: if is_approved { APPROVE } else { DENY }.to_owned(),
            value: Value::Null,
            by: by.to_owned(),
            at: gate.created_at,
            source: ELICITATION.to_owned(),
            receipt: None,
        };
        let key = self.key.as_ref();
        resolution.receipt = key.map(|key| Box::new(receipt(&gate, &resolution, key)));
        gate.status = GateStatus::Resolved { resolution };
        Ok(self.write(&gate, project).await?)
    }

    /// The gates of all calls, the oldest first.
    async fn gates(&self) -> Result<Vec<Gate>, StoreError> {
        let prefix = format!("gate:{CALL}");
        let mut gates = self.store.gates_matching(&prefix).await?;
        gates.retain(|gate| gate.id.as_str().starts_with(&prefix));
        Ok(gates)
    }

    /// What the gate of a call says. None if the call has to be asked about again: what is
    /// stored was used, or is no decision of somebody whom the user trusts about this call.
    async fn settle(
        &self,
        gate: &Gate,
        is_genuine: bool,
    ) -> Result<Option<CallDecision>, StoreError> {
        let resolution = match &gate.status {
            GateStatus::Pending if is_genuine => return Ok(Some(waits(gate))),
            GateStatus::Pending => {
                self.forget(gate).await?;
                return Ok(None);
            }
            GateStatus::Resolved { resolution } => resolution,
            GateStatus::Withdrawn { .. } | GateStatus::Expired { .. } => return Ok(None),
        };
        let checked = check_receipt(gate, resolution, |name| self.trust.user_key(name));
        let counts = is_genuine && checked == Ok(true);
        // Used up before anything comes of it: after a crash, the call is asked about again.
        match self.terminate(gate).await {
            Ok(true) if counts && resolution.action == APPROVE => Ok(Some(CallDecision::Approved)),
            Ok(true) if counts => Ok(Some(CallDecision::Denied)),
            Ok(_) => Ok(None),
            // Another server is about to use it.
            Err(StoreError::InUse { .. }) => Ok(Some(waits(gate))),
            Err(error) => Err(error),
        }
    }

    /// Terminates the session of a decided call; false if it was terminated before.
    async fn terminate(&self, gate: &Gate) -> Result<bool, StoreError> {
        let session = &gate.origin.session;
        let lease = self.store.claim(session, Claim::IfFree).await?;
        let ended = async {
            let Some(record) = self.store.snapshot(session).await? else {
                return Ok(false);
            };
            if record.session.status == SessionStatus::Terminated {
                return Ok(false);
            }
            let batch = records::used(gate, record, self.key.as_ref());
            self.store.commit(&lease, batch).await?;
            Ok(true)
        };
        let ended = ended.await;
        self.store.release(&lease).await?;
        ended
    }

    /// Removes a call that nobody decided about.
    async fn forget(&self, gate: &Gate) -> Result<(), StoreError> {
        match self.store.claim(&gate.origin.session, Claim::IfFree).await {
            Ok(lease) => self.store.remove(&[lease]).await,
            // Another server does.
            Err(StoreError::InUse { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The text of a gate: first of all what has changed since a similar call was approved.
    async fn body(&self, alike: Vec<Gate>, call: &GatedCall) -> Result<String, StoreError> {
        let mut body = String::new();
        for before in alike {
            let is_approved = match &before.status {
                GateStatus::Pending => false,
                GateStatus::Resolved { resolution } => {
                    let record = self.store.snapshot(&before.origin.session).await?;
                    let is_open = |it: &SessionStatus| *it != SessionStatus::Terminated;
                    if !record.is_some_and(|record| is_open(&record.session.status)) {
                        continue;
                    }
                    resolution.action == APPROVE
                }
                GateStatus::Withdrawn { .. } | GateStatus::Expired { .. } => continue,
            };
            if is_approved {
                let changes = changes::between(&before, call).join("\n");
                body = format!("It was approved, and has changed since:\n{changes}\n\n");
            }
            // Those bytes are gone; a call with other parameters may still be made.
            if text(&before, CHAIN_HASH) != Some(&call.chain.to_hex()) {
                if before.status.is_pending() {
                    self.forget(&before).await?;
                } else {
                    self.terminate(&before).await?;
                }
            }
        }
        Ok(body + &call.question)
    }
}

fn waits(gate: &Gate) -> CallDecision {
    CallDecision::Pending {
        gate: gate.id.to_string(),
        short: gate.id.short(),
    }
}

fn now() -> Millis {
    Millis(u64::try_from(time::now().epoch_ms).unwrap_or_default())
}

fn after(start: Millis) -> Millis {
    let holds = u64::try_from(HOLDS.as_millis()).unwrap_or(u64::MAX);
    Millis(start.0.saturating_add(holds))
}

fn session_id(text: String) -> Result<SessionId, StoreError> {
    SessionId::try_from(text).map_err(|error| StoreError::SessionFailed(error.to_string()))
}

/// As much of a hash as an id has.
fn short(hash: &Hash) -> String {
    hash.to_hex()[..16].to_owned()
}

/// Which question about the same call a gate is: `gate:call-HASH-NUMBER`.
fn number_of(gate: &Gate) -> u64 {
    let number = gate.id.as_str().rsplit('-').next();
    number.and_then(|it| it.parse().ok()).unwrap_or_default()
}

fn text<'a>(gate: &'a Gate, key: &str) -> Option<&'a str> {
    gate.context.get(key).and_then(Value::as_str)
}

fn is_in(gate: &Gate, project: &Path) -> bool {
    gate.context.get(PROJECT) == Some(&json!(project.to_string_lossy()))
}

/// The gate of a call, as it is asked now.
fn gate(session: &SessionId, project: &Path, call: &GatedCall, hash: &Hash, body: String) -> Gate {
    let created_at = now();
    Gate {
        id: GateId::from(format!("gate:{session}")),
        kind: GateKind::Approval,
        title: call.title.clone(),
        body,
        actions: actions(),
        status: GateStatus::Pending,
        origin: records::origin(session, call),
        expires_at: Some(after(created_at)),
        context: context(project, call, hash),
        created_at,
    }
}

fn actions() -> Vec<Action> {
    let action = |id: &str, label: &str| Action {
        id: id.to_owned(),
        label: label.to_owned(),
    };
    vec![action(APPROVE, "Approve"), action(DENY, "Deny")]
}

fn context(project: &Path, call: &GatedCall, hash: &Hash) -> Map<String, Value> {
    Map::from_iter([
        (PROJECT.to_owned(), json!(project.to_string_lossy())),
        (CALL_HASH.to_owned(), json!(hash.to_hex())),
        (CHAIN_HASH.to_owned(), json!(call.chain.to_hex())),
        (ARGS_HASH.to_owned(), json!(args_hash(&call.parameters))),
        ("components".to_owned(), json!(call.components)),
        ("params".to_owned(), call.parameters.clone()),
    ])
}

/// Whether a stored gate asks what would be asked about this call, and holds no longer than it
/// would. Its receipt covers all of it.
fn is_genuine(gate: &Gate, project: &Path, call: &GatedCall, hash: &Hash) -> bool {
    let mut stored = context(project, call, hash);
    // The order of their names in the parameters is no difference; their hash is compared.
    stored.remove("params");
    let mut found = gate.context.clone();
    found.remove("params");
    let session = &gate.origin.session;
    gate.id.as_str() == format!("gate:{session}")
        && gate.kind == GateKind::Approval
        && gate.title == call.title
        && gate.body.ends_with(&call.question)
        && gate.actions == actions()
        && gate.origin == records::origin(session, call)
        && gate.created_at <= now()
        && gate.expires_at == Some(after(gate.created_at))
        && found == stored
}

/// A call by its content: where, what, with what, and the bytes that would run.
fn call_hash(project: &Path, call: &GatedCall) -> Hash {
    let content = json!([project, call.tool, call.parameters, call.chain]);
    // The order in which a client writes its parameters does not matter. What has no canonical
    // form, such as a number that is too large, counts as it is written.
    let content = canonical::to_vec(&content).unwrap_or_else(|_| content.to_string().into_bytes());
    Hash::digest(content)
}

#[cfg(test)]
mod tests;
