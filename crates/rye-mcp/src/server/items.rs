//! Items as resources, directives as prompts, and ids completed.

use rmcp::ErrorData;
use std::fmt::Write as _;

use rmcp::RoleServer;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptRequestParams, GetPromptResult,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, PaginatedRequestParams,
    Prompt, PromptArgument, PromptMessage, ReadResourceResult, Reference, Resource,
    ResourceContents, ResourceTemplate, Role,
};
use rmcp::service::RequestContext;
use serde_json::json;

use super::Server;
use crate::gateway::{GatewayError, ItemSummary, LoadRequest, ToolReply};

/// Where an item is: `rye://TYPE/ID`.
const SCHEME: &str = "rye://";

/// How many items a page holds.
const PAGE: usize = 100;

const KNOWLEDGE: &str = "knowledge";
const DIRECTIVE: &str = "directive";
const TYPES: [&str; 3] = ["tool", DIRECTIVE, KNOWLEDGE];

/// Every item, by its address.
pub(super) fn templates() -> ListResourceTemplatesResult {
    let template = ResourceTemplate::new(format!("{SCHEME}{{type}}/{{+id}}"), "item")
        .with_title("An item")
        .with_description("A tool, directive or knowledge item by its id, verified");
    ListResourceTemplatesResult::with_all_items(vec![template])
}

impl Server {
    /// Knowledge, which is there to be read. Tools are found with `search`.
    pub(super) async fn resources(
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

    pub(super) async fn resource(
        &self,
        uri: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        let parts = uri.strip_prefix(SCHEME).and_then(|it| it.split_once('/'));
        let (kind, id) = parts
            .filter(|(kind, _)| TYPES.contains(kind))
            .ok_or_else(|| not_found(uri, "an item's address reads rye://TYPE/ID"))?;
        let ToolReply { value, .. } = self
            .read(kind, id, context)
            .await
            .map_err(|refusal| not_found(uri, &refusal.text()))?;
        let text = value["content"].as_str().unwrap_or_default();
        let path = value["path"].as_str().unwrap_or_default();
        let contents = ResourceContents::text(text, uri).with_mime_type(mime_type(path));
        Ok(ReadResourceResult::new(vec![contents]))
    }

    pub(super) async fn prompts(
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

    /// A directive's text, and what it is to be followed with.
    pub(super) async fn prompt(
        &self,
        request: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResult, ErrorData> {
        let wrong = |message: String| ErrorData::invalid_params(message, None);
        let loaded = self.read(DIRECTIVE, &request.name, context).await;
        let ToolReply { value, .. } = loaded.map_err(|refusal| wrong(refusal.text()))?;
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

    /// Types and ids of the address of an item.
    pub(super) async fn completed(
        &self,
        request: &CompleteRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let begun = request.argument.value.as_str();
        let values = match (&request.r#ref, request.argument.name.as_str()) {
            (Reference::Resource(_), "type") => {
                let types = TYPES.into_iter().filter(|name| name.starts_with(begun));
                types.map(str::to_owned).collect()
            }
            (Reference::Resource(_), "id") => {
                let given = request
                    .context
                    .as_ref()
                    .and_then(|it| it.get_argument("type"));
                let kind = TYPES
                    .into_iter()
                    .find(|name| given.is_some_and(|it| it == name));
                self.ids(kind.unwrap_or(KNOWLEDGE), begun, context).await?
            }
            _ => Vec::new(),
        };
        let info = CompletionInfo::new(values);
        let info = info.map_err(|error| ErrorData::internal_error(error, None))?;
        Ok(CompleteResult::new(info))
    }

    async fn ids(
        &self,
        kind: &'static str,
        begun: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<Vec<String>, ErrorData> {
        let all = self.items(kind, None, usize::MAX, context).await?;
        let ids = all.into_iter().map(|item| item.id);
        let ids = ids.filter(|id| id.starts_with(begun));
        Ok(ids.take(CompletionInfo::MAX_VALUES).collect())
    }

    async fn page(
        &self,
        kind: &'static str,
        request: Option<PaginatedRequestParams>,
        context: &RequestContext<RoleServer>,
    ) -> Result<(Vec<ItemSummary>, Option<String>), ErrorData> {
        let after = request.and_then(|request| request.cursor);
        let mut page = self.items(kind, after, PAGE + 1, context).await?;
        let more = page.len() > PAGE;
        page.truncate(PAGE);
        let last = page.last().map(|item| item.id.clone());
        Ok((page, last.filter(|_| more)))
    }

    async fn items(
        &self,
        kind: &'static str,
        after: Option<String>,
        limit: usize,
        context: &RequestContext<RoleServer>,
    ) -> Result<Vec<ItemSummary>, ErrorData> {
        let project = self.project_of(None, context).await.map_err(unable)?;
        self.blocking(move |gateway| gateway.list_items(&project, kind, after.as_deref(), limit))
            .await
            .map_err(unable)
    }

    async fn read(
        &self,
        kind: &str,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ToolReply, GatewayError> {
        let project = self.project_of(None, context).await?;
        let load = LoadRequest {
            item_type: kind.to_owned(),
            item_id: id.to_owned(),
            project_path: None,
            destination: None,
        };
        self.blocking(move |gateway| gateway.load(&project, &load))
            .await
    }
}

fn not_found(uri: &str, why: &str) -> ErrorData {
    let message = format!("there is no resource {uri}: {why}");
    ErrorData::resource_not_found(message, Some(json!({ "uri": uri })))
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn unable(refusal: GatewayError) -> ErrorData {
    ErrorData::internal_error(refusal.text(), Some(refusal.value()))
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
