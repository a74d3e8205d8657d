//! The pages of the documentation, which every interface can show.

use rye_mcp::{GatewayError, GatewayResult, ToolReply};
use serde_json::json;

/// A page of the documentation.
pub struct Topic {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Its text, in Markdown.
    pub text: &'static str,
}

macro_rules! topics {
    ($($name:literal: $about:literal,)*) => {
        &[$(Topic {
            name: $name,
            about: $about,
            text: include_str!(concat!("../../../docs/", $name, ".md")),
        }),*]
    };
}

/// All pages.
pub const TOPICS: &[Topic] = topics! {
    "concepts": "terms and principles",
    "tutorial": "from an empty directory to an agent with an approved tool",
    "items": "what items are, where they live, and which one rye uses if several have the same id",
    "tools": "built-in tools, and how to write HTTP tools",
    "runtimes": "how tools run, and how to add a language",
    "executing": "running tools in the foreground and background",
    "sessions": "agent sessions, gates and crash recovery",
    "compaction": "how long histories fit into the context window",
    "roles": "roles, skills, rules and structured results",
    "schedules": "starting prompts and graphs at times",
    "webhooks": "sending events to URLs, and starting work when requests arrive",
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

/// Help for models, which have no command line.
pub fn for_models(name: Option<&str>) -> GatewayResult {
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

/// The page with a name.
pub fn topic(name: &str) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.name == name)
}
