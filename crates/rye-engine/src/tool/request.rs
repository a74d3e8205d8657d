//! What is asked of a person.

use std::time::Duration;

use rye_protocol::{Action, GateKind};
use serde_json::{Map, Value};

/// Where a [credential request](DecisionRequest::credential) names what is wanted.
pub const VAULT: &str = "vault";

/// How long a person has to look for a password.
const CREDENTIAL_WAIT: Duration = Duration::from_mins(10);

/// What is asked of a person.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionRequest {
    /// What kind of decision.
    pub kind: GateKind,
    /// What is asked, in a line.
    pub title: String,
    /// All that they must know.
    pub body: String,
    /// What they may answer.
    pub actions: Vec<Action>,
    /// What the tool calls this gate, made from its arguments: the same key in the same
    /// prompt is the same gate, also after a restart.
    pub resume_key: String,
    /// How long they have.
    pub expires_in: Option<Duration>,
    /// What else programs want to know.
    pub context: Map<String, Value>,
}

impl DecisionRequest {
    /// May it? Answered with `approve` or `deny`.
    pub fn approval(resume_key: impl Into<String>, title: impl Into<String>) -> Self {
        let action = |id: &str, label: &str| Action {
            id: id.to_owned(),
            label: label.to_owned(),
        };
        Self {
            kind: GateKind::Approval,
            title: title.into(),
            body: String::new(),
            actions: vec![action("approve", "Approve"), action("deny", "Deny")],
            resume_key: resume_key.into(),
            expires_in: None,
            context: Map::new(),
        }
    }

    /// What should it? Answered with `answer` and a text.
    pub fn question(resume_key: impl Into<String>, title: impl Into<String>) -> Self {
        Self {
            kind: GateKind::Question,
            actions: Vec::new(),
            ..Self::approval(resume_key, title)
        }
    }

    /// With whose password or key? Answered with `provided` once it lies in the vault under
    /// this name, or `deny`. The secret itself is never an answer: answers are written down.
    pub fn credential(
        resume_key: impl Into<String>,
        title: impl Into<String>,
        vault_name: impl Into<String>,
    ) -> Self {
        let action = |id: &str, label: &str| Action {
            id: id.to_owned(),
            label: label.to_owned(),
        };
        let mut context = Map::new();
        context.insert(VAULT.to_owned(), Value::String(vault_name.into()));
        Self {
            kind: GateKind::CredentialRequest,
            actions: vec![
                action("provided", "It is in the vault"),
                action("deny", "Deny"),
            ],
            expires_in: Some(CREDENTIAL_WAIT),
            context,
            ..Self::approval(resume_key, title)
        }
    }
}
