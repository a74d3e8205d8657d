//! `rye mcp remove`: removes a server and the items of its tools.

use std::fs;
use std::path::PathBuf;

use lillux::PathContext as _;
use rye_host::mcp_items as items;
use rye_items::Space;
use rye_mcp::client::discovery::server_id;
use serde_json::{Value, json};

use crate::cli::args::RemoveArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, Page, paint};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &RemoveArgs, context: &Context) -> Outcome {
    let name = args.name.as_str();
    let library = context.library()?;
    let spaces = match args.space {
        Some(space) => vec![Space::from(space)],
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
        return Ok(Box::new(RemoveReport {
            name: name.to_owned(),
            space,
            paths,
        }));
    }
    let message = format!("server {} not found", server_id(name));
    Err(Failure::failed("not_found", message).hint("rye mcp list"))
}

struct RemoveReport {
    name: String,
    space: Space,
    /// Removed files; the server's own is the first.
    paths: Vec<PathBuf>,
}

impl Report for RemoveReport {
    fn json(&self) -> Value {
        let paths: Vec<_> = self
            .paths
            .iter()
            .map(|path| path.to_string_lossy())
            .collect();
        json!({ "server": self.name, "space": self.space, "removed": paths })
    }

    fn show(&self, page: &mut Page) {
        let tools = match self.paths.len() - 1 {
            0 => String::new(),
            1 => " and 1 tool".to_owned(),
            count => format!(" and {count} tools"),
        };
        page.line(format_args!(
            "removed {}{tools} from the {} space",
            paint(BOLD, &self.name),
            self.space
        ));
    }
}
