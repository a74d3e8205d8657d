//! Gates as permission requests.

use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, ToolCallContent, ToolCallId, ToolCallStatus,
    ToolCallUpdate, ToolCallUpdateFields,
};
use rye_engine::protocol::{Action, ActionId, Gate, GateKind};

use crate::tool_call::{self, Request, fenced, text_content};

/// The answers that an editor can give to a gate; `None` if the gate asks for a text.
pub(crate) fn options(gate: &Gate) -> Option<Vec<PermissionOption>> {
    // An answer with a value is not one of several options.
    let is_option = |action: &&Action| action.id != ActionId::Result;
    let options = gate.actions.iter().filter(is_option).map(|action| {
        let id = action.id.as_str().to_owned();
        PermissionOption::new(id, action.label.clone(), kind(&action.id))
    });
    let options: Vec<_> = options.collect();
    (!options.is_empty() && gate.kind != GateKind::Question).then_some(options)
}

fn kind(action: &ActionId) -> PermissionOptionKind {
    match action {
        ActionId::ApproveSession | ActionId::ApprovePrefix | ActionId::ApproveProject => {
            PermissionOptionKind::AllowAlways
        }
        ActionId::Deny | ActionId::Skip => PermissionOptionKind::RejectOnce,
        _ => PermissionOptionKind::AllowOnce,
    }
}

/// The call that waits, as the editor shows it in the request. `id` is the id of the call if the
/// editor knows it, and otherwise that of the gate.
pub(crate) fn call(
    gate: &Gate,
    id: ToolCallId,
    request: Option<&Request<'_>>,
    preview: Vec<ToolCallContent>,
) -> ToolCallUpdate {
    let tool = &gate.origin.tool;
    let mut content = vec![text_content(&fenced(&gate.body, "text"))];
    if gate.body.trim().is_empty() {
        content.clear();
    }
    content.extend(preview);
    let mut fields = ToolCallUpdateFields::new()
        .title(gate.title.clone())
        .kind(tool_call::kind(tool))
        .status(ToolCallStatus::Pending)
        .content(content);
    if let Some(request) = request {
        fields = fields
            .locations(request.locations())
            .raw_input(request.args.clone());
    }
    ToolCallUpdate::new(id, fields)
}
