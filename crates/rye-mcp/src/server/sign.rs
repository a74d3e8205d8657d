//! `sign`: a signature says that a person vouches for a file, so a person is asked, with
//! what is in it.

use std::fmt::Write as _;

use lillux::Hash;
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rmcp::service::RequestContext;
use serde_json::json;

use super::Server;
use super::approval::{Ask, shown};
use super::call::{read, told};
use super::definitions::Five;
use crate::gateway::{Component, GatedCall, GatewayError, SignRequest, UnsignedItem};

/// How many files are shown whole.
const SHOWN: usize = 20;

impl Server {
    pub(super) async fn sign(
        &self,
        mut call: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, GatewayError> {
        let ask: SignRequest = read(Five::Sign, call.arguments.take().unwrap_or_default())?;
        let project = self
            .project_of(ask.project_path.as_deref(), context)
            .await?;
        let (here, wanted) = (project.clone(), ask.clone());
        let unsigned = self
            .blocking(move |gateway| gateway.unsigned_items(&here, &wanted))
            .await?;
        // Where nothing would be signed there is nothing to vouch for, and the answer says why.
        if !unsigned.is_empty() {
            let question = question(&ask, &unsigned);
            let asked = self.need_approval(&call, &project, question, context);
            if let Some(response) = asked.await? {
                return Ok(response);
            }
        }
        self.blocking(move |gateway| gateway.sign(&project, &ask, &unsigned))
            .await
            .map(told)
    }
}

/// All that would be signed, by its content.
fn hash(unsigned: &[UnsignedItem]) -> Hash {
    let all = unsigned.iter().map(|it| json!([it.path, it.hash]));
    let all: Vec<_> = all.collect();
    Hash::digest(json!(["sign", all]).to_string())
}

fn question(ask: &SignRequest, unsigned: &[UnsignedItem]) -> Ask {
    let meant = format!("{}:{}", ask.item_type, ask.item_id);
    let mut question = format!(
        "SignRequest {meant}?\n\nA signature says that you vouch for what is in a file: it may then run.\n"
    );
    for one in unsigned.iter().take(SHOWN) {
        let (path, text) = (one.path.display(), shown(&one.text));
        let (item, hash) = (&one.item, &one.hash);
        let _ = writeln!(question, "\n{item}\nfile: {path}\nhash: {hash}\n{text}");
    }
    for one in unsigned.iter().skip(SHOWN) {
        let _ = write!(
            question,
            "\n{} ({}, {})",
            one.item,
            one.path.display(),
            one.hash
        );
    }
    let components = unsigned.iter().map(|it| Component {
        name: it.item.clone(),
        hash: it.hash.to_hex(),
    });
    Ask {
        gated: GatedCall {
            title: format!("SignRequest {meant} for an MCP client?"),
            // No id has a space in it.
            tool: format!("sign {meant}"),
            parameters: json!({ "item_type": ask.item_type, "item_id": ask.item_id }),
            chain: hash(unsigned),
            components: components.collect(),
            question,
        },
        tick: "SignRequest it",
        what: format!("a signature for {meant}"),
        declined: "the person declined to sign it",
    }
}
