//! SVG drawings.

use std::fmt::Write as _;

use super::{NodeMark, NodeMarks};
use crate::definition::{Graph, NodeKind};
use crate::validate::successors;

const WIDTH: usize = 160;
const HEIGHT: usize = 44;
const GAP_X: usize = 40;
const GAP_Y: usize = 56;
const MARGIN: usize = 24;

pub(super) fn draw(graph: &Graph, marks: &NodeMarks) -> String {
    let layout = layout(graph);
    let widest = layout.rows.iter().copied().max().unwrap_or(1).max(1);
    let width = widest * (WIDTH + GAP_X) - GAP_X + 2 * MARGIN + GAP_X;
    let height = layout.rows.len() * (HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN;
    // Centre each row.
    let corner = |index: usize| {
        let (row, column) = layout.positions[index];
        let indent = (widest - layout.rows[row]) * (WIDTH + GAP_X) / 2;
        let x = MARGIN + indent + column * (WIDTH + GAP_X);
        (x, MARGIN + row * (HEIGHT + GAP_Y))
    };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#666\"/></marker></defs>\n"
    );
    for connection in graph.connections() {
        let ((x1, y1), (x2, y2)) = (corner(connection.from), corner(connection.to));
        let dashes = if connection.is_error {
            " stroke-dasharray=\"4 3\""
        } else {
            ""
        };
        let path = if y2 > y1 {
            let (from, to) = ((x1 + WIDTH / 2, y1 + HEIGHT), (x2 + WIDTH / 2, y2));
            let middle = usize::midpoint(from.1, to.1);
            format!(
                "M{} {}C{} {middle} {} {middle} {} {}",
                from.0, from.1, from.0, to.0, to.0, to.1
            )
        } else {
            // Draw edges to earlier rows around the right side.
            let (from, to) = (
                (x1 + WIDTH, y1 + HEIGHT / 2 + 8),
                (x2 + WIDTH, y2 + HEIGHT / 2 - 8),
            );
            let out = from.0.max(to.0) + GAP_X - 8;
            format!(
                "M{} {}C{out} {} {out} {} {} {}",
                from.0, from.1, from.1, to.1, to.0, to.1
            )
        };
        let _ = writeln!(
            text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"#666\"{dashes} marker-end=\"url(#a)\"/>"
        );
        if !connection.label.is_empty() {
            let (x, y) = (
                usize::midpoint(x1, x2) + WIDTH / 2,
                usize::midpoint(y1, y2) + HEIGHT,
            );
            let label = connection.label;
            let _ = writeln!(
                text,
                "<text x=\"{x}\" y=\"{y}\" fill=\"#666\" font-size=\"11\">{label}</text>"
            );
        }
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        let (x, y) = corner(index);
        let fill = marks.get(&node.name).map_or("#f6f6f6", NodeMark::fill);
        let (round, stroke) = match node.kind {
            NodeKind::Return(_) => (HEIGHT / 2, "#333"),
            NodeKind::Gate => (0, "#999"),
            NodeKind::Decision(_) => (10, "#b58900"),
            NodeKind::Action(_) | NodeKind::Foreach(_) => (4, "#333"),
        };
        let (name, kind) = (escaped(&node.name), <&str>::from(&node.kind));
        let _ = writeln!(
            text,
            "<g><title>{kind}</title><rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             rx=\"{round}\" fill=\"{fill}\" stroke=\"{stroke}\"/><text x=\"{}\" y=\"{}\" \
             text-anchor=\"middle\" fill=\"#000\">{name}</text></g>",
            x + WIDTH / 2,
            y + HEIGHT / 2 + 5,
        );
    }
    text.push_str("</svg>\n");
    text
}

/// Escapes and truncates a node name.
fn escaped(name: &str) -> String {
    const MAX_CHARS: usize = 20;
    let mut shown: String = name.chars().take(MAX_CHARS).collect();
    if name.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Row, by distance from the start, and column of each node, and the number of nodes per row.
struct Layout {
    positions: Vec<(usize, usize)>,
    rows: Vec<usize>,
}

fn layout(graph: &Graph) -> Layout {
    let count = graph.nodes.len();
    let mut row = vec![usize::MAX; count];
    // Breadth-first search; edges back to earlier rows do not move nodes down.
    let mut open = vec![graph.start];
    if let Some(first) = row.get_mut(graph.start) {
        *first = 0;
    }
    let mut depth = 0;
    while !open.is_empty() {
        depth += 1;
        let mut below = Vec::new();
        for index in open {
            for to in successors(&graph.nodes[index]) {
                if row[to] == usize::MAX {
                    row[to] = depth;
                    below.push(to);
                }
            }
        }
        open = below;
    }
    let lowest = row.iter().filter(|it| **it != usize::MAX).max();
    let lowest = lowest.copied().unwrap_or_default();
    let mut rows = vec![0; lowest + 2];
    let mut positions = Vec::with_capacity(count);
    for row in row {
        let row = if row == usize::MAX { lowest + 1 } else { row };
        positions.push((row, rows[row]));
        rows[row] += 1;
    }
    while rows.last() == Some(&0) {
        rows.pop();
    }
    Layout { positions, rows }
}
