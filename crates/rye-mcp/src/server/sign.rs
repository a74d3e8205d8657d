//! The tool `sign`: signs items after the user has approved their content.

use std::fmt::Write as _;

use lillux::Hash;
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rmcp::service::RequestContext;
use serde_json::json;

use super::Server;
use super::approval::{ApprovalRequest, RequiredApproval, quoted_excerpt};
use super::call::{parse_arguments, success_response};
use super::definitions::GatewayTool;
use crate::gateway::{Component, GatedCall, Gateway, GatewayError, SignRequest, UnsignedItem};

/// How many files to show with their content.
const MAX_SHOWN: usize = 20;

impl Server {
    pub(super) async fn sign(
        &self,
        mut call: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, GatewayError> {
        let arguments: SignRequest =
            parse_arguments(GatewayTool::Sign, call.arguments.take().unwrap_or_default())?;
        let project = self
            .resolve_project(arguments.project_path.as_deref(), context)
            .await?;
        let (project_dir, request) = (project.clone(), arguments.clone());
        let unsigned = self
            .run_blocking(move |gateway| gateway.unsigned_items(&project_dir, &request))
            .await?;
        // If there is nothing to sign, no approval is needed, and the result says why.
        let approval = (!unsigned.is_empty()).then(|| approval_request(&arguments, &unsigned));
        let project_dir = project.clone();
        let sign = move |gateway: &dyn Gateway| gateway.sign(&project_dir, &arguments, &unsigned);
        let Some(approval) = approval else {
            return self.run_blocking(sign).await.map(success_response);
        };
        let approved = self.require_approval(&call, &project, approval, context);
        match approved.await? {
            RequiredApproval::InputRequired(response) => Ok(response),
            RequiredApproval::Approved(call) => {
                let signed = self.run_approved(&project, call, sign);
                signed.await.map(success_response)
            }
        }
    }
}

/// Hash over the paths and contents of all items to sign.
fn items_hash(unsigned: &[UnsignedItem]) -> Hash {
    let all = unsigned.iter().map(|item| json!([item.path, item.hash]));
    let all: Vec<_> = all.collect();
    Hash::digest(json!(["sign", all]).to_string())
}

fn approval_request(arguments: &SignRequest, unsigned: &[UnsignedItem]) -> ApprovalRequest {
    let pattern = format!("{}:{}", arguments.item_type, arguments.item_id);
    let mut question = format!(
        "Sign {pattern}?\n\nYour signature vouches for the content of a file and allows it to run.\n"
    );
    for item in unsigned.iter().take(MAX_SHOWN) {
        let (path, text) = (item.path.display(), quoted_excerpt(&item.text));
        let (name, hash) = (&item.item, &item.hash);
        let _ = writeln!(question, "\n{name}\nfile: {path}\nhash: {hash}\n{text}");
    }
    for item in unsigned.iter().skip(MAX_SHOWN) {
        let _ = write!(
            question,
            "\n{} ({}, {})",
            item.item,
            item.path.display(),
            item.hash
        );
    }
    let components = unsigned.iter().map(|item| Component {
        name: item.item.clone(),
        hash: item.hash.to_hex(),
        signed_by: None,
    });
    ApprovalRequest {
        call: GatedCall {
            title: format!("Sign {pattern} for an MCP client?"),
            // Cannot collide with a tool id, which has no spaces.
            tool: format!("sign {pattern}"),
            parameters: json!({ "item_type": arguments.item_type, "item_id": arguments.item_id }),
            chain: items_hash(unsigned),
            components: components.collect(),
            question,
        },
        checkbox: "Approve the signature",
        subject: format!("signing {pattern}"),
        denied_message: "the user denied the signature",
    }
}
