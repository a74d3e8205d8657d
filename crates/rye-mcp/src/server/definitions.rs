//! The five tools, as clients see them.

use std::sync::{Arc, LazyLock};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// One of the five.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Five {
    Search,
    Load,
    Execute,
    Sign,
    Help,
}

impl Five {
    pub(super) const ALL: [Self; 5] = [
        Self::Search,
        Self::Load,
        Self::Execute,
        Self::Sign,
        Self::Help,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Load => "load",
            Self::Execute => "execute",
            Self::Sign => "sign",
            Self::Help => "help",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    fn description(self) -> &'static str {
        match self {
            Self::Search => {
                "Find signed tools, directives (instructions to follow) and knowledge by words. \
                 Gives ids to `load` or `execute`."
            }
            Self::Load => {
                "Read one item: its content, its parameters' schema, and who signed it. \
                 With `destination`, copy it into that space."
            }
            Self::Execute => {
                "Run a tool by its id with `parameters`; `load` shows which it takes. \
                 All that it is made of is verified first. \
                 A directive or knowledge item gives its text."
            }
            Self::Sign => {
                "Sign items of the project or the user after writing or changing them; \
                 what is not signed does not run."
            }
            Self::Help => "How to use these five tools, and how to write items, by topic.",
        }
    }

    fn input(self) -> Value {
        let kind = json!({
            "type": "string",
            "enum": ["tool", "directive", "knowledge"],
        });
        let project = json!({
            "type": "string",
            "description": "The project's folder, absolute; else the client's root",
        });
        let (properties, required) = match self {
            Self::Search => (
                json!({
                    "query": { "type": "string", "description": "Words; a typo is forgiven. Empty lists all" },
                    "item_type": kind,
                    "space": { "type": "string", "enum": ["project", "user", "system"] },
                    "limit": { "type": "integer", "minimum": 1, "maximum": 200, "default": 20 },
                    "project_path": project,
                }),
                vec!["query"],
            ),
            Self::Load => (
                json!({
                    "item_type": kind,
                    "item_id": { "type": "string", "description": "Such as rye/file-system/read" },
                    "destination": { "type": "string", "enum": ["project", "user"] },
                    "project_path": project,
                }),
                vec!["item_type", "item_id"],
            ),
            Self::Execute => (
                json!({
                    "item_type": kind,
                    "item_id": { "type": "string", "description": "Such as rye/file-system/read" },
                    "action": { "type": "string", "enum": ["run"], "default": "run" },
                    "parameters": { "type": "object", "description": "The item's own parameters" },
                    "dry_run": { "type": "boolean", "description": "Only check that it would run" },
                    "async": { "type": "boolean", "description": "Start it and answer at once with a run id" },
                    "timeout": { "type": "number", "exclusiveMinimum": 0, "description": "Seconds" },
                    "project_path": project,
                }),
                vec!["item_type", "item_id"],
            ),
            Self::Sign => (
                json!({
                    "item_type": kind,
                    "item_id": { "type": "string", "description": "An id, or a glob such as my/**" },
                    "project_path": project,
                }),
                vec!["item_type", "item_id"],
            ),
            Self::Help => (json!({ "topic": { "type": "string" } }), vec![]),
        };
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    /// A refused call gives `error` in place of the rest, so nothing is required.
    fn output(self) -> Value {
        let list = json!({ "type": "array", "items": { "type": "object" } });
        let properties = match self {
            Self::Search => json!({ "total": { "type": "integer" }, "hits": list }),
            Self::Load => json!({
                "content": { "type": "string" },
                "metadata": { "type": "object" },
                "schema": { "anyOf": [{ "type": "object" }, { "type": "null" }] },
                "verification": { "type": "object" },
                "path": { "type": "string" },
            }),
            Self::Execute => json!({
                "status": { "type": "string", "enum": ["success", "error", "validation_passed", "started"] },
                "item_id": { "type": "string" },
                "data": {},
                "chain": { "type": "array", "items": { "type": "string" } },
                "metadata": { "type": "object" },
            }),
            Self::Sign => json!({ "counts": { "type": "object" }, "items": list }),
            Self::Help => {
                json!({ "text": { "type": "string" }, "topics": { "type": "array", "items": { "type": "string" } } })
            }
        };
        let mut schema = json!({ "type": "object", "properties": properties });
        schema["properties"]["error"] = json!({ "type": "object" });
        schema
    }

    fn annotations(self) -> ToolAnnotations {
        let hints = ToolAnnotations::new();
        match self {
            Self::Search | Self::Help => hints.read_only(true).open_world(false),
            // It may copy, and never overwrites.
            Self::Load => hints.read_only(false).destructive(false).open_world(false),
            Self::Execute => hints.read_only(false).destructive(true).open_world(true),
            Self::Sign => hints
                .read_only(false)
                .destructive(false)
                .idempotent(true)
                .open_world(false),
        }
    }

    fn define(self) -> Tool {
        Tool::new(self.name(), self.description(), object(self.input()))
            .with_raw_output_schema(object(self.output()))
            .with_annotations(self.annotations())
    }
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}

/// All five, in the order in which they are needed.
pub(super) fn all() -> Vec<Tool> {
    static ALL: LazyLock<Vec<Tool>> =
        LazyLock::new(|| Five::ALL.into_iter().map(Five::define).collect());
    ALL.clone()
}
