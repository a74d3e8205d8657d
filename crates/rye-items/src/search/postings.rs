//! Posting lists: the files that contain a word, in order, with counts per field.

/// A field of a document, in order of decreasing weight class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
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
    pub(super) const COUNT: usize = 6;
}

/// Number of occurrences per field.
pub(super) type Counts = [u16; Field::COUNT];

/// The most frequent case, which needs no explicit counts.
const ONCE_IN_BODY: Counts = [0, 0, 0, 0, 0, 1];

/// Where in a file a word occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occurrence {
    OnceInBody,
    In(Counts),
}

impl Occurrence {
    pub(super) fn counts(self) -> Counts {
        match self {
            Self::OnceInBody => ONCE_IN_BODY,
            Self::In(counts) => counts,
        }
    }
}

/// Appends a file to a posting list. `gap` is the number of files since the one before. Most
/// postings are a single occurrence in the body, which is encoded in the file's number alone.
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

/// Iterates over a posting list in order of the files. Stops at a damaged byte.
pub(super) struct Postings<'a> {
    bytes: &'a [u8],
    next: u32,
}

impl<'a> Postings<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, next: 0 }
    }

    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    /// Reads an LEB128 integer.
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let first = self.byte()?;
        let mut number = u64::from(first & 0x7f);
        let (mut byte, mut shift) = (first, 7);
        while byte >= 0x80 && shift < 64 {
            byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        Some(number)
    }

    fn counts(&mut self) -> Option<Counts> {
        let mask = self.byte()?;
        let mut counts = [0; Field::COUNT];
        for (field, count) in counts.iter_mut().enumerate() {
            if mask & 1 << field != 0 {
                *count = u16::try_from(self.varint()?).ok()?;
            }
        }
        Some(counts)
    }
}

impl Iterator for Postings<'_> {
    /// The number of a file, and where the word occurs in it.
    type Item = (u32, Occurrence);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let head = self.varint()?;
        let file = self.next.checked_add(u32::try_from(head >> 1).ok()?)?;
        self.next = file.checked_add(1)?;
        let occurrence = if head & 1 == 1 {
            Occurrence::OnceInBody
        } else {
            Occurrence::In(self.counts()?)
        };
        Some((file, occurrence))
    }
}

/// Appends an LEB128 integer.
fn write_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn postings_read_back_as_written(
            list in prop::collection::vec((0u32..300, prop::array::uniform6(0u16..300)), 0..40)
        ) {
            let mut bytes = Vec::new();
            let mut expected = Vec::new();
            let mut next = 0;
            for (gap, counts) in list {
                put(&mut bytes, gap, &counts);
                expected.push((next + gap, counts));
                next += gap + 1;
            }
            let read: Vec<_> = Postings::new(&bytes).map(|(n, found)| (n, found.counts())).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            Postings::new(&bytes).count();
        }
    }
}
