//! Removes a server and the items of its tools.

use std::fs;
use std::path::PathBuf;

use lillux::PathContext as _;
use rye_items::Space;
use rye_mcp::client::discovery::server_id;

use crate::context::Context;
use crate::failure::Failure;
use crate::mcp_items as items;

/// A server that was removed.
pub struct RemovedServer {
    /// Its name.
    pub name: String,
    /// Its space.
    pub space: Space,
    /// Removed files; the server's own is the first.
    pub paths: Vec<PathBuf>,
}

/// Removes a server from a space, by default from the first of the project and the user that has it.
pub fn remove(
    name: &str,
    space: Option<Space>,
    context: &Context,
) -> Result<RemovedServer, Failure> {
    let library = context.library()?;
    let spaces = match space {
        Some(space) => vec![space],
        None => vec![Space::Project, Space::User],
    };
    let file = items::server_file(name);
    for space in spaces {
        let Some(root) = library.spaces().roots_in(space).next() else {
            continue;
        };
        // An item that does not verify can be removed, too.
        let Some(path) = root.real_path(&file)? else {
            continue;
        };
        let tools = items::tools(library, space, name);
        let mut paths = vec![path];
        paths.extend(tools.iter().map(|item| item.found.path()));
        for path in &paths {
            fs::remove_file(path).at("remove", path)?;
        }
        // Fails if the directory contains other files, which stay.
        let _ = fs::remove_dir(root.path_to(&format!("tools/mcp/{name}")));
        return Ok(RemovedServer {
            name: name.to_owned(),
            space,
            paths,
        });
    }
    let message = format!("server {} not found", server_id(name));
    Err(Failure::failed("not_found", message).hint("rye mcp list"))
}
