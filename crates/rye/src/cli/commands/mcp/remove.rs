//! `rye mcp remove`

use std::fs;
use std::path::PathBuf;

use lillux::At as _;
use rye_items::Space;
use rye_mcp::client::discovery::server_id;
use serde_json::{Value, json};

use super::items;
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
        // Also one that does not verify can be removed.
        let Some(path) = root.real_path(&file)? else {
            continue;
        };
        let tools = items::tools(&library, space, name);
        let mut paths = vec![path];
        paths.extend(tools.iter().map(|item| item.found.path()));
        for path in &paths {
            fs::remove_file(path).at("remove", path)?;
        }
        // What somebody else put there stays, and the folder with it.
        let _ = fs::remove_dir(root.path_to(&format!("tools/mcp/{name}")));
        return Ok(Box::new(Removed {
            name: name.to_owned(),
            space,
            paths,
        }));
    }
    let message = format!("there is no server {}", server_id(name));
    Err(Failure::failed("not_found", message).hint("rye mcp list"))
}

struct Removed {
    name: String,
    space: Space,
    /// The server's own first.
    paths: Vec<PathBuf>,
}

impl Report for Removed {
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
            1 => " and the item of its tool".to_owned(),
            count => format!(" and the items of its {count} tools"),
        };
        page.line(format_args!(
            "removed {}{tools} from the {} space",
            paint(BOLD, &self.name),
            self.space
        ));
    }
}
