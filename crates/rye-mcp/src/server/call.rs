//! A call of one of the five tools.

use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Server;
use super::definitions::Five;
use crate::gateway::{Gateway, GatewayError, GatewayResult, HelpRequest, SearchRequest, ToolReply};

impl Server {
    /// Carries out a call. What a model can put right is a result that says so, not an
    /// error of the protocol, which a model may never see.
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = Five::named(&request.name) else {
            let names = Five::ALL.map(Five::name).join(", ");
            let message = format!("there is no tool `{}`; there are {names}", request.name);
            return Err(ErrorData::invalid_params(message, None));
        };
        let outcome = match tool {
            Five::Execute => Box::pin(self.execute(request, &context)).await,
            Five::Sign => Box::pin(self.sign(request, &context)).await,
            Five::Load => Box::pin(self.load(request, &context)).await,
            _ => Box::pin(self.ask(tool, request, &context)).await.map(told),
        };
        Ok(outcome.unwrap_or_else(|refusal| refused(&refusal)))
    }

    async fn ask(
        &self,
        tool: Five,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> GatewayResult {
        let arguments = request.arguments.unwrap_or_default();
        match tool {
            Five::Search => {
                let ask: SearchRequest = read(tool, arguments)?;
                let project = self
                    .project_of(ask.project_path.as_deref(), context)
                    .await?;
                self.blocking(move |gateway| gateway.search(&project, &ask))
                    .await
            }
            Five::Help | Five::Execute | Five::Sign | Five::Load => {
                let ask: HelpRequest = read(tool, arguments)?;
                self.shared.gateway.help(ask.topic.as_deref())
            }
        }
    }

    /// Lets the gateway work where it may wait for a disk.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Gateway) -> Result<T, GatewayError> + Send + 'static,
    ) -> Result<T, GatewayError> {
        let gateway = std::sync::Arc::clone(&self.shared.gateway);
        match tokio::task::spawn_blocking(move || work(&*gateway)).await {
            Ok(outcome) => outcome,
            Err(error) => Err(GatewayError::new(
                "internal",
                format!("it broke off: {error}"),
            )),
        }
    }
}

/// Arguments as a tool takes them.
pub(super) fn read<T: DeserializeOwned>(
    tool: Five,
    arguments: Map<String, Value>,
) -> Result<T, GatewayError> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let message = format!("the arguments do not fit `{}`: {error}", tool.name());
        GatewayError::new("invalid_arguments", message)
            .hint("the tool's input schema says what it takes; help shows examples")
    })
}

pub(super) fn told(reply: ToolReply) -> CallToolResponse {
    result(reply, false)
}

pub(super) fn refused(refusal: &GatewayError) -> CallToolResponse {
    let reply = ToolReply {
        value: refusal.value(),
        text: refusal.text(),
    };
    result(reply, true)
}

pub(super) fn result(reply: ToolReply, is_error: bool) -> CallToolResponse {
    let content = vec![ContentBlock::text(reply.text)];
    let mut result = if is_error {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    };
    result.structured_content = Some(reply.value);
    result.into()
}
