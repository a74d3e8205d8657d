//! Gates of MCP clients' calls, in the session store.
//!
//! A call that needs a person's approval is a session of purpose `run` with one gate. The person
//! decides with `rye gate`, which signs the decision; the client then makes the same call again,
//! and it runs if the decision has a receipt of a key that the user trusts, for exactly this
//! call. A decision is used once: the session records the start of the call before it runs, and
//! its result afterwards.

mod changes;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lillux::keys::SigningKey;
use lillux::{Hash, canonical};
use rye_engine::audit::{ARGS_HASH, CHAIN_HASH, args_hash, check_receipt, receipt};
use rye_engine::protocol::{
    Action, ActionId, CallId, EntryKind, Gate, GateId, GateKind, GateOrigin, GateStatus, Message,
    Millis, Part, PromptId, Purpose, Resolution, Role, Run, RunStatus, Session, SessionId,
    SessionStatus, ThreadId,
};
use rye_engine::record::{NewRecord, Recorder, now};
use rye_engine::store::{Claim, SessionStore, StoreError};
use rye_mcp::{CallDecision, CallEnd, GatedCall};
use rye_store::SqliteStore;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use crate::TrustedKeys;
use crate::runs::CallRun;

/// How long a pending call and a decision are valid.
const VALIDITY: Duration = Duration::from_hours(24);

/// Maximum number of pending calls, so that a client cannot fill the disk.
const MAX_PENDING: usize = 256;

/// Prefixes of session ids: calls that are decided with `rye gate`, and calls that are decided in a
/// form of the client.
const CALL_PREFIX: &str = "call-";
const FORM_PREFIX: &str = "form-";

/// Id and key of a call's thread.
const THREAD: &str = "mcp";

/// Keys of a gate's context.
const PROJECT: &str = "project";
const CALL_HASH: &str = "call_hash";

/// Source of decisions in a form of the client.
const ELICITATION: &str = "mcp:elicitation";

/// Why the decision of a call cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallGateError {
    /// There are too many pending calls.
    #[error("too many calls wait for a decision (limit {MAX_PENDING}); answer some first")]
    TooMany,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Gates of the calls of MCP clients.
#[derive(Debug)]
pub struct CallGates {
    store: Arc<SqliteStore>,
    trust: TrustedKeys,
    /// Seals the records, and signs decisions in forms of clients.
    key: Option<Arc<SigningKey>>,
    /// Serialises the calls of this process.
    lock: Mutex<()>,
    /// Approved calls that run in this process.
    running: Mutex<HashMap<String, RunningCall>>,
}

/// An approved call in progress.
#[derive(Debug)]
struct RunningCall {
    run: CallRun,
    args_hash: String,
}

impl CallGates {
    /// The gates in a store. A decision requires a receipt of a key that `trust` accepts.
    pub fn new(store: SqliteStore, trust: TrustedKeys, key: Option<Arc<SigningKey>>) -> Self {
        Self {
            store: Arc::new(store),
            trust,
            key,
            lock: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// Returns the decision about a call, and opens a gate for a new call. A decision is returned
    /// only once.
    pub async fn decision(
        &self,
        project: &Path,
        call: &GatedCall,
    ) -> Result<CallDecision, CallGateError> {
        let _guard = self.lock.lock().await;
        let (hash, now) = (call_hash(project, call), now());
        let (mut waiting, mut number) = (0, 0);
        let (mut own, mut similar) = (None, Vec::new());
        for gate in self.gates().await? {
            let is_own = context_text(&gate, CALL_HASH) == Some(&hash.to_hex());
            if is_own {
                number = number.max(round(&gate));
            }
            if gate.expires_at.is_none_or(|until| until <= now) {
                if gate.status.is_pending() {
                    self.remove(&gate).await?;
                }
                continue;
            }
            waiting += usize::from(gate.status.is_pending());
            if is_own {
                own = Some(gate);
            } else if gate.origin.tool == call.tool && is_in_project(&gate, project) {
                similar.push(gate);
            }
        }
        if let Some(gate) = own {
            let is_genuine = is_genuine(&gate, project, call, &hash);
            match self.consume(&gate, call, is_genuine).await? {
                Some(decided) => return Ok(decided),
                None => waiting -= usize::from(gate.status.is_pending()),
            }
        }
        if waiting >= MAX_PENDING {
            return Err(CallGateError::TooMany);
        }
        let body = self.body(similar, call).await?;
        let session = session_id(format!("{CALL_PREFIX}{}-{}", short_hash(&hash), number + 1))?;
        let gate = gate(&session, project, call, &hash, body);
        match self.write(&gate, project, call, None).await {
            Ok(recorder) => {
                recorder.release().await?;
                Ok(pending(&gate))
            }
            // Another server has just opened the same gate.
            Err(StoreError::InUse { .. } | StoreError::Conflict { .. }) => Ok(pending(&gate)),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the session of a call: the call, its gate, and the decision if there is one. Returns
    /// the claimed session.
    async fn write(
        &self,
        gate: &Gate,
        project: &Path,
        call: &GatedCall,
        decision: Option<Resolution>,
    ) -> Result<Recorder, StoreError> {
        let recorder = Recorder::create(
            self.session_store(),
            NewRecord {
                id: gate.origin.session.clone(),
                purpose: Purpose::Run,
                run: Run::new(&call.tool),
                project: project.to_string_lossy().into_owned(),
                parent: None,
                depth: 0,
                thread: THREAD,
            },
            self.key.clone(),
        );
        let mut recorder = recorder.await?;
        let request = Part::ToolCall {
            call_id: gate.origin.call.clone(),
            tool: call.tool.clone(),
            args: call.parameters.clone(),
        };
        recorder.append(EntryKind::Message(Message::new(Role::User, vec![request])));
        recorder.open_gate(gate);
        if let Some(resolution) = decision {
            let is_approved = resolution.action == ActionId::Approve;
            recorder.close_gate(gate.clone(), GateStatus::Resolved { resolution });
            if !is_approved {
                recorder.set_run(|run| run.status = RunStatus::Cancelled);
            }
        }
        if let Err(error) = recorder.commit().await {
            recorder.release().await?;
            return Err(error);
        }
        Ok(recorder)
    }

    fn session_store(&self) -> Arc<dyn SessionStore> {
        Arc::clone(&self.store) as Arc<dyn SessionStore>
    }

    /// Records a decision in a form of the client, and returns the id of the record. The decision
    /// applies to this call only.
    pub async fn record(
        &self,
        project: &Path,
        call: &GatedCall,
        is_approved: bool,
        by: &str,
    ) -> Result<String, CallGateError> {
        let session = session_id(format!("{FORM_PREFIX}{}", SessionId::new()))?;
        let hash = call_hash(project, call);
        let gate = gate(&session, project, call, &hash, call.question.clone());
        let mut resolution = Resolution {
            action: if is_approved {
                ActionId::Approve
            } else {
                ActionId::Deny
            },
            value: Value::Null,
            by: by.to_owned(),
            at: gate.created_at,
            source: ELICITATION.to_owned(),
            receipt: None,
        };
        let key = self.key.as_ref();
        resolution.receipt = key.map(|key| Box::new(receipt(&gate, &resolution, key)));
        let recorder = self.write(&gate, project, call, Some(resolution)).await?;
        if is_approved {
            return Ok(self.start(recorder, &gate, call).await?);
        }
        recorder.release().await?;
        Ok(session.to_string())
    }

    /// Records the start of an approved call, and returns the id of its record.
    async fn start(
        &self,
        recorder: Recorder,
        gate: &Gate,
        call: &GatedCall,
    ) -> Result<String, StoreError> {
        let mut run = CallRun::new(recorder, gate.origin.call.clone());
        run.start().await?;
        let args_hash = args_hash(&call.parameters);
        let record = gate.origin.session.to_string();
        let running = RunningCall { run, args_hash };
        self.running.lock().await.insert(record.clone(), running);
        Ok(record)
    }

    /// Records the result of an approved call, with the hashes of what ran.
    pub async fn record_result(
        &self,
        record: &str,
        end: CallEnd,
        result: &Value,
    ) -> Result<(), CallGateError> {
        let running = self.running.lock().await.remove(record);
        // Without an entry, a new process has taken over; the record says that the call was lost.
        let Some(RunningCall { run, args_hash }) = running else {
            return Ok(());
        };
        let mut result = result.clone();
        if let Some(chain) = result["metadata"].get(CHAIN_HASH).cloned() {
            result[CHAIN_HASH] = chain;
            result[ARGS_HASH] = json!(args_hash);
        }
        let status = match end {
            CallEnd::Completed => RunStatus::Completed,
            CallEnd::Failed => RunStatus::Failed,
            CallEnd::Cancelled => RunStatus::Cancelled,
        };
        Ok(run.end(status, &result).await?)
    }

    /// The gates of all calls, oldest first.
    async fn gates(&self) -> Result<Vec<Gate>, StoreError> {
        let prefix = format!("gate:{CALL_PREFIX}");
        let mut gates = self.store.gates_matching(&prefix).await?;
        gates.retain(|gate| gate.id.as_str().starts_with(&prefix));
        Ok(gates)
    }

    /// Consumes the decision of a gate. Returns none if a new gate is necessary, because the
    /// decision was used already or has no valid receipt for this call.
    async fn consume(
        &self,
        gate: &Gate,
        call: &GatedCall,
        is_genuine: bool,
    ) -> Result<Option<CallDecision>, StoreError> {
        let resolution = match &gate.status {
            GateStatus::Pending if is_genuine => return Ok(Some(pending(gate))),
            GateStatus::Pending => {
                self.remove(gate).await?;
                return Ok(None);
            }
            GateStatus::Resolved { resolution } => resolution,
            GateStatus::Withdrawn { .. } | GateStatus::Expired { .. } => return Ok(None),
        };
        let receipt = check_receipt(gate, resolution, |name| self.trust.user_key(name));
        let is_valid = is_genuine && receipt == Ok(true);
        let recorder = match self.open_unused(gate).await {
            Ok(Some(recorder)) => recorder,
            Ok(None) => return Ok(None),
            // Another server is about to consume it.
            Err(StoreError::InUse { .. }) => return Ok(Some(pending(gate))),
            Err(error) => return Err(error),
        };
        if is_valid && resolution.action == ActionId::Approve {
            // Consumed before the call runs, so that a crash requires a new decision.
            let record = self.start(recorder, gate, call).await?;
            return Ok(Some(CallDecision::Approved { record }));
        }
        cancel(recorder).await?;
        Ok(is_valid.then_some(CallDecision::Denied))
    }

    /// Claims the session of a call; `None` if its decision was used before.
    async fn open_unused(&self, gate: &Gate) -> Result<Option<Recorder>, StoreError> {
        // While the call runs, its session cannot be claimed.
        let snapshot = self.store.snapshot(&gate.origin.session).await?;
        if snapshot.is_none_or(|snapshot| is_used(&snapshot.session)) {
            return Ok(None);
        }
        let recorder = Recorder::open(self.session_store(), &gate.origin.session, self.key.clone());
        let Some(recorder) = recorder.await? else {
            return Ok(None);
        };
        if is_used(recorder.session()) {
            recorder.release().await?;
            return Ok(None);
        }
        Ok(Some(recorder))
    }

    /// Removes a pending call.
    async fn remove(&self, gate: &Gate) -> Result<(), StoreError> {
        match self.store.claim(&gate.origin.session, Claim::IfFree).await {
            Ok(lease) => self.store.remove(&[lease]).await,
            // Another server removes it.
            Err(StoreError::InUse { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The text of a gate: changes since the approval of a similar call, then the question. Closes
    /// gates of similar calls with other bytes.
    async fn body(&self, similar: Vec<Gate>, call: &GatedCall) -> Result<String, StoreError> {
        let mut body = String::new();
        for before in similar {
            let is_approved = match &before.status {
                GateStatus::Pending => false,
                GateStatus::Resolved { resolution } => {
                    let snapshot = self.store.snapshot(&before.origin.session).await?;
                    if snapshot.is_none_or(|snapshot| is_used(&snapshot.session)) {
                        continue;
                    }
                    resolution.action == ActionId::Approve
                }
                GateStatus::Withdrawn { .. } | GateStatus::Expired { .. } => continue,
            };
            if is_approved {
                let changes = changes::between(&before, call).join("\n");
                body = format!("Changed since the approval:\n{changes}\n\n");
            }
            // The bytes have changed; with the same bytes, only the parameters differ.
            if context_text(&before, CHAIN_HASH) != Some(&call.chain.to_hex()) {
                if before.status.is_pending() {
                    self.remove(&before).await?;
                } else if let Some(recorder) = self.open_unused(&before).await? {
                    cancel(recorder).await?;
                }
            }
        }
        Ok(body + &call.question)
    }
}

fn pending(gate: &Gate) -> CallDecision {
    CallDecision::Pending {
        gate: gate.id.to_string(),
        short: gate.id.short(),
    }
}

/// Whether the call has started or was cancelled, so that its decision cannot be used.
fn is_used(session: &Session) -> bool {
    let has_started = session.run.as_ref().is_some_and(|run| run.steps > 0);
    has_started || session.status == SessionStatus::Terminated
}

/// Records that a call does not run.
async fn cancel(mut recorder: Recorder) -> Result<(), StoreError> {
    recorder.set_run(|run| run.status = RunStatus::Cancelled);
    let written = recorder.commit().await;
    recorder.release().await?;
    written
}

fn expiry(start: Millis) -> Millis {
    let validity = u64::try_from(VALIDITY.as_millis()).unwrap_or(u64::MAX);
    Millis(start.0.saturating_add(validity))
}

fn session_id(text: String) -> Result<SessionId, StoreError> {
    SessionId::try_from(text).map_err(|error| StoreError::Unreadable(error.to_string()))
}

/// The start of a hash, for ids.
fn short_hash(hash: &Hash) -> String {
    hash.to_hex()[..16].to_owned()
}

/// How often a gate was opened for the same call: the number in `gate:call-HASH-NUMBER`.
fn round(gate: &Gate) -> u64 {
    let number = gate.id.as_str().rsplit('-').next();
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

fn context_text<'a>(gate: &'a Gate, key: &str) -> Option<&'a str> {
    gate.context.get(key).and_then(Value::as_str)
}

fn is_in_project(gate: &Gate, project: &Path) -> bool {
    gate.context.get(PROJECT) == Some(&json!(project.to_string_lossy()))
}

/// The origin of a gate: its session has one thread, one prompt and one call.
fn origin(session: &SessionId, call: &GatedCall) -> GateOrigin {
    // A session id is also valid as the id of its call.
    let id = session.as_str().to_owned();
    GateOrigin {
        session: session.clone(),
        thread: ThreadId::try_from(THREAD.to_owned()).unwrap_or_else(|_| ThreadId::new()),
        call: CallId::try_from(id).unwrap_or_else(|_| CallId::new()),
        prompt: PromptId::from(session.clone()),
        tool: call.tool.clone(),
        resume_key: String::from("call"),
    }
}

/// A new gate for a call.
fn gate(session: &SessionId, project: &Path, call: &GatedCall, hash: &Hash, body: String) -> Gate {
    let created_at = now();
    Gate {
        id: GateId::from(format!("gate:{session}")),
        kind: GateKind::Approval,
        title: call.title.clone(),
        body,
        actions: actions(),
        status: GateStatus::Pending,
        origin: origin(session, call),
        expires_at: Some(expiry(created_at)),
        context: context(project, call, hash),
        created_at,
    }
}

fn actions() -> Vec<Action> {
    vec![
        Action::new(ActionId::Approve, "Approve"),
        Action::new(ActionId::Deny, "Deny"),
    ]
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

/// Whether a stored gate is identical to a new gate for this call. The receipt covers all fields.
fn is_genuine(gate: &Gate, project: &Path, call: &GatedCall, hash: &Hash) -> bool {
    let mut expected = context(project, call, hash);
    // The order of parameters does not matter; their hash is compared.
    expected.remove("params");
    let mut found = gate.context.clone();
    found.remove("params");
    let session = &gate.origin.session;
    gate.id.as_str() == format!("gate:{session}")
        && gate.kind == GateKind::Approval
        && gate.title == call.title
        && gate.body.ends_with(&call.question)
        && gate.actions == actions()
        && gate.origin == origin(session, call)
        && gate.created_at <= now()
        && gate.expires_at == Some(expiry(gate.created_at))
        && found == expected
}

/// Identifies a call by project, tool, parameters and chain.
fn call_hash(project: &Path, call: &GatedCall) -> Hash {
    let content = json!([project, call.tool, call.parameters, call.chain]);
    // Canonical, so that the order of parameters does not matter. Values without a canonical form,
    // such as large numbers, are compared as written.
    let content = canonical::to_vec(&content).unwrap_or_else(|_| content.to_string().into_bytes());
    Hash::digest(content)
}

#[cfg(test)]
mod tests;
