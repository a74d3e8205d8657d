//! `rye mcp install`: adds the MCP server to the configuration file of a client.

use clap::builder::PossibleValuesParser;
use rye_host::mcp::install::{Installation, client_names, install};
use serde_json::{Value, json};

use crate::cli::args::InstallArgs;
use crate::cli::context::Context;
use crate::cli::page::{DIM, GOOD, Page, paint};
use crate::cli::printer::{Outcome, Report};

/// The names of all clients.
pub(crate) fn names() -> PossibleValuesParser {
    client_names().into()
}

pub(crate) fn run(args: &InstallArgs, context: &Context) -> Outcome {
    Ok(Box::new(install(&args.client, args.print, context)?))
}

impl Report for Installation {
    fn json(&self) -> Value {
        json!({
            "client": self.client.name,
            "path": self.path.to_string_lossy(),
            "state": self.state,
            "content": self.content,
        })
    }

    fn show(&self, page: &mut Page) {
        let path = self.path.display();
        match self.state {
            "printed" => {
                page.line(paint(DIM, format_args!("{path}:")));
                page.line(self.content.trim_end());
            }
            state => {
                page.line(format_args!("{} {path}", paint(GOOD, state)));
                page.line(paint(DIM, self.client.next_step));
            }
        }
    }
}
