//! `rye help`: prints the help of a command, or a page of the documentation.

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
    "concepts": "terms and principles",
    "tutorial": "from an empty directory to an agent with an approved tool",
    "items": "what items are, where they live, and which one rye uses if several have the same id",
    "tools": "built-in tools, and how to write HTTP tools",
    "runtimes": "how tools run, and how to add a language",
    "executing": "running tools in the foreground and background",
    "sessions": "agent sessions, gates and crash recovery",
    "compaction": "how long histories fit into the context window",
    "roles": "roles, skills, rules and structured results",
    "replay": "replaying a session offline",
    "approvals": "what agents may do without asking, and how to verify decisions",
    "security": "security guarantees and their limits",
    "models": "models, API keys and failover",
    "signing": "signing, trusting and revoking keys",
    "search": "how search works",
    "vault": "passwords and tokens for tools",
    "configuration": "settings and environment variables",
    "graphs": "durable state graphs",
    "mcp": "the MCP server and how clients connect",
    "mcp-servers": "tools of third-party MCP servers",
};

/// Introduction for models that use the MCP server.
const MODEL_INTRODUCTION: &str = "\
Five tools give access to all signed items.

1. search {\"query\": \"count words\"} finds items and returns their ids.
2. load {\"item_type\": \"tool\", \"item_id\": ID} returns an item: its content, parameter schema and signer.
3. execute {\"item_type\": \"tool\", \"item_id\": ID, \"parameters\": {…}} runs a tool after verifying its whole chain. \
dry_run only verifies; async starts the tool and returns immediately. A tool that needs approval asks the user.
4. sign {\"item_type\": \"tool\", \"item_id\": ID} signs a new or changed item of the project. Unsigned items do not run.
5. help {\"topic\": TOPIC} explains a topic.

Items are files: .ai/tools/ID.py (or .sh, .js, .yaml …), .ai/directives/ID.md, .ai/knowledge/ID.md. \
Items of the project take precedence over those of the user, and those over built-in ones.
";

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

/// Help for models, which have no command line.
pub(crate) fn for_models(name: Option<&str>) -> GatewayResult {
    let names: Vec<_> = TOPICS.iter().map(|topic| topic.name).collect();
    let text = match name {
        None | Some("") => {
            let topics = TOPICS.iter();
            let topics = topics.map(|topic| format!("- {}: {}\n", topic.name, topic.about));
            format!(
                "{MODEL_INTRODUCTION}\nTopics:\n{}",
                topics.collect::<String>()
            )
        }
        Some(name) => {
            let topic = topic(name).ok_or_else(|| {
                let message = format!("unknown topic `{name}`");
                GatewayError::new("not_found", message)
                    .with_hint(format!("one of {}", names.join(", ")))
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
