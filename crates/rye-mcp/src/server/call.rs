//! Dispatches calls of the five tools.

use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Server;
use super::definitions::GatewayTool;
use crate::gateway::{Gateway, GatewayError, HelpRequest, SearchRequest, ToolReply};

impl Server {
    /// Executes a call. Errors that a model can correct are results with `isError`, because a
    /// model may never see a protocol error.
    pub(super) async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = GatewayTool::from_name(&request.name) else {
            let names = GatewayTool::ALL.map(GatewayTool::name).join(", ");
            let message = format!("unknown tool `{}`; available: {names}", request.name);
            return Err(ErrorData::invalid_params(message, None));
        };
        let outcome = match tool {
            GatewayTool::Execute => Box::pin(self.execute(request, &context)).await,
            GatewayTool::Sign => Box::pin(self.sign(request, &context)).await,
            GatewayTool::Load => Box::pin(self.load(request, &context)).await,
            GatewayTool::Search => Box::pin(self.search(request, &context)).await,
            GatewayTool::Help => self.help(request),
        };
        Ok(outcome.unwrap_or_else(|error| error_response(&error)))
    }

    async fn search(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, GatewayError> {
        let arguments = request.arguments.unwrap_or_default();
        let search: SearchRequest = parse_arguments(GatewayTool::Search, arguments)?;
        let project = self
            .resolve_project(search.project_path.as_deref(), context)
            .await?;
        self.run_blocking(move |gateway| gateway.search(&project, &search))
            .await
            .map(success_response)
    }

    fn help(&self, request: CallToolRequestParams) -> Result<CallToolResponse, GatewayError> {
        let arguments = request.arguments.unwrap_or_default();
        let help: HelpRequest = parse_arguments(GatewayTool::Help, arguments)?;
        let reply = self.shared.gateway.help(help.topic.as_deref())?;
        Ok(success_response(reply))
    }

    /// Runs blocking work of the gateway on the blocking thread pool.
    pub(super) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Gateway) -> Result<T, GatewayError> + Send + 'static,
    ) -> Result<T, GatewayError> {
        let gateway = std::sync::Arc::clone(&self.shared.gateway);
        match tokio::task::spawn_blocking(move || work(&*gateway)).await {
            Ok(outcome) => outcome,
            Err(error) => Err(GatewayError::new(
                "internal",
                format!("the task failed: {error}"),
            )),
        }
    }
}

/// Parses the arguments of a tool.
pub(super) fn parse_arguments<T: DeserializeOwned>(
    tool: GatewayTool,
    arguments: Map<String, Value>,
) -> Result<T, GatewayError> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        let message = format!("invalid arguments for `{}`: {error}", tool.name());
        GatewayError::new("invalid_arguments", message)
            .with_hint("see the input schema of the tool; `help` shows examples")
    })
}

pub(super) fn success_response(reply: ToolReply) -> CallToolResponse {
    tool_response(reply, false)
}

pub(super) fn error_response(error: &GatewayError) -> CallToolResponse {
    let reply = ToolReply {
        value: error.to_value(),
        text: error.to_text(),
    };
    tool_response(reply, true)
}

pub(super) fn tool_response(reply: ToolReply, is_error: bool) -> CallToolResponse {
    let content = vec![ContentBlock::text(reply.text)];
    let mut result = if is_error {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    };
    result.structured_content = Some(reply.value);
    result.into()
}
