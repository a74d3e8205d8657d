//! Drawings of a graph, with what a run did coloured in.

mod layout;
mod svg;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::event::{Event, JournalLine, NodeOutcome, RunStatus};
use crate::model::{Graph, Kind};

/// In which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrawFormat {
    /// For Markdown.
    Mermaid,
    /// For Graphviz.
    Dot,
    /// A picture.
    Svg,
}

/// How a node stands in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeMark {
    /// It was done.
    Done,
    /// It failed, or nobody knows.
    Failed,
    /// The run is at it.
    Current,
    /// A person is asked there.
    Waiting,
}

impl NodeMark {
    fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Current => "current",
            Self::Waiting => "waiting",
        }
    }

    /// What it is filled with, readable on white and on black.
    fn fill(self) -> &'static str {
        match self {
            Self::Done => "#b7e1cd",
            Self::Failed => "#f4b6b6",
            Self::Current => "#b6d4f4",
            Self::Waiting => "#fbe3a3",
        }
    }
}

/// How the nodes stand, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeMarks(BTreeMap<String, NodeMark>);

impl NodeMarks {
    /// As the record of a run tells.
    pub fn from_lines<'l>(lines: impl IntoIterator<Item = &'l JournalLine>) -> Self {
        let mut marks = BTreeMap::new();
        let mut current = None;
        for line in lines {
            match &line.event {
                Event::Begin { node, .. } => {
                    marks.insert(node.clone(), NodeMark::Current);
                    current = Some(node.clone());
                }
                Event::Step { node, outcome, .. } => {
                    let mark = match outcome {
                        NodeOutcome::Done | NodeOutcome::Cached => NodeMark::Done,
                        NodeOutcome::Failed | NodeOutcome::Interrupted => NodeMark::Failed,
                    };
                    marks.insert(node.clone(), mark);
                }
                Event::Gate { .. } => {
                    marks.extend(current.clone().map(|node| (node, NodeMark::Waiting)));
                }
                Event::Answered { .. } => {
                    marks.extend(current.clone().map(|node| (node, NodeMark::Current)));
                }
                Event::End {
                    status: RunStatus::Failed,
                    node: Some(node),
                    ..
                } => {
                    marks.insert(node.clone(), NodeMark::Failed);
                }
                _ => {}
            }
        }
        Self(marks)
    }

    fn get(&self, node: &str) -> Option<NodeMark> {
        self.0.get(node).copied()
    }
}

/// What joins two nodes.
struct Join {
    from: usize,
    to: usize,
    label: &'static str,
    is_error: bool,
}

impl Graph {
    /// Draws it.
    pub fn draw(&self, format: DrawFormat, colours: &NodeMarks) -> String {
        match format {
            DrawFormat::Mermaid => self.mermaid(colours),
            DrawFormat::Dot => self.dot(colours),
            DrawFormat::Svg => svg::draw(self, colours),
        }
    }

    fn joins(&self) -> Vec<Join> {
        let mut joins = Vec::new();
        for (from, node) in self.nodes.iter().enumerate() {
            for edge in &node.next {
                let label = match (&edge.when, node.next.len()) {
                    (Some(_), _) => "when",
                    (None, 1) => "",
                    (None, _) => "else",
                };
                joins.push(Join {
                    from,
                    to: edge.to,
                    label,
                    is_error: false,
                });
            }
            joins.extend(node.on_error.map(|to| Join {
                from,
                to,
                label: "error",
                is_error: true,
            }));
        }
        joins
    }

    fn mermaid(&self, colours: &NodeMarks) -> String {
        let mut text = "flowchart TD\n".to_owned();
        let _ = writeln!(text, "  start((start)) --> n{}", self.start);
        for (index, node) in self.nodes.iter().enumerate() {
            let name = node.name.replace('"', "#quot;");
            let (open, close) = match node.kind {
                Kind::Action(_) => ("[", "]"),
                Kind::Foreach(_) => ("[[", "]]"),
                Kind::Gate => ("{", "}"),
                Kind::Return(_) => ("([", "])"),
                Kind::Decision(_) => ("{{", "}}"),
            };
            let _ = writeln!(text, "  n{index}{open}\"{name}\"{close}");
        }
        for join in self.joins() {
            let arrow = match (join.is_error, join.label) {
                (true, label) => format!("-. {label} .->"),
                (false, "") => "-->".to_owned(),
                (false, label) => format!("-- {label} -->"),
            };
            let _ = writeln!(text, "  n{} {arrow} n{}", join.from, join.to);
        }
        for mark in [
            NodeMark::Done,
            NodeMark::Failed,
            NodeMark::Current,
            NodeMark::Waiting,
        ] {
            let nodes = self.nodes.iter().enumerate();
            let nodes = nodes.filter(|(_, node)| colours.get(&node.name) == Some(mark));
            let nodes: Vec<_> = nodes.map(|(index, _)| format!("n{index}")).collect();
            if !nodes.is_empty() {
                let (name, fill) = (mark.name(), mark.fill());
                let _ = writeln!(text, "  classDef {name} fill:{fill},color:#000");
                let _ = writeln!(text, "  class {} {name}", nodes.join(","));
            }
        }
        text
    }

    fn dot(&self, colours: &NodeMarks) -> String {
        let mut text = "digraph {\n  node [fontname=\"sans-serif\"];\n".to_owned();
        let _ = writeln!(text, "  start [shape=circle];\n  start -> n{};", self.start);
        for (index, node) in self.nodes.iter().enumerate() {
            let name = node.name.replace('\\', "\\\\").replace('"', "\\\"");
            let shape = match node.kind {
                Kind::Action(_) => "box",
                Kind::Foreach(_) => "box3d",
                Kind::Gate => "diamond",
                Kind::Return(_) => "oval",
                Kind::Decision(_) => "hexagon",
            };
            let fill = colours.get(&node.name).map(NodeMark::fill);
            let fill = fill.map_or_else(String::new, |fill| {
                format!(", style=filled, fillcolor=\"{fill}\", fontcolor=\"#000000\"")
            });
            let _ = writeln!(text, "  n{index} [label=\"{name}\", shape={shape}{fill}];");
        }
        for join in self.joins() {
            let style = if join.is_error { ", style=dashed" } else { "" };
            let _ = writeln!(
                text,
                "  n{} -> n{} [label=\"{}\"{style}];",
                join.from, join.to, join.label
            );
        }
        text.push_str("}\n");
        text
    }
}
