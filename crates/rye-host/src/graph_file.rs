//! Files of graphs: loading and validation.

use std::fs;
use std::path::{Path, PathBuf};

use lillux::PathContext as _;
use rye_graph::{Graph, ParsedGraph, Problem};
use rye_items::ItemRef;
use rye_items::metadata::{self, Data, MetadataError, Node};

use crate::context::Context;
use crate::failure::{Failure, FailureKind};

/// The text of a graph and its path.
pub struct GraphFile {
    /// Its path.
    pub path: PathBuf,
    /// Its text.
    pub text: Vec<u8>,
}

impl GraphFile {
    /// Loads a file or an item. The item need not be signed.
    pub fn load(name: &str, context: &Context) -> Result<Self, Failure> {
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

    /// Parses the graph.
    pub fn read(&self) -> Result<ParsedGraph, Failure> {
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

/// The failure for a file that is not valid YAML.
pub fn invalid_yaml(path: &Path, error: &MetadataError) -> Failure {
    Failure::failed("bad_metadata", error)
        .at(path)
        .excerpt(Some(&error.excerpt))
        .maybe_hint(error.hint.clone())
}

/// Whether an item declares itself a graph.
pub fn is_graph(reference: &ItemRef, context: &Context) -> bool {
    GraphFile::load_item(reference, context).is_ok_and(|source| source.is_graph())
}

/// Rejects an invalid graph before it runs, with all errors at once. An unreadable file is
/// reported by the call itself.
pub fn check_graph(reference: &ItemRef, context: &Context) -> Result<(), Failure> {
    let Ok(source) = GraphFile::load_item(reference, context) else {
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
        FailureKind::Permission
    } else {
        FailureKind::Failed
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

fn describe(source: &GraphFile, problem: &Problem) -> String {
    let position = problem.excerpt(&source.text).position;
    let hint = problem.hint.as_ref();
    let hint = hint.map_or_else(String::new, |hint| format!(" ({hint})"));
    format!(
        "{}:{position}: {}{hint}",
        source.path.display(),
        problem.message
    )
}
