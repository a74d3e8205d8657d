//! The tool `ask`: asks the user a question and waits for the answer.

use rye_protocol::{ActionId, ErrorCode, ErrorInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use super::parse;
use lillux::sanitize_line;
use rye_engine::BoxFuture;
use rye_engine::sandbox::Sandbox;
use rye_engine::tool::{
    DecisionRequest, EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};

/// Key of the gate's context: the possible answers.
const OPTIONS: &str = "options";
/// Maximum number of possible answers.
const MAX_OPTIONS: usize = 9;

/// Opens a gate with a question. A repeated call finds the same gate.
pub(super) struct Ask {
    def: ToolDef,
}

impl Default for Ask {
    fn default() -> Self {
        let description = "Asks the user a question and waits for the answer. Use it only if the \
            answer changes what you do and nothing else tells it.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "question": { "type": "string", "minLength": 1, "description": "One question." },
                "options": {
                    "type": "array", "maxItems": MAX_OPTIONS,
                    "items": { "type": "string", "minLength": 1 },
                    "description": "Likely answers. The user can answer something else.",
                },
            },
            "required": ["question"],
            "additionalProperties": false,
        });
        let def = ToolDef::new("ask", description, parameters).effect(EffectClass::Idempotent);
        Self { def }
    }
}

#[derive(Deserialize)]
struct Args {
    question: String,
    #[serde(default)]
    options: Vec<String>,
}

impl Args {
    fn request(&self, call: &str) -> DecisionRequest {
        let mut lines = self.question.trim().lines();
        let title = sanitize_line(lines.next().unwrap_or_default()).into_owned();
        let mut body: Vec<_> = lines.map(|line| sanitize_line(line).into_owned()).collect();
        let options = self.options.iter().zip(1..);
        body.extend(options.map(|(option, number)| format!("{number}. {}", sanitize_line(option))));
        let mut request = DecisionRequest::question(format!("ask:{call}"), title);
        request.body = body.join("\n");
        if !self.options.is_empty() {
            let options = json!(self.options);
            request.context.insert(OPTIONS.to_owned(), options);
        }
        request
    }

    /// The answer as text: a number stands for the option.
    fn answer(&self, value: &Value) -> String {
        let text = match value {
            Value::String(text) => text.trim().to_owned(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let number = text.parse::<usize>().ok();
        let index = number.and_then(|number| number.checked_sub(1));
        let option = index.and_then(|index| self.options.get(index));
        option.cloned().unwrap_or(text)
    }
}

impl Tool for Ask {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn may_request_decision(&self, _: &dyn Sandbox) -> bool {
        true
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            let request = args.request(context.call.as_str());
            let resolution = context.request_decision(request).await?;
            if resolution.action == ActionId::Deny {
                let message = "the user does not want to answer";
                return Err(ToolError(ErrorInfo::new(ErrorCode::Denied, message)));
            }
            let answer = args.answer(&resolution.value);
            let data = json!({ "answer": answer, "by": resolution.by });
            Ok(ToolOutput::new(answer, data))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(question: &str, options: &[&str]) -> Args {
        Args {
            question: question.to_owned(),
            options: options.iter().map(|&it| it.to_owned()).collect(),
        }
    }

    #[test]
    fn number_stands_for_an_option_and_other_text_is_the_answer() {
        let choice = args("Which?", &["red", "blue"]);
        for (value, expected) in [
            (json!("2"), "blue"),
            (json!(1), "red"),
            (json!("3"), "3"),
            (json!("0"), "0"),
            (json!(" green "), "green"),
            (Value::Null, ""),
        ] {
            assert_eq!(choice.answer(&value), expected, "{value}");
        }
        assert_eq!(args("How many?", &[]).answer(&json!("2")), "2");
    }

    #[test]
    fn question_shows_the_options_and_cannot_imitate_other_lines() {
        let request = args("Which colour?\nBoth work.", &["red", "blue\nrisk: low"]).request("c1");
        assert_eq!(request.title, "Which colour?");
        assert_eq!(request.body, "Both work.\n1. red\n2. blue\\u{a}risk: low");
        assert_eq!(request.resume_key, "ask:c1");
    }
}
