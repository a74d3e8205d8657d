//! What changed in a tool since a person last approved it.

use std::fmt::Write as _;
use std::time::Duration;

use lillux::Hash;
use rye_protocol::GateStatus;
use serde_json::{Map, Value, json};
use similar::TextDiff;

use super::approval_question::changed_components;
use rye_engine::audit::CHAIN_HASH;
use rye_engine::blob::SCHEME;
use rye_engine::text::truncate_middle;
use rye_engine::tool::{CHANGES, DecisionRequest, TOOL_ID, ToolContext, ToolError};
use rye_engine::tool_provider::{COMPONENTS, Component, ResolvedTool, ToolProvider, components_of};

/// Maximum size of a file that is kept for a comparison, in bytes.
const MAX_TEXT: usize = 256 * 1024;
/// Maximum size of the differences, in bytes.
const MAX_DIFF: usize = 32 * 1024;
/// Time limit of the comparison of a file.
const DIFF_TIMEOUT: Duration = Duration::from_millis(200);

/// A tool to compare with its state at an earlier approval.
pub(super) struct Comparison<'a> {
    pub(super) tool_id: &'a str,
    pub(super) resolved: &'a ResolvedTool,
    pub(super) context: &'a ToolContext,
}

impl Comparison<'_> {
    /// Keeps the files of the tool for later comparisons, and adds the changes since the last
    /// approval to the request. `previous` is the context of an earlier gate of the same call, whose
    /// changes the request describes already.
    pub(super) async fn add_to(
        &self,
        request: &mut DecisionRequest,
        previous: Option<&Map<String, Value>>,
        provider: &dyn ToolProvider,
    ) -> Result<(), ToolError> {
        let now = self.keep().await;
        request.context.insert(COMPONENTS.to_owned(), json!(now));
        let was = match previous {
            Some(previous) => Some(components_of(previous)),
            None => self.last_approved(provider).await?,
        };
        let Some(was) = was.filter(|was| !was.is_empty()) else {
            return Ok(());
        };
        if previous.is_none() {
            let changed = changed_components(&was, &now);
            let head = format!("Changed since the last approval:\n{changed}\n");
            request.body.insert_str(0, &head);
        }
        let diff = self.diff(&was, &now).await;
        if !diff.is_empty() {
            request.context.insert(CHANGES.to_owned(), json!(diff));
        }
        Ok(())
    }

    /// The files of the tool, each with the address of its text if it could be stored.
    async fn keep(&self) -> Vec<Component> {
        let mut kept = self.resolved.components.clone();
        for component in &mut kept {
            if let Some(text) = component.text.as_ref().filter(|it| it.len() <= MAX_TEXT) {
                let hash = self.context.store_blob(text).await;
                component.source = hash.map(|hash| format!("{SCHEME}{hash}"));
            }
        }
        kept
    }

    /// The files at the last approval in this session or, if there was none, in this project; `None`
    /// if nothing has changed since.
    async fn last_approved(
        &self,
        provider: &dyn ToolProvider,
    ) -> Result<Option<Vec<Component>>, ToolError> {
        let mut gates = self.context.approved_gates().await?;
        let text = |context: &Map<String, Value>, key: &str| {
            let value = context.get(key).and_then(Value::as_str);
            value.map(str::to_owned)
        };
        gates.retain(|gate| text(&gate.context, TOOL_ID).as_deref() == Some(self.tool_id));
        let newest = gates.into_iter().max_by_key(|gate| match &gate.status {
            GateStatus::Resolved { resolution } => Some(resolution.at),
            _ => None,
        });
        let Some(gate) = newest else {
            return Ok(provider.last_approved(self.resolved).await);
        };
        let is_same = text(&gate.context, CHAIN_HASH).as_deref() == Some(&self.resolved.hash);
        Ok((!is_same).then(|| components_of(&gate.context)))
    }

    /// The changes of all files as a unified diff.
    async fn diff(&self, was: &[Component], now: &[Component]) -> String {
        let mut all = String::new();
        for component in now {
            let name = &component.name;
            let old = was.iter().find(|it| it.name == *name);
            let Some(new) = component.text.as_ref() else {
                continue;
            };
            let old = match old {
                Some(old) if old.hash == component.hash => continue,
                Some(old) => self.text_of(old).await,
                None => Some(String::new()),
            };
            let Some(old) = old else {
                let _ = writeln!(
                    all,
                    "--- {name}\n+++ {name}\n# the approved text was not kept"
                );
                continue;
            };
            let new = self.context.redactor.redact(new);
            let diff = TextDiff::configure()
                .timeout(DIFF_TIMEOUT)
                .diff_lines(old.as_str(), &*new);
            let mut unified = diff.unified_diff();
            all += &unified.context_radius(3).header(name, name).to_string();
        }
        truncate_middle(&all, MAX_DIFF, None)
    }

    /// The text that a component had when it was approved, if it is still stored.
    async fn text_of(&self, component: &Component) -> Option<String> {
        let hash: Hash = component
            .source
            .as_ref()?
            .strip_prefix(SCHEME)?
            .parse()
            .ok()?;
        let bytes = self.context.blobs()?.get(&hash).await.ok()??;
        String::from_utf8(bytes).ok()
    }
}
