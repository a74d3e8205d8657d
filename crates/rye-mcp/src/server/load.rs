//! The tool `load`: reads an item, or copies it to another space after the user's approval.

use lillux::Hash;
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rmcp::service::RequestContext;
use serde_json::json;

use super::Server;
use super::approval::{ApprovalRequest, RequiredApproval, quoted_excerpt};
use super::call::{parse_arguments, success_response};
use super::definitions::GatewayTool;
use crate::gateway::{Component, GatedCall, Gateway, GatewayError, LoadRequest, PlannedCopy};

impl Server {
    pub(super) async fn load(
        &self,
        mut call: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, GatewayError> {
        let arguments: LoadRequest =
            parse_arguments(GatewayTool::Load, call.arguments.take().unwrap_or_default())?;
        let project = self
            .resolve_project(arguments.project_path.as_deref(), context)
            .await?;
        let Some(space) = arguments.destination.clone() else {
            let loaded = self.run_blocking(move |gateway| gateway.load(&project, &arguments));
            return loaded.await.map(success_response);
        };
        let (project_dir, request) = (project.clone(), arguments.clone());
        let copy = self
            .run_blocking(move |gateway| gateway.plan_copy(&project_dir, &request))
            .await?;
        let approval = approval_request(&arguments, &space, &copy);
        let approved = self.require_approval(&call, &project, approval, context);
        let call = match approved.await? {
            RequiredApproval::InputRequired(response) => return Ok(response),
            RequiredApproval::Approved(call) => call,
        };
        let project_dir = project.clone();
        let copy = move |gateway: &dyn Gateway| gateway.copy(&project_dir, &arguments, &copy);
        let copied = self.run_approved(&project, call, copy);
        copied.await.map(success_response)
    }
}

fn approval_request(arguments: &LoadRequest, space: &str, copy: &PlannedCopy) -> ApprovalRequest {
    let PlannedCopy {
        item,
        from,
        to,
        hash,
        text,
    } = copy;
    let (shown_from, shown_to) = (from.display(), to.display());
    let question = format!(
        "Copy {item} to the {space} space?\n\n\
         The copy takes effect wherever that space is used.\n\n\
         from: {shown_from}\nto: {shown_to}\nhash: {hash}\n{}",
        quoted_excerpt(text)
    );
    ApprovalRequest {
        call: GatedCall {
            title: format!("Copy {item} to the {space} space for an MCP client?"),
            // Cannot collide with a tool id, which has no spaces.
            tool: format!("copy {item}"),
            parameters: json!({
                "item_type": arguments.item_type,
                "item_id": arguments.item_id,
                "destination": space,
            }),
            chain: Hash::digest(json!(["copy", from, to, hash]).to_string()),
            components: vec![Component {
                name: item.clone(),
                hash: hash.to_hex(),
                signed_by: None,
            }],
            question,
        },
        checkbox: "Approve the copy",
        subject: format!("copying {item} to the {space} space"),
        denied_message: "the user denied the copy",
    }
}
