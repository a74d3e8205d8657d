//! Decides gates.

use rye_protocol::{ActionId, Gate, GateId, GateKind, Resolution};

use super::{DecideError, Decision, Engine};
use crate::arguments;
use crate::audit;
use crate::machine::is_invalid_limit;
use crate::store::{InboxMessage, PostOutcome};

/// How far the clock of a person who signs a decision may differ from ours, in milliseconds.
const MAX_CLOCK_DIFFERENCE: u64 = 5 * 60 * 1000;

impl Engine {
    /// Resolves a gate, whether or not a host runs the session. The first decision wins.
    pub async fn decide(
        &self,
        gate: &GateId,
        decision: Decision,
    ) -> Result<PostOutcome, DecideError> {
        let gate = self.decidable_gate(gate, &decision).await?;
        let mut resolution = Resolution {
            action: decision.action,
            value: decision.value,
            by: decision.by,
            at: self.inner.clock.now(),
            source: decision.source,
            receipt: None,
        };
        if let Some(key) = &self.inner.key {
            let receipt = audit::receipt(&gate, &resolution, key);
            resolution.receipt = Some(Box::new(receipt));
        }
        self.resolve(gate, resolution).await
    }

    /// Resolves a gate with a decision that the person signed, such as in a browser. Fails unless
    /// its receipt verifies with a key whose decisions are accepted.
    pub async fn decide_signed(
        &self,
        gate: &GateId,
        resolution: Resolution,
    ) -> Result<PostOutcome, DecideError> {
        let decision = Decision {
            action: resolution.action.clone(),
            value: resolution.value.clone(),
            by: resolution.by.clone(),
            source: resolution.source.clone(),
        };
        let gate = self.decidable_gate(gate, &decision).await?;
        self.check_receipt(&gate, &resolution)
            .map_err(|reason| DecideError::InvalidReceipt {
                gate: gate.id.clone(),
                reason,
            })?;
        self.resolve(gate, resolution).await
    }

    fn check_receipt(&self, gate: &Gate, resolution: &Resolution) -> Result<(), String> {
        if self.inner.decision_keys.is_none() {
            return Err("no keys are trusted, because this user has no key".to_owned());
        }
        self.inner.check_signature(gate, resolution)?;
        if resolution.at.0.abs_diff(self.inner.clock.now().0) > MAX_CLOCK_DIFFERENCE {
            let reason = "the decision was signed more than five minutes ago or in the future";
            return Err(reason.to_owned());
        }
        Ok(())
    }

    /// The gate, if it offers the decision.
    async fn decidable_gate(
        &self,
        gate: &GateId,
        decision: &Decision,
    ) -> Result<Gate, DecideError> {
        let open = self.inner.store.gate(gate).await?;
        let open = open.ok_or_else(|| DecideError::GateNotFound(gate.clone()))?;
        let actions: Vec<_> = open
            .actions
            .iter()
            .map(|action| action.id.clone())
            .collect();
        if !actions.is_empty() && !actions.contains(&decision.action) {
            return Err(DecideError::UnknownAction {
                gate: gate.clone(),
                action: decision.action.clone(),
                actions,
            });
        }
        if open.kind == GateKind::CredentialRequest && !decision.value.is_null() {
            return Err(DecideError::SecretInAnswer(gate.clone()));
        }
        let edited = arguments::arguments_in(&decision.action, &decision.value);
        if edited.is_some() && !arguments::is_editable(&open.context) {
            return Err(DecideError::NotEditable(gate.clone()));
        }
        let reason = edited.and_then(|args| arguments::validation_error(&open.context, args));
        if let Some(reason) = reason {
            let gate = gate.clone();
            return Err(DecideError::InvalidArguments { gate, reason });
        }
        if let Some(reason) = self.selection_error(&open, decision).await {
            let gate = gate.clone();
            return Err(DecideError::InvalidSelection { gate, reason });
        }
        if decision.action != ActionId::Deny && is_invalid_limit(&open, &decision.value) {
            return Err(DecideError::InvalidAmount(gate.clone()));
        }
        Ok(open)
    }

    /// Stores a decision, and makes sure that a process applies it.
    async fn resolve(
        &self,
        open: Gate,
        resolution: Resolution,
    ) -> Result<PostOutcome, DecideError> {
        let session = &open.origin.session;
        let gate = open.id;
        let store = &self.inner.store;
        let posted = store
            .post(session, InboxMessage::Resolve { gate, resolution })
            .await?;
        self.inner.wake(session).await;
        Ok(posted)
    }
}
