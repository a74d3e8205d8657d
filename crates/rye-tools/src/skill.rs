//! The tool `skill`: returns the instructions of a skill.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use super::tool;
use rye_engine::guides::Guides;
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

#[derive(Deserialize)]
struct Args {
    name: String,
    #[serde(default)]
    variables: BTreeMap<String, String>,
}

/// Returns the text of a skill with its variables filled in.
pub fn skill(guides: Arc<dyn Guides>) -> impl Tool {
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
    let def = ToolDef::new("skill", text, parameters).effect(EffectClass::Pure);
    tool(def, move |args, context| {
        run(args, context, Arc::clone(&guides))
    })
}

async fn run(
    args: Args,
    context: ToolContext,
    guides: Arc<dyn Guides>,
) -> Result<ToolOutput, ToolError> {
    let skill = guides.skill(&args.name, &*context.sandbox).await;
    let skill = skill.map_err(ToolError::failed)?;
    let text = skill.fill(&args.variables).map_err(ToolError::failed)?;
    Ok(ToolOutput::text(text))
}
