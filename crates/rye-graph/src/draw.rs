//! Drawings of a graph, with the nodes of a run coloured.

mod svg;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rye_protocol::{NodeOutcome, RunEvent, RunStatus};
use strum::{EnumIter, IntoEnumIterator as _, IntoStaticStr};

use crate::definition::{Graph, NodeKind};
use crate::journal::JournalLine;

/// Format of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrawFormat {
    /// Mermaid, for Markdown.
    Mermaid,
    /// DOT, for Graphviz.
    Dot,
    /// SVG image.
    Svg,
}

/// State of a node in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum NodeMark {
    /// The node succeeded.
    Done,
    /// The node failed or was interrupted.
    Failed,
    /// The run is at this node.
    Current,
    /// The node waits for a gate.
    Waiting,
}

impl NodeMark {
    /// Fill colour, readable on white and on black.
    fn fill(self) -> &'static str {
        match self {
            Self::Done => "#b7e1cd",
            Self::Failed => "#f4b6b6",
            Self::Current => "#b6d4f4",
            Self::Waiting => "#fbe3a3",
        }
    }
}

/// States of the nodes of a run, by node name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeMarks(BTreeMap<String, NodeMark>);

impl NodeMarks {
    /// Derives the states from the journal of a run.
    pub fn from_lines<'l>(lines: impl IntoIterator<Item = &'l JournalLine>) -> Self {
        let mut marks = BTreeMap::new();
        let mut current = None;
        for line in lines {
            match &line.event {
                RunEvent::Begin { node, .. } => {
                    marks.insert(node.clone(), NodeMark::Current);
                    current = Some(node.clone());
                }
                RunEvent::Step { node, outcome, .. } => {
                    let mark = match outcome {
                        NodeOutcome::Done | NodeOutcome::Cached => NodeMark::Done,
                        NodeOutcome::Failed | NodeOutcome::Interrupted => NodeMark::Failed,
                    };
                    marks.insert(node.clone(), mark);
                }
                RunEvent::Gate { .. } => {
                    marks.extend(current.clone().map(|node| (node, NodeMark::Waiting)));
                }
                RunEvent::GateClosed { .. } => {
                    marks.extend(current.clone().map(|node| (node, NodeMark::Current)));
                }
                RunEvent::End {
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

/// A line between two nodes.
struct Connection {
    from: usize,
    to: usize,
    label: &'static str,
    is_error: bool,
}

impl Graph {
    /// Draws the graph.
    pub fn draw(&self, format: DrawFormat, marks: &NodeMarks) -> String {
        match format {
            DrawFormat::Mermaid => self.mermaid(marks),
            DrawFormat::Dot => self.dot(marks),
            DrawFormat::Svg => svg::draw(self, marks),
        }
    }

    fn connections(&self) -> Vec<Connection> {
        let mut connections = Vec::new();
        for (from, node) in self.nodes.iter().enumerate() {
            for edge in &node.next {
                let label = match (&edge.when, node.next.len()) {
                    (Some(_), _) => "when",
                    (None, 1) => "",
                    (None, _) => "else",
                };
                connections.push(Connection {
                    from,
                    to: edge.to,
                    label,
                    is_error: false,
                });
            }
            connections.extend(node.on_error.map(|to| Connection {
                from,
                to,
                label: "error",
                is_error: true,
            }));
        }
        connections
    }

    fn mermaid(&self, marks: &NodeMarks) -> String {
        let mut text = "flowchart TD\n".to_owned();
        let _ = writeln!(text, "  start((start)) --> n{}", self.start);
        for (index, node) in self.nodes.iter().enumerate() {
            let name = node.name.replace('"', "#quot;");
            let (open, close) = match node.kind {
                NodeKind::Action(_) => ("[", "]"),
                NodeKind::Foreach(_) => ("[[", "]]"),
                NodeKind::Gate => ("{", "}"),
                NodeKind::Return(_) => ("([", "])"),
                NodeKind::Decision(_) => ("{{", "}}"),
            };
            let _ = writeln!(text, "  n{index}{open}\"{name}\"{close}");
        }
        for connection in self.connections() {
            let arrow = match (connection.is_error, connection.label) {
                (true, label) => format!("-. {label} .->"),
                (false, "") => "-->".to_owned(),
                (false, label) => format!("-- {label} -->"),
            };
            let _ = writeln!(text, "  n{} {arrow} n{}", connection.from, connection.to);
        }
        for mark in NodeMark::iter() {
            let nodes = self.nodes.iter().enumerate();
            let nodes = nodes.filter(|(_, node)| marks.get(&node.name) == Some(mark));
            let nodes: Vec<_> = nodes.map(|(index, _)| format!("n{index}")).collect();
            if !nodes.is_empty() {
                let (name, fill) = (<&str>::from(mark), mark.fill());
                let _ = writeln!(text, "  classDef {name} fill:{fill},color:#000");
                let _ = writeln!(text, "  class {} {name}", nodes.join(","));
            }
        }
        text
    }

    fn dot(&self, marks: &NodeMarks) -> String {
        let mut text = "digraph {\n  node [fontname=\"sans-serif\"];\n".to_owned();
        let _ = writeln!(text, "  start [shape=circle];\n  start -> n{};", self.start);
        for (index, node) in self.nodes.iter().enumerate() {
            let name = node.name.replace('\\', "\\\\").replace('"', "\\\"");
            let shape = match node.kind {
                NodeKind::Action(_) => "box",
                NodeKind::Foreach(_) => "box3d",
                NodeKind::Gate => "diamond",
                NodeKind::Return(_) => "oval",
                NodeKind::Decision(_) => "hexagon",
            };
            let fill = marks.get(&node.name).map(NodeMark::fill);
            let fill = fill.map_or_else(String::new, |fill| {
                format!(", style=filled, fillcolor=\"{fill}\", fontcolor=\"#000000\"")
            });
            let _ = writeln!(text, "  n{index} [label=\"{name}\", shape={shape}{fill}];");
        }
        for connection in self.connections() {
            let style = if connection.is_error {
                ", style=dashed"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "  n{} -> n{} [label=\"{}\"{style}];",
                connection.from, connection.to, connection.label
            );
        }
        text.push_str("}\n");
        text
    }
}
