//! The way of a call as a tree to be read.

use std::fmt::Write as _;

use rye_executor::TraceStep;
use rye_items::ItemRef;
use serde_json::{Map, Value};

use crate::cli::args::TraceChoice;
use crate::cli::page::{BOLD, DIM, GOOD, HELP, one_line, paint};

/// The steps of a call, ready to be printed.
pub(super) fn shown(item: &ItemRef, steps: &[TraceStep], level: TraceChoice) -> String {
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
                let path = word(found.get("path"));
                let how = match found.get("marked") {
                    Some(Value::Bool(true)) => "by a marker",
                    _ => "the tool's folder",
                };
                tree.step(step, last, &format!("{path} ({how})"));
            }
            ("dependencies", Value::Object(found)) => {
                let files = word(found.get("files"));
                tree.step(step, last, &format!("{files} files, verified"));
            }
            ("environment", Value::Object(variables)) => {
                tree.environment(step, last, variables, level);
            }
            ("dotenv_ignored", Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str);
                let names = names.collect::<Vec<_>>().join(", ");
                let why = "the tool does not declare it in `requires_env`";
                tree.step(step, last, &format!("{names} ({why})"));
            }
            // Shown with what became of it.
            ("template", _) if steps.iter().any(|step| step.name == "rendered") => {}
            ("template" | "rendered", Value::Object(rendered)) => {
                let before = template.and_then(|step| step.detail.as_object());
                tree.step(step, last, "");
                tree.config(before, rendered);
            }
            (_, Value::Null) => tree.step(step, last, ""),
            (_, found) => tree.step(step, last, &word(Some(found))),
        }
    }
    tree.text
}

struct Tree {
    text: String,
    /// What stands before the lines below the step.
    margin: &'static str,
}

impl Tree {
    fn step(&mut self, step: &TraceStep, last: bool, about: &str) {
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
        let about = match about {
            "" => String::new(),
            about => format!(" {}", one_line(about)),
        };
        let _ = writeln!(self.text, "{} {name}{about}{at}", paint(DIM, branch));
    }

    fn below(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}{line}", paint(DIM, self.margin));
    }

    fn link(&mut self, link: &Value) {
        let id = word(link.get("id"));
        let space = word(link.get("space"));
        let signer = match link.get("signed_by") {
            Some(Value::String(key)) => format!("{} by {key}", paint(GOOD, "signed")),
            _ => "not signed".to_owned(),
        };
        self.below(&format!("{} {space}, {signer}", paint(BOLD, one_line(&id))));
        let path = one_line(&word(link.get("path")));
        self.below(&format!("  {}", paint(DIM, path)));
        let shadows = link.get("shadows").and_then(Value::as_array);
        for shadowed in shadows.into_iter().flatten() {
            let path = one_line(&word(Some(shadowed)));
            self.below(&format!("  {} {path}", paint(DIM, "shadows")));
        }
    }

    fn environment(
        &mut self,
        step: &TraceStep,
        last: bool,
        variables: &Map<String, Value>,
        level: TraceChoice,
    ) {
        let from = |about: &Value| word(about.get("from"));
        let is_shown = |about: &Value| level == TraceChoice::All || from(about) != "inherited";
        let hidden = variables.values().filter(|about| !is_shown(about)).count();
        let note = match hidden {
            0 => String::new(),
            hidden => format!("{hidden} inherited (--trace=all lists them)"),
        };
        self.step(step, last, &note);
        for (name, about) in variables.iter().filter(|(_, about)| is_shown(about)) {
            let value = one_line(&word(about.get("value")));
            let from = paint(DIM, format!("({})", from(about)));
            self.below(&format!("{name}={value} {from}"));
        }
    }

    /// What was rendered, with what it was before where that is something else.
    fn config(&mut self, before: Option<&Map<String, Value>>, rendered: &Map<String, Value>) {
        for (key, value) in rendered {
            let before = before.and_then(|before| before.get(key));
            let Value::Array(items) = value else {
                self.rendered(key, before, value);
                continue;
            };
            for (index, item) in items.iter().enumerate() {
                let before = before.and_then(|before| before.get(index));
                self.rendered(&format!("{key}[{index}]"), before, item);
            }
        }
    }

    fn rendered(&mut self, name: &str, before: Option<&Value>, value: &Value) {
        self.below(&format!("{name}: {}", brief(value)));
        if let Some(before) = before.filter(|before| *before != value) {
            self.below(&format!("  {} {}", paint(DIM, "from"), brief(before)));
        }
    }
}

/// As much of a value as tells which it is.
fn brief(value: &Value) -> String {
    const LONGEST: usize = 160;
    let text = one_line(&word(Some(value)));
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn word(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
