//! A picture that every browser shows.

use std::fmt::Write as _;

use super::layout::layout;
use super::{NodeMark, NodeMarks};
use crate::model::{Graph, Kind};

const WIDTH: usize = 160;
const HEIGHT: usize = 44;
const GAP_X: usize = 40;
const GAP_Y: usize = 56;
const MARGIN: usize = 24;

pub(super) fn draw(graph: &Graph, colours: &NodeMarks) -> String {
    let layout = layout(graph);
    let widest = layout.rows.iter().copied().max().unwrap_or(1).max(1);
    let width = widest * (WIDTH + GAP_X) - GAP_X + 2 * MARGIN + GAP_X;
    let height = layout.rows.len() * (HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN;
    // A row that has fewer stands in the middle.
    let corner = |index: usize| {
        let (row, column) = layout.places[index];
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
    for join in graph.joins() {
        let ((x1, y1), (x2, y2)) = (corner(join.from), corner(join.to));
        let dashes = if join.is_error {
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
            // Back up, or to itself: round the right side.
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
        if !join.label.is_empty() {
            let (x, y) = (
                usize::midpoint(x1, x2) + WIDTH / 2,
                usize::midpoint(y1, y2) + HEIGHT,
            );
            let label = join.label;
            let _ = writeln!(
                text,
                "<text x=\"{x}\" y=\"{y}\" fill=\"#666\" font-size=\"11\">{label}</text>"
            );
        }
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        let (x, y) = corner(index);
        let fill = colours.get(&node.name).map_or("#f6f6f6", NodeMark::fill);
        let (round, stroke) = match node.kind {
            Kind::Return(_) => (HEIGHT / 2, "#333"),
            Kind::Gate => (0, "#999"),
            Kind::Decision(_) => (10, "#b58900"),
            Kind::Action(_) | Kind::Foreach(_) => (4, "#333"),
        };
        let (name, kind) = (escaped(&node.name), node.kind.as_str());
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

/// A name as text of a picture, as much of it as there is room for.
fn escaped(name: &str) -> String {
    const ROOM: usize = 20;
    let mut shown: String = name.chars().take(ROOM).collect();
    if name.chars().nth(ROOM).is_some() {
        shown.push('…');
    }
    shown
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
