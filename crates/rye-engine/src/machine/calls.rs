//! Tool calls: results and failures.

use rye_protocol::{
    Call, CallId, CallState, EntryKind, ErrorCode, ErrorInfo, EventKind, Message, Part,
    ResultStatus, Role,
};
use serde_json::{Value, json};

use super::Step;
use crate::review::is_review;
use crate::tool::{ToolError, ToolOutput};

impl Step<'_> {
    /// A tool call has finished.
    pub(super) fn on_tool_ended(
        &mut self,
        id: &CallId,
        outcome: Result<Box<ToolOutput>, ToolError>,
    ) {
        self.machine.live.calls.remove(id);
        self.machine.live.waiting.retain(|(call, _)| call != id);
        let call = self.machine.call(id).cloned();
        // A call of an ended turn is ignored.
        let Some(call) = call.filter(|call| call.state != CallState::Ended) else {
            return;
        };
        self.withdraw_gates("ended", |gate| gate.origin.call == *id);
        if is_review(&call) {
            return self.on_review_ended(outcome);
        }
        match outcome {
            Ok(output) => {
                let ToolOutput {
                    text,
                    data,
                    attachments,
                } = *output;
                self.append_result(&call, ResultStatus::Success, text, data, None, attachments);
            }
            Err(ToolError(error)) if error.code == ErrorCode::Interrupted => {
                self.on_interrupted(&call);
            }
            Err(ToolError(error)) => {
                let text = error.message.clone();
                let data = Value::Null;
                self.append_result(
                    &call,
                    ResultStatus::Error,
                    text,
                    data,
                    Some(error),
                    Vec::new(),
                );
            }
        }
    }

    pub(super) fn unknown_tool(&mut self, call: &Call) {
        let message = format!("there is no tool `{}`", call.tool);
        self.append_error(call, ResultStatus::Error, ErrorCode::UnknownTool, message);
    }

    /// A host died during the call, so it is unknown whether the call had its effect.
    pub(super) fn append_interrupted(&mut self, call: &Call) {
        self.withdraw_gates("ended", |gate| gate.origin.call == call.id);
        let message = "interrupted; it is unknown whether the call had its effect. \
                       Check before you repeat it.";
        self.append_error(
            call,
            ResultStatus::Interrupted,
            ErrorCode::Interrupted,
            message.to_owned(),
        );
    }

    pub(super) fn abort_call(&mut self, call: &Call, reason: &str) {
        let message = format!("stopped: {reason}");
        let error = ErrorInfo::new(ErrorCode::Denied, message.clone());
        let data = json!({ "reason": reason });
        self.append_result(
            call,
            ResultStatus::Aborted,
            message,
            data,
            Some(error),
            Vec::new(),
        );
    }

    pub(super) fn append_error(
        &mut self,
        call: &Call,
        status: ResultStatus,
        code: ErrorCode,
        message: String,
    ) {
        let error = ErrorInfo::new(code, message.clone());
        self.append_result(call, status, message, Value::Null, Some(error), Vec::new());
    }

    pub(super) fn append_result(
        &mut self,
        call: &Call,
        status: ResultStatus,
        text: String,
        data: Value,
        error: Option<ErrorInfo>,
        attachments: Vec<Part>,
    ) {
        // The engine's own call has no place in the history.
        if is_review(call) {
            if let Some(call) = self.machine.call(&call.id) {
                call.state = CallState::Ended;
            }
            return;
        }
        let error = error.map(|error| {
            let mut error = self.with_ids(error);
            error.ids.call = Some(call.id.clone());
            error
        });
        let mut parts = vec![Part::ToolResult {
            call_id: call.id.clone(),
            tool: call.tool.clone(),
            status,
            text,
            data,
            error,
            elided: false,
        }];
        parts.extend(attachments);
        self.append(EntryKind::Message(Message::new(Role::Tool, parts)));
        if let Some(call) = self.machine.call(&call.id) {
            call.state = CallState::Ended;
            call.processes.clear();
        }
        if let Some(session) = self.child_of(call) {
            self.add_usage(self.context.children.used(&call.id));
            self.emit(EventKind::TaskEnd { session });
        }
        let call = call.id.clone();
        self.emit(EventKind::ToolEnd { call, status });
    }
}
