//! What a person is asked before an action runs, and what has changed since.

use std::fmt::Write as _;

use lillux::{quote_block, sanitize_line};
use rye_protocol::Action;
use serde_json::{Map, Value, json};

use super::{Component, ResolvedTool, ReviewReason};
use crate::audit::{ARGS_HASH, CHAIN_HASH};
use crate::tool::{DecisionRequest, FOLDER};
use crate::{arguments, text};

/// It may, this time.
pub const APPROVE: &str = "approve";
/// It may, as long as the session lasts and it is what it is now.
pub const APPROVE_SESSION: &str = "approve_session";
/// It may, as long as it is what it is now.
pub const APPROVE_PROJECT: &str = "approve_project";
/// It may not.
pub const DENY: &str = "deny";

/// Where a gate's context says that something is not what was accepted.
pub const DRIFT: &str = "drift";

/// Where a gate's context says why it asks.
const REASONS: &str = "reasons";

/// How much of the arguments a person is shown.
const LONGEST: usize = 4000;
/// And of a line that somebody else wrote.
const LINE: usize = 500;

/// What the n-th gate of a call is named.
pub(super) fn key(call: &str, nth: usize) -> String {
    match nth {
        0 => format!("approve:{call}"),
        more => format!("approve:{call}:{more}"),
    }
}

/// A call that is asked about.
pub(super) struct Question<'a> {
    pub(super) tool: &'a str,
    pub(super) summary: &'a str,
    pub(super) action: &'a ResolvedTool,
    /// Why it is asked about, beside what the action says of itself.
    pub(super) reasons: &'a [ReviewReason],
    pub(super) params: &'a Value,
    pub(super) args_hash: &'a str,
    /// Where it would run.
    pub(super) folder: Option<&'a str>,
    /// Whether the answer can be remembered for the project.
    pub(super) remembers: bool,
}

impl Question<'_> {
    /// The request, the n-th for the call; with what an earlier one was about.
    pub(super) fn request(
        &self,
        call: &str,
        nth: usize,
        before: Option<&Map<String, Value>>,
    ) -> DecisionRequest {
        let mut request = DecisionRequest::approval(key(call, nth), self.title());
        request.actions = self.actions();
        request.body = self.body(before);
        request.context = self.context();
        request
    }

    fn title(&self) -> String {
        match self.summary {
            "" => self.tool.to_owned(),
            summary => format!("{}: {summary}", self.tool),
        }
    }

    fn actions(&self) -> Vec<Action> {
        let action = |id: &str, label: &str| Action {
            id: id.to_owned(),
            label: label.to_owned(),
        };
        let mut actions = vec![action(APPROVE, "Approve")];
        let can_be_remembered = self
            .reasons
            .iter()
            .all(|reason| reason.applies_to_all_params);
        if can_be_remembered {
            actions.push(action(APPROVE_SESSION, "Approve for this session"));
        }
        if can_be_remembered && self.remembers {
            actions.push(action(APPROVE_PROJECT, "Approve for this project"));
        }
        actions.push(action(DENY, "Deny"));
        actions
    }

    fn body(&self, before: Option<&Map<String, Value>>) -> String {
        let mut body = String::new();
        if let Some(before) = before {
            body += "It was approved, and has changed since:\n";
            body += &self.changes(before);
            body.push('\n');
        }
        let action = self.action;
        if let Some(drift) = &action.drift {
            let drift = quote_block(drift);
            let _ = writeln!(body, "It is not what was accepted before:\n{drift}");
        }
        for reason in self.reasons {
            let _ = writeln!(body, "reason: {}", sanitize_line(&reason.text));
        }
        let risk = action.risk.map_or("not stated", super::Risk::as_str);
        let _ = writeln!(body, "risk: {risk}");
        if let Some(line) = action.description.lines().next() {
            let line: String = line.chars().take(LINE).collect();
            let _ = writeln!(body, "{}", quote_block(&line));
        }
        for piece in &action.components {
            let Component {
                name,
                hash,
                signed_by,
            } = piece;
            let by = sanitize_line(signed_by.as_deref().unwrap_or("nobody"));
            let name = sanitize_line(name);
            let short = hash.get(..16).unwrap_or(hash);
            let _ = writeln!(body, "runs: {name} {short}, signed by {by}");
        }
        let params = serde_json::to_string_pretty(self.params).unwrap_or_default();
        let _ = write!(body, "with:\n{}", text::quoted(&params, LONGEST));
        body
    }

    fn context(&self) -> Map<String, Value> {
        let action = self.action;
        let mut context = Map::new();
        context.insert(CHAIN_HASH.to_owned(), json!(action.hash));
        context.insert(ARGS_HASH.to_owned(), json!(self.args_hash));
        context.insert("tool_id".to_owned(), json!(self.tool));
        context.insert("risk".to_owned(), json!(action.risk));
        context.insert("space".to_owned(), json!(action.space));
        context.insert("pieces".to_owned(), json!(action.components));
        if !self.reasons.is_empty() {
            context.insert(REASONS.to_owned(), self.reasons());
        }
        if let Some(folder) = self.folder {
            context.insert(FOLDER.to_owned(), json!(folder));
        }
        arguments::make_editable(&mut context, self.params);
        if action.drift.is_some() {
            context.insert(DRIFT.to_owned(), json!(true));
        }
        context
    }

    /// Whether an earlier gate was about this very thing.
    pub(super) fn is_about(&self, context: &Map<String, Value>) -> bool {
        let same = |key: &str, now: &str| context.get(key).and_then(Value::as_str) == Some(now);
        let is_it = same(CHAIN_HASH, &self.action.hash) && same(ARGS_HASH, self.args_hash);
        let reasons = context.get(REASONS).cloned().unwrap_or_else(|| json!([]));
        is_it && self.is_there(context) && reasons == self.reasons()
    }

    fn reasons(&self) -> Value {
        self.reasons
            .iter()
            .map(|reason| json!(reason.text))
            .collect()
    }

    /// Whether an earlier gate was about the same folder.
    pub(super) fn is_there(&self, context: &Map<String, Value>) -> bool {
        context.get(FOLDER).and_then(Value::as_str) == self.folder
    }

    /// What is another thing now, a line each.
    fn changes(&self, before: &Map<String, Value>) -> String {
        let mut text = String::new();
        let pieces = before.get("pieces").cloned().unwrap_or_default();
        let was: Vec<Component> = serde_json::from_value(pieces).unwrap_or_default();
        let now = &self.action.components;
        for piece in now {
            match was.iter().find(|it| it.name == piece.name) {
                None => {
                    let name = sanitize_line(&piece.name);
                    let _ = writeln!(text, "- {name} was not part of it");
                }
                Some(old) if old.hash != piece.hash => {
                    let [old, new] = [&old.hash, &piece.hash].map(|it| it.get(..16).unwrap_or(it));
                    let name = sanitize_line(&piece.name);
                    let _ = writeln!(text, "- {name} was {old} and is {new}");
                }
                Some(_) => {}
            }
        }
        for gone in was
            .iter()
            .filter(|it| now.iter().all(|piece| piece.name != it.name))
        {
            let name = sanitize_line(&gone.name);
            let _ = writeln!(text, "- {name} is not part of it any more");
        }
        if before.get(ARGS_HASH).and_then(Value::as_str) != Some(self.args_hash) {
            text += "- its arguments are others\n";
        }
        if !self.is_there(before) {
            let was = before.get(FOLDER).and_then(Value::as_str);
            let [was, now] = [was, self.folder].map(|it| sanitize_line(it.unwrap_or("none")));
            let _ = writeln!(text, "- its folder was {was} and is {now}");
        }
        if before.get(REASONS) != self.context().get(REASONS) {
            text += "- the reason for asking is another\n";
        }
        if text.is_empty() {
            text += "- something that it reads\n";
        }
        text
    }
}
