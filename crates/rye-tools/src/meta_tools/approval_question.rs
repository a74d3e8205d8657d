//! The question at the approval gate of a call, and the changes since an earlier approval.

use std::fmt::Write as _;

use lillux::{quote_block, sanitize_line};
use rye_protocol::{Action, ActionId};
use serde_json::{Map, Value, json};

use rye_engine::audit::{ARGS_HASH, CHAIN_HASH};
use rye_engine::policy::{RISK, Risk};
use rye_engine::sandbox::Enforcement;
use rye_engine::tool::{DRIFT, DecisionRequest, TOOL_ID, WORKING_DIR};
use rye_engine::tool_provider::{COMPONENTS, Component, ResolvedTool, Review, components_of};
use rye_engine::{arguments, text};

/// Key of the gate's context: reasons for the approval.
const REASONS: &str = "reasons";

/// Key of the gate's context: how the kernel confines the call.
const SANDBOX: &str = "sandbox";

/// Maximum size of the parameters in the question, in bytes.
const MAX_PARAMS: usize = 4000;
/// Maximum length of the description, in characters.
const MAX_DESCRIPTION: usize = 500;

/// Resume key of the n-th gate of a call.
pub(super) fn gate_key(call: &str, nth: usize) -> String {
    match nth {
        0 => format!("approve:{call}"),
        more => format!("approve:{call}:{more}"),
    }
}

/// A call that needs approval.
pub(super) struct ApprovalQuestion<'a> {
    pub(super) tool_id: &'a str,
    pub(super) summary: &'a str,
    pub(super) resolved: &'a ResolvedTool,
    /// Assessment of the call with these parameters.
    pub(super) review: &'a Review,
    pub(super) params: &'a Value,
    pub(super) args_hash: &'a str,
    /// Working directory of the call.
    pub(super) working_dir: Option<&'a str>,
    /// The approval can be stored for the project.
    pub(super) can_store: bool,
}

impl ApprovalQuestion<'_> {
    /// The n-th request of the call. `previous` is the context of an earlier gate.
    pub(super) fn request(
        &self,
        call: &str,
        nth: usize,
        previous: Option<&Map<String, Value>>,
    ) -> DecisionRequest {
        let mut request = DecisionRequest::approval(gate_key(call, nth), self.title());
        request.actions = self.actions();
        request.body = self.body(previous);
        request.context = self.context();
        request
    }

    fn title(&self) -> String {
        match self.summary {
            "" => self.tool_id.to_owned(),
            summary => format!("{}: {summary}", self.tool_id),
        }
    }

    fn actions(&self) -> Vec<Action> {
        let mut actions = vec![Action::new(ActionId::Approve, "Approve")];
        let applies_to_all_params = self
            .review
            .reasons
            .iter()
            .all(|reason| reason.applies_to_all_params);
        if applies_to_all_params {
            let label = "Approve for this session";
            actions.push(Action::new(ActionId::ApproveSession, label));
        }
        if applies_to_all_params && self.can_store {
            let label = "Approve for this project";
            actions.push(Action::new(ActionId::ApproveProject, label));
        }
        actions.push(Action::new(ActionId::Deny, "Deny"));
        actions
    }

    fn body(&self, previous: Option<&Map<String, Value>>) -> String {
        let mut body = String::new();
        if let Some(previous) = previous {
            body += "Changed since the approval:\n";
            body += &self.changes(previous);
            body.push('\n');
        }
        let resolved = self.resolved;
        if let Some(drift) = &resolved.drift {
            let drift = quote_block(drift);
            let _ = writeln!(body, "Differs from the accepted definition:\n{drift}");
        }
        for reason in &self.review.reasons {
            let _ = writeln!(body, "reason: {}", sanitize_line(&reason.text));
        }
        if let Some(Enforcement { tier, policy }) = &self.review.confinement {
            let _ = writeln!(body, "sandbox: confined ({tier}, policy {policy:.12})");
        }
        let _ = writeln!(body, "{}", Risk::gate_line(resolved.risk));
        if let Some(line) = resolved.description.lines().next() {
            let line: String = line.chars().take(MAX_DESCRIPTION).collect();
            let _ = writeln!(body, "{}", quote_block(&line));
        }
        for component in &resolved.components {
            let Component {
                name,
                hash,
                signed_by,
                ..
            } = component;
            let signed = match signed_by {
                Some(signer) => format!("signed by {}", sanitize_line(signer)),
                None => "unsigned".to_owned(),
            };
            let name = sanitize_line(name);
            let short = hash.get(..16).unwrap_or(hash);
            let _ = writeln!(body, "runs: {name} {short}, {signed}");
        }
        let params = serde_json::to_string_pretty(self.params).unwrap_or_default();
        let _ = write!(
            body,
            "with:\n{}",
            text::quote_truncated(&params, MAX_PARAMS)
        );
        body
    }

    fn context(&self) -> Map<String, Value> {
        let resolved = self.resolved;
        let mut context = Map::new();
        context.insert(CHAIN_HASH.to_owned(), json!(resolved.hash));
        context.insert(ARGS_HASH.to_owned(), json!(self.args_hash));
        context.insert(TOOL_ID.to_owned(), json!(self.tool_id));
        context.insert(RISK.to_owned(), json!(resolved.risk));
        context.insert("space".to_owned(), json!(resolved.space));
        context.insert(COMPONENTS.to_owned(), json!(resolved.components));
        if !self.review.reasons.is_empty() {
            context.insert(REASONS.to_owned(), self.reasons());
        }
        if let Some(confinement) = &self.review.confinement {
            context.insert(SANDBOX.to_owned(), json!(confinement));
        }
        if let Some(working_dir) = self.working_dir {
            context.insert(WORKING_DIR.to_owned(), json!(working_dir));
        }
        arguments::make_editable(&mut context, self.params, resolved.schema.as_ref());
        if resolved.drift.is_some() {
            context.insert(DRIFT.to_owned(), json!(true));
        }
        context
    }

    /// Whether an earlier gate covers exactly this call.
    pub(super) fn is_same_call(&self, context: &Map<String, Value>) -> bool {
        let same = |key: &str, now: &str| context.get(key).and_then(Value::as_str) == Some(now);
        let is_same = same(CHAIN_HASH, &self.resolved.hash) && same(ARGS_HASH, self.args_hash);
        let reasons = context.get(REASONS).cloned().unwrap_or_else(|| json!([]));
        is_same && self.is_same_dir(context) && reasons == self.reasons()
    }

    fn reasons(&self) -> Value {
        let reasons = self.review.reasons.iter();
        reasons.map(|reason| json!(reason.text)).collect()
    }

    /// Whether an earlier gate has the same working directory.
    pub(super) fn is_same_dir(&self, context: &Map<String, Value>) -> bool {
        context.get(WORKING_DIR).and_then(Value::as_str) == self.working_dir
    }

    /// Lists the changes since an earlier gate, one per line.
    fn changes(&self, previous: &Map<String, Value>) -> String {
        let mut text = changed_components(&components_of(previous), &self.resolved.components);
        if previous.get(ARGS_HASH).and_then(Value::as_str) != Some(self.args_hash) {
            text += "- the arguments changed\n";
        }
        if !self.is_same_dir(previous) {
            let was = previous.get(WORKING_DIR).and_then(Value::as_str);
            let [was, now] = [was, self.working_dir].map(|it| sanitize_line(it.unwrap_or("none")));
            let _ = writeln!(text, "- the working directory changed from {was} to {now}");
        }
        if previous.get(REASONS) != self.context().get(REASONS) {
            text += "- the reasons changed\n";
        }
        if text.is_empty() {
            text += "- a dependency changed\n";
        }
        text
    }
}

/// Lists the files that were added, changed or removed, one per line.
pub(super) fn changed_components(was: &[Component], now: &[Component]) -> String {
    let mut text = String::new();
    for component in now {
        let name = sanitize_line(&component.name);
        let _ = match was.iter().find(|it| it.name == component.name) {
            None => writeln!(text, "- {name} was added"),
            Some(old) if old.hash != component.hash => {
                let [old, new] = [&old.hash, &component.hash].map(|it| it.get(..16).unwrap_or(it));
                writeln!(text, "- {name} changed from {old} to {new}")
            }
            Some(_) => Ok(()),
        };
    }
    let is_gone = |it: &&Component| now.iter().all(|component| component.name != it.name);
    for removed in was.iter().filter(is_gone) {
        let name = sanitize_line(&removed.name);
        let _ = writeln!(text, "- {name} was removed");
    }
    text
}
