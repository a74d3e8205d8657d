//! Other arguments than those that were asked about: whoever approves may change them.
//!
//! What they wrote is in the decision, and its hash in the receipt. So what runs is what was
//! approved, also where the process that asked is gone.

use rye_protocol::Resolution;
use serde_json::{Map, Value, json};

use crate::tool::ToolOutput;

/// Where a gate's context has the arguments that are asked about.
pub const PARAMS: &str = "params";
/// Where it says that whoever approves may change them.
pub const EDITABLE: &str = "editable";
/// Where the value of an approval has those that are to be used instead.
pub const ARGUMENTS: &str = "arguments";

/// How often others that do not fit are asked about.
pub(crate) const TRIES: usize = 8;

/// Puts the arguments that are asked about into a gate's context, to be changed.
pub(crate) fn offer(context: &mut Map<String, Value>, args: &Value) {
    context.insert(PARAMS.to_owned(), args.clone());
    context.insert(EDITABLE.to_owned(), json!(true));
}

/// Whether a gate with this context can be approved with other arguments.
pub fn is_editable(context: &Map<String, Value>) -> bool {
    context.get(EDITABLE) == Some(&Value::Bool(true))
}

/// The arguments with which something was approved, where they are others than the gate with
/// this context is about.
pub fn edited_arguments<'a>(
    context: &Map<String, Value>,
    resolution: &'a Resolution,
) -> Option<&'a Value> {
    let others = others(&resolution.action, &resolution.value)?;
    is_editable(context).then_some(others)
}

/// The other arguments that an answer names, if it is one that does.
pub(crate) fn others<'a>(action: &str, value: &'a Value) -> Option<&'a Value> {
    let approves = action.starts_with("approve");
    value.get(ARGUMENTS).filter(|_| approves)
}

/// What a person wrote in place of what was asked about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Instead {
    pub(crate) args: Value,
    pub(crate) by: String,
}

impl Instead {
    /// What came of it; the model, which asked for something else, is told what was done.
    pub(crate) fn told(&self, mut output: ToolOutput) -> ToolOutput {
        let Self { args, by } = self;
        output.text = format!("[{by} approved other arguments: {args}]\n{}", output.text);
        match &mut output.data {
            Value::Object(data) => {
                data.insert(ARGUMENTS.to_owned(), args.clone());
            }
            data @ Value::Null => *data = json!({ ARGUMENTS: args }),
            _ => {}
        }
        output
    }

    /// What the person is told where they cannot be used.
    pub(crate) fn unfit(&self, wrong: &str) -> String {
        format!(
            "The arguments that {} wrote do not fit:\n{}\n{}\n",
            self.by,
            lillux::quote_block(wrong),
            lillux::quote_block(&self.args.to_string())
        )
    }
}

#[cfg(test)]
mod tests {
    use rye_protocol::Millis;

    use super::*;

    #[test]
    fn only_an_approval_of_what_may_be_changed_changes_it() {
        let mut editable = Map::new();
        offer(&mut editable, &json!({ "to": "prod" }));
        let fixed = Map::new();
        let others = json!({ "arguments": { "to": "test" } });
        for (context, action, value, expected) in [
            (&editable, "approve", &others, true),
            (&editable, "approve_session", &others, true),
            (&editable, "approve", &Value::Null, false),
            (&editable, "approve", &json!("arguments"), false),
            (&editable, "deny", &others, false),
            (&fixed, "approve", &others, false),
        ] {
            let resolution = Resolution {
                action: action.to_owned(),
                value: value.clone(),
                by: "ada".to_owned(),
                at: Millis::default(),
                source: "test".to_owned(),
                receipt: None,
            };
            let found = edited_arguments(context, &resolution);
            let wanted = expected.then(|| &others["arguments"]);
            assert_eq!(found, wanted, "{action} {value}");
        }
    }
}
