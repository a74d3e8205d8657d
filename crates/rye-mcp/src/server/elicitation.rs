//! Forwards elicitations of MCP servers, whose tools a call runs, to the user at the client.

use std::sync::Arc;

use lillux::{quote_block, sanitize_line};
use rmcp::RoleServer;
use rmcp::model::{ElicitRequestParams, ElicitationAction};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::is_stateless;
use crate::client::{
    Elicitation, ElicitationFuture, ElicitationHandler, ElicitationReply, elicitation,
};

/// Maximum number of waiting elicitations; the user answers one at a time.
const QUEUE_LEN: usize = 4;

/// Sends elicitations to the task of the call, which has access to the client.
#[derive(Debug)]
struct ClientElicitation(mpsc::Sender<(Elicitation, oneshot::Sender<ElicitationReply>)>);

impl ElicitationHandler for ClientElicitation {
    fn elicit(&self, elicitation: Elicitation) -> ElicitationFuture<'_> {
        Box::pin(async move {
            let (reply, replied) = oneshot::channel();
            // Fails if the call has ended, in which case the reply is `Cancel`.
            let _ = self.0.send((elicitation, reply)).await;
            replied.await.unwrap_or(ElicitationReply::Cancel)
        })
    }
}

/// Whether the client supports elicitation by form.
pub(super) fn supports_forms(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation);
    elicitation.is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none())
}

/// Runs `work` and forwards elicitations to the client. Clients of revision 2026-07-28 accept no
/// requests during a call, so elicitations are cancelled there.
pub(super) async fn with_client_elicitation<T>(
    work: impl Future<Output = T>,
    context: &RequestContext<RoleServer>,
) -> T {
    if is_stateless(context) || !supports_forms(context) {
        return work.await;
    }
    let (sender, mut elicitations) = mpsc::channel(QUEUE_LEN);
    let work = elicitation::with_handler(Arc::new(ClientElicitation(sender)), work);
    let forwarding = async {
        while let Some((elicitation, reply)) = elicitations.recv().await {
            let _ = reply.send(elicit_from_client(elicitation, context).await);
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        done = work => done,
        never = forwarding => never,
    }
}

async fn elicit_from_client(
    elicitation: Elicitation,
    context: &RequestContext<RoleServer>,
) -> ElicitationReply {
    let Ok(requested_schema) = serde_json::from_value(elicitation.schema) else {
        return ElicitationReply::Cancel;
    };
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: format!(
            "The MCP server {} asks:\n\n{}",
            sanitize_line(&elicitation.server),
            quote_block(&elicitation.message)
        ),
        requested_schema,
    };
    let Ok(answer) = context.peer.create_elicitation(form).await else {
        return ElicitationReply::Cancel;
    };
    match (answer.action, answer.content) {
        (ElicitationAction::Accept, Some(Value::Object(filled))) => {
            ElicitationReply::Accept(filled)
        }
        (ElicitationAction::Accept, _) => ElicitationReply::Accept(serde_json::Map::new()),
        (ElicitationAction::Decline, _) => ElicitationReply::Decline,
        _ => ElicitationReply::Cancel,
    }
}
