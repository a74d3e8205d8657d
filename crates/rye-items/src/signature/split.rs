//! Finds, removes and inserts the signature line of a file.

use std::borrow::Cow;

use lillux::Hash;
use lillux::hash::Hasher;
use lillux::keys::SigningKey;

use super::binding::Binding;
use super::error::SignatureError;
use super::line::{MARK, SignatureLine, TIME_PATTERN, provenance_problem};
use crate::comment::CommentStyle;
use crate::excerpt::Excerpt;

/// The length of a SHA-256 hash in hex.
const HASH_LENGTH: usize = 64;
const BOM: &[u8] = b"\xef\xbb\xbf";
/// The number of lines that are searched for a misplaced signature line.
const SEARCHED_LINES: usize = 10;

/// The parts of a signed file. The covered bytes are `before` followed by `after`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedFile<'a> {
    /// The parsed signature line.
    pub line: SignatureLine,
    /// The bytes before the line: a byte order mark, a `#!` line, or nothing.
    pub before: &'a [u8],
    /// The bytes after the line.
    pub after: &'a [u8],
}

impl SignedFile<'_> {
    /// The hash of the covered bytes.
    pub fn hash(&self) -> Hash {
        let mut hasher = Hasher::default();
        hasher.update(self.before);
        hasher.update(self.after);
        hasher.finish().0
    }

    /// The covered bytes.
    pub fn covered(&self) -> Vec<u8> {
        [self.before, self.after].concat()
    }
}

/// Splits a file at its signature line and parses the line.
pub fn split<'a>(file: &'a [u8], comment: &CommentStyle) -> Result<SignedFile<'a>, SignatureError> {
    let start = start_of_line(file);
    let (line, newline) = first_line(&file[start..]);
    let excerpt = |offset: usize| Excerpt::at_offset(file, start + offset);
    let Some(text) = comment
        .strip(line)
        .filter(|text| text.starts_with(MARK.as_bytes()))
    else {
        return Err(missing_line_error(file, start, line, comment));
    };
    let offset = line.len() - comment.suffix.as_ref().map_or(0, |s| s.len() + 1) - text.len();
    let malformed = |what: String, at: usize| SignatureError::Malformed {
        what,
        excerpt: excerpt(at),
    };
    let text = std::str::from_utf8(text)
        .map_err(|e| malformed("it is not UTF-8".to_owned(), offset + e.valid_up_to()))?;
    let read: SignatureLine = text
        .parse()
        .map_err(|e: super::LineError| malformed(e.what, offset + e.offset))?;
    let after = &file[start + line.len() + newline..];
    if carries_mark(first_line(after).0) {
        return Err(SignatureError::Multiple {
            excerpt: excerpt(line.len() + newline),
        });
    }
    Ok(SignedFile {
        line: read,
        before: &file[..start],
        after,
    })
}

/// Signs a file: replaces all existing signature lines by a bound one.
pub fn sign(
    file: &[u8],
    comment: &CommentStyle,
    binding: &Binding,
    key: &SigningKey,
    time: &str,
    provenance: Option<&str>,
) -> Result<Vec<u8>, super::LineError> {
    if let Some(what) = provenance.and_then(provenance_problem) {
        return Err(super::LineError { what, offset: 0 });
    }
    let mut covered = strip_signature(file);
    let newline = if covered.contains(&b'\n') && first_newline_is_crlf(&covered) {
        "\r\n"
    } else {
        "\n"
    };
    let start = start_of_line(&covered);
    // A `#!` line without a newline needs one before the signature line.
    if start > BOM.len() && !covered[..start].ends_with(b"\n") {
        covered.extend(newline.bytes());
    }
    let start = start_of_line(&covered);
    let hash = Hash::digest(&covered);
    let line = SignatureLine::sign(hash, binding.clone(), key, time, provenance);
    let line = comment.wrap(&line.to_string()) + newline;
    Ok([&covered[..start], line.as_bytes(), &covered[start..]].concat())
}

/// Removes all signature lines at the start of a file, in any comment style.
pub fn strip_signature(file: &[u8]) -> Vec<u8> {
    let start = start_of_line(file);
    let mut rest = &file[start..];
    loop {
        let (line, newline) = first_line(rest);
        if !carries_mark(line) {
            return [&file[..start], rest].concat();
        }
        rest = &rest[line.len() + newline..];
    }
}

/// A field of a signature line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole line.
    Line,
    /// The hash of the covered bytes.
    Hash,
    /// The signature.
    Signature,
    /// The signer's key.
    Fingerprint,
    /// The purpose and path.
    Binding,
}

/// The byte offset of a field of the signature line, or of the place for the line if it is
/// missing.
pub(crate) fn part_offset(file: &[u8], part: Part) -> usize {
    let start = start_of_line(file);
    let line = first_line(&file[start..]).0;
    let marked = line.windows(MARK.len()).position(|w| w == MARK.as_bytes());
    let Some(mark) = marked.filter(|_| part != Part::Line) else {
        return start;
    };
    let hash = mark + MARK.len() + TIME_PATTERN.len() + 1;
    let offset = match part {
        Part::Line => 0,
        Part::Hash => hash,
        Part::Signature => hash + HASH_LENGTH + 1,
        Part::Fingerprint => line.iter().rposition(|&b| b == b':').map_or(0, |i| i + 1),
        Part::Binding => line.iter().rposition(|&b| b == b';').map_or(0, |i| i + 1),
    };
    start + offset
}

/// Replaces signature lines in another language's comment style by comments of this one, so that
/// the file can be parsed. Line numbers stay the same.
pub(crate) fn normalize_comments<'a>(file: &'a [u8], comment: &CommentStyle) -> Cow<'a, [u8]> {
    let start = start_of_line(file);
    let mut written = file[..start].to_vec();
    let mut rest = &file[start..];
    let mut wrong = false;
    loop {
        let (line, newline) = first_line(rest);
        if !carries_mark(line) {
            break;
        }
        let ending = &rest[line.len()..line.len() + newline];
        if comment.strip(line).is_some() {
            written.extend(line);
        } else {
            wrong = true;
            written.extend(comment.wrap(MARK).bytes());
        }
        written.extend(ending);
        rest = &rest[line.len() + newline..];
    }
    if !wrong {
        return Cow::Borrowed(file);
    }
    written.extend(rest);
    Cow::Owned(written)
}

/// The byte offset where the signature line belongs: after a byte order mark or a `#!` line.
fn start_of_line(file: &[u8]) -> usize {
    if file.starts_with(b"#!") {
        let (line, newline) = first_line(file);
        line.len() + newline
    } else if file.starts_with(BOM) {
        BOM.len()
    } else {
        0
    }
}

/// The first line, and the length of its newline.
fn first_line(text: &[u8]) -> (&[u8], usize) {
    let Some(end) = text.iter().position(|&b| b == b'\n') else {
        return (text, 0);
    };
    match text[..end].strip_suffix(b"\r") {
        Some(line) => (line, 2),
        None => (&text[..end], 1),
    }
}

fn first_newline_is_crlf(text: &[u8]) -> bool {
    first_line(text).1 == 2
}

/// Whether a line is a signature line in any comment style: punctuation and blanks, then the mark.
fn carries_mark(line: &[u8]) -> bool {
    let opening = |b: &u8| b.is_ascii_punctuation() || *b == b' ' || *b == b'\t';
    let from = line.iter().position(|b| !opening(b)).unwrap_or(line.len());
    line[from..].starts_with(MARK.as_bytes())
}

fn missing_line_error(
    file: &[u8],
    start: usize,
    line: &[u8],
    comment: &CommentStyle,
) -> SignatureError {
    if carries_mark(line) {
        return SignatureError::WrongComment {
            expected: comment.wrap(MARK).trim_end().to_owned(),
            excerpt: Excerpt::at_offset(file, start),
        };
    }
    let mut offset = 0;
    for _ in 0..SEARCHED_LINES {
        let (line, newline) = first_line(&file[offset..]);
        if carries_mark(line) {
            return SignatureError::Misplaced {
                excerpt: Excerpt::at_offset(file, offset),
            };
        }
        offset += line.len() + newline;
    }
    SignatureError::Unsigned
}

#[cfg(test)]
mod tests;
