//! MCP servers that the editor offers to a session.

use std::collections::BTreeMap;

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::McpServer;
use rye_host::OfferedServers;
use rye_mcp::client::{ConfigValue, Transport};

use crate::failure::invalid;

/// Offers the servers to the sessions of a project. Nothing is started before a person accepts a
/// server.
pub(crate) fn offer(servers: Vec<McpServer>, offered: &OfferedServers) -> Result<(), Error> {
    for server in servers {
        let (name, transport) = transport(server)?;
        offered.offer(&name, transport).map_err(invalid)?;
    }
    Ok(())
}

/// Name of a server, and how to connect to it.
fn transport(server: McpServer) -> Result<(String, Transport), Error> {
    let values = |all: Vec<(String, String)>| -> BTreeMap<_, _> {
        let all = all.into_iter();
        all.map(|(name, value)| (name, ConfigValue::Text(value)))
            .collect()
    };
    let http = |url: String, headers: Vec<(String, String)>| Transport::Http {
        url: ConfigValue::Text(url),
        headers: values(headers),
        oauth: BTreeMap::new(),
    };
    Ok(match server {
        McpServer::Stdio(server) => {
            let env = server.env.into_iter().map(|it| (it.name, it.value));
            let transport = Transport::Stdio {
                command: server.command.display().to_string(),
                args: server.args.into_iter().map(ConfigValue::Text).collect(),
                env: values(env.collect()),
                cwd: None,
            };
            (server.name, transport)
        }
        McpServer::Http(server) => {
            let headers = server.headers.into_iter().map(|it| (it.name, it.value));
            (server.name, http(server.url, headers.collect()))
        }
        // Rye finds out which of the two transports the server speaks.
        McpServer::Sse(server) => {
            let headers = server.headers.into_iter().map(|it| (it.name, it.value));
            (server.name, http(server.url, headers.collect()))
        }
        _ => return Err(invalid("an MCP server uses an unknown transport")),
    })
}
