//! `rye mcp remove`: removes a server and the items of its tools.

use rye_host::mcp::remove::{RemovedServer, remove};
use serde_json::{Value, json};

use crate::cli::args::RemoveArgs;
use crate::cli::context::Context;
use crate::cli::page::{BOLD, Page, paint};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &RemoveArgs, context: &Context) -> Outcome {
    let removed = remove(args.name.as_str(), args.space.map(Into::into), context)?;
    Ok(Box::new(removed))
}

impl Report for RemovedServer {
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
