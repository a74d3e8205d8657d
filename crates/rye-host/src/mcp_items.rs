//! Items of servers and of their tools: lookup, loading, writing, signing.

use std::path::{Path, PathBuf};

use lillux::durable::{self, IfExists};
use lillux::keys::SigningKey;
use rye_items::space::Root;
use rye_items::{Item, ItemFile, ItemKind, Library, PathItem, Space, SpaceError, Verified};
use rye_mcp::client::discovery::{accepted_definition, accepted_pin, server_id};
use rye_mcp::client::{Pin, ServerConfig, ServerSpec, item_yaml};
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::failure::Failure;
use crate::mcp_tools::server_environment;

/// A verified server item and its configuration.
pub struct ServerItem {
    /// The item.
    pub item: Verified<Item>,
    /// Its configuration.
    pub config: ServerConfig,
}

impl ServerItem {
    /// Finds, verifies and parses the item of a server.
    pub fn load(library: &Library, name: &str) -> Result<Self, Failure> {
        let id = server_id(name);
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
    pub fn server(self, context: &Context) -> ServerSpec {
        let project = context.settings.project();
        ServerSpec {
            id: self.item.reference.id.to_string(),
            hash: self.item.hash,
            config: self.config,
            project: project.to_owned(),
            environment: server_environment(project),
            vault: context.vault(),
        }
    }
}

/// Parses the configuration in a server's item.
pub fn read_config(library: &Library, item: &Verified<Item>) -> Result<ServerConfig, Failure> {
    let metadata = library.metadata(item)?;
    let config = metadata.value("config").unwrap_or(&Value::Null);
    ServerConfig::parse(config).map_err(|why| Failure::failed("mcp_config", why).at(&item.path))
}

/// The root of a writable space. If the project directory is the user's, its space is the user
/// space.
pub fn root(library: &Library, space: Space) -> Result<&Root, Failure> {
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
pub fn server_text(name: &str, config: &ServerConfig) -> String {
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
pub fn server_file(name: &str) -> String {
    format!("tools/{}.yaml", server_id(name))
}

/// Writes and signs an item.
pub fn write(
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
pub struct ToolItem<'l> {
    /// The file of the item.
    pub found: ItemFile<'l>,
    /// Name of the tool on the server.
    pub tool: String,
    /// The accepted hash of the definition.
    pub pin: Pin,
    /// The accepted definition, by part.
    pub definition: Map<String, Value>,
}

/// The verified items of a server's tools in a space.
pub fn tools<'l>(library: &'l Library, space: Space, name: &str) -> Vec<ToolItem<'l>> {
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
