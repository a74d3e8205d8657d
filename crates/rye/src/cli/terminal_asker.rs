//! A server's form, filled in by the person at the terminal.

use std::io::{self, IsTerminal as _};
use std::pin::Pin;
use std::sync::Arc;

use lillux::process::Supervisor;
use lillux::quoted;
use rye_mcp::client::{Elicitation, ElicitationHandler, ElicitationReply, Pool};
use serde_json::{Map, Number, Value};

use super::gate_words;
use super::page::plain;
use super::printer::Printer;

/// How often a field may be filled in with what does not fit it.
const ATTEMPTS: usize = 3;

/// Asks on standard error, and reads standard input.
#[derive(Debug)]
struct Terminal(Printer);

/// Servers that may ask the person at the terminal, if there is one.
pub(crate) fn pool(supervisor: &Supervisor, printer: Printer) -> Pool {
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        Pool::with_elicitation(supervisor, Some(Arc::new(Terminal(printer))))
    } else {
        Pool::new(supervisor)
    }
}

impl ElicitationHandler for Terminal {
    fn elicit(
        &self,
        question: Elicitation,
    ) -> Pin<Box<dyn Future<Output = ElicitationReply> + Send + '_>> {
        let printer = self.0;
        Box::pin(async move {
            let asked = tokio::task::spawn_blocking(move || put(printer, &question));
            asked.await.unwrap_or(ElicitationReply::Cancel)
        })
    }
}

fn put(printer: Printer, question: &Elicitation) -> ElicitationReply {
    let who = format!("the MCP server {} asks:", question.server);
    let width = Printer::width_of_questions();
    let said = gate_words::lines(&who, &quoted(&question.message), width);
    printer.aside(&format!("{}\n", said.join("\n")));
    match printer.confirm("answer it?") {
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
            Asked::Value(value) => {
                filled.insert(name.clone(), value);
            }
            Asked::Nothing => {}
            Asked::GivenUp => return ElicitationReply::Cancel,
        }
    }
    ElicitationReply::Accept(filled)
}

struct Field<'q> {
    name: &'q str,
    about: &'q Value,
    is_required: bool,
}

enum Asked {
    Value(Value),
    Nothing,
    GivenUp,
}

impl Field<'_> {
    fn ask(&self, printer: Printer) -> Asked {
        for _ in 0..ATTEMPTS {
            printer.aside(&self.prompt());
            let mut line = String::new();
            match io::stdin().read_line(&mut line) {
                Ok(0) | Err(_) => return Asked::GivenUp,
                Ok(_) => {}
            }
            match self.read(line.trim()) {
                Ok(Some(value)) => return Asked::Value(value),
                Ok(None) => return Asked::Nothing,
                Err(why) => printer.aside(&format!("  {why}\n")),
            }
        }
        Asked::GivenUp
    }

    fn prompt(&self) -> String {
        let title = self.about["title"].as_str().unwrap_or(self.name);
        let about = self.about["description"].as_str().map(plain);
        let about = about.map_or_else(String::new, |about| format!(" ({about})"));
        let choices = self.choices();
        let choices = match choices.as_slice() {
            [] if self.about["type"] == "boolean" => " [y/n]".to_owned(),
            [] => String::new(),
            all => format!(" [{}]", plain(&all.join(", "))),
        };
        let usual = match &self.about["default"] {
            Value::Null => String::new(),
            Value::String(text) => format!(" = {}", plain(text)),
            other => format!(" = {other}"),
        };
        format!("  {}{about}{choices}{usual}: ", plain(title))
    }

    fn choices(&self) -> Vec<&str> {
        let all = self.about["enum"].as_array().into_iter().flatten();
        let mut choices: Vec<_> = all.filter_map(Value::as_str).collect();
        let titled = self.about["oneOf"].as_array().into_iter().flatten();
        choices.extend(titled.filter_map(|one| one["const"].as_str()));
        choices
    }

    /// What a line says; an empty one leaves the field as it is.
    fn read(&self, line: &str) -> Result<Option<Value>, String> {
        if line.is_empty() {
            let may_be = !self.is_required || !self.about["default"].is_null();
            return if may_be {
                Ok(None)
            } else {
                Err("it wants to know this".to_owned())
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
                Value::from(number.map_err(|_| "a whole number".to_owned())?)
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
    fn a_line_is_read_as_the_field_wants_it() {
        let cases = [
            (json!({ "type": "string" }), "ada", Ok(Some(json!("ada")))),
            (json!({ "type": "boolean" }), "y", Ok(Some(json!(true)))),
            (json!({ "type": "boolean" }), "maybe", Err("y or n")),
            (json!({ "type": "integer" }), "7", Ok(Some(json!(7)))),
            (json!({ "type": "integer" }), "7.5", Err("a whole number")),
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
            (
                json!({ "type": "string" }),
                "",
                Err("it wants to know this"),
            ),
            (json!({ "type": "string", "default": "x" }), "", Ok(None)),
        ];
        for (about, line, expected) in cases {
            let field = Field {
                name: "x",
                about: &about,
                is_required: true,
            };
            let read = field.read(line);
            assert_eq!(read, expected.map_err(str::to_owned), "{about} {line}");
        }
    }
}
