//! Renders the trace of a call as a tree.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rye_executor::environment::{self, Origin};
use rye_executor::interpreter::{Candidate, CandidateResult};
use rye_executor::{TraceDependencies, TraceLink, TraceStep, TraceStepKind, TraceVariable};
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
    let template = steps.iter().find_map(|step| match &step.kind {
        TraceStepKind::Template { config } => Some(config),
        _ => None,
    });
    let is_rendered = |step: &TraceStep| matches!(step.kind, TraceStepKind::Rendered { .. });
    for (index, step) in steps.iter().enumerate() {
        let last = index + 1 == steps.len();
        match &step.kind {
            TraceStepKind::Chain { links } => {
                let unsigned = links.iter().filter(|link| link.signed_by.is_none()).count();
                tree.step(step, last, &verified(links.len(), unsigned));
                for link in links {
                    tree.link(link);
                }
            }
            TraceStepKind::Anchor {
                path,
                marker,
                searched,
                declared_by,
            } => {
                tree.step(step, last, path);
                if let Some(id) = declared_by {
                    tree.detail("declared by", id);
                }
                tree.detail("marker", marker.as_deref().unwrap_or("none"));
                for dir in searched {
                    tree.detail("searched", dir);
                }
            }
            TraceStepKind::Interpreter {
                variable,
                declared_by,
                tried,
                ..
            } => {
                tree.step(step, last, &format!("{variable} of {declared_by}"));
                for candidate in tried {
                    tree.candidate(candidate);
                }
            }
            TraceStepKind::Dependencies {
                verified:
                    Some(TraceDependencies {
                        files, unverified, ..
                    }),
            } => tree.step(step, last, &verified(*files, *unverified)),
            TraceStepKind::Dependencies { verified: None } => {
                tree.step(step, last, "the tool file alone");
            }
            TraceStepKind::Environment { variables } => {
                tree.environment(step, last, variables, level);
            }
            TraceStepKind::DotenvIgnored { names } => {
                tree.step(step, last, "");
                for name in names {
                    let why = if environment::is_reserved(name) {
                        "reserved"
                    } else {
                        "no item of the chain declares it"
                    };
                    tree.line(&format!(
                        "{} {}",
                        one_line(name),
                        paint(DIM, format!("({why})"))
                    ));
                }
            }
            // Shown together with the rendered value.
            TraceStepKind::Template { .. } if steps.iter().any(is_rendered) => {}
            TraceStepKind::Template { config } | TraceStepKind::Rendered { config } => {
                tree.step(step, last, "");
                tree.config(template, config);
            }
            TraceStepKind::Sandbox(sandbox) => tree.step(step, last, &sandbox.to_string()),
            TraceStepKind::Ready | TraceStepKind::Done => tree.step(step, last, ""),
        }
    }
    tree.text
}

/// The label of a step.
fn label(kind: &TraceStepKind) -> &'static str {
    match kind {
        TraceStepKind::Chain { .. } => "chain",
        TraceStepKind::Anchor { .. } => "anchor",
        TraceStepKind::Interpreter { .. } => "interpreter",
        TraceStepKind::Dependencies { .. } => "dependencies",
        TraceStepKind::Environment { .. } => "environment",
        TraceStepKind::DotenvIgnored { .. } => "dotenv_ignored",
        TraceStepKind::Template { .. } => "template",
        TraceStepKind::Rendered { .. } => "rendered",
        TraceStepKind::Sandbox(_) => "sandbox",
        TraceStepKind::Ready => "ready",
        TraceStepKind::Done => "done",
    }
}

/// How many files were verified, and how many development mode accepted without that.
fn verified(files: usize, unverified: usize) -> String {
    let noun = if files == 1 { "file" } else { "files" };
    match unverified {
        0 => format!("{files} {noun}, verified"),
        unverified => format!("{files} {noun}, {unverified} not verified"),
    }
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
        let name = paint(HELP, label(&step.kind));
        let detail = match detail {
            "" => String::new(),
            detail => format!(" {}", one_line(detail)),
        };
        let _ = writeln!(self.text, "{} {name}{detail}{at}", paint(DIM, branch));
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}{line}", paint(DIM, self.margin));
    }

    fn link(&mut self, link: &TraceLink) {
        let signer = match &link.signed_by {
            Some(key) => {
                let owner = link.owner.as_deref().unwrap_or_default();
                let signer = format!("{key} {owner}");
                format!(
                    "{} by {}",
                    paint(GOOD, "signed"),
                    one_line(signer.trim_end())
                )
            }
            None => "not signed".to_owned(),
        };
        let id = one_line(&link.id.to_string());
        self.line(&format!("{} {}, {signer}", paint(BOLD, id), link.space));
        self.line(&format!("  {}", paint(DIM, one_line(&link.path))));
        for shadowed in &link.shadows {
            let path = one_line(shadowed);
            self.line(&format!("  {} {path}", paint(DIM, "shadows")));
        }
    }

    fn detail(&mut self, label: &str, value: &str) {
        self.line(&format!("{} {}", paint(DIM, label), one_line(value)));
    }

    fn candidate(&mut self, candidate: &Candidate) {
        let (style, result) = match candidate.result {
            CandidateResult::Found => (GOOD, "found"),
            CandidateResult::Missing => (DIM, "missing"),
            CandidateResult::NotExecutable => (DIM, "not executable"),
            CandidateResult::NotSigned => (DIM, "not signed"),
            CandidateResult::Failed => (DIM, "failed or printed nothing"),
            CandidateResult::NotRun => (DIM, "not run in a dry run"),
        };
        let (name, us) = (one_line(&candidate.name), candidate.duration_us);
        let time = paint(DIM, format!("{}.{:03} ms", us / 1000, us % 1000));
        self.line(&format!("{name} {} {time}", paint(style, result)));
    }

    fn environment(
        &mut self,
        step: &TraceStep,
        last: bool,
        variables: &BTreeMap<String, TraceVariable>,
        level: TraceChoice,
    ) {
        let is_shown = |variable: &TraceVariable| {
            level == TraceChoice::All || variable.from != Origin::Inherited
        };
        let hidden = variables.values().filter(|it| !is_shown(it)).count();
        let note = match hidden {
            0 => String::new(),
            hidden => format!("{hidden} inherited (show with --trace=all)"),
        };
        self.step(step, last, &note);
        for (name, variable) in variables.iter().filter(|(_, it)| is_shown(it)) {
            let value = one_line(&variable.value);
            let from = paint(DIM, format!("({})", variable.from));
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
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => one_line(text),
        other => one_line(&other.to_string()),
    };
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
