//! Calls and their ends.

use rye_protocol::{
    Call, CallId, CallState, EntryKind, ErrorCode, ErrorInfo, EventKind, Message, Part,
    ResultStatus, Role,
};
use serde_json::Value;

use super::Step;
use crate::tool::{ToolError, ToolOutput};

impl Step<'_> {
    /// A tool has given something, or failed.
    pub(super) fn ended(&mut self, id: &CallId, outcome: Result<Box<ToolOutput>, ToolError>) {
        self.machine.live.calls.remove(id);
        self.machine.live.waiting.retain(|(call, _)| call != id);
        let call = self.machine.call(id).cloned();
        // What a turn left behind that is over has nobody to tell.
        let Some(call) = call.filter(|call| call.state != CallState::Ended) else {
            return;
        };
        self.withdraw_gates("ended", |gate| gate.origin.call == *id);
        match outcome {
            Ok(output) => {
                let ToolOutput {
                    text,
                    data,
                    attachments,
                } = *output;
                self.result(&call, ResultStatus::Success, text, data, None, attachments);
            }
            Err(ToolError(error)) if error.code == ErrorCode::Interrupted => self.cut_off(&call),
            Err(ToolError(error)) => {
                let text = error.message.clone();
                let data = Value::Null;
                self.result(
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
        self.refuse(call, ResultStatus::Error, ErrorCode::UnknownTool, message);
    }

    /// Its host died while it ran: nobody knows whether it had its effect.
    pub(super) fn interrupt(&mut self, call: &Call) {
        self.withdraw_gates("ended", |gate| gate.origin.call == call.id);
        let message = "it was interrupted; whether it had its effect is not known. \
                       Look before you do it again.";
        self.refuse(
            call,
            ResultStatus::Interrupted,
            ErrorCode::Internal,
            message.to_owned(),
        );
    }

    pub(super) fn abort_call(&mut self, call: &Call, reason: &str) {
        let message = format!("it was ended: {reason}");
        self.refuse(call, ResultStatus::Aborted, ErrorCode::Denied, message);
    }

    pub(super) fn refuse(
        &mut self,
        call: &Call,
        status: ResultStatus,
        code: ErrorCode,
        message: String,
    ) {
        let error = ErrorInfo::new(code, message.clone());
        self.result(call, status, message, Value::Null, Some(error), Vec::new());
    }

    pub(super) fn result(
        &mut self,
        call: &Call,
        status: ResultStatus,
        text: String,
        data: Value,
        error: Option<ErrorInfo>,
        attachments: Vec<Part>,
    ) {
        let error = error.map(|error| {
            let mut error = self.placed(error);
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
            self.use_up(self.env.children.used(&call.id));
            self.tell(EventKind::TaskEnd { session });
        }
        let call = call.id.clone();
        self.tell(EventKind::ToolEnd { call, status });
    }
}
