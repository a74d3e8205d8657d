//! `load`: reads an item; with a `destination`, copies it there once a person has approved the
//! copy.

use lillux::Hash;
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rmcp::service::RequestContext;
use serde_json::json;

use super::Server;
use super::approval::{Ask, shown};
use super::call::{read, told};
use super::definitions::Five;
use crate::gateway::{Component, GatedCall, GatewayError, LoadRequest, PlannedCopy};

impl Server {
    pub(super) async fn load(
        &self,
        mut call: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, GatewayError> {
        let ask: LoadRequest = read(Five::Load, call.arguments.take().unwrap_or_default())?;
        let project = self
            .project_of(ask.project_path.as_deref(), context)
            .await?;
        let Some(space) = ask.destination.clone() else {
            let loaded = self.blocking(move |gateway| gateway.load(&project, &ask));
            return loaded.await.map(told);
        };
        let (here, wanted) = (project.clone(), ask.clone());
        let copy = self
            .blocking(move |gateway| gateway.plan_copy(&here, &wanted))
            .await?;
        let question = question(&ask, &space, &copy);
        let asked = self.need_approval(&call, &project, question, context);
        if let Some(response) = asked.await? {
            return Ok(response);
        }
        self.blocking(move |gateway| gateway.copy(&project, &ask, &copy))
            .await
            .map(told)
    }
}

fn question(ask: &LoadRequest, space: &str, copy: &PlannedCopy) -> Ask {
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
         What is in that space counts wherever the space is used.\n\n\
         from: {shown_from}\nto: {shown_to}\nhash: {hash}\n{}",
        shown(text)
    );
    Ask {
        gated: GatedCall {
            title: format!("Copy {item} to the {space} space for an MCP client?"),
            // No id has a space in it.
            tool: format!("copy {item}"),
            parameters: json!({
                "item_type": ask.item_type,
                "item_id": ask.item_id,
                "destination": space,
            }),
            chain: Hash::digest(json!(["copy", from, to, hash]).to_string()),
            components: vec![Component {
                name: item.clone(),
                hash: hash.to_hex(),
            }],
            question,
        },
        tick: "Copy it",
        what: format!("a copy of {item} to the {space} space"),
        declined: "the person declined to copy it",
    }
}
