//! `rye graph show`: draws a graph.

use std::fs;

use lillux::PathContext as _;
use rye_graph::{DrawFormat, Graph, NodeMarks};
use rye_host::graph_file::GraphFile;
use rye_host::runs::Runs;
use serde_json::{Value, json};

use super::load_run;
use crate::cli::args::{Drawing, ShowArgs};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::Page;
use crate::cli::printer::{Outcome, Report};

pub(super) fn run(args: &ShowArgs, context: &Context) -> Outcome {
    let run = match &args.run {
        Some(run) => Some(load_run(&Runs::open(context)?, run)?.1),
        None => None,
    };
    let graph = match (&args.graph, &run) {
        (Some(name), _) => load_graph(name, context)?,
        // The graph as it was when the run began.
        (None, Some(run)) => {
            let reading = Graph::parse(run.text().as_bytes()).ok();
            let graph = reading.and_then(|reading| reading.graph);
            graph.ok_or_else(|| {
                Failure::failed("invalid_graph", "cannot read the graph of the run")
            })?
        }
        (None, None) => return Err(Failure::usage("missing graph: pass an ID or --run RUN")),
    };
    let colours = run
        .map(|run| NodeMarks::from_lines(run.lines()))
        .unwrap_or_default();
    let (format, name) = match args.format {
        Drawing::Mermaid => (DrawFormat::Mermaid, "mermaid"),
        Drawing::Dot => (DrawFormat::Dot, "dot"),
        Drawing::Svg => (DrawFormat::Svg, "svg"),
    };
    let text = graph.draw(format, &colours);
    if let Some(path) = &args.output {
        fs::write(path, &text).at("write", path)?;
    }
    Ok(Box::new(DrawingReport {
        format: name,
        text,
        file: args.output.as_ref().map(|path| path.display().to_string()),
    }))
}

fn load_graph(name: &str, context: &Context) -> Result<Graph, Failure> {
    let reading = GraphFile::load(name, context)?.read()?;
    reading.graph.ok_or_else(|| {
        let message = format!("cannot draw {name}: the graph is invalid");
        Failure::failed("invalid_graph", message).hint(format!("rye graph validate {name}"))
    })
}

struct DrawingReport {
    format: &'static str,
    text: String,
    file: Option<String>,
}

impl Report for DrawingReport {
    fn json(&self) -> Value {
        json!({ "format": self.format, "drawing": self.text, "file": self.file })
    }

    fn show(&self, page: &mut Page) {
        match &self.file {
            Some(file) => page.line(format_args!("wrote {file}")),
            None => page.text(&self.text),
        }
    }
}
