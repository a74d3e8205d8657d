//! Edited arguments: the approver of a call may change its arguments.
//!
//! The edited arguments are part of the decision, and the receipt covers their hash, so exactly
//! what was approved is run, also by another process.

use rye_protocol::{ActionId, Resolution, Schema};
use serde_json::{Map, Value, json};

use crate::tool::ToolOutput;

/// Context key of a gate: the arguments of the call.
pub const PARAMS: &str = "params";
/// Context key of a gate: whether the approver may edit the arguments.
pub const EDITABLE: &str = "editable";
/// Context key of a gate: JSON Schema of the arguments.
pub const SCHEMA: &str = "schema";
/// Key in an approval's value: the edited arguments.
pub const ARGUMENTS: &str = "arguments";

/// Adds the arguments to a gate's context and allows editing them. With the schema, every process
/// can validate edited arguments.
pub fn make_editable(context: &mut Map<String, Value>, args: &Value, schema: Option<&Value>) {
    context.insert(PARAMS.to_owned(), args.clone());
    context.insert(EDITABLE.to_owned(), json!(true));
    if let Some(schema) = schema {
        context.insert(SCHEMA.to_owned(), schema.clone());
    }
}

/// Why arguments don't match the schema of a gate; `None` if they do, or if it has no schema.
pub(crate) fn validation_error(context: &Map<String, Value>, args: &Value) -> Option<String> {
    // The tool reports an invalid schema itself.
    let schema = Schema::new(context.get(SCHEMA)?).ok()?;
    schema.error(args)
}

/// Whether the arguments of a gate with this context may be edited.
pub fn is_editable(context: &Map<String, Value>) -> bool {
    context.get(EDITABLE) == Some(&Value::Bool(true))
}

/// The edited arguments of an approval, if the gate allows editing them.
pub fn edited_arguments<'a>(
    context: &Map<String, Value>,
    resolution: &'a Resolution,
) -> Option<&'a Value> {
    let edited = arguments_in(&resolution.action, &resolution.value)?;
    is_editable(context).then_some(edited)
}

/// The edited arguments in an answer, if it is an approval that has some.
pub(crate) fn arguments_in<'a>(action: &ActionId, value: &'a Value) -> Option<&'a Value> {
    value.get(ARGUMENTS).filter(|_| action.is_approval())
}

/// Arguments that the approver wrote in place of the model's.
#[derive(Debug, Clone, PartialEq)]
pub struct EditedArguments {
    /// The arguments.
    pub args: Value,
    /// The approver.
    pub by: String,
}

/// Adds the arguments that the approver edited, if any, to the output.
pub fn annotate(edited: Option<&EditedArguments>, output: ToolOutput) -> ToolOutput {
    match edited {
        Some(edited) => edited.annotate(output),
        None => output,
    }
}

impl EditedArguments {
    /// Adds the edited arguments to the output, because the model requested others.
    pub fn annotate(&self, mut output: ToolOutput) -> ToolOutput {
        let Self { args, by } = self;
        output.text = format!("[{by} edited the arguments: {args}]\n{}", output.text);
        match &mut output.data {
            Value::Object(data) => {
                data.insert(ARGUMENTS.to_owned(), args.clone());
            }
            data @ Value::Null => *data = json!({ ARGUMENTS: args }),
            _ => {}
        }
        output
    }

    /// The text for the approver if the edited arguments are invalid.
    pub fn describe_error(&self, error: &str) -> String {
        format!(
            "The arguments entered by {} are invalid:\n{}\n{}\n",
            self.by,
            lillux::quote_block(error),
            lillux::quote_block(&self.args.to_string())
        )
    }
}

#[cfg(test)]
mod tests {
    use rye_protocol::Millis;

    use super::*;

    #[test]
    fn only_approvals_of_editable_gates_edit_arguments() {
        let mut editable = Map::new();
        make_editable(&mut editable, &json!({ "to": "prod" }), None);
        let fixed = Map::new();
        let edited = json!({ "arguments": { "to": "test" } });
        for (context, action, value, expected) in [
            (&editable, "approve", &edited, true),
            (&editable, "approve_session", &edited, true),
            (&editable, "approve", &Value::Null, false),
            (&editable, "approve", &json!("arguments"), false),
            (&editable, "deny", &edited, false),
            (&fixed, "approve", &edited, false),
        ] {
            let resolution = Resolution {
                action: action.into(),
                value: value.clone(),
                by: "ada".to_owned(),
                at: Millis::default(),
                source: "test".to_owned(),
                receipt: None,
            };
            let found = edited_arguments(context, &resolution);
            let expected = expected.then(|| &edited["arguments"]);
            assert_eq!(found, expected, "{action} {value}");
        }
    }
}
