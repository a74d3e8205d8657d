//! Renders the trace of a call as a tree.

use std::fmt::Write as _;

use rye_executor::TraceStep;
use rye_items::ItemRef;
use serde_json::{Map, Value};

use crate::cli::args::TraceChoice;
use crate::cli::page::{BOLD, DIM, GOOD, HELP, one_line, paint};

/// Renders the steps of a call.
pub(super) fn render(item: &ItemRef, steps: &[TraceStep], level: TraceChoice) -> String {
    let mut tree = Tree {
        text: format!("{}\n", paint(BOLD, item)),
        margin: "",
    };
    let template = steps.iter().find(|step| step.name == "template");
    for (index, step) in steps.iter().enumerate() {
        let last = index + 1 == steps.len();
        match (step.name, &step.detail) {
            ("chain", Value::Array(links)) => {
                tree.step(step, last, &format!("{} files, verified", links.len()));
                for link in links {
                    tree.link(link);
                }
            }
            ("anchor", Value::Object(found)) => {
                let path = display(found.get("path"));
                let how = match found.get("marked") {
                    Some(Value::Bool(true)) => "has a marker file",
                    _ => "directory of the tool",
                };
                tree.step(step, last, &format!("{path} ({how})"));
            }
            ("dependencies", Value::Object(found)) => {
                let files = display(found.get("files"));
                tree.step(step, last, &format!("{files} files, verified"));
            }
            ("environment", Value::Object(variables)) => {
                tree.environment(step, last, variables, level);
            }
            ("dotenv_ignored", Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str);
                let names = names.collect::<Vec<_>>().join(", ");
                let why = "not declared in the tool's `requires_env`";
                tree.step(step, last, &format!("{names} ({why})"));
            }
            // Shown together with the rendered value.
            ("template", _) if steps.iter().any(|step| step.name == "rendered") => {}
            ("template" | "rendered", Value::Object(rendered)) => {
                let before = template.and_then(|step| step.detail.as_object());
                tree.step(step, last, "");
                tree.config(before, rendered);
            }
            (_, Value::Null) => tree.step(step, last, ""),
            (_, found) => tree.step(step, last, &display(Some(found))),
        }
    }
    tree.text
}

struct Tree {
    text: String,
    /// Prefix of the lines below the current step.
    margin: &'static str,
}

impl Tree {
    fn step(&mut self, step: &TraceStep, last: bool, detail: &str) {
        let (branch, margin) = if last {
            ("└─", "   ")
        } else {
            ("├─", "│  ")
        };
        self.margin = margin;
        let at = step.elapsed_us.map_or_else(String::new, |at| {
            format!(
                "  {}",
                paint(DIM, format_args!("at {}.{:03} ms", at / 1000, at % 1000))
            )
        });
        let name = paint(HELP, step.name);
        let detail = match detail {
            "" => String::new(),
            detail => format!(" {}", one_line(detail)),
        };
        let _ = writeln!(self.text, "{} {name}{detail}{at}", paint(DIM, branch));
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}{line}", paint(DIM, self.margin));
    }

    fn link(&mut self, link: &Value) {
        let id = display(link.get("id"));
        let space = display(link.get("space"));
        let signer = match link.get("signed_by") {
            Some(Value::String(key)) => format!("{} by {key}", paint(GOOD, "signed")),
            _ => "not signed".to_owned(),
        };
        self.line(&format!("{} {space}, {signer}", paint(BOLD, one_line(&id))));
        let path = one_line(&display(link.get("path")));
        self.line(&format!("  {}", paint(DIM, path)));
        let shadows = link.get("shadows").and_then(Value::as_array);
        for shadowed in shadows.into_iter().flatten() {
            let path = one_line(&display(Some(shadowed)));
            self.line(&format!("  {} {path}", paint(DIM, "shadows")));
        }
    }

    fn environment(
        &mut self,
        step: &TraceStep,
        last: bool,
        variables: &Map<String, Value>,
        level: TraceChoice,
    ) {
        let from = |variable: &Value| display(variable.get("from"));
        let is_shown =
            |variable: &Value| level == TraceChoice::All || from(variable) != "inherited";
        let hidden = variables.values().filter(|it| !is_shown(it)).count();
        let note = match hidden {
            0 => String::new(),
            hidden => format!("{hidden} inherited (show with --trace=all)"),
        };
        self.step(step, last, &note);
        for (name, variable) in variables.iter().filter(|(_, it)| is_shown(it)) {
            let value = one_line(&display(variable.get("value")));
            let from = paint(DIM, format!("({})", from(variable)));
            self.line(&format!("{name}={value} {from}"));
        }
    }

    /// The rendered configuration, with the template of each value that differs from it.
    fn config(&mut self, before: Option<&Map<String, Value>>, rendered: &Map<String, Value>) {
        for (key, value) in rendered {
            let before = before.and_then(|before| before.get(key));
            let Value::Array(items) = value else {
                self.rendered_value(key, before, value);
                continue;
            };
            for (index, item) in items.iter().enumerate() {
                let before = before.and_then(|before| before.get(index));
                self.rendered_value(&format!("{key}[{index}]"), before, item);
            }
        }
    }

    fn rendered_value(&mut self, name: &str, before: Option<&Value>, value: &Value) {
        self.line(&format!("{name}: {}", shorten(value)));
        if let Some(before) = before.filter(|before| *before != value) {
            self.line(&format!("  {} {}", paint(DIM, "from"), shorten(before)));
        }
    }
}

/// A value on one line of limited length.
fn shorten(value: &Value) -> String {
    const MAX_CHARS: usize = 160;
    let text = one_line(&display(Some(value)));
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn display(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
