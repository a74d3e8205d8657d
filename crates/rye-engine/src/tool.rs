//! Tools that a model can call: definition, execution and context.

mod approval;
mod background;
mod request;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rye_protocol::{
    ActionId, Author, CallId, ErrorInfo, GateId, Limits, PromptId, SessionId, ThreadId,
};
use rye_protocol::{ErrorCode, EventKind, Gate, GateStatus, Part, ProcessRef, Resolution};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, field, info_span};

use crate::BoxFuture;
use crate::attachment;
use crate::blob::SCHEME;
use crate::engine::Inner;
use crate::metrics::Metric;
use crate::model::{ModelFamily, ToolSpec};
use crate::policy::{CallFacts, Mode, PermissionMode, Policy, Risk};
use crate::runner::ThreadCommand;
use crate::sandbox::{Exec, ExecObserver, ExecOutput, Sandbox, SandboxError};
use crate::setup::Setup;
use crate::store::StoreError;
use lillux::redact::{RedactStream, Redactor};

pub(crate) use approval::request_approval;
pub use approval::{
    ApprovalRequirement, CHANGES, COMMAND_PREFIX, DRIFT, PREFIX, RESOLVED_PATH, SANDBOX, TOOL_ID,
    WORKING_DIR, resolve_approval,
};
pub use request::{DecisionRequest, LOGIN, VAULT, WHILE_RUNNING};
pub use rye_protocol::EffectClass;

/// Definition of a tool.
#[derive(Debug, Clone)]
pub struct ToolDef {
    /// Name, description and parameters for models.
    pub spec: ToolSpec,
    /// Effect class: what happens to a call after a crash.
    pub effect: EffectClass,
    /// Risk level, if stated. High and critical need approval.
    pub risk: Option<Risk>,
    /// When a person must approve a call.
    pub approval: ApprovalRequirement,
    /// Calls do not run concurrently with other tools.
    pub exclusive: bool,
    /// Output is never pruned.
    pub protected_from_pruning: bool,
    /// A call is a [child session](ToolContext::child), which is reported as a task and counts
    /// towards the budget of its parent.
    pub is_task: bool,
    /// Time limit of a call.
    pub timeout: Option<Duration>,
    /// The only family of models that sees the tool; all models see it if there is none.
    pub family: Option<ModelFamily>,
    /// The tool whose rules of the policy apply, if they are not its own.
    pub policy_tool: Option<String>,
}

impl ToolDef {
    /// Creates a tool that runs concurrently and is never repeated.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self {
            spec: ToolSpec {
                name: name.into(),
                description: description.into(),
                parameters,
            },
            effect: EffectClass::default(),
            risk: None,
            approval: ApprovalRequirement::default(),
            exclusive: false,
            protected_from_pruning: false,
            is_task: false,
            timeout: None,
            family: None,
            policy_tool: None,
        }
    }

    /// Sets the effect class.
    #[must_use]
    pub fn effect(mut self, effect: EffectClass) -> Self {
        self.effect = effect;
        self
    }

    /// Sets the risk level.
    #[must_use]
    pub fn risk(mut self, risk: Risk) -> Self {
        self.risk = Some(risk);
        self
    }

    /// Whether a call may need approval.
    pub(crate) fn can_need_approval(&self) -> bool {
        self.risk.is_some() || !matches!(self.approval, ApprovalRequirement::ByRisk)
    }

    /// Name of the tool in rules of the [policy](crate::policy): `builtin:NAME`.
    pub fn policy_name(&self) -> String {
        let name = self.policy_tool.as_ref().unwrap_or(&self.spec.name);
        format!("builtin:{name}")
    }

    /// Requires approval, always or depending on the arguments. The gate records the question and
    /// the hash of the arguments.
    #[must_use]
    pub fn requires_approval(mut self, approval: ApprovalRequirement) -> Self {
        self.approval = approval;
        self
    }
}

/// Result of a tool call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// Text for the model.
    pub text: String,
    /// Structured data for programs.
    pub data: Value,
    /// Attached files and images.
    pub attachments: Vec<Part>,
}

impl ToolOutput {
    /// Creates a result without attachments.
    pub fn new(text: impl Into<String>, data: Value) -> Self {
        Self {
            text: text.into(),
            data,
            attachments: Vec::new(),
        }
    }

    /// Creates a result with text only.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(text, Value::Null)
    }
}

/// Failure of a tool call. The model sees it and continues.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct ToolError(pub ErrorInfo);

impl ToolError {
    /// Creates a failure with a message.
    pub fn failed(message: impl Into<String>) -> Self {
        Self(ErrorInfo::new(ErrorCode::ToolFailed, message))
    }
}

fn read_only() -> ToolError {
    let message = "the session is read-only: this call is denied until a person changes its mode";
    ToolError(ErrorInfo::new(ErrorCode::Denied, message))
}

/// A tool that a model can call.
pub trait Tool: Send + Sync + 'static {
    /// Definition of the tool.
    fn def(&self) -> &ToolDef;

    /// Whether a call may wait for a decision before it has any effect, in this sandbox.
    ///
    /// After a crash, a call of such a tool is repeated until it has called
    /// [`ToolContext::set_effect`]. The tool **must** call it before doing anything that must not
    /// happen twice. For other tools, an interrupted call counts as started.
    fn may_request_decision(&self, _: &dyn Sandbox) -> bool {
        false
    }

    /// Runs a call. The arguments match the schema. Dropping the future cancels the call.
    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>>;
}

/// Context of a tool call.
#[derive(Clone)]
pub struct ToolContext {
    /// Session of the call.
    pub session: SessionId,
    /// Thread of the call.
    pub thread: ThreadId,
    /// Prompt of the call.
    pub prompt: PromptId,
    /// Id of the call.
    pub call: CallId,
    /// User of the session.
    pub user: Option<String>,
    /// Organisation of the user.
    pub org: Option<String>,
    /// Author of the prompt and the channel it came from.
    pub author: Option<Author>,
    /// Workspace directory of the session.
    pub workspace: Option<String>,
    /// Sandbox of the session.
    pub sandbox: Arc<dyn Sandbox>,
    /// Remaining budget for a child session.
    pub(crate) remaining: Limits,
    pub(crate) engine: Weak<Inner>,
    pub(crate) setup: Arc<Setup>,
    /// Secrets to redact from the output of tools.
    pub redactor: Redactor,
    /// Redacts the live output stream.
    pub(crate) live_output: Arc<Mutex<RedactStream>>,
    pub(crate) commands: mpsc::UnboundedSender<ThreadCommand>,
}

impl ToolContext {
    /// Opens a gate and waits until a person decides. Only this thread waits.
    ///
    /// After a restart, the tool runs **again from the start**, and the same request returns the
    /// stored decision at once. Everything before the request must therefore be read-only or
    /// idempotent.
    pub async fn request_decision(
        &self,
        request: DecisionRequest,
    ) -> Result<Resolution, ToolError> {
        self.request_decision_with_context(request)
            .await
            .map(|(resolution, _)| resolution)
    }

    /// Like [`Self::request_decision`], but also returns the context with which the gate was opened,
    /// which may differ from that of the request.
    pub async fn request_decision_with_context(
        &self,
        request: DecisionRequest,
    ) -> Result<(Resolution, Map<String, Value>), ToolError> {
        let (reply, answer) = oneshot::channel();
        let commands = ThreadCommand::RequestDecision {
            call: self.call.clone(),
            request: Box::new(request),
            reply,
        };
        let closed = || ToolError::failed("the thread has ended");
        self.commands.send(commands).map_err(|_| closed())?;
        let gate = answer.await.map_err(|_| closed())?;
        let code = match gate.status {
            GateStatus::Resolved { ref resolution } => {
                self.check_signature(&gate, resolution)?;
                return Ok((resolution.clone(), gate.context));
            }
            GateStatus::Expired { .. } => ErrorCode::GateExpired,
            GateStatus::Withdrawn { .. } | GateStatus::Pending => ErrorCode::GateWithdrawn,
        };
        let message = match code {
            ErrorCode::GateExpired => "the gate expired",
            _ => "the gate was withdrawn",
        };
        let mut error = ErrorInfo::new(code, message);
        error.ids.gate = Some(gate.id);
        Err(ToolError(error))
    }

    /// Rejects a decision without a trusted signature if the engine requires signatures, because
    /// any writer of the store could forge a decision.
    fn check_signature(&self, gate: &Gate, resolution: &Resolution) -> Result<(), ToolError> {
        let closed = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(closed)?;
        engine.check_signature(gate, resolution).map_err(|why| {
            let message = format!("the decision at gate {} is not valid: {why}", gate.id);
            let mut error = ErrorInfo::new(ErrorCode::Denied, message);
            error.ids.gate = Some(gate.id.clone());
            ToolError(error)
        })
    }

    /// Whether a gate with this key exists.
    pub async fn has_gate(&self, resume_key: &str) -> Result<bool, ToolError> {
        let closed = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(closed)?;
        let gate = GateId::new(&self.session, &self.thread, &self.prompt, resume_key);
        let found = engine.store.gate(&gate).await;
        let found = found.map_err(|error| ToolError::failed(error.to_string()))?;
        Ok(found.is_some())
    }

    /// Cancelled when the session is closed on this host.
    pub fn session_closed(&self) -> Result<CancellationToken, ToolError> {
        let closed = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(closed)?;
        let session = engine.open_session(&self.session).ok_or_else(closed)?;
        Ok(session.shared().closed.clone())
    }

    /// The approval policy of the session.
    pub fn policy(&self) -> &Policy {
        &self.setup.policy
    }

    /// Decision of the policy about a call that may change something, as far as the session's
    /// permission mode allows it.
    pub fn decide(&self, facts: &CallFacts<'_>) -> Result<Mode, ToolError> {
        self.restrict(self.policy().decide(facts).mode, facts.risk)
    }

    /// Applies the session's permission mode to a decision of the policy.
    pub fn restrict(&self, decision: Mode, risk: Option<Risk>) -> Result<Mode, ToolError> {
        let mode = self.permission_mode()?;
        if mode == PermissionMode::ReadOnly && risk != Some(Risk::Low) {
            return Err(read_only());
        }
        Ok(mode.restrict(decision, risk))
    }

    /// Refuses a call that would need no approval if the session is read-only.
    pub fn check_may_change(&self) -> Result<(), ToolError> {
        match self.permission_mode()? {
            PermissionMode::ReadOnly => Err(read_only()),
            PermissionMode::Ask | PermissionMode::Auto => Ok(()),
        }
    }

    /// The permission mode: for a task, that of the session that a person works with.
    pub fn permission_mode(&self) -> Result<PermissionMode, ToolError> {
        let closed = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(closed)?;
        let root = engine.open_root(&self.session).ok_or_else(closed)?;
        Ok(root.data().permission_mode)
    }

    /// Gates of this session with this decision, as far as the decision is valid.
    pub async fn gates_resolved_with(&self, action: &ActionId) -> Result<Vec<Gate>, ToolError> {
        self.resolved_gates(|it| it.action == *action).await
    }

    /// Gates of this session that a person approved, as far as the decision is valid.
    pub async fn approved_gates(&self) -> Result<Vec<Gate>, ToolError> {
        self.resolved_gates(|it| it.action.is_approval()).await
    }

    async fn resolved_gates(
        &self,
        is_wanted: impl Fn(&Resolution) -> bool,
    ) -> Result<Vec<Gate>, ToolError> {
        let closed = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(closed)?;
        let unreadable = |error: StoreError| ToolError::failed(error.to_string());
        let session = engine.store.session(&self.session).await;
        let Some(session) = session.map_err(unreadable)? else {
            return Ok(Vec::new());
        };
        let gates = engine.store.gates(&self.session).await;
        let mut gates = gates.map_err(unreadable)?;
        gates.retain(|gate| {
            let GateStatus::Resolved { resolution } = &gate.status else {
                return false;
            };
            is_wanted(resolution)
                && !session.untrusted_decisions.contains(&gate.id)
                && engine.check_signature(gate, resolution).is_ok()
        });
        Ok(gates)
    }

    /// Sets the effect class from here on, if it differs from that of the tool. It is stored when
    /// this returns.
    pub async fn set_effect(&self, effect: EffectClass) -> Result<(), ToolError> {
        let (reply, written) = oneshot::channel();
        let commands = ThreadCommand::DeclareEffect(self.call.clone(), effect, reply);
        let closed = || ToolError::failed("the thread has ended");
        self.commands.send(commands).map_err(|_| closed())?;
        written.await.map_err(|_| closed())
    }

    /// Runs a command in the sandbox, measures it, and records which files it changes.
    pub async fn exec(
        &self,
        exec: Exec,
        observer: &dyn ExecObserver,
    ) -> Result<ExecOutput, SandboxError> {
        // Not the command itself, which may contain secrets.
        let kind = self.sandbox.kind();
        let span = info_span!("sandbox_exec", %kind, outcome = field::Empty);
        let start = Instant::now();
        let before = self.before_command().await?;
        let work = self.sandbox.exec(exec, observer);
        let result = work.instrument(span.clone()).await;
        if let Some(before) = before {
            let may_fail_later = match &result {
                Ok(output) => !output.quarantined.is_empty(),
                Err(_) => true,
            };
            self.after_command(before, may_fail_later).await?;
        }
        let outcome = match &result {
            Ok(output) if output.timed_out => "timeout",
            Ok(output) if output.exit_code == Some(0) => "success",
            Ok(_) => "failure",
            Err(_) => "error",
        };
        span.record("outcome", outcome);
        if let Some(engine) = self.engine.upgrade() {
            let labels = [("outcome", outcome)];
            engine
                .metrics
                .observe(Metric::SandboxExec, &labels, start.elapsed());
        }
        result
    }

    /// Stores an artifact, publishes it, and returns its address `blob:…` once it is recorded. A
    /// tool that is repeated after a restart stores it again.
    pub async fn artifact(
        &self,
        name: impl Into<String>,
        bytes: Vec<u8>,
    ) -> Result<String, ToolError> {
        let no_store = "no blob store is configured";
        let blobs = self.blobs().ok_or_else(|| ToolError::failed(no_store))?;
        let name = name.into();
        let mime_type = attachment::mime_type(&name, &bytes).to_owned();
        let size = bytes.len() as u64;
        let stored = blobs.put(bytes).await;
        let hash = stored.map_err(|error| ToolError::failed(error.to_string()))?;
        let source = format!("{SCHEME}{hash}");
        let event = EventKind::Artifact {
            name,
            mime_type,
            size,
            source: source.clone(),
        };
        self.record_event(event).await?;
        Ok(source)
    }

    /// Redacts a secret in all further output of tools.
    pub fn redact(&self, secret: &str) {
        self.redactor.add(secret);
    }

    /// Publishes output while the tool runs. It is not stored.
    pub fn output(&self, text: impl Into<String>) {
        let mut output = self.live_output.lock();
        self.publish(&output.push(&self.redactor, text.into().as_bytes()));
    }

    /// Publishes the output that was held back as a possible start of a secret.
    pub(crate) fn flush_output(&self) {
        let mut output = self.live_output.lock();
        self.publish(&output.finish(&self.redactor));
    }

    fn publish(&self, text: &[u8]) {
        let call = self.call.clone();
        let text = String::from_utf8_lossy(text).into_owned();
        if !text.is_empty() {
            let _ = self.commands.send(ThreadCommand::ToolOutput { call, text });
        }
    }

    /// Records a process that the tool has started, to be killed if this host crashes.
    pub fn register_process(&self, process: ProcessRef) {
        let call = self.call.clone();
        let _ = self
            .commands
            .send(ThreadCommand::ProcessStarted(call, process));
    }
}
