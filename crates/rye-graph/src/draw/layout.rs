//! Layout of a drawing: rows of nodes by distance from the start.

use crate::definition::Graph;
use crate::validate::successors;

/// Row and column of each node, and the number of nodes per row.
pub(super) struct Layout {
    pub(super) positions: Vec<(usize, usize)>,
    pub(super) rows: Vec<usize>,
}

pub(super) fn layout(graph: &Graph) -> Layout {
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
