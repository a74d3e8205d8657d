//! Decisions about change sets.

use rye_protocol::{ActionId, CHANGE_SET, ChangeSet, ChangeSetSummary, Gate, Selection};
use serde::Deserialize as _;
use serde_json::Value;

use super::{Decision, Engine};
use crate::blob::SCHEME;
use crate::review;

impl Engine {
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
