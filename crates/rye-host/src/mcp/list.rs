//! Lists servers.

use rye_items::{ItemKind, Library, Space};
use rye_mcp::client::{ConfigValue, ServerConfig, Transport};

use crate::context::Context;
use crate::failure::Failure;
use crate::mcp_items as items;

const SERVERS: &str = "mcp/servers/";

/// A server in a list.
pub struct ListedServer {
    /// Its name.
    pub name: String,
    /// Its space.
    pub space: Space,
    /// Its transport.
    pub transport: &'static str,
    /// Command or URL.
    pub target: String,
    /// The number of accepted tools.
    pub tools: usize,
    /// Why it cannot be used, if it cannot.
    pub failure: Option<Failure>,
}

fn listed(
    library: &Library,
    name: &str,
    space: Space,
    read: Result<ServerConfig, Failure>,
) -> ListedServer {
    let (transport, target, failure) = match read {
        Ok(config) => (config.transport.name(), target(&config.transport), None),
        Err(failure) => ("", String::new(), Some(failure)),
    };
    ListedServer {
        name: name.to_owned(),
        space,
        transport,
        target,
        tools: items::tools(library, space, name).len(),
        failure,
    }
}

/// Command or URL of the server, without resolving variables.
fn target(transport: &Transport) -> String {
    let text = |source: &ConfigValue| match source {
        ConfigValue::Text(text) => text.clone(),
        ConfigValue::Vault { name, .. } => format!("{{vault: {name}}}"),
    };
    match transport {
        Transport::Stdio { command, args, .. } => {
            let words = std::iter::once(command.clone()).chain(args.iter().map(text));
            words.collect::<Vec<_>>().join(" ")
        }
        Transport::Http { url, .. } => text(url),
    }
}

/// All servers, with those that do not verify.
pub fn list(context: &Context) -> Result<Vec<ListedServer>, Failure> {
    let library = context.library()?;
    let trust = library.trust();
    let mut rows = Vec::new();
    for found in library.list(ItemKind::Tool) {
        let Ok(found) = found else {
            continue;
        };
        let Some(name) = found.reference.id.as_str().strip_prefix(SERVERS) else {
            continue;
        };
        let space = found.root.space();
        let read = library
            .verify(&found, &trust)
            .map_err(Failure::from)
            .and_then(|item| items::read_config(library, &item));
        rows.push(listed(library, name, space, read));
    }
    Ok(rows)
}
