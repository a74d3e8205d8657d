//! Fills in the forms of MCP servers (elicitation) on the terminal.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use lillux::process::Supervisor;
use lillux::quote_block;
use rye_mcp::client::{Elicitation, ElicitationFuture, ElicitationHandler, ElicitationReply, Pool};
use serde_json::{Map, Number, Value};

use super::gate_render;
use super::page::sanitize;
use super::printer::Printer;

/// How often to ask again after an invalid value.
const ATTEMPTS: usize = 3;

/// Asks on standard error and reads standard input.
#[derive(Debug)]
struct Terminal(Printer);

/// A pool of servers that can ask the user, if there is a terminal.
pub(crate) fn pool(supervisor: &Supervisor, printer: Printer) -> Pool {
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        Pool::with_elicitation(supervisor, Some(Arc::new(Terminal(printer))))
    } else {
        Pool::new(supervisor)
    }
}

impl ElicitationHandler for Terminal {
    fn elicit(&self, question: Elicitation) -> ElicitationFuture<'_> {
        let printer = self.0;
        Box::pin(async move {
            let reply = tokio::task::spawn_blocking(move || fill_form(printer, &question));
            reply.await.unwrap_or(ElicitationReply::Cancel)
        })
    }
}

fn fill_form(printer: Printer, question: &Elicitation) -> ElicitationReply {
    let title = format!("MCP server {} asks:", question.server);
    let width = Printer::stderr_width();
    let lines = gate_render::lines(&title, &quote_block(&question.message), width);
    printer.print_stderr(&format!("{}\n", lines.join("\n")));
    match printer.confirm("Answer?") {
        Ok(Some(true)) => {}
        Ok(Some(false)) => return ElicitationReply::Decline,
        Ok(None) | Err(_) => return ElicitationReply::Cancel,
    }
    let required = question.schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|it| it == name));
    let mut filled = Map::new();
    for (name, about) in question.schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let field = Field {
            name,
            about,
            is_required: is_required(name),
        };
        match field.ask(printer) {
            FieldInput::Value(value) => {
                filled.insert(name.clone(), value);
            }
            FieldInput::Empty => {}
            FieldInput::Cancelled => return ElicitationReply::Cancel,
        }
    }
    ElicitationReply::Accept(filled)
}

struct Field<'q> {
    name: &'q str,
    about: &'q Value,
    is_required: bool,
}

enum FieldInput {
    Value(Value),
    Empty,
    Cancelled,
}

impl Field<'_> {
    fn ask(&self, printer: Printer) -> FieldInput {
        for _ in 0..ATTEMPTS {
            printer.print_stderr(&self.prompt());
            let mut line = String::new();
            match io::stdin().read_line(&mut line) {
                Ok(0) | Err(_) => return FieldInput::Cancelled,
                Ok(_) => {}
            }
            match self.parse(line.trim()) {
                Ok(Some(value)) => return FieldInput::Value(value),
                Ok(None) => return FieldInput::Empty,
                Err(expected) => printer.print_stderr(&format!("  expected {expected}\n")),
            }
        }
        FieldInput::Cancelled
    }

    fn prompt(&self) -> String {
        let title = self.about["title"].as_str().unwrap_or(self.name);
        let about = self.about["description"].as_str().map(sanitize);
        let about = about.map_or_else(String::new, |about| format!(" ({about})"));
        let choices = self.choices();
        let choices = match choices.as_slice() {
            [] if self.about["type"] == "boolean" => " [y/n]".to_owned(),
            [] => String::new(),
            all => format!(" [{}]", sanitize(&all.join(", "))),
        };
        let default = match &self.about["default"] {
            Value::Null => String::new(),
            Value::String(text) => format!(" = {}", sanitize(text)),
            other => format!(" = {other}"),
        };
        format!("  {}{about}{choices}{default}: ", sanitize(title))
    }

    fn choices(&self) -> Vec<&str> {
        let all = self.about["enum"].as_array().into_iter().flatten();
        let mut choices: Vec<_> = all.filter_map(Value::as_str).collect();
        let titled = self.about["oneOf"].as_array().into_iter().flatten();
        choices.extend(titled.filter_map(|one| one["const"].as_str()));
        choices
    }

    /// Parses a line as the field's type; an empty line leaves the field unset. The error says what
    /// is expected.
    fn parse(&self, line: &str) -> Result<Option<Value>, String> {
        if line.is_empty() {
            let is_optional = !self.is_required || !self.about["default"].is_null();
            return if is_optional {
                Ok(None)
            } else {
                Err("a value".to_owned())
            };
        }
        let choices = self.choices();
        let value = match self.about["type"].as_str() {
            Some("boolean") => match line {
                "y" | "Y" | "yes" | "true" => Value::Bool(true),
                "n" | "N" | "no" | "false" => Value::Bool(false),
                _ => return Err("y or n".to_owned()),
            },
            Some("integer") => {
                let number: Result<i64, _> = line.parse();
                Value::from(number.map_err(|_| "an integer".to_owned())?)
            }
            Some("number") => {
                let number = line.parse().ok().and_then(Number::from_f64);
                Value::Number(number.ok_or("a number")?)
            }
            Some("array") => {
                let words = line.split(',').map(|word| Value::from(word.trim()));
                Value::Array(words.collect())
            }
            _ if choices.is_empty() || choices.contains(&line) => Value::from(line),
            _ => return Err(format!("one of {}", choices.join(", "))),
        };
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_parsed_by_the_type_of_the_field() {
        let cases = [
            (json!({ "type": "string" }), "ada", Ok(Some(json!("ada")))),
            (json!({ "type": "boolean" }), "y", Ok(Some(json!(true)))),
            (json!({ "type": "boolean" }), "maybe", Err("y or n")),
            (json!({ "type": "integer" }), "7", Ok(Some(json!(7)))),
            (json!({ "type": "integer" }), "7.5", Err("an integer")),
            (json!({ "type": "number" }), "7.5", Ok(Some(json!(7.5)))),
            (json!({ "type": "number" }), "NaN", Err("a number")),
            (json!({ "enum": ["a", "b"] }), "b", Ok(Some(json!("b")))),
            (json!({ "enum": ["a", "b"] }), "c", Err("one of a, b")),
            (
                json!({ "oneOf": [{ "const": "a" }] }),
                "a",
                Ok(Some(json!("a"))),
            ),
            (
                json!({ "type": "array" }),
                "a, b",
                Ok(Some(json!(["a", "b"]))),
            ),
            (json!({ "type": "string" }), "", Err("a value")),
            (json!({ "type": "string", "default": "x" }), "", Ok(None)),
        ];
        for (about, line, expected) in cases {
            let field = Field {
                name: "x",
                about: &about,
                is_required: true,
            };
            let parsed = field.parse(line);
            assert_eq!(parsed, expected.map_err(str::to_owned), "{about} {line}");
        }
    }
}
