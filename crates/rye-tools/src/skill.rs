//! The tool `skill`: returns the instructions of a skill.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::parse;
use rye_engine::BoxFuture;
use rye_engine::guides::Guides;
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Returns the text of a skill with its variables filled in.
pub struct Skill {
    def: ToolDef,
    guides: Arc<dyn Guides>,
}

#[derive(Deserialize)]
struct Args {
    name: String,
    #[serde(default)]
    variables: BTreeMap<String, String>,
}

impl Skill {
    /// Creates the tool for the skills of `guides`.
    pub fn new(guides: Arc<dyn Guides>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "Name of the skill." },
                "variables": {
                    "type": "object",
                    "additionalProperties": { "type": "string" },
                    "description": "Values of the skill's variables."
                }
            },
            "required": ["name"],
            "additionalProperties": false
        });
        let text = "Returns the instructions of one of the available skills.";
        Self {
            def: ToolDef::new("skill", text, parameters).effect(EffectClass::Pure),
            guides,
        }
    }
}

impl Tool for Skill {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let Args { name, variables } = parse(args)?;
            let skill = self.guides.skill(&name, &*context.sandbox).await;
            let skill = skill.map_err(ToolError::failed)?;
            let text = skill.fill(&variables).map_err(ToolError::failed)?;
            Ok(ToolOutput::text(text))
        })
    }
}
