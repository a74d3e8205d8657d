//! A segment brought up to date: unchanged files as they were, the others read.

use std::sync::Arc;
use std::thread;

use lillux::Hash;

use super::bytes::wide;
use super::document::{Candidate, Document, Reader};
use super::scan::Found;
use super::segment::{Analysed, Lexicon, Segment, Settled, Source, build, identity_bytes};
use super::settled::{settled, tick};
use crate::space::Root;

/// From how many files on a second thread is worth its start.
const WORTH_A_THREAD: usize = 32;

/// The segment of these files, and whether it is another than the old one.
pub(super) fn update(
    key: &Hash,
    root: &Root,
    reader: &dyn Reader,
    old: Option<Arc<Segment>>,
    found: &[Found],
    threads: usize,
) -> (Arc<Segment>, bool) {
    let known = old.as_deref();
    let plan = plan(known, found);
    let changed: Vec<_> = plan
        .iter()
        .enumerate()
        .filter(|(_, file)| !matches!(file, Known::Unchanged(_)))
        .map(|(index, _)| index)
        .collect();
    let (mut read, lexicons) = read_all(root, reader, found, &changed, threads);
    let mut read = read.drain(..).peekable();
    let mut sources = Vec::with_capacity(found.len());
    let mut differs = false;
    for (index, file) in plan.into_iter().enumerate() {
        let outcome = read.next_if(|(at, ..)| *at == index);
        match (file, outcome) {
            (Known::Unchanged(number), _) => sources.push(Source::Kept(number)),
            // It is gone since it was found.
            (_, Some((_, None, _)) | None) => differs = true,
            (_, Some((_, Some(analysed), lexicon))) => {
                differs |= !file.is_the_same(known, &analysed);
                sources.push(Source::Read(Box::new(analysed), lexicon));
            }
        }
    }
    match old {
        Some(old) if !differs && wide(old.documents()) == sources.len() => (old, false),
        old => {
            let built = build(key, old.as_deref(), &sources, &lexicons);
            (Arc::new(built), true)
        }
    }
}

/// What is known of a file before it is read.
#[derive(Debug, Clone, Copy)]
enum Known {
    /// It is as it was: its number in the old segment.
    Unchanged(u32),
    /// It has to be read again; its number in the old segment.
    Doubtful(u32),
    Nothing,
}

impl Known {
    /// Whether a file that was read again is just as the old segment has it.
    fn is_the_same(self, old: Option<&Segment>, read: &Analysed) -> bool {
        let Self::Doubtful(number) = self else {
            return false;
        };
        old.and_then(|old| old.record(number))
            .is_some_and(|record| read.is_as(&record))
    }
}

/// Goes through the files and the old segment side by side, both in the same order.
fn plan(old: Option<&Segment>, found: &[Found]) -> Vec<Known> {
    let mut number = 0;
    let mut next = old.and_then(|old| old.record(number));
    let judge = |file: &Found| {
        while let Some(record) = &next
            && record.order() < file.order()
        {
            number += 1;
            next = old.and_then(|old| old.record(number));
        }
        match &next {
            Some(record) if record.order() == file.order() => {
                let same = *record.identity == identity_bytes(file.identity.as_ref());
                if same && record.settled == Settled::Yes {
                    Known::Unchanged(number)
                } else {
                    Known::Doubtful(number)
                }
            }
            _ => Known::Nothing,
        }
    };
    found.iter().map(judge).collect()
}

/// A file that was read: its place, what it says, and with which lexicon.
type Read = (usize, Option<Analysed>, usize);

/// Reads files on some threads. What each says does not depend on which one
/// read it; only the numbers of its words do, and those go no further.
fn read_all(
    root: &Root,
    reader: &dyn Reader,
    found: &[Found],
    wanted: &[usize],
    threads: usize,
) -> (Vec<Read>, Vec<Lexicon>) {
    let threads = threads.clamp(1, wanted.len() / WORTH_A_THREAD + 1);
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

/// Reads one file. One that is there and cannot be read is known by its id.
fn read(root: &Root, reader: &dyn Reader, file: &Found, lexicon: &mut Lexicon) -> Option<Analysed> {
    let before = tick();
    let (document, identity, settled) = match root.read(&file.path) {
        Ok(None) => return None,
        Ok(Some(raw)) => {
            let candidate = Candidate {
                root,
                kind: file.kind,
                id: &file.id,
                path: &file.path,
            };
            let document = reader.read(&candidate, &raw.bytes);
            let settled = match &raw.identity {
                Some(identity) => settled(identity, before),
                None => Settled::Yes,
            };
            (document, raw.identity, settled)
        }
        Err(error) => {
            let document = Document {
                problem: Some(error.to_string()),
                ..Document::default()
            };
            (document, file.identity, Settled::No)
        }
    };
    Some(lexicon.analyse(
        file.kind,
        &file.id,
        &file.path,
        &document,
        settled,
        identity.as_ref(),
    ))
}
