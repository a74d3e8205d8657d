//! Tools: what a model can do.

mod approval;
mod artifact;
mod request;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rye_protocol::{Author, CallId, ErrorInfo, GateId, Limits, PromptId, SessionId, ThreadId};
use rye_protocol::{ErrorCode, Gate, GateStatus, Part, ProcessRef, Resolution};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use crate::BoxFuture;
use crate::audit;
use crate::engine::Inner;
use crate::meta_tools::Risk;
use crate::model::ToolSpec;
use crate::runner::ThreadCommand;
use crate::sandbox::Sandbox;
use lillux::redact::{RedactStream, Redactor};

pub use approval::Approval;
pub(crate) use approval::{FOLDER, RESOLVED_PATH, request_approval, resolve_approval};
pub use request::{DecisionRequest, VAULT};
pub use rye_protocol::Effect;

/// What a tool is.
#[derive(Debug, Clone)]
pub struct ToolDef {
    /// Its name and what models see of it.
    pub spec: ToolSpec,
    /// What may be done when its host died.
    pub effect: Effect,
    /// How much harm it can do, where it says so. High and critical is asked about.
    pub risk: Option<Risk>,
    /// Whether a person must approve a call before it runs.
    pub approval: Approval,
    /// Whether it runs alone.
    pub exclusive: bool,
    /// Whether what it gave stays when old output is left out to save room.
    pub protected_from_pruning: bool,
    /// Whether a call of it is a [child session](ToolContext::child), which is told as such
    /// and counted with its parent.
    pub is_task: bool,
    /// When it is ended.
    pub timeout: Option<Duration>,
}

impl ToolDef {
    /// A tool that runs beside others and is never repeated.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self {
            spec: ToolSpec {
                name: name.into(),
                description: description.into(),
                parameters,
            },
            effect: Effect::default(),
            risk: None,
            approval: Approval::default(),
            exclusive: false,
            protected_from_pruning: false,
            is_task: false,
            timeout: None,
        }
    }

    /// With this effect.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    /// With this risk.
    #[must_use]
    pub fn risk(mut self, risk: Risk) -> Self {
        self.risk = Some(risk);
        self
    }

    /// Whether a person may be asked before it is run.
    pub(crate) fn can_need_approval(&self) -> bool {
        self.risk.is_some() || !matches!(self.approval, Approval::ByRisk)
    }

    /// With an approval of a person first, always or by the arguments. What they are asked,
    /// and the hash of the arguments, is written down as with all gates.
    #[must_use]
    pub fn requires_approval(mut self, approval: Approval) -> Self {
        self.approval = approval;
        self
    }
}

/// What a tool gives.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOutput {
    /// What the model reads.
    pub text: String,
    /// What programs read.
    pub data: Value,
    /// Files and images.
    pub attachments: Vec<Part>,
}

impl ToolOutput {
    /// Words alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

/// Why a tool has nothing to give. The model reads it and goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct ToolError(pub ErrorInfo);

impl ToolError {
    /// A failure in words.
    pub fn failed(message: impl Into<String>) -> Self {
        Self(ErrorInfo::new(ErrorCode::ToolFailed, message))
    }
}

/// A tool.
pub trait Tool: Send + Sync + 'static {
    /// What it is.
    fn def(&self) -> &ToolDef;

    /// Whether it may ask a person before it does anything, in a sandbox like this one.
    ///
    /// A call of such a tool is run again if its host dies, until it says by
    /// [`ToolContext::set_effect`] that it begins, and what may be done with it from there on: so
    /// it **must** say so before it does anything that must not happen twice. Of any other
    /// tool, a call that was cut off before it asked counts as begun.
    fn may_request_decision(&self, _: &dyn Sandbox) -> bool {
        false
    }

    /// Does it. The arguments fit its schema. Dropping the future ends what it began.
    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>>;
}

/// What a tool has at hand.
#[derive(Clone)]
pub struct ToolContext {
    /// The session.
    pub session: SessionId,
    /// The thread.
    pub thread: ThreadId,
    /// The prompt.
    pub prompt: PromptId,
    /// The call.
    pub call: CallId,
    /// Whose session it is.
    pub user: Option<String>,
    /// Whose organisation's.
    pub org: Option<String>,
    /// Who asked, and by which channel.
    pub author: Option<Author>,
    /// The folder that the session is about.
    pub workspace: Option<String>,
    /// Where it works.
    pub sandbox: Arc<dyn Sandbox>,
    /// What is left of the budget for a child.
    pub(crate) left: Limits,
    pub(crate) engine: Weak<Inner>,
    pub(crate) redactor: Redactor,
    /// What is told live, without secrets.
    pub(crate) told: Arc<Mutex<RedactStream>>,
    pub(crate) mail: mpsc::UnboundedSender<ThreadCommand>,
}

impl ToolContext {
    /// Stops here until a person decides. Only this thread waits.
    ///
    /// After a restart the tool is run **again from its start**, and the same request
    /// gives the stored decision at once. So whatever it does before it asks must be
    /// read-only or idempotent.
    pub async fn request_decision(
        &self,
        request: DecisionRequest,
    ) -> Result<Resolution, ToolError> {
        self.request_decision_with_context(request)
            .await
            .map(|(resolution, _)| resolution)
    }

    /// The same, with what the gate was about when it was opened, which may be another
    /// thing than the request is about now.
    pub async fn request_decision_with_context(
        &self,
        request: DecisionRequest,
    ) -> Result<(Resolution, Map<String, Value>), ToolError> {
        let (reply, answer) = oneshot::channel();
        let mail = ThreadCommand::RequestDecision {
            call: self.call.clone(),
            request: Box::new(request),
            reply,
        };
        let gone = || ToolError::failed("the thread has ended");
        self.mail.send(mail).map_err(|_| gone())?;
        let gate = answer.await.map_err(|_| gone())?;
        let code = match gate.status {
            GateStatus::Resolved { ref resolution } => {
                self.check_signature(&gate, resolution)?;
                return Ok((resolution.clone(), gate.context));
            }
            GateStatus::Expired { .. } => ErrorCode::GateExpired,
            GateStatus::Withdrawn { .. } | GateStatus::Pending => ErrorCode::GateWithdrawn,
        };
        let message = match code {
            ErrorCode::GateExpired => "nobody decided in time",
            _ => "the question was withdrawn",
        };
        let mut error = ErrorInfo::new(code, message);
        error.ids.gate = Some(gate.id);
        Err(ToolError(error))
    }

    /// Refuses a decision that no trusted key signed, where the engine requires signatures.
    /// Whoever can write to the store could write any decision into it.
    fn check_signature(&self, gate: &Gate, resolution: &Resolution) -> Result<(), ToolError> {
        let gone = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(gone)?;
        engine.check_signature(gate, resolution).map_err(|why| {
            let message = format!("the decision at gate {} does not count: {why}", gate.id);
            let mut error = ErrorInfo::new(ErrorCode::Denied, message);
            error.ids.gate = Some(gate.id.clone());
            ToolError(error)
        })
    }

    /// Whether a person was asked this before: there is a gate that has this key.
    pub(crate) async fn was_asked(&self, resume_key: &str) -> Result<bool, ToolError> {
        let gone = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(gone)?;
        let gate = GateId::new(&self.session, &self.thread, &self.prompt, resume_key);
        let found = engine.store.gate(&gate).await;
        let found = found.map_err(|error| ToolError::failed(error.to_string()))?;
        Ok(found.is_some())
    }

    /// Gates of this session that were answered so.
    pub async fn gates_resolved_with(&self, action: &str) -> Result<Vec<Gate>, ToolError> {
        let gone = || ToolError::failed("the session is closed");
        let engine = self.engine.upgrade().ok_or_else(gone)?;
        let archive = engine.archive(&self.session).await;
        let archive = archive.map_err(|error| ToolError::failed(error.to_string()))?;
        let Some(mut archive) = archive else {
            return Ok(Vec::new());
        };
        let mut gates = std::mem::take(&mut archive.gates);
        gates.retain(|gate| {
            let GateStatus::Resolved { resolution } = &gate.status else {
                return false;
            };
            resolution.action == action
                && !audit::is_untrusted(&archive, &gate.id)
                && engine.check_signature(gate, resolution).is_ok()
        });
        Ok(gates)
    }

    /// Says what may be done if the host dies from here on, where that is not what the tool
    /// says of all its calls. It is written down when this returns.
    pub async fn set_effect(&self, effect: Effect) -> Result<(), ToolError> {
        let (reply, written) = oneshot::channel();
        let mail = ThreadCommand::DeclareEffect(self.call.clone(), effect, reply);
        let gone = || ToolError::failed("the thread has ended");
        self.mail.send(mail).map_err(|_| gone())?;
        written.await.map_err(|_| gone())
    }

    /// Has a secret redacted from now on, in all that tools give, print and say.
    pub fn redact(&self, secret: &str) {
        self.redactor.add(secret);
    }

    /// Tells what the tool prints, as it prints it. It is not written down.
    pub fn output(&self, text: impl Into<String>) {
        let told = self.told.lock();
        let mut told = told.unwrap_or_else(PoisonError::into_inner);
        self.tell(&told.push(&self.redactor, text.into().as_bytes()));
    }

    /// Tells what was held back, in case it became a secret.
    pub(crate) fn output_rest(&self) {
        let told = self.told.lock();
        let mut told = told.unwrap_or_else(PoisonError::into_inner);
        self.tell(&told.finish(&self.redactor));
    }

    fn tell(&self, text: &[u8]) {
        let call = self.call.clone();
        let text = String::from_utf8_lossy(text).into_owned();
        if !text.is_empty() {
            let _ = self.mail.send(ThreadCommand::ToolOutput { call, text });
        }
    }

    /// Writes a process down that the tool has started, to be ended if this host dies.
    pub fn register_process(&self, process: ProcessRef) {
        let call = self.call.clone();
        let _ = self.mail.send(ThreadCommand::ProcessStarted(call, process));
    }
}
