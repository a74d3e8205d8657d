//! `rye help`: prints the help of a command, or a page of the documentation.

use clap::CommandFactory as _;
use rye_host::help::{TOPICS, topic};
use serde_json::{Value, json};

use crate::cli::args::{Cli, HelpArgs};
use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, Page, paint};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn run(args: &HelpArgs) -> Outcome {
    let Some(first) = args.topic.first() else {
        return Ok(Box::new(Overview));
    };
    let page = topic(first).filter(|_| args.topic.len() == 1);
    let topic = args.topic.join(" ");
    let text = match (command(&args.topic), page) {
        // Some pages have the name of their command.
        (Some(command), Some(page)) => format!("{}\n\n{}", command.trim_end(), page.text),
        (Some(command), None) => command,
        (None, Some(page)) => page.text.to_owned(),
        (None, None) => {
            let message = format!("unknown command or topic `{topic}`");
            return Err(Failure::usage(message).hint("rye help"));
        }
    };
    Ok(Box::new(HelpText { topic, text }))
}

/// The help of a command and its subcommands.
fn command(words: &[String]) -> Option<String> {
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for word in words {
        command = command.find_subcommand_mut(word)?;
    }
    Some(command.render_long_help().ansi().to_string())
}

/// The list of commands and topics.
struct Overview;

impl Report for Overview {
    fn json(&self) -> Value {
        let topics = TOPICS.iter();
        let topics: Vec<_> = topics
            .map(|topic| json!({ "name": topic.name, "about": topic.about }))
            .collect();
        json!({ "topics": topics })
    }

    fn show(&self, page: &mut Page) {
        page.text(&Cli::command().render_help().ansi().to_string());
        page.line("");
        page.line(paint(BOLD, "Topics:"));
        for topic in TOPICS {
            page.line(format_args!("  {:<14} {}", topic.name, topic.about));
        }
    }
}

struct HelpText {
    topic: String,
    text: String,
}

impl Report for HelpText {
    fn json(&self) -> Value {
        json!({ "topic": self.topic, "text": anstream::adapter::strip_str(&self.text).to_string() })
    }

    fn show(&self, page: &mut Page) {
        page.line(self.text.trim_end());
    }
}
