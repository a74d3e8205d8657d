//! Wraps the server with the fixtures of the suite. Other requests go to the server.
#![expect(deprecated, reason = "the suite covers earlier revisions")]

mod data;
mod input_rounds;
mod interactive;

use std::borrow::Cow;
use std::sync::Arc;

use input_rounds::InputRounds;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, CustomRequest,
    CustomResult, GetPromptRequestParams, GetPromptResponse, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use rye_mcp::server::Server;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::broadcast;

/// Fixtures in front of the server of one connection.
pub(crate) struct Fixtures {
    server: Server,
    input_rounds: Arc<InputRounds>,
    changes: broadcast::Sender<Change>,
}

/// A list whose change is announced.
#[derive(Debug, Clone, Copy)]
enum Change {
    Tools,
    Prompts,
}

impl Fixtures {
    pub(crate) fn new(server: Server) -> Self {
        Self {
            server,
            input_rounds: Arc::new(InputRounds::new()),
            changes: broadcast::channel(16).0,
        }
    }

    /// Fixtures for another connection, with shared state.
    pub(crate) fn connection(&self) -> Self {
        Self {
            server: self.server.remote_connection(),
            input_rounds: Arc::clone(&self.input_rounds),
            changes: self.changes.clone(),
        }
    }

    fn announce(&self, change: Change) -> Value {
        // Fails without subscribers, which is fine.
        let _ = self.changes.send(change);
        data::text("notified all subscribers")
    }
}

/// Deserializes fixture data.
fn parse<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// A complete result.
fn complete<T: DeserializeOwned>(mut result: Value) -> Result<T, ErrorData> {
    result["resultType"] = "complete".into();
    parse(result)
}

/// Prepends fixtures to the first page of a list.
fn prepend<T: DeserializeOwned>(
    request: Option<&PaginatedRequestParams>,
    fixtures: Value,
    listed: &mut Vec<T>,
) -> Result<(), ErrorData> {
    if request.is_none_or(|request| request.cursor.is_none()) {
        listed.splice(..0, parse::<Vec<T>>(fixtures)?);
    }
    Ok(())
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let mut info = self.server.get_info();
        let capabilities = &mut info.capabilities;
        capabilities.tools.get_or_insert_default().list_changed = Some(true);
        capabilities.prompts.get_or_insert_default().list_changed = Some(true);
        capabilities.resources.get_or_insert_default().subscribe = Some(true);
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [rmcp::model::ProtocolVersion]> {
        self.server.supported_protocol_versions()
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tools: Vec<Tool> = parse(data::tools()).ok()?;
        let fixture = tools.into_iter().find(|tool| tool.name == name);
        fixture.or_else(|| self.server.get_tool(name))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut result = self.server.list_tools(request.clone(), context).await?;
        prepend(request.as_ref(), data::tools(), &mut result.tools)?;
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.clone().unwrap_or_default();
        let result = match request.name.as_ref() {
            "test_trigger_tool_change" => self.announce(Change::Tools),
            "test_trigger_prompt_change" => self.announce(Change::Prompts),
            name => match data::result(name) {
                Some(result) => result,
                None => match interactive::call(name, &arguments, &context).await? {
                    Some(result) => result,
                    None => {
                        return match self.input_rounds.tool(&request, &context)? {
                            Some(response) => Ok(response),
                            None => self.server.call_tool(request, context).await,
                        };
                    }
                },
            },
        };
        Ok(CallToolResponse::Complete(complete(result)?))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut result = self.server.list_resources(request.clone(), context).await?;
        prepend(request.as_ref(), data::resources(), &mut result.resources)?;
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let server = &self.server;
        let mut result = server
            .list_resource_templates(request.clone(), context)
            .await?;
        let (request, listed) = (request.as_ref(), &mut result.resource_templates);
        prepend(request, data::templates(), listed)?;
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match data::resource(&request.uri) {
            Some(result) => Ok(ReadResourceResponse::Complete(complete(result)?)),
            None => self.server.read_resource(request, context).await,
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut result = self.server.list_prompts(request.clone(), context).await?;
        prepend(request.as_ref(), data::prompts(), &mut result.prompts)?;
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.clone().unwrap_or_default();
        if let Some(result) = data::prompt(&request.name, &arguments) {
            return Ok(GetPromptResponse::Complete(complete(result)?));
        }
        match self.input_rounds.prompt(&request, &context)? {
            Some(response) => Ok(response),
            None => self.server.get_prompt(request, context).await,
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.server.complete(request, context).await
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.server.set_level(request, context).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        self.server.on_custom_request(request, context).await
    }

    /// Accepted without effect: the resources never change.
    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        let (sink, accepted) = (context.sink(), context.accepted());
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = context.cancelled() => return Ok(()),
            };
            let sent = match change {
                Ok(Change::Tools) if accepted.tools_list_changed == Some(true) => {
                    sink.notify_tool_list_changed().await
                }
                Ok(Change::Prompts) if accepted.prompts_list_changed == Some(true) => {
                    sink.notify_prompt_list_changed().await
                }
                Ok(_) => Ok(()),
                Err(_) => return Ok(()),
            };
            // The client has disconnected.
            if sent.is_err() {
                return Ok(());
            }
        }
    }
}
