//! Brings a segment up to date: copies unchanged records and reads the other files.

use std::sync::Arc;
use std::thread;

use lillux::Hash;

use super::bytes::to_usize;
use super::document::{Candidate, Document, Reader};
use super::scan::ScannedItem;
use super::segment::{
    AnalysedDocument, Lexicon, Segment, Source, Timestamps, build, identity_bytes,
};
use crate::space::{FileClock, Root};

/// Files per thread that justify starting another one.
const FILES_PER_THREAD: usize = 32;

/// Returns the segment of these files, and whether it differs from the old one.
pub(super) fn update(
    key: &Hash,
    root: &Root,
    reader: &dyn Reader,
    old: Option<Arc<Segment>>,
    found: &[ScannedItem],
    threads: usize,
) -> (Arc<Segment>, bool) {
    let known = old.as_deref();
    let plan = plan(known, found);
    let changed: Vec<_> = plan
        .iter()
        .enumerate()
        .filter(|(_, file)| !matches!(file, PriorState::Unchanged(_)))
        .map(|(index, _)| index)
        .collect();
    let (mut read, lexicons) = read_all(root, reader, found, &changed, threads);
    let mut read = read.drain(..).peekable();
    let mut sources = Vec::with_capacity(found.len());
    let mut differs = false;
    for (index, file) in plan.into_iter().enumerate() {
        let outcome = read.next_if(|(at, ..)| *at == index);
        match (file, outcome) {
            (PriorState::Unchanged(number), _) => sources.push(Source::Kept(number)),
            // Deleted since the scan.
            (_, Some((_, None, _)) | None) => differs = true,
            (_, Some((_, Some(analysed), lexicon))) => {
                differs |= !file.is_unchanged(known, &analysed);
                sources.push(Source::Read(Box::new(analysed), lexicon));
            }
        }
    }
    match old {
        Some(old) if !differs && to_usize(old.documents()) == sources.len() => (old, false),
        old => {
            let built = build(key, old.as_deref(), &sources, &lexicons);
            (Arc::new(built), true)
        }
    }
}

/// What the old segment knows of a file.
#[derive(Debug, Clone, Copy)]
enum PriorState {
    /// The record is valid; its number in the old segment.
    Unchanged(u32),
    /// The file has to be read again; its number in the old segment.
    Stale(u32),
    Absent,
}

impl PriorState {
    /// Whether a file that was read again equals its record in the old segment.
    fn is_unchanged(self, old: Option<&Segment>, read: &AnalysedDocument) -> bool {
        let Self::Stale(number) = self else {
            return false;
        };
        old.and_then(|old| old.record(number))
            .is_some_and(|record| read.matches_record(&record))
    }
}

/// Merges the scanned files with the old segment; both have the same order.
fn plan(old: Option<&Segment>, found: &[ScannedItem]) -> Vec<PriorState> {
    let mut number = 0;
    let mut next = old.and_then(|old| old.record(number));
    let judge = |file: &ScannedItem| {
        while let Some(record) = &next
            && record.order() < file.order()
        {
            number += 1;
            next = old.and_then(|old| old.record(number));
        }
        match &next {
            Some(record) if record.order() == file.order() => {
                let same = *record.identity == identity_bytes(file.identity.as_ref());
                if same && record.timestamps == Timestamps::Reliable {
                    PriorState::Unchanged(number)
                } else {
                    PriorState::Stale(number)
                }
            }
            _ => PriorState::Absent,
        }
    };
    found.iter().map(judge).collect()
}

/// A file that was read: its index, its document unless deleted, and the lexicon's
/// number.
type Read = (usize, Option<AnalysedDocument>, usize);

/// Reads files on several threads. The documents do not depend on the distribution of
/// the work; only the word numbers do, which [`build`] resolves.
fn read_all(
    root: &Root,
    reader: &dyn Reader,
    found: &[ScannedItem],
    wanted: &[usize],
    threads: usize,
) -> (Vec<Read>, Vec<Lexicon>) {
    let threads = threads.clamp(1, wanted.len() / FILES_PER_THREAD + 1);
    let share = wanted.len().div_ceil(threads).max(1);
    let shares: Vec<_> = wanted.chunks(share).collect();
    let work = |(number, share): (usize, &[usize])| {
        let mut lexicon = Lexicon::default();
        let read: Vec<Read> = share
            .iter()
            .map(|&at| (at, read(root, reader, &found[at], &mut lexicon), number))
            .collect();
        (read, lexicon)
    };
    let done: Vec<_> = match shares.split_first() {
        None => Vec::new(),
        Some((first, others)) => thread::scope(|scope| {
            let others: Vec<_> = others
                .iter()
                .enumerate()
                .map(|(n, share)| scope.spawn(move || work((n + 1, share))))
                .collect();
            let mut done = vec![work((0, first))];
            for other in others {
                match other.join() {
                    Ok(part) => done.push(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        }),
    };
    let (mut all, mut lexicons) = (Vec::new(), Vec::new());
    for (read, lexicon) in done {
        all.extend(read);
        lexicons.push(lexicon);
    }
    (all, lexicons)
}

/// Reads one file. A file that exists but cannot be read is indexed by its id.
fn read(
    root: &Root,
    reader: &dyn Reader,
    file: &ScannedItem,
    lexicon: &mut Lexicon,
) -> Option<AnalysedDocument> {
    let before = FileClock::now();
    let (document, identity, timestamps) = match root.read(&file.path) {
        Ok(None) => return None,
        Ok(Some(raw)) => {
            let candidate = Candidate {
                root,
                kind: file.kind,
                id: &file.id,
                path: &file.path,
            };
            let document = reader.read(&candidate, &raw.bytes);
            let timestamps = match &raw.identity {
                Some(identity) if !identity.has_reliable_times(before) => Timestamps::Racy,
                _ => Timestamps::Reliable,
            };
            (document, raw.identity, timestamps)
        }
        Err(error) => {
            let document = Document {
                problem: Some(error.to_string()),
                ..Document::default()
            };
            (document, file.identity, Timestamps::Racy)
        }
    };
    Some(lexicon.analyse(
        file.kind,
        &file.id,
        &file.path,
        &document,
        timestamps,
        identity.as_ref(),
    ))
}
