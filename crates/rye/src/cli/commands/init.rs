//! `rye init`: creates a signing key, the directories of a project and a sample tool.

use rye_host::init::{InitReport, init};
use serde_json::Value;

use crate::cli::args::InitArgs;
use crate::cli::context::Context;
use crate::cli::page::{DIM, GOOD, Page, paint};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &InitArgs, context: &Context) -> Outcome {
    Ok(Box::new(init(args.owner.as_deref(), args.agents, context)?))
}

impl Report for InitReport {
    fn json(&self) -> Value {
        self.json()
    }

    fn show(&self, page: &mut Page) {
        for (what, path, is_new) in &self.0 {
            let (style, word) = if *is_new {
                (GOOD, "created")
            } else {
                (DIM, "exists ")
            };
            let path = path.display();
            page.line(format_args!("{}  {what:<11}  {path}", paint(style, word)));
        }
        page.line(paint(DIM, "next: rye execute hello --name Ada"));
    }
}
