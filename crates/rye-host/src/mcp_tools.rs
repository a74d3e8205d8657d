//! Tools of MCP servers as tools of an agent: the service `mcp`.
//!
//! A server is a signed item, `mcp/servers/NAME`. The description and schema of a tool are pinned
//! when its item is signed or when it is first used. If they change later, a person must approve
//! the difference before the tool is called.

mod media;
mod offered;
mod pins;
mod summary;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lillux::Hash;
use rye_engine::BoxFuture;
use rye_engine::protocol::{ErrorCode, ErrorInfo};
use rye_engine::sandbox::Sandbox;
use rye_engine::tool::{EffectClass, ToolContext, ToolOutput};
use rye_engine::tool_provider::{
    Component, ResolvedTool, Review, ToolListing, ToolProvider, ToolProviderError,
};
use rye_executor::{Executor, dotenv, environment};
use rye_items::vault::{Vault, VaultError};
use rye_items::{ItemKind, ItemRef};
use rye_mcp::client::discovery::server_id;
use rye_mcp::client::{
    ClientError, ClientErrorKind, ConfigValue, Pin, Pool, RemoteTool, ServerConfig, ServerSpec,
    ToolCall, Transport,
};
use rye_tools::meta_tools;
use serde_json::{Map, Value};

use crate::credentials::dotenv_secrets;
use crate::item_tools::{component, execution_error, tool_failure, tracked};
use media::Media;
pub use offered::OfferedServers;
use offered::{Acceptance, CONNECT, OfferedServer, SPACE};
use pins::Pins;
use summary::{risk, score, summary};

/// Directory of the servers, relative to a space's `.ai/`.
const SERVERS_DIR: &str = "tools/mcp/servers";
/// Time limit for a server to list its tools.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Replaces a description that was not accepted, so that it does not reach the model.
const DRIFTED: &str =
    "(The description has changed since a person accepted it. A call asks a person first.)";

/// The tools of the MCP servers of a project.
pub struct McpTools {
    executor: Arc<Executor>,
    pool: Pool,
    project: PathBuf,
    vault: Option<Vault>,
    pins: Pins,
    offered: OfferedServers,
}

/// A server, and its item.
struct ServerItem {
    server: ServerSpec,
    component: Component,
    space: String,
}

/// State of a resolved tool.
struct Handle {
    server: ServerSpec,
    tool: String,
    pin: Pin,
    /// Description and input schema.
    definition: (String, Value),
}

impl McpTools {
    /// The tools of the servers of a project. `pins` is the directory of the accepted definitions.
    pub fn new(
        executor: Arc<Executor>,
        pool: Pool,
        project: PathBuf,
        vault: Option<Vault>,
        pins: &Path,
    ) -> Self {
        Self {
            pins: Pins::new(pins, &project),
            executor,
            pool,
            project,
            vault,
            offered: OfferedServers::default(),
        }
    }

    /// Uses the servers that an editor offers too. A signed server with the same name precedes.
    #[must_use]
    pub fn with_offered(mut self, offered: OfferedServers) -> Self {
        self.offered = offered;
        self
    }

    /// The names of all servers. Does not verify their items.
    fn names(&self) -> Result<Vec<String>, ToolProviderError> {
        let mut names = self.signed_names()?;
        names.extend(self.offered.names());
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// A server that an editor offers, unless there is a signed one with this name.
    fn offered_server(&self, name: &str) -> Result<Option<OfferedServer>, ToolProviderError> {
        let offered = self.offered.get(name);
        let is_signed = offered.is_some() && self.signed_names()?.iter().any(|it| it == name);
        Ok(offered.filter(|_| !is_signed))
    }

    fn acceptance(&self, server: &OfferedServer) -> Result<Acceptance, ToolProviderError> {
        let acceptance = server.acceptance(&self.pins);
        acceptance.map_err(|error| tool_failure(&error))
    }

    fn signed_names(&self) -> Result<Vec<String>, ToolProviderError> {
        let library = self
            .executor
            .library()
            .map_err(|error| execution_error(&error))?;
        let mut names = Vec::new();
        for root in library.spaces().roots() {
            let files = std::fs::read_dir(root.path_to(SERVERS_DIR)).into_iter();
            for file in files.flatten().flatten() {
                let name = file.file_name();
                let name = Path::new(&name).file_stem().and_then(|it| it.to_str());
                names.extend(name.map(str::to_owned));
            }
        }
        Ok(names)
    }

    /// Fails if there is no server with this name.
    fn check_name(&self, name: &str) -> Result<(), ToolProviderError> {
        let names = self.names()?;
        if names.iter().any(|it| it == name) {
            return Ok(());
        }
        let available = match names.as_slice() {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        let message = format!("there is no MCP server `{name}`; available: {available}");
        Err(ToolProviderError::Failed(ErrorInfo::new(
            ErrorCode::UnknownTool,
            message,
        )))
    }

    /// A server with a valid signature and all its secrets.
    fn server(&self, name: &str) -> Result<ServerItem, ToolProviderError> {
        if let Some(offered) = self.offered_server(name)? {
            return match self.acceptance(&offered)? {
                Acceptance::Accepted => Ok(ServerItem {
                    component: offered.component(),
                    space: SPACE.to_owned(),
                    server: offered.spec(self.project.clone()),
                }),
                Acceptance::New | Acceptance::Changed(_) => Err(tool_failure(&format!(
                    "a person has not accepted the MCP server {name} as it is: call \
                     `mcp:{name}/{CONNECT}`, which asks"
                ))),
            };
        }
        let id = server_id(name);
        let parsed = id.parse().map_err(|error| tool_failure(&error))?;
        let link = self.executor.tool(&ItemRef::new(ItemKind::Tool, parsed));
        let link = link.map_err(|error| execution_error(&error))?;
        let config = link.metadata.value("config").unwrap_or(&Value::Null);
        let config = ServerConfig::parse(config).map_err(|error| tool_failure(&error))?;
        self.check_secrets(&config, name)?;
        Ok(ServerItem {
            component: component(&link),
            space: link.space().as_str().to_owned(),
            server: ServerSpec {
                id,
                hash: link.item.hash,
                config,
                project: self.project.clone(),
                environment: server_environment(&self.project),
                vault: self.vault.clone(),
            },
        })
    }

    /// Fails if the vault lacks a secret that a server needs.
    fn check_secrets(&self, config: &ServerConfig, server: &str) -> Result<(), ToolProviderError> {
        let Some(vault) = &self.vault else {
            return Ok(());
        };
        let sources: Vec<&ConfigValue> = match &config.transport {
            Transport::Stdio { args, env, .. } => args.iter().chain(env.values()).collect(),
            Transport::Http {
                url,
                headers,
                oauth,
            } => {
                let others = headers.values().chain(oauth.values());
                [url].into_iter().chain(others).collect()
            }
        };
        for source in sources {
            if let ConfigValue::Vault { name, .. } = source
                && let Err(VaultError::NoSecret { .. }) = vault.get(None, name)
            {
                return Err(ToolProviderError::AuthRequired {
                    service: name.to_string(),
                    remedy: format!("The MCP server {server} needs the secret {name}."),
                });
            }
        }
        Ok(())
    }

    async fn list_server_tools(
        &self,
        name: &str,
    ) -> Result<(ServerItem, Arc<[RemoteTool]>), ToolProviderError> {
        let server_item = self.server(name)?;
        let tools = self.pool.tools(&server_item.server).await;
        let tools = tools.map_err(|error| client_error(&error))?;
        Ok((server_item, tools))
    }

    async fn search(&self, query: &str, limit: usize) -> Result<ToolListing, ToolProviderError> {
        let terms = meta_tools::query_terms(query);
        let names = self.names()?;
        let (mut scored, mut warnings) = (Vec::new(), Vec::new());
        let mut unaccepted = Vec::new();
        for name in &names {
            if let Some(offered) = self.offered_server(name)?
                && !matches!(self.acceptance(&offered)?, Acceptance::Accepted)
            {
                unaccepted.push(offered);
            }
        }
        let is_usable = |name: &&String| unaccepted.iter().all(|it| it.name != **name);
        let lists = names.iter().filter(is_usable).map(|name| async move {
            let list = tokio::time::timeout(LIST_TIMEOUT, self.list_server_tools(name)).await;
            (name, list)
        });
        for (name, list) in futures_util::future::join_all(lists).await {
            let (server_item, tools) = match list {
                Ok(Ok(list)) => list,
                Ok(Err(ToolProviderError::AuthRequired { service, .. })) => {
                    warnings.push(format!("{name}: auth required: rye vault set {service}"));
                    continue;
                }
                Ok(Err(error)) => {
                    warnings.push(format!("{name}: {error}"));
                    continue;
                }
                Err(_) => {
                    warnings.push(format!("{name} does not respond"));
                    continue;
                }
            };
            for tool in &*tools {
                let score = score(tool, name, &terms);
                if score > 0 {
                    let summary = summary(name, &server_item.space, tool);
                    scored.push((score, summary, name, tool.clone()));
                }
            }
        }
        scored.sort_by(|(a, one, ..), (b, other, ..)| b.cmp(a).then_with(|| one.id.cmp(&other.id)));
        let total = scored.len() + unaccepted.len();
        let tools = scored.into_iter().take(limit);
        let tools = tools.map(|(_, mut summary, name, tool)| {
            if self.has_drifted(name, &tool) {
                DRIFTED.clone_into(&mut summary.description);
                // Nobody has accepted the new schema, whose texts a model would read.
                summary.schema = None;
            }
            summary
        });
        // Whatever the query is, because their tools are not known.
        let unaccepted = unaccepted.iter().map(OfferedServer::summary);
        Ok(ToolListing {
            total,
            tools: unaccepted.chain(tools).collect(),
            warnings,
        })
    }

    /// Whether the definition of a tool differs from the accepted one, or may differ.
    fn has_drifted(&self, server: &str, tool: &RemoteTool) -> bool {
        match self.pins.accepted(&self.executor, server, tool.name()) {
            Ok(accepted) => accepted.is_some_and(|accepted| accepted.drift(tool).is_some()),
            Err(_) => true,
        }
    }

    async fn resolve_tool(&self, id: &str) -> Result<ResolvedTool, ToolProviderError> {
        let (name, tool) = id.split_once('/').ok_or_else(|| {
            tool_failure(&format!("invalid tool id `{id}`: expected mcp:SERVER/TOOL"))
        })?;
        self.check_name(name)?;
        if tool == CONNECT
            && let Some(offered) = self.offered_server(name)?
        {
            let acceptance = self.acceptance(&offered)?;
            if !matches!(acceptance, Acceptance::Accepted) {
                return Ok(offered.connect_tool(&acceptance));
            }
        }
        let (server_item, tools) = self.list_server_tools(name).await?;
        let found = tools.iter().find(|it| it.name() == tool);
        let found = found.ok_or_else(|| {
            let names: Vec<_> = tools.iter().map(RemoteTool::name).take(20).collect();
            let message = format!(
                "MCP server {name} has no tool `{tool}`; available: {}",
                names.join(", ")
            );
            ToolProviderError::Failed(ErrorInfo::new(ErrorCode::UnknownTool, message))
        })?;
        let accepted = self.pins.accepted(&self.executor, name, tool);
        let accepted = accepted.map_err(|error| tool_failure(&error))?;
        let drift = accepted.and_then(|it| it.drift(found));
        let ServerItem {
            server,
            component,
            space,
        } = server_item;
        // Covers the item of the server and the definition of the tool.
        let hash = Hash::digest(format!("{}\n{}", component.hash, found.pin.hash)).to_hex();
        Ok(ResolvedTool {
            id: id.to_owned(),
            description: found.description().to_owned(),
            schema: Some(found.input_schema().clone()),
            risk: Some(risk(found)),
            space: Some(space),
            requires_approval: false,
            effect: rye_engine::tool::EffectClass::default(),
            drift,
            components: vec![
                component,
                Component {
                    name: format!("{name}/{tool}"),
                    hash: found.pin.hash.clone(),
                    signed_by: Some(format!("no one; defined by {name}")),
                    text: Some(
                        pins::definition_text(found.description(), found.input_schema()).into(),
                    ),
                    ..Component::default()
                },
            ],
            hash,
            handle: Arc::new(Handle {
                server,
                tool: tool.to_owned(),
                pin: found.pin.clone(),
                definition: (found.description().to_owned(), found.input_schema().clone()),
            }),
        })
    }

    async fn run(
        &self,
        tool: &ResolvedTool,
        params: Value,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolProviderError> {
        if let Some(offered) = tool.handle.downcast_ref::<OfferedServer>() {
            return self.connect(offered).await;
        }
        let handle = handle(tool)?;
        // Pins the definition before the first call.
        self.pin(handle)?;
        for secret in dotenv_secrets(&self.project) {
            context.redact(&secret);
        }
        let arguments = match params {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        let mut call = ToolCall::new(&handle.tool, arguments);
        call.pin = Some(handle.pin.clone());
        let mut response = match self.pool.call(&handle.server, &call).await {
            Err(error) if matches!(error.kind, ClientErrorKind::Drift(_)) => {
                return Err(ToolProviderError::Changed);
            }
            response => response.map_err(|error| client_error(&error))?,
        };
        let Media { notes, attachments } = media::extract(&mut response, context).await;
        let result = rye_mcp::tool_result(response);
        let text = media::model_text(&result.data, &notes);
        match result.failure {
            Some(failure) => Err(tool_failure(&failure.message)),
            None => Ok(ToolOutput {
                text,
                data: result.data,
                attachments,
            }),
        }
    }

    /// Accepts a server, and lists its tools.
    async fn connect(&self, offered: &OfferedServer) -> Result<ToolOutput, ToolProviderError> {
        offered
            .accept(&self.pins)
            .map_err(|error| tool_failure(&error))?;
        let (_, tools) = self.list_server_tools(&offered.name).await?;
        let names = tools.iter().map(RemoteTool::name);
        let names = names.map(|tool| format!("mcp:{}/{tool}", offered.name));
        let names: Vec<_> = names.collect();
        let text = format!("The tools of {}: {}", offered.name, names.join(", "));
        Ok(ToolOutput::text(text))
    }

    fn pin(&self, handle: &Handle) -> Result<(), ToolProviderError> {
        let name = handle.server.id.rsplit('/').next().unwrap_or_default();
        let accepted = self
            .pins
            .accept(name, &handle.tool, &handle.pin, &handle.definition);
        accepted.map_err(|error| tool_failure(&error))
    }
}

fn handle(tool: &ResolvedTool) -> Result<&Handle, ToolProviderError> {
    let handle = tool.handle.downcast_ref::<Handle>();
    handle.ok_or(ToolProviderError::Changed)
}

/// Variables that the configuration of a server can use as `${NAME}`, from the environment and the
/// project's `.env`. The process of the server itself gets only the values of its configuration
/// and the variables that every program needs, which `.env` cannot set.
pub fn server_environment(project: &Path) -> BTreeMap<String, String> {
    let as_text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let inherited = std::env::vars_os().filter_map(as_text);
    let mut all = environment::Environment::inherited(inherited, false);
    if let Ok(file) = dotenv::read(&project.join(".env")) {
        for (name, value) in file.variables {
            if !environment::is_reserved(&name) {
                all.set(name, value, environment::Origin::Dotenv);
            }
        }
    }
    all.variables().clone()
}

fn client_error(error: &ClientError) -> ToolProviderError {
    let message = match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    };
    tool_failure(&message)
}

impl ToolProvider for McpTools {
    fn service(&self) -> &'static str {
        "mcp"
    }

    fn working_dir(&self) -> Option<String> {
        let real = std::fs::canonicalize(&self.project);
        let real = real.unwrap_or_else(|_| self.project.clone());
        Some(real.to_string_lossy().into_owned())
    }

    fn list<'a>(
        &'a self,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<ToolListing, ToolProviderError>> {
        Box::pin(self.search(query, limit))
    }

    fn resolve<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<ResolvedTool, ToolProviderError>> {
        Box::pin(self.resolve_tool(id))
    }

    fn review<'a>(
        &'a self,
        tool: &'a ResolvedTool,
        _: &'a Value,
        _: &'a dyn Sandbox,
    ) -> BoxFuture<'a, Result<Review, ToolProviderError>> {
        let offered = tool.handle.downcast_ref::<OfferedServer>();
        let review = offered.map(OfferedServer::review).unwrap_or_default();
        Box::pin(std::future::ready(Ok(review)))
    }

    fn call<'a>(
        &'a self,
        tool: &'a ResolvedTool,
        _: &'a Review,
        params: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolProviderError>> {
        let work = self.run(tool, params, context);
        if tool.effect == EffectClass::Pure {
            Box::pin(work)
        } else {
            Box::pin(tracked(work, context))
        }
    }

    fn accept_drift<'a>(
        &'a self,
        tool: &'a ResolvedTool,
    ) -> BoxFuture<'a, Result<(), ToolProviderError>> {
        Box::pin(async move {
            // Connecting accepts the server itself.
            match tool.handle.downcast_ref::<OfferedServer>() {
                Some(_) => Ok(()),
                None => self.pin(handle(tool)?),
            }
        })
    }
}
