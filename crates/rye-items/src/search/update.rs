//! Brings a segment up to date: copies unchanged records and reads the other files.

use std::sync::Arc;

use super::document::{Candidate, Document, Reader};
use super::record::{AnalysedFile, Record};
use super::scan::ScannedItem;
use super::segment::{Segment, Source, build};
use crate::library::parallel;
use crate::space::{FileClock, Root};

/// Returns the segment of these files, and whether it differs from the old one.
pub(super) fn update(
    root: &Root,
    reader: &dyn Reader,
    old: Option<Arc<Segment>>,
    found: &[ScannedItem],
) -> (Arc<Segment>, bool) {
    let plan = plan(old.as_deref(), found);
    let is_kept = |(file, before): &(&ScannedItem, Option<(u32, &Record)>)| {
        before.is_some_and(|(_, record)| record.is_current(file))
    };
    let stale: Vec<_> = plan.iter().filter(|file| !is_kept(file)).collect();
    let mut read = parallel(&stale, &|_| (), |(file, _)| read(root, reader, file)).into_iter();
    let mut is_same = old
        .as_ref()
        .is_some_and(|old| old.records.len() == plan.len());
    let mut sources = Vec::with_capacity(plan.len());
    for planned in &plan {
        match planned.1 {
            Some((number, _)) if is_kept(planned) => sources.push(Source::Kept(number)),
            // A file that was deleted since the scan is left out.
            before => match read.next().flatten() {
                Some(file) => {
                    is_same &= before.is_some_and(|(_, record)| *record == file.record);
                    sources.push(Source::Read(Box::new(file)));
                }
                None => is_same = false,
            },
        }
    }
    match old {
        Some(old) if is_same => (old, false),
        old => (Arc::new(build(old.as_deref(), &sources)), true),
    }
}

/// Finds the record of each file in the old segment, which has the same order.
fn plan<'a>(
    old: Option<&'a Segment>,
    found: &'a [ScannedItem],
) -> Vec<(&'a ScannedItem, Option<(u32, &'a Record)>)> {
    let records = old.map_or(&[][..], |old| &old.records);
    let mut records = (0..).zip(records).peekable();
    let with_record = |file: &'a ScannedItem| {
        while records
            .next_if(|(_, it)| it.order() < file.order())
            .is_some()
        {}
        (file, records.next_if(|(_, it)| it.order() == file.order()))
    };
    found.iter().map(with_record).collect()
}

impl Record {
    /// Whether the file cannot have changed since it was read.
    fn is_current(&self, file: &ScannedItem) -> bool {
        self.is_reliable && self.identity == file.identity
    }
}

/// Reads one file; none if it was deleted. A file that exists but cannot be read is indexed by its
/// id.
fn read(root: &Root, reader: &dyn Reader, file: &ScannedItem) -> Option<AnalysedFile> {
    let started = FileClock::now();
    let (document, identity, is_reliable) = match root.read(&file.path) {
        Ok(raw) => {
            let raw = raw?;
            let candidate = Candidate {
                root,
                kind: file.kind,
                id: &file.id,
                path: &file.path,
            };
            let document = reader.read(&candidate, &raw.bytes);
            let is_reliable = raw.identity.is_none_or(|it| it.has_reliable_times(started));
            (document, raw.identity, is_reliable)
        }
        Err(error) => {
            let document = Document {
                problem: Some(error.to_string()),
                ..Document::default()
            };
            (document, file.identity, false)
        }
    };
    Some(AnalysedFile::new(file, document, identity, is_reliable))
}
