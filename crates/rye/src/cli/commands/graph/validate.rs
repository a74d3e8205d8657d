//! `rye graph validate`

use std::fs;
use std::path::{Path, PathBuf};

use lillux::{At as _, shell_word};
use rye_graph::{Graph, ParsedGraph, Problem, Severity};
use rye_items::metadata::{self, Data, MetadataError, Node};
use rye_items::{Excerpt, ItemRef};
use serde_json::{Value, json};

use crate::cli::args::ValidateArgs;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::{BAD, DIM, GOOD, HELP, Page, WARN, one_line, paint};
use crate::cli::printer::{Outcome, Report};

/// A graph's text, and where it is.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: Vec<u8>,
}

impl Source {
    /// By the name of a file or the id of an item. It need not be signed to be looked at.
    pub(super) fn of(what: &str, context: &Context) -> Result<Self, Failure> {
        let path = Path::new(what);
        if path.is_file() || is_yaml(path) {
            let text = fs::read(path).at("read", path)?;
            let path = path.to_owned();
            return Ok(Self { path, text });
        }
        let reference = what.parse()?;
        let source = Self::of_item(&reference, context)?;
        if source.is_graph() {
            Ok(source)
        } else {
            Err(no_graph(&reference))
        }
    }

    fn of_item(reference: &ItemRef, context: &Context) -> Result<Self, Failure> {
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

    /// Whether it says that it is one. What is broken may be.
    fn is_graph(&self) -> bool {
        let tree = metadata::parse_yaml(&self.text);
        let says_so = |tree: Node| {
            let said = tree.get("tool_type").map(|it| &it.data);
            matches!(said, Some(Data::Text(kind)) if kind == "graph")
        };
        is_yaml(&self.path) && tree.map_or(true, says_so)
    }

    pub(super) fn read(&self) -> Result<ParsedGraph, Failure> {
        Graph::parse(&self.text).map_err(|error| no_yaml(&self.path, &error))
    }
}

/// An item that says that it is something else.
fn no_graph(reference: &ItemRef) -> Failure {
    let failure = Failure::usage(format!("{} is no graph", reference.id));
    failure.hint(format!("rye execute {}", reference.id))
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|it| it == "yaml" || it == "yml")
}

fn no_yaml(path: &Path, error: &MetadataError) -> Failure {
    Failure::failed("bad_metadata", error)
        .at(path)
        .excerpt(Some(&error.excerpt))
        .maybe_hint(error.hint.clone())
}

/// Whether an item says that it is a graph.
pub(crate) fn is_graph(reference: &ItemRef, context: &Context) -> bool {
    Source::of_item(reference, context).is_ok_and(|source| source.is_graph())
}

/// Refuses a graph with errors before anything of it runs, all of them at once. What cannot
/// be read here is told by the call itself.
pub(super) fn refuse(reference: &ItemRef, context: &Context) -> Result<(), Failure> {
    let Ok(source) = Source::of_item(reference, context) else {
        return Ok(());
    };
    if !source.is_graph() {
        return Err(no_graph(reference));
    }
    let Ok(reading) = source.read() else {
        return Ok(());
    };
    let errors: Vec<_> = reading.errors().collect();
    let Some(first) = errors.first() else {
        return Ok(());
    };
    let shown = errors.iter().map(|problem| told(&source, problem));
    // What may not be called is a permission, if that is all there is.
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
    let message = format!("{} is no graph that can be walked", reference.id);
    let hint = format!("rye graph validate {}", reference.id);
    Err(Failure::new(exit, code, message)
        .violations(shown)
        .hint(hint))
}

fn told(source: &Source, problem: &Problem) -> String {
    let place = problem.excerpt(&source.text).position;
    let hint = problem.hint.as_ref();
    let hint = hint.map_or_else(String::new, |hint| format!(" ({hint})"));
    format!(
        "{}:{place}: {}{hint}",
        source.path.display(),
        problem.message
    )
}

pub(super) fn run(args: &ValidateArgs, context: &Context) -> Outcome {
    let looked = args.graphs.iter().map(|name| {
        let source = Source::of(name, context);
        source.map_or_else(
            |failure| Looked::Missing(name.clone(), Box::new(failure)),
            |source| match Graph::parse(&source.text) {
                Ok(reading) => Looked::Read(source, reading),
                Err(error) => Looked::NoYaml(source, error),
            },
        )
    });
    let mut looked: Vec<_> = looked.collect();
    // Of one alone, its own failure is all there is to tell.
    match looked.pop() {
        Some(Looked::Missing(_, failure)) if looked.is_empty() => return Err(*failure),
        Some(Looked::NoYaml(source, error)) if looked.is_empty() => {
            return Err(no_yaml(&source.path, &error));
        }
        last => looked.extend(last),
    }
    Ok(Box::new(Validated(looked)))
}

/// What came of looking at a graph.
enum Looked {
    Read(Source, ParsedGraph),
    NoYaml(Source, MetadataError),
    Missing(String, Box<Failure>),
}

impl Looked {
    fn count(&self, severity: Severity) -> usize {
        match self {
            Self::Read(_, reading) => {
                let all = reading.problems.iter();
                all.filter(|problem| problem.severity == severity).count()
            }
            Self::NoYaml(..) | Self::Missing(..) => usize::from(severity == Severity::Error),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Read(source, reading) => {
                let problems = reading.problems.iter().map(|it| it.json(&source.text));
                json!({
                    "path": source.path.to_string_lossy(),
                    "is_sound": reading.graph.is_some(),
                    "problems": problems.collect::<Vec<_>>(),
                })
            }
            Self::NoYaml(source, error) => json!({
                "path": source.path.to_string_lossy(),
                "is_sound": false,
                "problems": [no_yaml(&source.path, error).json()],
            }),
            Self::Missing(name, failure) => json!({
                "path": name,
                "is_sound": false,
                "problems": [failure.json()],
            }),
        }
    }
}

struct Validated(Vec<Looked>);

impl Validated {
    fn count(&self, severity: Severity) -> usize {
        self.0.iter().map(|looked| looked.count(severity)).sum()
    }
}

impl Report for Validated {
    fn json(&self) -> Value {
        let graphs: Vec<_> = self.0.iter().map(Looked::json).collect();
        json!({ "graphs": graphs })
    }

    fn show(&self, page: &mut Page) {
        for looked in &self.0 {
            match looked {
                Looked::Read(source, reading) => show(page, source, reading),
                Looked::NoYaml(source, error) => {
                    let severity = Severity::Error;
                    let (excerpt, hint) = (&error.excerpt, error.hint.as_deref());
                    show_problem(page, severity, &error.message, &source.path, excerpt, hint);
                }
                Looked::Missing(_, failure) => {
                    let severity = paint(BAD, Severity::Error.as_str());
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
        let broken = self.0.iter().find_map(|looked| match looked {
            Looked::Read(source, reading) => Some(source).filter(|_| reading.graph.is_none()),
            Looked::NoYaml(source, _) => Some(source),
            Looked::Missing(..) => None,
        });
        let hint = broken.map(|source| format!("$EDITOR {}", shell_word(&source.path)));
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
        let nodes = match graph.names().count() {
            1 => "1 node".to_owned(),
            many => format!("{many} nodes"),
        };
        page.line(format_args!("{} {path}: {nodes}", paint(GOOD, "sound")));
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
    let severity = paint(style, severity.as_str());
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
