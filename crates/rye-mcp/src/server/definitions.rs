//! Definitions of the five tools: schemas, descriptions and annotations.

use std::sync::{Arc, LazyLock};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// One of the five tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GatewayTool {
    Search,
    Load,
    Execute,
    Sign,
    Help,
}

impl GatewayTool {
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

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    fn description(self) -> &'static str {
        match self {
            Self::Search => {
                "Search signed tools, directives (instructions to follow) and knowledge. \
                 Returns ids to `load` or `execute`."
            }
            Self::Load => {
                "Read one item: content, schema of its parameters, and signer. \
                 With `destination`, copy it to that space."
            }
            Self::Execute => {
                "Run a tool with `parameters`; `load` shows their schema. \
                 Every file of the tool is verified first. \
                 For a directive or knowledge item, returns its text."
            }
            Self::Sign => {
                "Sign items of the project or user space after writing or changing them. \
                 Unsigned items do not run."
            }
            Self::Help => "How to use these five tools, and how to write items, by topic.",
        }
    }

    fn input_schema(self) -> Value {
        let item_type = json!({
            "type": "string",
            "enum": ["tool", "directive", "knowledge"],
        });
        let project = json!({
            "type": "string",
            "description": "Absolute path of the project directory [default: the client's root]",
        });
        let (properties, required) = match self {
            Self::Search => (
                json!({
                    "query": { "type": "string", "description": "Words to search for; typos are tolerated. Empty lists all items" },
                    "item_type": item_type,
                    "space": { "type": "string", "enum": ["project", "user", "system"] },
                    "limit": { "type": "integer", "minimum": 1, "maximum": 200, "default": 20 },
                    "project_path": project,
                }),
                vec!["query"],
            ),
            Self::Load => (
                json!({
                    "item_type": item_type,
                    "item_id": { "type": "string", "description": "For example rye/file-system/read" },
                    "destination": { "type": "string", "enum": ["project", "user"] },
                    "project_path": project,
                }),
                vec!["item_type", "item_id"],
            ),
            Self::Execute => (
                json!({
                    "item_type": item_type,
                    "item_id": { "type": "string", "description": "For example rye/file-system/read" },
                    "action": { "type": "string", "enum": ["run"], "default": "run" },
                    "parameters": { "type": "object", "description": "Parameters of the item" },
                    "dry_run": { "type": "boolean", "description": "Only check whether the tool would run" },
                    "async": { "type": "boolean", "description": "Run in the background and return a run id at once" },
                    "timeout": { "type": "number", "exclusiveMinimum": 0, "description": "Seconds" },
                    "project_path": project,
                }),
                vec!["item_type", "item_id"],
            ),
            Self::Sign => (
                json!({
                    "item_type": item_type,
                    "item_id": { "type": "string", "description": "Id, or a glob such as my/**" },
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

    /// No property is required, because a failed call has only `error`.
    fn output_schema(self) -> Value {
        let objects = json!({ "type": "array", "items": { "type": "object" } });
        let properties = match self {
            Self::Search => json!({ "total": { "type": "integer" }, "hits": objects }),
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
            Self::Sign => json!({ "counts": { "type": "object" }, "items": objects }),
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
            // It may copy an item, but never overwrites a file.
            Self::Load => hints.read_only(false).destructive(false).open_world(false),
            Self::Execute => hints.read_only(false).destructive(true).open_world(true),
            Self::Sign => hints
                .read_only(false)
                .destructive(false)
                .idempotent(true)
                .open_world(false),
        }
    }

    fn definition(self) -> Tool {
        Tool::new(self.name(), self.description(), object(self.input_schema()))
            .with_raw_output_schema(object(self.output_schema()))
            .with_annotations(self.annotations())
    }
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}

/// Definitions of all five tools, in the order of typical use.
pub(super) fn all() -> Vec<Tool> {
    static ALL: LazyLock<Vec<Tool>> = LazyLock::new(|| {
        GatewayTool::ALL
            .into_iter()
            .map(GatewayTool::definition)
            .collect()
    });
    ALL.clone()
}
