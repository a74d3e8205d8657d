//! MCP server: five tools, resources and prompts over stdio or streamable HTTP.

#![expect(
    deprecated,
    reason = "clients of the revisions before 2026-07-28 have roots and log levels"
)]

mod approval;
mod call;
mod definitions;
mod elicitation;
mod execute;
pub mod http;
mod items;
mod load;
mod project;
mod relay;
mod sign;
mod stdio;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    CacheScope, CallToolRequestMethod, CallToolRequestParams, CallToolResponse,
    CompleteRequestMethod, CompleteRequestParams, CompleteResult, ConstString as _, CustomRequest,
    CustomResult, ErrorCode, GetPromptRequestMethod, GetPromptRequestParams, GetPromptResponse,
    Implementation, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
    ListResourcesResult, ListToolsRequestMethod, ListToolsResult, LoggingLevel,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestMethod, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, SetLevelRequestMethod,
    SetLevelRequestParams, Tool,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio_util::task::TaskTracker;

use crate::gateway::Gateway;
use approval::PendingApprovals;
use project::Roots;

pub use approval::gated_run;
pub use stdio::serve_stdio;

/// Instructions that the server sends during initialization.
const INSTRUCTIONS: &str = "Signed tools, directives and knowledge, verified before use. \
    Find an item with `search`, read it with `load`, run it with `execute`. \
    `help` explains how to write and `sign` your own.";

/// Supported methods with parameters.
const METHODS: [&str; 8] = [
    CallToolRequestMethod::VALUE,
    CompleteRequestMethod::VALUE,
    GetPromptRequestMethod::VALUE,
    ListPromptsRequestMethod::VALUE,
    ListResourcesRequestMethod::VALUE,
    ListResourceTemplatesRequestMethod::VALUE,
    ListToolsRequestMethod::VALUE,
    ReadResourceRequestMethod::VALUE,
];

/// How long a client may cache the list of tools.
const TOOLS_TTL: Duration = Duration::from_hours(1);

/// Whether a request uses revision 2026-07-28 or later, which has no sessions and no requests
/// from server to client.
fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    let since = ProtocolVersion::V_2026_07_28;
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= since.as_str())
}

/// An MCP server. Each connection has its own value; all share the gateway.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
    session: Arc<Session>,
}

/// State shared by all connections.
struct Shared {
    gateway: Arc<dyn Gateway>,
    /// Calls in progress.
    running: TaskTracker,
    /// Approval requests that clients have not answered.
    pending: Mutex<PendingApprovals>,
}

/// State of one connection.
#[derive(Default)]
struct Session {
    level: Mutex<Option<LoggingLevel>>,
    roots: tokio::sync::Mutex<Roots>,
    /// The client connects over HTTP rather than being the program that started the server.
    is_remote: bool,
}

impl Server {
    /// Creates a server for a gateway.
    pub fn new(gateway: Arc<dyn Gateway>) -> Self {
        let shared = Shared {
            gateway,
            running: TaskTracker::new(),
            pending: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
            session: Arc::default(),
        }
    }

    /// A new connection of this server for a client over HTTP, whose roots count only inside the
    /// server's own project.
    #[must_use]
    pub fn remote_connection(&self) -> Self {
        let session = Session {
            is_remote: true,
            ..Session::default()
        };
        Self {
            shared: Arc::clone(&self.shared),
            session: Arc::new(session),
        }
    }

    /// Definitions of the five tools.
    pub fn tools() -> Vec<Tool> {
        definitions::all()
    }

    /// Rejects new calls and waits for those in progress.
    pub async fn drain(&self) {
        self.shared.running.close();
        self.shared.running.wait().await;
    }

    /// Minimum level of log messages for the client; `None` if it did not request any.
    fn log_level(&self, context: &RequestContext<RoleServer>) -> Option<LoggingLevel> {
        context.meta.log_level().or(*self.session.level.lock())
    }
}

impl ServerHandler for Server {
    // Large futures are boxed, because the SDK moves the future of every request and its size is
    // that of the largest branch.

    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_prompts()
            .enable_completions()
            .enable_logging()
            .build();
        let version = env!("CARGO_PKG_VERSION");
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("rye", version).with_title("Rye"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        // The definitions are constant.
        Ok(ListToolsResult::with_all_items(definitions::all())
            .with_ttl_ms(TOOLS_TTL.as_millis().try_into().unwrap_or(u64::MAX))
            .with_cache_scope(CacheScope::Public))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let running = &self.shared.running;
        if running.is_closed() {
            let message = "the server is shutting down";
            return Err(ErrorData::internal_error(message, None));
        }
        running.track_future(self.call(request, context)).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Box::pin(self.list_knowledge(request, &context)).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(items::resource_templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let resource = Box::pin(self.read_item(&request.uri, &context));
        Ok(resource.await?.into())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Box::pin(self.list_directives(request, &context)).await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Ok(Box::pin(self.get_directive(request, &context))
            .await?
            .into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Box::pin(self.complete_argument(&request, &context)).await
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // In that revision, each request sets its own log level.
        if is_stateless(&context) {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        *self.session.level.lock() = Some(request.level);
        Ok(())
    }

    /// Rejects unknown methods and known methods with invalid parameters.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        let is_known = METHODS.contains(&method.as_str())
            || method == SetLevelRequestMethod::VALUE && !is_stateless(&context);
        if is_known {
            let message = format!("invalid parameters for `{method}`");
            return Err(ErrorData::invalid_params(message, None));
        }
        let message = format!("unknown method `{method}`");
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None))
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        *self.session.roots.lock().await = None;
    }
}
