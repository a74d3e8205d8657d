//! `rye graph validate`

use std::fs;
use std::path::{Path, PathBuf};

use lillux::{At as _, shell_word};
use rye_graph::{Graph, Problem, Reading, Severity};
use rye_items::ItemRef;
use rye_items::metadata::{self, Data, MetadataError, Node};
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
        Self::of_item(&what.parse()?, context)
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
        let tree = metadata::tree(&self.text);
        let says_so = |tree: Node| {
            let said = tree.get("tool_type").map(|it| &it.data);
            matches!(said, Some(Data::Text(kind)) if kind == "graph")
        };
        is_yaml(&self.path) && tree.map_or(true, says_so)
    }

    pub(super) fn read(&self) -> Result<Reading, Failure> {
        Graph::read(&self.text).map_err(|error| no_yaml(&self.path, &error))
    }
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

/// Refuses a graph with errors before anything of it runs, all of them at once. What cannot
/// be read here is told by the call itself.
pub(super) fn refuse(reference: &ItemRef, context: &Context) -> Result<(), Failure> {
    let Ok(source) = Source::of_item(reference, context) else {
        return Ok(());
    };
    if !source.is_graph() {
        let failure = Failure::usage(format!("{} is no graph", reference.id));
        return Err(failure.hint(format!("rye execute {}", reference.id)));
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
    let mut all = Vec::new();
    for name in &args.graphs {
        let source = Source::of(name, context)?;
        let reading = source.read()?;
        all.push((source, reading));
    }
    Ok(Box::new(Validated(all)))
}

struct Validated(Vec<(Source, Reading)>);

impl Validated {
    fn count(&self, severity: Severity) -> usize {
        let all = self.0.iter().flat_map(|(_, reading)| &reading.problems);
        all.filter(|problem| problem.severity == severity).count()
    }
}

impl Report for Validated {
    fn json(&self) -> Value {
        let graphs = self.0.iter().map(|(source, reading)| {
            let problems = reading.problems.iter().map(|it| it.json(&source.text));
            json!({
                "path": source.path.to_string_lossy(),
                "is_sound": reading.graph.is_some(),
                "problems": problems.collect::<Vec<_>>(),
            })
        });
        json!({ "graphs": graphs.collect::<Vec<_>>() })
    }

    fn show(&self, page: &mut Page) {
        for (source, reading) in &self.0 {
            for problem in &reading.problems {
                let style = match problem.severity {
                    Severity::Error => BAD,
                    Severity::Warning => WARN,
                };
                let excerpt = problem.excerpt(&source.text);
                let severity = paint(style, problem.severity.as_str());
                page.line(format_args!("{severity}: {}", one_line(&problem.message)));
                let path = one_line(&source.path.display().to_string());
                page.line(format_args!(
                    "  {} {path}:{}",
                    paint(DIM, "-->"),
                    excerpt.position
                ));
                page.line(&excerpt);
                if let Some(hint) = &problem.hint {
                    page.line(format_args!(
                        "  {}: {}",
                        paint(HELP, "hint"),
                        one_line(hint)
                    ));
                }
            }
            if let Some(graph) = &reading.graph {
                let path = one_line(&source.path.display().to_string());
                let nodes = graph.names().count();
                page.line(format_args!(
                    "{} {path}: {nodes} nodes",
                    paint(GOOD, "sound")
                ));
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
        let broken = self.0.iter().find(|(_, reading)| reading.graph.is_none());
        let hint = broken.map(|(source, _)| format!("$EDITOR {}", shell_word(&source.path)));
        Some(Failure::failed("invalid_graph", message).maybe_hint(hint))
    }
}
