//! The segments of all spaces as one: a number for each file, the order in
//! which items are listed, and who shadows whom.

use std::ops::Range;
use std::sync::Arc;

use super::bytes::{narrow, wide};
use super::segment::{Record, Segment};
use crate::ItemKind;

/// How much the length of a description counts against it, and of a body.
const LENGTH_COUNTS: [f32; 2] = [0.4, 0.75];

/// Segments in the order in which their roots are looked through.
#[derive(Debug)]
pub(super) struct View {
    pub(super) segments: Vec<Arc<Segment>>,
    /// The number of the first file of each segment.
    bases: Vec<u32>,
    /// All files by kind, id, segment and path.
    ordered: Vec<u32>,
    /// The place of each file in that order.
    ranks: Vec<u32>,
    /// For each place in that order, whether another item begins there.
    begins: Vec<bool>,
    pub(super) norms: Vec<Norm>,
}

/// How the description and the body of a file compare in length with the
/// average: what a word in them counts is multiplied by this.
#[derive(Debug, Clone, Copy)]
pub(super) struct Norm {
    pub(super) description: f32,
    pub(super) body: f32,
}

impl View {
    pub(super) fn of(segments: Vec<Arc<Segment>>) -> Self {
        let mut bases = Vec::with_capacity(segments.len());
        let mut documents: u32 = 0;
        for segment in &segments {
            bases.push(documents);
            documents = documents.saturating_add(segment.documents());
        }
        let (ordered, begins) = order(&segments, &bases);
        let mut ranks = vec![0; wide(documents)];
        for (rank, &document) in ordered.iter().enumerate() {
            ranks[wide(document)] = narrow(rank);
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

    /// How many files there are.
    pub(super) fn len(&self) -> usize {
        self.ordered.len()
    }

    /// The number of the first file of a segment.
    pub(super) fn base(&self, segment: usize) -> u32 {
        self.bases[segment]
    }

    /// All files in order.
    pub(super) fn ordered(&self) -> impl Iterator<Item = u32> {
        self.ordered.iter().copied()
    }

    /// The place of a file in the order.
    pub(super) fn rank(&self, document: u32) -> u32 {
        self.ranks[wide(document)]
    }

    /// The file at a place in the order.
    pub(super) fn at(&self, rank: u32) -> u32 {
        self.ordered[wide(rank)]
    }

    /// The places of all files of a kind, which are neighbours in the order.
    pub(super) fn places_of(&self, kind: ItemKind) -> Range<u32> {
        let first = |is_before: &dyn Fn(ItemKind) -> bool| {
            let kind = |document: u32| self.record(document).map(|record| record.kind);
            let before = |document: &u32| kind(*document).is_some_and(is_before);
            narrow(self.ordered.partition_point(before))
        };
        first(&|other| other < kind)..first(&|other| other <= kind)
    }

    /// The segment of a file.
    pub(super) fn segment_of(&self, document: u32) -> usize {
        self.bases.partition_point(|&base| base <= document) - 1
    }

    pub(super) fn record(&self, document: u32) -> Option<Record<'_>> {
        let segment = self.segment_of(document);
        self.segments[segment].record(document - self.bases[segment])
    }

    /// Whether something runs a file.
    pub(super) fn runs(&self, document: u32) -> bool {
        let segment = self.segment_of(document);
        self.segments[segment].runs(document - self.bases[segment])
    }

    /// How many words a file's name has.
    pub(super) fn name_length(&self, document: u32) -> usize {
        let segment = self.segment_of(document);
        let [name, ..] = self.segments[segment].lengths_of(document - self.bases[segment]);
        usize::from(name)
    }

    /// All files of the same kind and id, in order.
    pub(super) fn namesakes(&self, document: u32) -> &[u32] {
        let rank = wide(self.ranks[wide(document)]);
        let start = (0..=rank).rev().find(|&r| self.begins[r]).unwrap_or(rank);
        let end = (rank + 1..self.len()).find(|&r| self.begins[r]);
        &self.ordered[start..end.unwrap_or(self.len())]
    }

    /// Whether a file is hidden by one of a segment before its own that is shown.
    pub(super) fn is_hidden(&self, document: u32, shown: &[bool]) -> bool {
        let rank = wide(self.ranks[wide(document)]);
        if self.begins[rank] {
            return false;
        }
        let own = self.segment_of(document);
        let mut before = self.namesakes(document).iter();
        before.any(|&other| {
            let segment = self.segment_of(other);
            segment < own && shown[segment]
        })
    }

    /// The files of this kind and id, of the first segment that has some.
    pub(super) fn find(&self, kind: ItemKind, id: &str) -> Option<u32> {
        let order = |document: u32| self.record(document).map(|r| (r.kind, r.id));
        let place = self
            .ordered
            .partition_point(|&document| order(document) < Some((kind, id)));
        let found = self.ordered.get(place).copied()?;
        (order(found) == Some((kind, id))).then_some(found)
    }
}

/// The files of all segments in one order, and where each item begins.
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
        1.0 / (1.0 - LENGTH_COUNTS[field] + LENGTH_COUNTS[field] * relative)
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
    reason = "an average; what is lost is less than anybody could notice"
)]
fn ratio(sum: u64, count: u64) -> f32 {
    sum as f32 / count.max(1) as f32
}
