//! The tool `plan`: shows the steps of the work and how far it is.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::tool;
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Maximum number of steps.
const MAX_STEPS: usize = 50;

#[derive(Deserialize)]
struct Args {
    steps: Vec<Step>,
}

/// A step of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    text: String,
    status: Status,
}

/// State of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Done,
}

/// Replaces the plan that the user sees. The plan is the result of the last call.
pub(super) fn plan() -> impl Tool {
    let description = "Shows the user the steps of your work and their status. Each call replaces \
        the whole list. Keep one step in progress, and mark a step as done when it is.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "steps": {
                "type": "array", "minItems": 1, "maxItems": MAX_STEPS,
                "items": {
                    "type": "object",
                    "properties": {
                        "text": { "type": "string", "minLength": 1 },
                        "status": { "enum": ["pending", "in_progress", "done"], "type": "string" },
                    },
                    "required": ["text", "status"],
                    "additionalProperties": false,
                },
            },
        },
        "required": ["steps"],
        "additionalProperties": false,
    });
    let def = ToolDef::new("plan", description, parameters).effect(EffectClass::Pure);
    tool(def, run)
}

async fn run(args: Args, _: ToolContext) -> Result<ToolOutput, ToolError> {
    Ok(output(&args.steps))
}

fn output(steps: &[Step]) -> ToolOutput {
    let lines = steps.iter().map(|step| {
        let mark = match step.status {
            Status::Pending => "[ ]",
            Status::InProgress => "[>]",
            Status::Done => "[x]",
        };
        format!("{mark} {}", step.text)
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    ToolOutput::new(text, json!({ "steps": steps }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_is_a_checklist() {
        let steps = json!([
            { "text": "look", "status": "done" },
            { "text": "change", "status": "in_progress" },
            { "text": "test", "status": "pending" },
        ]);
        let args: Vec<Step> = serde_json::from_value(steps.clone()).unwrap();
        let output = output(&args);
        assert_eq!(output.text, "[x] look\n[>] change\n[ ] test");
        assert_eq!(output.data["steps"], steps);
    }
}
