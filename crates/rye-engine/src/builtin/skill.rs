//! `skill`: how something is done, told when it is of use.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::parse;
use crate::BoxFuture;
use crate::guides::Guides;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Tells what a skill says, with its variables filled in.
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
    /// Skills from there.
    pub fn new(guides: Arc<dyn Guides>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "Which." },
                "variables": {
                    "type": "object",
                    "additionalProperties": { "type": "string" },
                    "description": "What is filled in, by name."
                }
            },
            "required": ["name"],
            "additionalProperties": false
        });
        let text = "Tells how something is done: the text of one of the skills that you know of.";
        Self {
            def: ToolDef::new("skill", text, parameters).effect(Effect::Pure),
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
