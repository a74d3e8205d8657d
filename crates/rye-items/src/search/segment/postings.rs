//! Posting lists: the files that contain a term, in order, with counts per field.

use super::super::bytes::{Cursor, write_varint};

/// A field of a document, in order of decreasing weight class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Field {
    /// The last segment of the id.
    Name,
    /// The other segments of the id, and the category.
    Path,
    /// Tags and title.
    Label,
    Description,
    /// Parameter names.
    Parameter,
    Body,
}

impl Field {
    pub(in super::super) const COUNT: usize = 6;
}

/// Number of occurrences per field.
pub(in super::super) type Counts = [u16; Field::COUNT];

const BODY: usize = Field::Body as usize;

/// The most frequent case, which needs no explicit counts.
const ONCE_IN_BODY: Counts = {
    let mut counts = [0; Field::COUNT];
    counts[BODY] = 1;
    counts
};

/// A file that contains a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Posting {
    pub(in super::super) document: u32,
    pub(in super::super) found: Occurrence,
}

/// Where in a file a term occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Occurrence {
    OnceInBody,
    In(Counts),
}

impl Posting {
    pub(super) fn counts(&self) -> (u32, Counts) {
        match self.found {
            Occurrence::OnceInBody => (self.document, ONCE_IN_BODY),
            Occurrence::In(counts) => (self.document, counts),
        }
    }
}

/// Appends a file to a posting list. Most postings are a single occurrence in the body,
/// which is encoded in the document number alone.
pub(super) fn put(bytes: &mut Vec<u8>, gap: u32, counts: &Counts) {
    let once_in_body = *counts == ONCE_IN_BODY;
    write_varint(bytes, u64::from(gap) << 1 | u64::from(once_in_body));
    if once_in_body {
        return;
    }
    let fields = counts.iter().enumerate().filter(|(_, n)| **n > 0);
    bytes.push(fields.clone().fold(0, |mask, (field, _)| mask | 1 << field));
    for (_, &count) in fields {
        write_varint(bytes, u64::from(count));
    }
}

/// Iterates over a posting list in document order.
pub(in super::super) struct Postings<'a> {
    cursor: Cursor<'a>,
    next: u32,
}

impl<'a> Postings<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            cursor: Cursor(bytes),
            next: 0,
        }
    }

    fn counts(&mut self) -> Option<Counts> {
        let &[mask] = self.cursor.array()?;
        let mut counts = [0; Field::COUNT];
        for (field, count) in counts.iter_mut().enumerate() {
            if mask & 1 << field != 0 {
                *count = u16::try_from(self.cursor.varint()?).ok()?;
            }
        }
        Some(counts)
    }
}

impl Iterator for Postings<'_> {
    type Item = Posting;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let head = self.cursor.varint()?;
        let document = self.next.checked_add(u32::try_from(head >> 1).ok()?)?;
        self.next = document.checked_add(1)?;
        let found = if head & 1 == 1 {
            Occurrence::OnceInBody
        } else {
            Occurrence::In(self.counts()?)
        };
        Some(Posting { document, found })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn postings_read_back_as_written(
            list in prop::collection::vec((0u32..300, prop::array::uniform6(0u16..3)), 0..40)
        ) {
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            let mut next = 0;
            for (gap, counts) in list {
                put(&mut bytes, gap, &counts);
                expected.push((next + gap, counts));
                next += gap + 1;
            }
            let read: Vec<_> = Postings::new(&bytes).map(|posting| posting.counts()).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            Postings::new(&bytes).count();
        }
    }
}
