//! The person at a client, asked what the servers want to know whose tools a call runs.

use std::pin::Pin;
use std::sync::Arc;

use lillux::{quote_block, sanitize_line};
use rmcp::RoleServer;
use rmcp::model::{ElicitRequestParams, ElicitationAction};
use rmcp::service::RequestContext;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::is_stateless;
use crate::client::{Elicitation, ElicitationHandler, ElicitationReply, ask};

/// How many questions may wait: a person answers one at a time.
const WAITING: usize = 4;

/// Takes questions to where the call is carried out, which is where its client is known.
#[derive(Debug)]
struct AtClient(mpsc::Sender<(Elicitation, oneshot::Sender<ElicitationReply>)>);

impl ElicitationHandler for AtClient {
    fn elicit(
        &self,
        question: Elicitation,
    ) -> Pin<Box<dyn Future<Output = ElicitationReply> + Send + '_>> {
        Box::pin(async move {
            let (reply, replied) = oneshot::channel();
            // Where the call has ended, nobody waits for an answer either.
            let _ = self.0.send((question, reply)).await;
            replied.await.unwrap_or(ElicitationReply::Cancel)
        })
    }
}

/// Whether a client has forms for people.
pub(super) fn has_forms(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities();
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation);
    elicitation.is_some_and(|it| it.form.is_some() || it.url.is_none())
}

/// Does some work in which servers may ask the person at a client. One of 2026-07-28 takes
/// no requests while a call runs, so there they cannot.
pub(super) async fn along<T>(
    work: impl Future<Output = T>,
    context: &RequestContext<RoleServer>,
) -> T {
    if is_stateless(context) || !has_forms(context) {
        return work.await;
    }
    let (asker, mut questions) = mpsc::channel(WAITING);
    let work = ask::asked_by(Arc::new(AtClient(asker)), work);
    let asking = async {
        while let Some((question, reply)) = questions.recv().await {
            let _ = reply.send(put(question, context).await);
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        done = work => done,
        never = asking => never,
    }
}

async fn put(question: Elicitation, context: &RequestContext<RoleServer>) -> ElicitationReply {
    let Ok(requested_schema) = serde_json::from_value(question.schema) else {
        return ElicitationReply::Cancel;
    };
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: format!(
            "The MCP server {} asks:\n\n{}",
            sanitize_line(&question.server),
            quote_block(&question.message)
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
