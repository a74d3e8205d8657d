//! Tools of MCP servers as actions of the bridge: the service `mcp`.
//!
//! A server is a signed item, `mcp/servers/NAME`. What it says of a tool is accepted when the
//! tool is first used, or was when its item was signed; from then on it is pinned, and a tool
//! of which its server says something else is shown to a person before it is called.

mod found;
mod media;
mod pins;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lillux::Hash;
use rye_engine::BoxFuture;
use rye_engine::meta_tools::{
    self, Component, ResolvedTool, Review, ToolListing, ToolProvider, ToolProviderError,
};
use rye_engine::protocol::{ErrorCode, ErrorInfo};
use rye_engine::tool::{ToolContext, ToolOutput};
use rye_executor::{Executor, dotenv, environment};
use rye_items::vault::{Vault, VaultError};
use rye_items::{ItemKind, ItemRef};
use rye_mcp::client::discovery::server_id;
use rye_mcp::client::{
    ClientError, ClientErrorKind, ConfigValue, Pin, Pool, RemoteTool, ServerConfig, ServerSpec,
    ToolCall, Transport,
};
use serde_json::{Map, Value};

use crate::credentials::secrets_of;
use crate::items::{piece, refused, unusable};
use found::{listed, risk, score};
use media::Media;
use pins::Pins;

/// Where servers are, relative to a space's `.ai/`.
const SERVERS: &str = "tools/mcp/servers";
/// How long one may take to say what it has. Others do not wait for it longer.
const SAYING: Duration = Duration::from_secs(10);
/// What a model is told of a tool in place of words that nobody accepted.
const DRIFTED: &str = "(It says something else of itself than was accepted; a call asks first.)";

/// The tools of the servers of a project.
pub struct Servers {
    executor: Arc<Executor>,
    pool: Pool,
    project: PathBuf,
    vault: Option<Vault>,
    pins: Pins,
}

/// A server as its item says, and the item.
struct Known {
    server: ServerSpec,
    piece: Component,
    space: String,
}

/// What is remembered of a tool until it is called.
struct Handle {
    server: ServerSpec,
    tool: String,
    pin: Pin,
    about: (String, Value),
}

impl Servers {
    /// Those of an executor's project. What was accepted of their tools is kept in a folder.
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
        }
    }

    /// The names of all servers, without looking at any.
    fn names(&self) -> Result<Vec<String>, ToolProviderError> {
        let library = self.executor.library().map_err(|error| refused(&error))?;
        let mut names = Vec::new();
        for root in library.spaces().roots() {
            let files = std::fs::read_dir(root.path_to(SERVERS)).into_iter();
            for file in files.flatten().flatten() {
                let name = file.file_name();
                let name = Path::new(&name).file_stem().and_then(|it| it.to_str());
                names.extend(name.map(str::to_owned));
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Whether there is a server of a name, for whoever made one up.
    fn check_name(&self, name: &str) -> Result<(), ToolProviderError> {
        let names = self.names()?;
        if names.iter().any(|it| it == name) {
            return Ok(());
        }
        let there = match names.as_slice() {
            [] => "there are none".to_owned(),
            names => format!("there are {}", names.join(", ")),
        };
        let message = format!("there is no MCP server `{name}`: {there}");
        Err(ToolProviderError::Failed(ErrorInfo::new(
            ErrorCode::UnknownTool,
            message,
        )))
    }

    /// A server, verified and ready to be called.
    fn server(&self, name: &str) -> Result<Known, ToolProviderError> {
        let id = server_id(name);
        let parsed = id.parse().map_err(|error| unusable(&error))?;
        let link = self.executor.tool(&ItemRef::new(ItemKind::Tool, parsed));
        let link = link.map_err(|error| refused(&error))?;
        let config = link.metadata.value("config").unwrap_or(&Value::Null);
        let config = ServerConfig::parse(config).map_err(|why| unusable(&why))?;
        self.has_secrets(&config, name)?;
        Ok(Known {
            piece: piece(&link),
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

    /// Whether the vault has what a server needs.
    fn has_secrets(&self, config: &ServerConfig, server: &str) -> Result<(), ToolProviderError> {
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
                let named = headers.values().chain(oauth.values());
                [url].into_iter().chain(named).collect()
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

    async fn tools_of(&self, name: &str) -> Result<(Known, Arc<[RemoteTool]>), ToolProviderError> {
        let known = self.server(name)?;
        let tools = self.pool.tools(&known.server).await;
        let tools = tools.map_err(|error| failed(&error))?;
        Ok((known, tools))
    }

    async fn listed(&self, query: &str, limit: usize) -> Result<ToolListing, ToolProviderError> {
        let wanted = meta_tools::query_terms(query);
        let names = self.names()?;
        let (mut scored, mut warnings) = (Vec::new(), Vec::new());
        let asked = names.iter().map(|name| async move {
            let said = tokio::time::timeout(SAYING, self.tools_of(name)).await;
            (name, said)
        });
        for (name, said) in futures_util::future::join_all(asked).await {
            let (known, tools) = match said {
                Ok(Ok(said)) => said,
                Ok(Err(ToolProviderError::AuthRequired { service, .. })) => {
                    warnings.push(format!("{name}: auth required: rye vault set {service}"));
                    continue;
                }
                Ok(Err(error)) => {
                    warnings.push(format!("{name}: {error}"));
                    continue;
                }
                Err(_) => {
                    warnings.push(format!("{name} does not answer"));
                    continue;
                }
            };
            for tool in &*tools {
                let score = score(tool, name, &wanted);
                if score > 0 {
                    let action = listed(name, &known.space, tool);
                    scored.push((score, action, name, tool.clone()));
                }
            }
        }
        scored.sort_by(|(a, one, ..), (b, other, ..)| b.cmp(a).then_with(|| one.id.cmp(&other.id)));
        let total = scored.len();
        let told = scored.into_iter().take(limit);
        let told = told.map(|(_, mut action, name, tool)| {
            if self.has_drifted(name, &tool) {
                DRIFTED.clone_into(&mut action.description);
            }
            action
        });
        Ok(ToolListing {
            total,
            tools: told.collect(),
            warnings,
        })
    }

    /// Whether a tool says something else of itself than was accepted, or may do so.
    fn has_drifted(&self, server: &str, tool: &RemoteTool) -> bool {
        match self.pins.accepted(&self.executor, server, tool.name()) {
            Ok(accepted) => accepted.is_some_and(|it| it.drift(tool).is_some()),
            Err(_) => true,
        }
    }

    async fn prepared(&self, id: &str) -> Result<ResolvedTool, ToolProviderError> {
        let (name, tool) = id
            .split_once('/')
            .ok_or_else(|| unusable(&format!("`{id}` names no tool: an id is mcp:SERVER/TOOL")))?;
        self.check_name(name)?;
        let (known, tools) = self.tools_of(name).await?;
        let found = tools.iter().find(|it| it.name() == tool);
        let found = found.ok_or_else(|| {
            let names: Vec<_> = tools.iter().map(RemoteTool::name).take(20).collect();
            let message = format!("{name} has no tool `{tool}`; it has {}", names.join(", "));
            ToolProviderError::Failed(ErrorInfo::new(ErrorCode::UnknownTool, message))
        })?;
        let accepted = self.pins.accepted(&self.executor, name, tool);
        let accepted = accepted.map_err(|why| unusable(&why))?;
        let drift = accepted.and_then(|it| it.drift(found));
        let Known {
            server,
            piece,
            space,
        } = known;
        // What would be called is what the server's item says, and what it says of the tool.
        let hash = Hash::digest(format!("{}\n{}", piece.hash, found.pin.hash)).to_hex();
        Ok(ResolvedTool {
            id: id.to_owned(),
            description: found.description().to_owned(),
            schema: Some(found.input_schema().clone()),
            risk: Some(risk(found)),
            space: Some(space),
            requires_approval: false,
            effect: rye_engine::tool::Effect::default(),
            drift,
            components: vec![
                piece,
                Component {
                    name: format!("{name}/{tool}"),
                    hash: found.pin.hash.clone(),
                    signed_by: Some(format!("nobody: it is what {name} says")),
                },
            ],
            hash,
            handle: Arc::new(Handle {
                server,
                tool: tool.to_owned(),
                pin: found.pin.clone(),
                about: (found.description().to_owned(), found.input_schema().clone()),
            }),
        })
    }

    async fn run(
        &self,
        prepared: &ResolvedTool,
        params: Value,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolProviderError> {
        let handle = handle(prepared)?;
        // First used, it is pinned, before anything is called.
        self.pin(handle)?;
        for secret in secrets_of(&self.project) {
            context.redact(&secret);
        }
        let arguments = match params {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        };
        let mut call = ToolCall::new(&handle.tool, arguments);
        call.pin = Some(handle.pin.clone());
        let mut answer = match self.pool.call(&handle.server, &call).await {
            Err(error) if matches!(error.kind, ClientErrorKind::Drift(_)) => {
                return Err(ToolProviderError::Changed);
            }
            answer => answer.map_err(|error| failed(&error))?,
        };
        let Media { notes, attachments } = media::take(&mut answer, context).await;
        let done = rye_mcp::tool_result(answer);
        let text = media::words(&done.data, &notes);
        match done.failure {
            Some(failure) => Err(unusable(&failure.message)),
            None => Ok(ToolOutput {
                text,
                data: done.data,
                attachments,
            }),
        }
    }

    fn pin(&self, handle: &Handle) -> Result<(), ToolProviderError> {
        let name = handle.server.id.rsplit('/').next().unwrap_or_default();
        let kept = self
            .pins
            .accept(name, &handle.tool, &handle.pin, &handle.about);
        kept.map_err(|why| unusable(&why))
    }
}

fn handle(prepared: &ResolvedTool) -> Result<&Handle, ToolProviderError> {
    let handle = prepared.handle.downcast_ref::<Handle>();
    handle.ok_or(ToolProviderError::Changed)
}

/// The variables that a server's configuration may refer to. Of the project's `.env` it gets only
/// what it names as `${NAME}`: its process is given the values of its configuration and the
/// variables that every program needs, which a `.env` cannot set.
pub fn server_environment(project: &Path) -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let inherited = std::env::vars_os().filter_map(text);
    let mut all = environment::Environment::inherited(inherited, false);
    if let Ok(read) = dotenv::read(&project.join(".env")) {
        for (name, value) in read.variables {
            if !environment::is_reserved(&name) {
                all.set(name, value, environment::Origin::Dotenv);
            }
        }
    }
    all.variables().clone()
}

fn failed(error: &ClientError) -> ToolProviderError {
    let message = match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    };
    unusable(&message)
}

impl ToolProvider for Servers {
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
        Box::pin(self.listed(query, limit))
    }

    fn resolve<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<ResolvedTool, ToolProviderError>> {
        Box::pin(self.prepared(id))
    }

    fn call<'a>(
        &'a self,
        prepared: &'a ResolvedTool,
        _: &'a Review,
        params: Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolProviderError>> {
        Box::pin(self.run(prepared, params, context))
    }

    fn accept_drift<'a>(
        &'a self,
        prepared: &'a ResolvedTool,
    ) -> BoxFuture<'a, Result<(), ToolProviderError>> {
        Box::pin(async move { self.pin(handle(prepared)?) })
    }
}
