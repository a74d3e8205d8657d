//! The measured servers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::serve::ListenerExt as _;
use lillux::durable::IfExists;
use lillux::process::Supervisor;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use rye_executor::primitive::{Call, CallFuture, CallOutcome, Primitive};
use rye_executor::{Executor, Request, Roots};
use rye_items::UserKeys;
use rye_mcp::server::{Server, http, serve_stdio};
use rye_mcp::{
    ApprovalChannel, CallDecision, CallEnd, GatedCall, Gateway, GatewayError, GatewayResult,
    ItemSummary, LoadRequest, PlannedCopy, ProjectBounds, SearchRequest, SignRequest, UnsignedItem,
};
use tokio_util::sync::CancellationToken;

use crate::executor::write_signed;

/// First argument of a child process that serves.
const SERVE: &str = "--serve-mcp";

/// Command that runs this program as a server.
pub fn child_command(which: &str, transport: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([SERVE, which, transport]);
    Ok(command)
}

/// Serves, if this is a child process.
pub fn run_if_requested() -> Option<Result<()>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [serve, which, transport] = words.as_slice() else {
        return None;
    };
    (serve == SERVE).then(|| run_server(which, transport))
}

fn run_server(which: &str, transport: &str) -> Result<()> {
    let supervisor = Arc::new(Supervisor::start()?);
    let mut runtime = if transport == "http" {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    // As many threads as `rye mcp serve` has; the echo server is as in the SDK's examples.
    if transport == "http" && which == "noop" {
        runtime.worker_threads(http::worker_threads());
    }
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(async {
        if which == "echo" {
            return echo(transport).await;
        }
        let server = Server::new(Arc::new(NoopGateway::new(supervisor)?));
        serve(move || server.remote_connection(), transport).await
    })
}

#[expect(clippy::print_stdout, reason = "the parent process reads the address")]
async fn serve<H: ServerHandler>(
    make: impl Fn() -> H + Send + Sync + 'static,
    transport: &str,
) -> Result<()> {
    if transport == "stdio" {
        return Ok(serve_stdio(make(), CancellationToken::new()).await?);
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let options = http::Options::default();
    let never = std::future::pending();
    http::serve(listener, make, &options, CancellationToken::new(), never).await?;
    Ok(())
}

/// A server as in the SDK's examples.
#[expect(clippy::print_stdout, reason = "the parent process reads the address")]
async fn echo(transport: &str) -> Result<()> {
    if transport == "stdio" {
        let streams = (tokio::io::stdin(), tokio::io::stdout());
        Echo.serve(streams).await?.waiting().await?;
        return Ok(());
    }
    let sessions = Arc::new(LocalSessionManager::default());
    let config = StreamableHttpServerConfig::default();
    let service = StreamableHttpService::new(|| Ok(Echo), sessions, config);
    let router = axum::Router::new().nest_service(http::PATH, service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await?;
    Ok(())
}

/// Returns the arguments of a call.
struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![Tool::default()]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = serde_json::to_string(&request.arguments).unwrap_or_default();
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// A project with one empty tool.
struct NoopGateway {
    project: PathBuf,
    executor: Arc<Executor>,
    _directory: tempfile::TempDir,
}

/// Returns its parameters.
struct Noop;

impl Primitive for Noop {
    fn runs_programs(&self) -> bool {
        false
    }

    fn run(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            CallOutcome {
                data: call.parameters,
                ..CallOutcome::default()
            }
        })
    }
}

impl NoopGateway {
    fn new(supervisor: Arc<Supervisor>) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let (project, user) = (
            directory.path().join("project"),
            directory.path().join("user"),
        );
        let key = UserKeys::new(&user).generate("bench", IfExists::Fail)?;
        let tools = project.join(".ai/tools");
        let primitive = "version: \"1.0.0\"\ntool_type: primitive\nexecutor_id: null\n";
        write_signed(&tools.join("noop.yaml"), primitive, &key)?;
        let tool = "version: \"1.0.0\"\ntool_type: tool\nexecutor_id: noop\n";
        write_signed(&tools.join("nothing.yaml"), tool, &key)?;
        let roots = Roots {
            user: Some(user),
            ..Roots::new(&project, directory.path().join("cache"))
        };
        let mut executor = Executor::new(roots, supervisor);
        let id = "noop".parse().context("an id")?;
        executor
            .primitives_mut()
            .register(id, Vec::new(), Arc::new(Noop));
        Ok(Self {
            project,
            executor: Arc::new(executor),
            _directory: directory,
        })
    }
}

fn unsupported<T>() -> Result<T, GatewayError> {
    Err(GatewayError::new("bench", "only `execute` is supported"))
}

impl Gateway for NoopGateway {
    fn project_bounds(&self) -> ProjectBounds {
        ProjectBounds {
            default_project: self.project.clone(),
            is_fixed: true,
            private_dirs: Vec::new(),
        }
    }

    fn approval_channel(&self) -> ApprovalChannel {
        ApprovalChannel::Client
    }

    fn search(&self, _: &Path, _: &SearchRequest) -> GatewayResult {
        unsupported()
    }

    fn load(&self, _: &Path, _: &LoadRequest) -> GatewayResult {
        unsupported()
    }

    fn plan_copy(&self, _: &Path, _: &LoadRequest) -> Result<PlannedCopy, GatewayError> {
        unsupported()
    }

    fn copy(&self, _: &Path, _: &LoadRequest, _: &PlannedCopy) -> GatewayResult {
        unsupported()
    }

    fn unsigned_items(&self, _: &Path, _: &SignRequest) -> Result<Vec<UnsignedItem>, GatewayError> {
        unsupported()
    }

    fn sign(&self, _: &Path, _: &SignRequest, _: &[UnsignedItem]) -> GatewayResult {
        unsupported()
    }

    fn help(&self, _: Option<&str>) -> GatewayResult {
        unsupported()
    }

    fn executor(&self, _: &Path) -> Result<Arc<Executor>, GatewayError> {
        Ok(Arc::clone(&self.executor))
    }

    fn claim_decision(&self, _: &Path, _: &GatedCall) -> Result<CallDecision, GatewayError> {
        unsupported()
    }

    fn record_decision(&self, _: &Path, _: &GatedCall, _: bool) -> Result<String, GatewayError> {
        unsupported()
    }

    fn record_result(
        &self,
        _: &Path,
        _: &str,
        _: CallEnd,
        _: &serde_json::Value,
    ) -> Result<(), GatewayError> {
        unsupported()
    }

    fn start_background(&self, _: &Path, _: Request) -> GatewayResult {
        unsupported()
    }

    fn list_items(
        &self,
        _: &Path,
        _: &str,
        _: Option<&str>,
        _: usize,
    ) -> Result<Vec<ItemSummary>, GatewayError> {
        unsupported()
    }
}
