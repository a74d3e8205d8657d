//! Requests for a person's decision at a gate.

use std::time::Duration;

use rye_protocol::{Action, ActionId, GateKind};
use serde_json::{Map, Value};

use super::SANDBOX;
use crate::sandbox::Sandbox;

/// Key of the context of a [credential request](DecisionRequest::credential): name of the secret.
pub const VAULT: &str = "vault";

/// Key of the context of a [credential request](DecisionRequest::credential): name of the service to
/// which a person can log in.
pub const LOGIN: &str = "login";

/// Key of the gate's context: the effect of the call has begun, so the call is not repeated if its
/// process dies.
pub const WHILE_RUNNING: &str = "while_running";

/// How long a credential gate stays open.
const CREDENTIAL_TIMEOUT: Duration = Duration::from_mins(10);

/// A request for a person's decision.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionRequest {
    /// Kind of decision.
    pub kind: GateKind,
    /// One-line question.
    pub title: String,
    /// Details of the question.
    pub body: String,
    /// Possible answers.
    pub actions: Vec<Action>,
    /// Identifies the gate within the prompt, also after a restart. Derive it from the arguments.
    pub resume_key: String,
    /// Time until the gate expires.
    pub expires_in: Option<Duration>,
    /// Additional data for programs.
    pub context: Map<String, Value>,
}

impl DecisionRequest {
    /// Requests an approval, answered with `approve` or `deny`.
    pub fn approval(resume_key: impl Into<String>, title: impl Into<String>) -> Self {
        Self {
            kind: GateKind::Approval,
            title: title.into(),
            body: String::new(),
            actions: vec![
                Action::new(ActionId::Approve, "Approve"),
                Action::new(ActionId::Deny, "Deny"),
            ],
            resume_key: resume_key.into(),
            expires_in: None,
            context: Map::new(),
        }
    }

    /// Shows what confines commands, if something does. The decision's receipt covers it.
    pub fn add_sandbox(&mut self, sandbox: &dyn Sandbox) {
        let confinement = sandbox.confinement();
        let Some(enforcement) = &confinement.enforcement else {
            return;
        };
        let (kind, tier) = (sandbox.kind(), &enforcement.tier);
        let line = format!(
            "sandbox: {kind} ({tier}, policy {:.12})\n",
            enforcement.policy
        );
        self.body.insert_str(0, &line);
        let shown = serde_json::to_value(&confinement).unwrap_or_default();
        self.context.insert(SANDBOX.to_owned(), shown);
    }

    /// Marks the request as one of a call whose effect has begun: if the process dies, the gate is
    /// withdrawn, and the call ends by its effect class.
    #[must_use]
    pub fn while_running(mut self) -> Self {
        self.context
            .insert(WHILE_RUNNING.to_owned(), Value::Bool(true));
        self
    }

    /// Asks a question, answered with `answer` and a text.
    pub fn question(resume_key: impl Into<String>, title: impl Into<String>) -> Self {
        Self {
            kind: GateKind::Question,
            actions: Vec::new(),
            ..Self::approval(resume_key, title)
        }
    }

    /// Requests a credential, answered with `provided` once the vault has a secret with this name,
    /// or `deny`. The secret itself is never an answer, because answers are recorded.
    pub fn credential(
        resume_key: impl Into<String>,
        title: impl Into<String>,
        vault_name: impl Into<String>,
    ) -> Self {
        let mut context = Map::new();
        context.insert(VAULT.to_owned(), Value::String(vault_name.into()));
        Self {
            kind: GateKind::CredentialRequest,
            actions: vec![
                Action::new(ActionId::Provided, "Stored in the vault"),
                Action::new(ActionId::Deny, "Deny"),
            ],
            expires_in: Some(CREDENTIAL_TIMEOUT),
            context,
            ..Self::approval(resume_key, title)
        }
    }
}
