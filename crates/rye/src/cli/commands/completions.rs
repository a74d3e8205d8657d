//! `rye completions`: prints a completion script.

use clap::CommandFactory as _;
use serde_json::{Value, json};

use crate::cli::args::{Cli, CompletionsArgs};
use crate::cli::page::Page;
use crate::cli::printer::Report;

pub(crate) fn run(args: &CompletionsArgs) -> Box<dyn Report> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "rye", &mut script);
    Box::new(Completions {
        shell: args.shell,
        script: String::from_utf8_lossy(&script).into_owned(),
    })
}

struct Completions {
    shell: clap_complete::Shell,
    script: String,
}

impl Report for Completions {
    fn json(&self) -> Value {
        json!({ "shell": self.shell.to_string(), "script": self.script })
    }

    fn show(&self, page: &mut Page) {
        page.line(self.script.trim_end());
    }
}
