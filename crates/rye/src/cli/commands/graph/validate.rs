//! `rye graph validate`: reports all problems in graphs.

use std::fs;
use std::path::{Path, PathBuf};

use lillux::{PathContext as _, shell_word};
use rye_graph::{Graph, ParsedGraph, Problem, Severity};
use rye_items::metadata::{self, Data, MetadataError, Node};
use rye_items::{Excerpt, ItemRef};
use serde_json::{Value, json};

use crate::cli::args::ValidateArgs;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, DIM, GOOD, HELP, Page, WARN, one_line, paint};
use crate::cli::printer::{Outcome, Report};

/// The text of a graph and its path.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: Vec<u8>,
}

impl Source {
    /// Loads a file or an item. The item need not be signed.
    pub(super) fn load(name: &str, context: &Context) -> Result<Self, Failure> {
        let path = Path::new(name);
        if path.is_file() || is_yaml(path) {
            let text = fs::read(path).at("read", path)?;
            let path = path.to_owned();
            return Ok(Self { path, text });
        }
        let reference = name.parse()?;
        let source = Self::load_item(&reference, context)?;
        if source.is_graph() {
            Ok(source)
        } else {
            Err(not_a_graph(&reference))
        }
    }

    fn load_item(reference: &ItemRef, context: &Context) -> Result<Self, Failure> {
        let library = context.library()?;
        let found = library.find(reference)?;
        let path = found.path();
        let embedded = found
            .root
            .as_embedded()
            .and_then(|it| it.get(&found.relative));
        let text = match embedded {
            Some(file) => file.bytes.to_vec(),
            None => fs::read(&path).at("read", &path)?,
        };
        Ok(Self { path, text })
    }

    /// Whether the file declares itself a graph, or is too broken to tell.
    fn is_graph(&self) -> bool {
        let tree = metadata::parse_yaml(&self.text);
        let is_declared = |tree: Node| {
            let tool_type = tree.get("tool_type").map(|it| &it.data);
            matches!(tool_type, Some(Data::Text(kind)) if kind == "graph")
        };
        is_yaml(&self.path) && tree.map_or(true, is_declared)
    }

    pub(super) fn read(&self) -> Result<ParsedGraph, Failure> {
        Graph::parse(&self.text).map_err(|error| invalid_yaml(&self.path, &error))
    }
}

/// The failure for an item of another type.
fn not_a_graph(reference: &ItemRef) -> Failure {
    let failure = Failure::usage(format!("{} is not a graph", reference.id));
    failure.hint(format!("rye execute {}", reference.id))
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|it| it == "yaml" || it == "yml")
}

fn invalid_yaml(path: &Path, error: &MetadataError) -> Failure {
    Failure::failed("bad_metadata", error)
        .at(path)
        .excerpt(Some(&error.excerpt))
        .maybe_hint(error.hint.clone())
}

/// Whether an item declares itself a graph.
pub(crate) fn is_graph(reference: &ItemRef, context: &Context) -> bool {
    Source::load_item(reference, context).is_ok_and(|source| source.is_graph())
}

/// Rejects an invalid graph before it runs, with all errors at once. An unreadable file is
/// reported by the call itself.
pub(super) fn check(reference: &ItemRef, context: &Context) -> Result<(), Failure> {
    let Ok(source) = Source::load_item(reference, context) else {
        return Ok(());
    };
    if !source.is_graph() {
        return Err(not_a_graph(reference));
    }
    let Ok(reading) = source.read() else {
        return Ok(());
    };
    let errors: Vec<_> = reading.errors().collect();
    let Some(first) = errors.first() else {
        return Ok(());
    };
    let described = errors.iter().map(|problem| describe(&source, problem));
    // Forbidden calls alone are a permission failure.
    let only_permissions = errors.iter().all(|it| it.code == "not_permitted");
    let exit = if only_permissions {
        Exit::Permission
    } else {
        Exit::Failed
    };
    let code = if only_permissions {
        first.code
    } else {
        "invalid_graph"
    };
    let message = format!("graph {} is invalid", reference.id);
    let hint = format!("rye graph validate {}", reference.id);
    Err(Failure::new(exit, code, message)
        .violations(described)
        .hint(hint))
}

fn describe(source: &Source, problem: &Problem) -> String {
    let position = problem.excerpt(&source.text).position;
    let hint = problem.hint.as_ref();
    let hint = hint.map_or_else(String::new, |hint| format!(" ({hint})"));
    format!(
        "{}:{position}: {}{hint}",
        source.path.display(),
        problem.message
    )
}

pub(super) fn run(args: &ValidateArgs, context: &Context) -> Outcome {
    let checked = args.graphs.iter().map(|name| {
        let source = Source::load(name, context);
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
    Read(Source, ParsedGraph),
    InvalidYaml(Source, MetadataError),
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

fn show(page: &mut Page, source: &Source, reading: &ParsedGraph) {
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
