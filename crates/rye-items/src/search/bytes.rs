//! Bounds-checked encoding and decoding of integers and strings.

/// Odd, so multiplication by it is a bijection on `u64`.
const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;

/// Detects accidental corruption. It is no protection against tampering: an attacker who can
/// write the file can also write a matching checksum.
///
/// Each step is a bijection of its input, so a change within any single eight-byte word
/// always changes the result.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mut lanes = [1, 2, 3, 4].map(|n: u64| PRIME.wrapping_mul(n));
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut last = [0; 32];
    last[..rest.len()].copy_from_slice(rest);
    for block in blocks.iter().chain([&last]) {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            let mixed = *lane ^ u64::from_le_bytes(*word);
            *lane = mixed.wrapping_mul(PRIME).rotate_left(31);
        }
    }
    let length = bytes.len() as u64;
    lanes.into_iter().fold(length, |sum, lane| {
        let mixed = (sum ^ lane).wrapping_mul(PRIME);
        mixed ^ (mixed >> 29)
    })
}

/// Appends an LEB128 varint.
pub(super) fn write_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    bytes.push(low_bits(number));
}

fn low_bits(number: u64) -> u8 {
    number.to_le_bytes()[0] & 0x7f
}

/// Appends a length-prefixed string.
pub(super) fn write_str(bytes: &mut Vec<u8>, text: &str) {
    write_varint(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

/// Reads bytes front to back. Every method returns `None` at the end of the input.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().copied().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().copied().map(u64::from_le_bytes)
    }

    /// Reads an integer written by [`write_varint`].
    #[inline]
    pub(super) fn varint(&mut self) -> Option<u64> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut number = u64::from(first & 0x7f);
        let mut shift = 7;
        while shift < 64 {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
        None
    }

    /// Reads a string written by [`write_str`].
    pub(super) fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.varint()?).ok()?;
        std::str::from_utf8(self.take(length)?).ok()
    }
}

/// Converts an in-memory count to `u32`. It saturates, which cannot happen in practice:
/// each counted element takes more than one byte of memory.
pub(super) fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Converts back to `usize`.
pub(super) fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_and_texts_round_trip(number: u64, text: String) {
            let mut bytes = Vec::new();
            write_varint(&mut bytes, number);
            write_str(&mut bytes, &text);
            let mut cursor = Cursor(&bytes);
            prop_assert_eq!(cursor.varint(), Some(number));
            prop_assert_eq!(cursor.text(), Some(text.as_str()));
            prop_assert_eq!(cursor.varint(), None);
        }

        #[test]
        fn checksum_detects_every_flip_and_truncation(
            bytes in prop::collection::vec(any::<u8>(), 1..200),
            place: prop::sample::Index,
            flip in 1u8..,
        ) {
            let sum = checksum(&bytes);
            let place = place.index(bytes.len());
            prop_assert_ne!(checksum(&bytes[..place]), sum);
            let mut flipped = bytes;
            flipped[place] ^= flip;
            prop_assert_ne!(checksum(&flipped), sum);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let mut cursor = Cursor(&bytes);
            while cursor.varint().is_some() {
                cursor.text();
            }
        }
    }
}
