//! Items as resources, directives as prompts, and completion of item ids.

use std::fmt::Write as _;

use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptRequestParams, GetPromptResult,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams,
    Prompt, PromptArgument, PromptMessage, ReadResourceResult, Reference, Resource,
    ResourceContents, ResourceTemplate, Role,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::json;

use super::Server;
use crate::gateway::{GatewayError, ItemSummary, LoadRequest, ToolReply};

/// Scheme of item URIs: `rye://TYPE/ID`.
const SCHEME: &str = "rye://";

/// Number of items per page.
const PAGE_SIZE: usize = 100;

const KNOWLEDGE: &str = "knowledge";
const DIRECTIVE: &str = "directive";
const ITEM_TYPES: [&str; 3] = ["tool", DIRECTIVE, KNOWLEDGE];

/// The URI template for items.
pub(super) fn resource_templates() -> ListResourceTemplatesResult {
    let template = ResourceTemplate::new(format!("{SCHEME}{{type}}/{{+id}}"), "item")
        .with_title("Item")
        .with_description("A tool, directive or knowledge item by its id, verified");
    ListResourceTemplatesResult::with_all_items(vec![template])
}

impl Server {
    /// Lists knowledge items as resources. Clients find tools with `search`.
    pub(super) async fn list_knowledge(
        &self,
        request: Option<PaginatedRequestParams>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let (page, next) = self.page(KNOWLEDGE, request, context).await?;
        let all = page.into_iter().map(|item| {
            let uri = format!("{SCHEME}{KNOWLEDGE}/{}", item.id);
            let mut resource = Resource::new(uri, item.id).with_mime_type("text/markdown");
            resource.title = item.title;
            resource.description = item.description;
            resource
        });
        let mut result = ListResourcesResult::with_all_items(all.collect());
        result.next_cursor = next;
        Ok(result)
    }

    /// Reads an item as a resource.
    pub(super) async fn read_item(
        &self,
        uri: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        let parts = uri.strip_prefix(SCHEME).and_then(|it| it.split_once('/'));
        let (item_type, id) = parts
            .filter(|(item_type, _)| ITEM_TYPES.contains(item_type))
            .ok_or_else(|| not_found(uri, "expected rye://TYPE/ID"))?;
        let ToolReply { value, .. } = self
            .load_item(item_type, id, context)
            .await
            .map_err(|error| not_found(uri, &error.to_text()))?;
        let text = value["content"].as_str().unwrap_or_default();
        let path = value["path"].as_str().unwrap_or_default();
        let contents = ResourceContents::text(text, uri).with_mime_type(mime_type(path));
        Ok(ReadResourceResult::new(vec![contents]))
    }

    /// Lists directives as prompts.
    pub(super) async fn list_directives(
        &self,
        request: Option<PaginatedRequestParams>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let (page, next) = self.page(DIRECTIVE, request, context).await?;
        let all = page.into_iter().map(|item| {
            let arguments = item.parameters.into_iter();
            let arguments =
                arguments.map(|(name, required)| PromptArgument::new(name).with_required(required));
            let mut prompt = Prompt::new(item.id, item.description, Some(arguments.collect()));
            prompt.title = item.title;
            prompt
        });
        let mut result = ListPromptsResult::with_all_items(all.collect());
        result.next_cursor = next;
        Ok(result)
    }

    /// The text of a directive with its inputs, as a prompt.
    pub(super) async fn get_directive(
        &self,
        request: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResult, ErrorData> {
        let invalid = |message: String| ErrorData::invalid_params(message, None);
        let loaded = self.load_item(DIRECTIVE, &request.name, context).await;
        let ToolReply { value, .. } = loaded.map_err(|error| invalid(error.to_text()))?;
        let mut text = value["content"].as_str().unwrap_or_default().to_owned();
        let inputs = request.arguments.unwrap_or_default();
        if !inputs.is_empty() {
            text += "\n\nInputs:\n";
            for (name, input) in &inputs {
                let input = input
                    .as_str()
                    .map_or_else(|| input.to_string(), str::to_owned);
                let _ = writeln!(text, "- {name}: {input}");
            }
        }
        let mut result = GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]);
        result.description = value["metadata"]["description"].as_str().map(str::to_owned);
        Ok(result)
    }

    /// Completes the type or id in the URI of an item.
    pub(super) async fn complete_argument(
        &self,
        request: &CompleteRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let prefix = request.argument.value.as_str();
        let values = match (&request.r#ref, request.argument.name.as_str()) {
            (Reference::Resource(_), "type") => {
                let types = ITEM_TYPES
                    .into_iter()
                    .filter(|name| name.starts_with(prefix));
                types.map(str::to_owned).collect()
            }
            (Reference::Resource(_), "id") => {
                let given = request
                    .context
                    .as_ref()
                    .and_then(|it| it.get_argument("type"));
                let item_type = ITEM_TYPES
                    .into_iter()
                    .find(|name| given.is_some_and(|it| it == name));
                self.matching_ids(item_type.unwrap_or(KNOWLEDGE), prefix, context)
                    .await?
            }
            _ => Vec::new(),
        };
        let info = CompletionInfo::new(values);
        let info = info.map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(info))
    }

    async fn matching_ids(
        &self,
        item_type: &'static str,
        prefix: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<Vec<String>, ErrorData> {
        let all = self
            .list_items(item_type, None, usize::MAX, context)
            .await?;
        let ids = all.into_iter().map(|item| item.id);
        let ids = ids.filter(|id| id.starts_with(prefix));
        Ok(ids.take(CompletionInfo::MAX_VALUES).collect())
    }

    async fn page(
        &self,
        item_type: &'static str,
        request: Option<PaginatedRequestParams>,
        context: &RequestContext<RoleServer>,
    ) -> Result<(Vec<ItemSummary>, Option<String>), ErrorData> {
        let after = request.and_then(|request| request.cursor);
        let mut page = self
            .list_items(item_type, after, PAGE_SIZE + 1, context)
            .await?;
        let more = page.len() > PAGE_SIZE;
        page.truncate(PAGE_SIZE);
        let last = page.last().map(|item| item.id.clone());
        Ok((page, last.filter(|_| more)))
    }

    async fn list_items(
        &self,
        item_type: &'static str,
        after: Option<String>,
        limit: usize,
        context: &RequestContext<RoleServer>,
    ) -> Result<Vec<ItemSummary>, ErrorData> {
        let project = self
            .resolve_project(None, context)
            .await
            .map_err(internal_error)?;
        self.run_blocking(move |gateway| {
            gateway.list_items(&project, item_type, after.as_deref(), limit)
        })
        .await
        .map_err(internal_error)
    }

    async fn load_item(
        &self,
        item_type: &str,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ToolReply, GatewayError> {
        let project = self.resolve_project(None, context).await?;
        let request = LoadRequest {
            item_type: item_type.to_owned(),
            item_id: id.to_owned(),
            project_path: None,
            destination: None,
        };
        self.run_blocking(move |gateway| gateway.load(&project, &request))
            .await
    }
}

fn not_found(uri: &str, why: &str) -> ErrorData {
    let message = format!("resource {uri} not found: {why}");
    ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
}

#[expect(clippy::needless_pass_by_value, reason = "passed to `map_err`")]
fn internal_error(error: GatewayError) -> ErrorData {
    ErrorData::internal_error(error.to_text(), Some(error.to_value()))
}

fn mime_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("md") => "text/markdown",
        Some("py") => "text/x-python",
        Some("js" | "mjs" | "cjs") => "text/javascript",
        Some("ts") => "text/x-typescript",
        Some("yaml" | "yml") => "application/yaml",
        Some("sh") => "application/x-sh",
        _ => "text/plain",
    }
}
