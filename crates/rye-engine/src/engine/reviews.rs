//! Review mode of a session, and decisions about change sets.

use std::sync::Arc;

use rye_protocol::{
    ActionId, CHANGE_SET, ChangeSet, ChangeSetSummary, Gate, SandboxId, SandboxRef, Selection,
    SessionId,
};
use serde::Deserialize as _;
use serde_json::Value;

use super::{Decision, Engine};
use crate::blob::SCHEME;
use crate::review;
use crate::sandbox::SandboxError;
use crate::store::StoreError;

/// What [`Engine::set_review`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewSwitch {
    /// The mode was changed.
    Switched,
    /// The session was in this mode already.
    Unchanged,
    /// The session is in the middle of a turn or has queued prompts.
    Busy,
    /// So many changes wait for a review.
    PendingChanges(usize),
}

impl Engine {
    /// Turns the review mode of a session on or off. No host may hold the session.
    pub async fn set_review(
        &self,
        id: &SessionId,
        review: bool,
    ) -> Result<ReviewSwitch, StoreError> {
        let snapshot = self.inner.store.snapshot(id).await?;
        let snapshot = snapshot.ok_or_else(|| StoreError::NotFound {
            kind: "session",
            id: id.to_string(),
        })?;
        let invalid = |reason| StoreError::Setup(id.clone(), reason);
        let setup = self.inner.setup_of(&snapshot.session).await;
        let provider = Arc::clone(&setup.map_err(invalid)?.sandboxes);
        let Some(before) = snapshot.session.sandbox else {
            return Ok(ReviewSwitch::Unchanged);
        };
        if before.review == review {
            return Ok(ReviewSwitch::Unchanged);
        }
        let in_turn = snapshot.threads.iter().any(|thread| thread.turn.is_some());
        if in_turn || !snapshot.prompts.is_empty() {
            return Ok(ReviewSwitch::Busy);
        }
        let failed = |error: SandboxError| StoreError::Sandbox(id.clone(), error);
        if before.review {
            let opened = self.inner.sandboxes.open(&*provider, &before).await;
            let sandbox = opened.map_err(failed)?;
            if let Some(review) = sandbox.review() {
                let set = review.changes().await.map_err(failed)?.set;
                if !set.changes.is_empty() {
                    return Ok(ReviewSwitch::PendingChanges(set.changes.len()));
                }
            }
        }
        // The files of a sandbox are stored by its id.
        let after = SandboxRef {
            id: SandboxId::new(),
            review,
            ..before.clone()
        };
        // Refuses a mode that does not work here, before it is stored.
        let opened = self.inner.sandboxes.open(&*provider, &after).await;
        let opened = opened.map_err(failed)?;
        self.change_stored(id, None, |data| data.sandbox = Some(after))
            .await?;
        drop(opened);
        if before.review {
            let destroyed = provider.destroy(&before).await;
            destroyed.map_err(failed)?;
        }
        Ok(ReviewSwitch::Switched)
    }

    /// What is wrong with the selection in a decision about a change set.
    pub(super) async fn selection_error(&self, gate: &Gate, decision: &Decision) -> Option<String> {
        let summary = gate.context.get(CHANGE_SET)?;
        let selection = match review::parse_selection(&decision.value) {
            Ok(selection) if decision.action == ActionId::Approve => selection,
            Ok(selection) if selection == Selection::default() => return None,
            Ok(_) => return Some("only an approval can select paths".to_owned()),
            Err(reason) => return Some(reason),
        };
        if selection == Selection::default() {
            return None;
        }
        let set = self.change_set(summary).await;
        let Some(set) = set else {
            return Some("the list of changes is missing from the blob store".to_owned());
        };
        let unknown = selection.unknown_path(&set);
        unknown.map(|path| format!("the change set has no change of {path} to select or edit"))
    }

    /// The change set that the context of a gate refers to with [`CHANGE_SET`], if its blob
    /// exists.
    pub async fn change_set(&self, summary: &Value) -> Option<ChangeSet> {
        let summary = ChangeSetSummary::deserialize(summary).ok()?;
        let bytes = self.load_blob(&summary.manifest?).await?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The complete diff of a change set.
    pub async fn change_set_diff(&self, summary: &Value) -> Option<String> {
        let summary = ChangeSetSummary::deserialize(summary).ok()?;
        let bytes = self.load_blob(&summary.diff?).await?;
        String::from_utf8(bytes).ok()
    }

    async fn load_blob(&self, address: &str) -> Option<Vec<u8>> {
        let hash = address.strip_prefix(SCHEME)?.parse().ok()?;
        self.blob(&hash).await.ok()?
    }
}
