//! Combines the segments of all spaces: global document numbers, the listing order, and
//! shadowing.

use std::sync::Arc;

use super::record::Record;
use super::segment::Segment;
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
    /// Per position: the first position with the same kind and id.
    firsts: Vec<u32>,
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
            documents = documents.saturating_add(segment.len());
        }
        let mut view = Self {
            norms: norms(&segments),
            segments,
            bases,
            ordered: (0..documents).collect(),
            ranks: vec![0; to_usize(documents)],
            firsts: Vec::with_capacity(to_usize(documents)),
        };
        let mut ordered = std::mem::take(&mut view.ordered);
        // Stable: files of one item stay in the order of the segments.
        ordered.sort_by(|one, other| view.key(*one).cmp(&view.key(*other)));
        for (rank, document) in (0..).zip(&ordered) {
            view.ranks[to_usize(*document)] = rank;
            let same = view
                .firsts
                .last()
                .copied()
                .filter(|first| view.key(ordered[to_usize(*first)]) == view.key(*document));
            view.firsts.push(same.unwrap_or(rank));
        }
        Self { ordered, ..view }
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

    /// The segment of a document.
    pub(super) fn segment_of(&self, document: u32) -> usize {
        self.bases.partition_point(|&base| base <= document) - 1
    }

    pub(super) fn record(&self, document: u32) -> &Record {
        let segment = self.segment_of(document);
        &self.segments[segment].records[to_usize(document - self.bases[segment])]
    }

    fn key(&self, document: u32) -> (ItemKind, &str) {
        let record = self.record(document);
        (record.kind, &record.id)
    }

    /// All documents with the same kind and id, in lookup order.
    pub(super) fn same_id(&self, document: u32) -> &[u32] {
        let rank = to_usize(self.rank(document));
        let first = self.firsts[rank];
        let rest = self.firsts[rank..].iter();
        let count = rest.take_while(|other| **other == first).count();
        &self.ordered[to_usize(first)..rank + count]
    }

    /// Whether a visible earlier segment shadows the document.
    pub(super) fn is_hidden(&self, document: u32, shown: &[bool]) -> bool {
        let rank = self.rank(document);
        let first = self.firsts[to_usize(rank)];
        let own = self.segment_of(document);
        (first..rank).any(|before| {
            let segment = self.segment_of(self.at(before));
            segment < own && shown[segment]
        })
    }

    /// The document with this kind and id in the first segment that has one.
    pub(super) fn find(&self, kind: ItemKind, id: &str) -> Option<u32> {
        let key = |document: u32| self.key(document);
        let place = self.ordered.partition_point(|&it| key(it) < (kind, id));
        let found = self.ordered.get(place).copied()?;
        (key(found) == (kind, id)).then_some(found)
    }
}

fn norms(segments: &[Arc<Segment>]) -> Vec<Norm> {
    let lengths = || {
        let records = segments.iter().flat_map(|segment| &segment.records);
        records.map(|record| record.lengths)
    };
    let mut sums = [0_u64; 2];
    for [_, description, body] in lengths() {
        sums[0] += u64::from(description);
        sums[1] += u64::from(body);
    }
    let documents = lengths().count() as u64;
    let averages = sums.map(|sum| (ratio(sum, documents)).max(1.0));
    let norm = |length: u16, field: usize| {
        let relative = f32::from(length) / averages[field];
        1.0 / (1.0 - LENGTH_PENALTY[field] + LENGTH_PENALTY[field] * relative)
    };
    lengths()
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

/// Converts a document number to an index.
pub(super) fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
