//! `rye help`: a command in its own words, or a page of the documentation.

use clap::CommandFactory as _;
use rye_mcp::{GatewayError, GatewayResult, ToolReply};
use serde_json::{Value, json};

use crate::cli::args::{Cli, HelpArgs};
use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, Page, paint};
use crate::cli::printer::{Outcome, Report};

/// A page of the documentation.
struct Topic {
    name: &'static str,
    about: &'static str,
    text: &'static str,
}

macro_rules! topics {
    ($($name:literal: $about:literal,)*) => {
        &[$(Topic {
            name: $name,
            about: $about,
            text: include_str!(concat!("../../../../../docs/", $name, ".md")),
        }),*]
    };
}

const TOPICS: &[Topic] = topics! {
    "concepts": "the words, and the two rules",
    "tutorial": "from an empty folder to an agent with an approved tool",
    "items": "what an item is, where it lives, and which of two wins",
    "tools": "the tools that ship, and how to write one over HTTP",
    "runtimes": "how a tool is run, how to write one in any language, how to add a language",
    "executing": "to run a tool, in the foreground or in the background",
    "sessions": "an agent's work, its gates, and what happens when a process dies",
    "compaction": "what a model reads of a history that has grown long",
    "roles": "roles, skills, rules and structured results",
    "replay": "a session run again, offline, and what differs",
    "approvals": "what an agent may do without asking, and how decisions are proven",
    "security": "what is promised, and what is not",
    "models": "which models there are, their keys, and what happens when one does not answer",
    "signing": "to sign, trust and revoke, and what to do when something does not verify",
    "search": "how items are found",
    "vault": "passwords and tokens for tools",
    "configuration": "settings, and where each value is from",
    "graphs": "programs of steps and decisions, walked durably",
    "mcp": "the five tools of the MCP server, and how clients connect",
    "mcp-servers": "the tools of other MCP servers as items",
};

/// What a model needs to begin.
const FIVE: &str = "\
Five tools reach any number of signed items.

1. search {\"query\": \"count words\"} finds items and gives their ids.
2. load {\"item_type\": \"tool\", \"item_id\": ID} shows an item: its content, the schema of its parameters, who signed it.
3. execute {\"item_type\": \"tool\", \"item_id\": ID, \"parameters\": {…}} runs a tool. All that it is made of is verified first; \
dry_run checks without running; async starts it and answers at once. A tool that needs an approval asks the person.
4. sign {\"item_type\": \"tool\", \"item_id\": ID} signs an item of the project after it was written or changed. What is not signed does not run.
5. help {\"topic\": TOPIC} explains.

Items are files: .ai/tools/ID.py (or .sh, .js, .yaml …), .ai/directives/ID.md, .ai/knowledge/ID.md. \
An item of the project goes before one of the user, and that before one that ships.
";

pub(crate) fn run(args: &HelpArgs) -> Outcome {
    let Some(first) = args.topic.first() else {
        return Ok(Box::new(Overview));
    };
    let page = topic(first).filter(|_| args.topic.len() == 1);
    let asked = args.topic.join(" ");
    let text = match (command(&args.topic), page) {
        // Some pages have the name of the command that they are about.
        (Some(command), Some(page)) => format!("{}\n\n{}", command.trim_end(), page.text),
        (Some(command), None) => command,
        (None, Some(page)) => page.text.to_owned(),
        (None, None) => {
            let message = format!("there is no command or topic `{asked}`");
            return Err(Failure::usage(message).hint("rye help"));
        }
    };
    Ok(Box::new(Text { topic: asked, text }))
}

/// The same for models, which have no command line.
pub(crate) fn for_models(asked: Option<&str>) -> GatewayResult {
    let names: Vec<_> = TOPICS.iter().map(|topic| topic.name).collect();
    let text = match asked {
        None | Some("") => {
            let topics = TOPICS.iter();
            let topics = topics.map(|topic| format!("- {}: {}\n", topic.name, topic.about));
            format!("{FIVE}\nTopics:\n{}", topics.collect::<String>())
        }
        Some(name) => {
            let topic = topic(name).ok_or_else(|| {
                let message = format!("there is no topic `{name}`");
                GatewayError::new("not_found", message).hint(format!("one of {}", names.join(", ")))
            })?;
            topic.text.to_owned()
        }
    };
    Ok(ToolReply {
        value: json!({ "text": text, "topics": names }),
        text,
    })
}

fn topic(name: &str) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.name == name)
}

/// The help of the command that these words name.
fn command(words: &[String]) -> Option<String> {
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for word in words {
        command = command.find_subcommand_mut(word)?;
    }
    Some(command.render_long_help().ansi().to_string())
}

/// What there is to explain.
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
        page.line(paint(BOLD, "Topics, for `rye help TOPIC`:"));
        for topic in TOPICS {
            page.line(format_args!("  {:<14} {}", topic.name, topic.about));
        }
    }
}

struct Text {
    topic: String,
    text: String,
}

impl Report for Text {
    fn json(&self) -> Value {
        json!({ "topic": self.topic, "text": anstream::adapter::strip_str(&self.text).to_string() })
    }

    fn show(&self, page: &mut Page) {
        page.line(self.text.trim_end());
    }
}
