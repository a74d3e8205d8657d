//! Items of servers and of their tools: lookup, loading, writing, signing.

use std::path::{Path, PathBuf};

use lillux::durable::{self, IfExists};
use lillux::keys::SigningKey;
use rye_items::space::Root;
use rye_items::vault::Vault;
use rye_items::{Item, ItemFile, ItemKind, Library, PathItem, Space, SpaceError, Verified};
use rye_mcp::client::discovery::{accepted_definition, accepted_pin, server_id};
use rye_mcp::client::{ClientError, Pin, Pool, ServerConfig, ServerSpec, item_yaml};
use serde_json::{Map, Value, json};

use super::super::execute::{StartedSupervisor, block_on_until_signal, supervisor_or_start};
use crate::cli::args::ServerName;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::terminal_asker;

/// A verified server item and its configuration.
pub(super) struct ServerItem {
    pub(super) item: Verified<Item>,
    pub(super) config: ServerConfig,
}

impl ServerItem {
    /// Finds, verifies and parses the item of a server.
    pub(super) fn load(library: &Library, name: &ServerName) -> Result<Self, Failure> {
        let id = server_id(name.as_str());
        let found = library.find(&id.parse()?).map_err(|error| {
            let failure = Failure::from(error);
            Failure {
                hint: Some("rye mcp list".to_owned()),
                ..failure
            }
        })?;
        let item = library.verify(&found, &library.trust())?;
        let config = read_config(library, &item)?;
        Ok(Self { item, config })
    }

    /// The server, with what a call needs.
    pub(super) fn server(self, context: &Context) -> ServerSpec {
        let project = context.settings.project();
        ServerSpec {
            id: self.item.reference.id.to_string(),
            hash: self.item.hash,
            config: self.config,
            project: project.to_owned(),
            environment: rye_host::server_environment(project),
            vault: context.user().map(|user| Vault::new(user, Some(project))),
        }
    }
}

/// Parses the configuration in a server's item.
pub(super) fn read_config(
    library: &Library,
    item: &Verified<Item>,
) -> Result<ServerConfig, Failure> {
    let metadata = library.metadata(item)?;
    let config = metadata.value("config").unwrap_or(&Value::Null);
    ServerConfig::parse(config).map_err(|why| Failure::failed("mcp_config", why).at(&item.path))
}

/// Runs `work` on a pool of servers and shuts the pool down. Servers may ask the user on the
/// terminal.
pub(super) fn with_pool<T>(
    early: &mut StartedSupervisor,
    context: &Context,
    work: impl AsyncFnOnce(&Pool) -> Result<T, ClientError>,
) -> Result<Result<T, ClientError>, Failure> {
    let supervisor = supervisor_or_start(early)?;
    let pool = terminal_asker::pool(&supervisor, context.printer);
    block_on_until_signal(async {
        let outcome = work(&pool).await;
        pool.shutdown().await;
        outcome
    })
}

/// The user's signing key.
pub(super) fn key(context: &Context) -> Result<&SigningKey, Failure> {
    context.require_signing_key()
}

/// The root of a writable space. If the project directory is the user's, its space is the user
/// space.
pub(super) fn root(library: &Library, space: Space) -> Result<&Root, Failure> {
    let spaces = library.spaces();
    let root = spaces.roots_in(space).next().or_else(|| match space {
        Space::Project => spaces.roots_in(Space::User).next(),
        _ => None,
    });
    root.ok_or_else(|| {
        let message = format!("no {space} space");
        Failure::failed("not_found", message).hint("rye init")
    })
}

/// The text of a server's item.
pub(super) fn server_text(name: &str, config: &ServerConfig) -> String {
    let fields = json!({
        "version": "1.0.0",
        "tool_type": "mcp_server",
        "category": "mcp/servers",
        "description": format!("The MCP server {name}, reached over {}", config.transport.name()),
        "config": config.to_value(),
    });
    fields.as_object().map(item_yaml).unwrap_or_default()
}

/// Path of a server's item in its space.
pub(super) fn server_file(name: &str) -> String {
    format!("tools/{}.yaml", server_id(name))
}

/// Writes and signs an item.
pub(super) fn write(
    library: &Library,
    root: &Root,
    relative: &str,
    text: &str,
    existing: IfExists,
    key: &SigningKey,
) -> Result<PathBuf, Failure> {
    let (parent, name) = relative.rsplit_once('/').unwrap_or(("", relative));
    let dir = root.path_to(parent);
    durable::create_dir(&dir, 0o755)?;
    // Fails if a link leads out of the space.
    let real = root.real_path(parent)?;
    let real = real.ok_or(SpaceError::NotADirectory(dir))?;
    let path = real.join(name);
    durable::write(&path, text.as_bytes(), 0o644, existing)?;
    for found in items_at(library, &root.path_to(relative))? {
        library.sign(&found, key, None)?;
    }
    Ok(root.path_to(relative))
}

fn items_at<'l>(library: &'l Library, path: &Path) -> Result<Vec<ItemFile<'l>>, Failure> {
    Ok(match library.items_at_path(path)?.0 {
        PathItem::Items(items) => items,
        PathItem::External(_) => Vec::new(),
    })
}

/// The item of a server's tool.
pub(super) struct ToolItem<'l> {
    pub(super) found: ItemFile<'l>,
    /// Name of the tool on the server.
    pub(super) tool: String,
    pub(super) pin: Pin,
    /// The accepted definition, by part.
    pub(super) definition: Map<String, Value>,
}

/// The verified items of a server's tools in a space.
pub(super) fn tools<'l>(library: &'l Library, space: Space, name: &str) -> Vec<ToolItem<'l>> {
    let prefix = format!("mcp/{name}/");
    let server = server_id(name);
    let trust = library.trust();
    let listed = library.list_within(ItemKind::Tool, |other| other == space);
    let found = listed.into_iter().flatten();
    let own = found.filter(|found| found.reference.id.as_str().starts_with(&prefix));
    own.filter_map(|found| {
        let item = library.verify(&found, &trust).ok()?;
        let metadata = library.metadata(&item).ok()?;
        let config = metadata.value("config")?;
        let is_of_server = config.get("server").and_then(Value::as_str) == Some(&server);
        let (tool, pin) = accepted_pin(config).filter(|_| is_of_server)?;
        let definition = accepted_definition(&metadata);
        Some(ToolItem {
            found,
            tool,
            pin,
            definition,
        })
    })
    .collect()
}
