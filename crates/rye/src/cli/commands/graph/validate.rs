//! `rye graph validate`: reports all problems in graphs.

use std::path::Path;

use lillux::shell_word;
use rye_graph::{Graph, ParsedGraph, Severity};
use rye_host::graph_file::{GraphFile, invalid_yaml};
use rye_items::Excerpt;
use rye_items::metadata::MetadataError;
use serde_json::{Value, json};

use crate::cli::args::ValidateArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BAD, DIM, GOOD, HELP, Page, WARN, one_line, paint};
use crate::cli::printer::{Outcome, Report};

pub(super) fn run(args: &ValidateArgs, context: &Context) -> Outcome {
    let checked = args.graphs.iter().map(|name| {
        let source = GraphFile::load(name, context);
        source.map_or_else(
            |failure| CheckedGraph::Missing(name.clone(), Box::new(failure)),
            |source| match Graph::parse(&source.text) {
                Ok(reading) => CheckedGraph::Read(source, reading),
                Err(error) => CheckedGraph::InvalidYaml(source, error),
            },
        )
    });
    let mut checked: Vec<_> = checked.collect();
    // A single graph fails with its own failure.
    match checked.pop() {
        Some(CheckedGraph::Missing(_, failure)) if checked.is_empty() => return Err(*failure),
        Some(CheckedGraph::InvalidYaml(source, error)) if checked.is_empty() => {
            return Err(invalid_yaml(&source.path, &error));
        }
        last => checked.extend(last),
    }
    Ok(Box::new(ValidationReport(checked)))
}

/// The result of checking a graph.
enum CheckedGraph {
    Read(GraphFile, ParsedGraph),
    InvalidYaml(GraphFile, MetadataError),
    Missing(String, Box<Failure>),
}

impl CheckedGraph {
    fn count(&self, severity: Severity) -> usize {
        match self {
            Self::Read(_, reading) => {
                let all = reading.problems.iter();
                all.filter(|problem| problem.severity == severity).count()
            }
            Self::InvalidYaml(..) | Self::Missing(..) => usize::from(severity == Severity::Error),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Read(source, reading) => {
                let problems = reading.problems.iter().map(|it| it.json(&source.text));
                json!({
                    "path": source.path.to_string_lossy(),
                    "is_valid": reading.graph.is_some(),
                    "problems": problems.collect::<Vec<_>>(),
                })
            }
            Self::InvalidYaml(source, error) => json!({
                "path": source.path.to_string_lossy(),
                "is_valid": false,
                "problems": [invalid_yaml(&source.path, error).json()],
            }),
            Self::Missing(name, failure) => json!({
                "path": name,
                "is_valid": false,
                "problems": [failure.json()],
            }),
        }
    }
}

struct ValidationReport(Vec<CheckedGraph>);

impl ValidationReport {
    fn count(&self, severity: Severity) -> usize {
        self.0.iter().map(|graph| graph.count(severity)).sum()
    }
}

impl Report for ValidationReport {
    fn json(&self) -> Value {
        let graphs: Vec<_> = self.0.iter().map(CheckedGraph::json).collect();
        json!({ "graphs": graphs })
    }

    fn show(&self, page: &mut Page) {
        for graph in &self.0 {
            match graph {
                CheckedGraph::Read(source, reading) => show(page, source, reading),
                CheckedGraph::InvalidYaml(source, error) => {
                    let severity = Severity::Error;
                    let (excerpt, hint) = (&error.excerpt, error.hint.as_deref());
                    show_problem(page, severity, &error.message, &source.path, excerpt, hint);
                }
                CheckedGraph::Missing(_, failure) => {
                    let severity = paint(BAD, Severity::Error);
                    page.line(format_args!("{severity}: {}", one_line(&failure.message)));
                }
            }
        }
    }

    fn failure(&self) -> Option<Failure> {
        let errors = self.count(Severity::Error);
        if errors == 0 {
            return None;
        }
        let message = match (errors, self.count(Severity::Warning)) {
            (1, 0) => "1 error".to_owned(),
            (errors, 0) => format!("{errors} errors"),
            (errors, warnings) => format!("errors: {errors}, warnings: {warnings}"),
        };
        let broken = self.0.iter().find_map(|graph| match graph {
            CheckedGraph::Read(source, reading) => Some(source).filter(|_| reading.graph.is_none()),
            CheckedGraph::InvalidYaml(source, _) => Some(source),
            CheckedGraph::Missing(..) => None,
        });
        let hint = broken.map(|source| format!("${{EDITOR:-vi}} {}", shell_word(&source.path)));
        Some(Failure::failed("invalid_graph", message).maybe_hint(hint))
    }
}

fn show(page: &mut Page, source: &GraphFile, reading: &ParsedGraph) {
    for problem in &reading.problems {
        let excerpt = problem.excerpt(&source.text);
        let hint = problem.hint.as_deref();
        let (severity, message) = (problem.severity, &problem.message);
        show_problem(page, severity, message, &source.path, &excerpt, hint);
    }
    if let Some(graph) = &reading.graph {
        let path = one_line(&source.path.display().to_string());
        let nodes = match graph.node_names().count() {
            1 => "1 node".to_owned(),
            many => format!("{many} nodes"),
        };
        page.line(format_args!("{} {path}: {nodes}", paint(GOOD, "valid")));
    }
}

fn show_problem(
    page: &mut Page,
    severity: Severity,
    message: &str,
    path: &Path,
    excerpt: &Excerpt,
    hint: Option<&str>,
) {
    let style = match severity {
        Severity::Error => BAD,
        Severity::Warning => WARN,
    };
    let severity = paint(style, severity);
    page.line(format_args!("{severity}: {}", one_line(message)));
    let path = one_line(&path.display().to_string());
    let arrow = paint(DIM, "-->");
    page.line(format_args!("  {arrow} {path}:{}", excerpt.position));
    page.line(excerpt);
    if let Some(hint) = hint {
        let word = paint(HELP, "hint");
        page.line(format_args!("  {word}: {}", one_line(hint)));
    }
}
