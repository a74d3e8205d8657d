//! Combines the segments of all spaces: global document numbers, the listing order, and
//! shadowing.

use std::ops::Range;
use std::sync::Arc;

use super::bytes::{to_u32, to_usize};
use super::segment::{Record, Segment};
use crate::ItemKind;

/// BM25's `b` for description and body: how much length reduces the weight.
const LENGTH_PENALTY: [f32; 2] = [0.4, 0.75];

/// Segments in lookup order of their roots.
#[derive(Debug)]
pub(super) struct View {
    pub(super) segments: Vec<Arc<Segment>>,
    /// Document number of the first file of each segment.
    bases: Vec<u32>,
    /// All documents, ordered by kind, id, segment and path.
    ordered: Vec<u32>,
    /// Position of each document in that order.
    ranks: Vec<u32>,
    /// Per position: whether a new kind and id begins there.
    begins: Vec<bool>,
    pub(super) norms: Vec<Norm>,
}

/// Length normalisation: factors for the weight of a word in the description and the
/// body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Norm {
    pub(super) description: f32,
    pub(super) body: f32,
}

impl View {
    pub(super) fn new(segments: Vec<Arc<Segment>>) -> Self {
        let mut bases = Vec::with_capacity(segments.len());
        let mut documents: u32 = 0;
        for segment in &segments {
            bases.push(documents);
            documents = documents.saturating_add(segment.documents());
        }
        let (ordered, begins) = order(&segments, &bases);
        let mut ranks = vec![0; to_usize(documents)];
        for (rank, &document) in ordered.iter().enumerate() {
            ranks[to_usize(document)] = to_u32(rank);
        }
        Self {
            norms: norms(&segments),
            segments,
            bases,
            ordered,
            ranks,
            begins,
        }
    }

    /// Number of documents.
    pub(super) fn len(&self) -> usize {
        self.ordered.len()
    }

    /// Document number of the first file of a segment.
    pub(super) fn base(&self, segment: usize) -> u32 {
        self.bases[segment]
    }

    /// All documents in listing order.
    pub(super) fn ordered(&self) -> impl Iterator<Item = u32> {
        self.ordered.iter().copied()
    }

    /// Position of a document in the listing order.
    pub(super) fn rank(&self, document: u32) -> u32 {
        self.ranks[to_usize(document)]
    }

    /// The document at a position.
    pub(super) fn at(&self, rank: u32) -> u32 {
        self.ordered[to_usize(rank)]
    }

    /// The positions of all documents of a kind, which are contiguous.
    pub(super) fn places_of(&self, kind: ItemKind) -> Range<u32> {
        let first = |is_before: &dyn Fn(ItemKind) -> bool| {
            let kind = |document: u32| self.record(document).map(|record| record.kind);
            let before = |document: &u32| kind(*document).is_some_and(is_before);
            to_u32(self.ordered.partition_point(before))
        };
        first(&|other| other < kind)..first(&|other| other <= kind)
    }

    /// The segment of a document.
    pub(super) fn segment_of(&self, document: u32) -> usize {
        self.bases.partition_point(|&base| base <= document) - 1
    }

    pub(super) fn record(&self, document: u32) -> Option<Record<'_>> {
        let segment = self.segment_of(document);
        self.segments[segment].record(document - self.bases[segment])
    }

    /// Whether a document can be executed.
    pub(super) fn is_runnable(&self, document: u32) -> bool {
        let segment = self.segment_of(document);
        self.segments[segment].is_runnable(document - self.bases[segment])
    }

    /// Word count of a document's name.
    pub(super) fn name_length(&self, document: u32) -> usize {
        let segment = self.segment_of(document);
        let [name, ..] = self.segments[segment].lengths_of(document - self.bases[segment]);
        usize::from(name)
    }

    /// All documents with the same kind and id, in lookup order.
    pub(super) fn same_id(&self, document: u32) -> &[u32] {
        let rank = to_usize(self.ranks[to_usize(document)]);
        let start = (0..=rank).rev().find(|&r| self.begins[r]).unwrap_or(rank);
        let end = (rank + 1..self.len()).find(|&r| self.begins[r]);
        &self.ordered[start..end.unwrap_or(self.len())]
    }

    /// Whether a visible earlier segment shadows the document.
    pub(super) fn is_hidden(&self, document: u32, shown: &[bool]) -> bool {
        let rank = to_usize(self.ranks[to_usize(document)]);
        if self.begins[rank] {
            return false;
        }
        let own = self.segment_of(document);
        let mut before = self.same_id(document).iter();
        before.any(|&other| {
            let segment = self.segment_of(other);
            segment < own && shown[segment]
        })
    }

    /// The document with this kind and id in the first segment that has one.
    pub(super) fn find(&self, kind: ItemKind, id: &str) -> Option<u32> {
        let order = |document: u32| self.record(document).map(|r| (r.kind, r.id));
        let place = self
            .ordered
            .partition_point(|&document| order(document) < Some((kind, id)));
        let found = self.ordered.get(place).copied()?;
        (order(found) == Some((kind, id))).then_some(found)
    }
}

/// Merges all segments into one order and marks where each kind and id begins.
fn order(segments: &[Arc<Segment>], bases: &[u32]) -> (Vec<u32>, Vec<bool>) {
    let mut next = vec![0_u32; segments.len()];
    let mut heads: Vec<_> = segments.iter().map(|segment| segment.record(0)).collect();
    let (mut ordered, mut begins) = (Vec::new(), Vec::new());
    let mut last = None;
    loop {
        let first = heads
            .iter()
            .enumerate()
            .filter_map(|(at, head)| head.as_ref().map(|head| ((head.kind, head.id), at)))
            .min();
        let Some((item, at)) = first else {
            break;
        };
        ordered.push(bases[at] + next[at]);
        begins.push(last != Some(item));
        last = Some(item);
        next[at] += 1;
        heads[at] = segments[at].record(next[at]);
    }
    (ordered, begins)
}

fn norms(segments: &[Arc<Segment>]) -> Vec<Norm> {
    let documents: u64 = segments.iter().map(|s| u64::from(s.documents())).sum();
    let mut sums = [0_u64; 2];
    for segment in segments {
        for (sum, length) in sums.iter_mut().zip(segment.lengths()) {
            *sum = sum.saturating_add(length);
        }
    }
    let averages = sums.map(|sum| (ratio(sum, documents)).max(1.0));
    let norm = |length: u16, field: usize| {
        let relative = f32::from(length) / averages[field];
        1.0 / (1.0 - LENGTH_PENALTY[field] + LENGTH_PENALTY[field] * relative)
    };
    segments
        .iter()
        .flat_map(|segment| (0..segment.documents()).map(|n| segment.lengths_of(n)))
        .map(|[_, description, body]| Norm {
            description: norm(description, 0),
            body: norm(body, 1),
        })
        .collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "an average; the lost precision is irrelevant"
)]
fn ratio(sum: u64, count: u64) -> f32 {
    sum as f32 / count.max(1) as f32
}
