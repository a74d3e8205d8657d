//! Verification: from bytes to a signature that holds, by a key that counts.

mod cache;

use std::ops::Range;
use std::sync::Arc;

use lillux::Hash;

use crate::comment::Comment;
use crate::integrity::Problem;
use crate::item::Coverage;
use crate::signature::{self, SignatureLine};
use crate::trust::{Distrust, Trust, TrustedKey};

pub use cache::{Seen, Tick, VerifiedCache};

/// What a file's bytes are checked as.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Form {
    /// The comment that carries the signature line.
    pub comment: Comment,
    /// Whether the signature may cover the `<directive>` element alone.
    pub partial: bool,
}

/// A signature that holds.
#[derive(Debug, Clone)]
pub struct Signed {
    /// The line.
    pub line: SignatureLine,
    /// The key.
    pub key: Arc<TrustedKey>,
    /// How much it covers.
    pub coverage: Coverage,
}

/// A signature that is the named key's over the bytes, if that key is the one
/// its fingerprint means. Whether the key counts is another question.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) line: SignatureLine,
    pub(crate) coverage: Coverage,
}

/// Checks bytes: the line, the hash, the key, the signature, in this order.
pub fn check(bytes: &[u8], form: &Form, trust: &Trust<'_>) -> Result<Signed, Problem> {
    let claim = claim(bytes, form)?;
    let key = judge(&claim.line, true, trust)?;
    Ok(Signed {
        line: claim.line,
        key,
        coverage: claim.coverage,
    })
}

/// Judges a line that was read before, together with whether its hash was that
/// of the bytes.
pub(crate) fn judge(
    line: &SignatureLine,
    intact: bool,
    trust: &Trust<'_>,
) -> Result<Arc<TrustedKey>, Problem> {
    if !intact {
        return Err(Problem::Changed {
            expected: line.hash,
            found: None,
        });
    }
    let key = trusted(line, trust)?;
    trust
        .memory()
        .verify(&key.key, &line.hash, &line.signature)
        .map_err(|_| Problem::BadSignature {
            fingerprint: line.fingerprint,
        })?;
    Ok(key)
}

/// The line of a file whose hash is that of its bytes.
pub(crate) fn claim(bytes: &[u8], form: &Form) -> Result<Claim, Problem> {
    let split = signature::split(bytes, &form.comment).map_err(Problem::Line)?;
    let found = split.hash();
    let coverage = if found == split.line.hash {
        Coverage::Whole
    } else if form.partial && element_hash(split.after) == Some(split.line.hash) {
        Coverage::Partial
    } else {
        return Err(Problem::Changed {
            expected: split.line.hash,
            found: Some(found),
        });
    };
    Ok(Claim {
        line: split.line,
        coverage,
    })
}

fn trusted(line: &SignatureLine, trust: &Trust<'_>) -> Result<Arc<TrustedKey>, Problem> {
    let fingerprint = line.fingerprint;
    trust
        .standing(fingerprint)
        .map_err(|distrust| match distrust {
            Distrust::Revoked(revocation) => Problem::Revoked(revocation),
            Distrust::Unknown { ignored } => Problem::Untrusted {
                fingerprint,
                trusted: trust.trusted(),
                ignored,
            },
        })
}

/// Where the directive element of a text is, from `<directive` to the first
/// `</directive>`.
pub(crate) fn element(text: &[u8]) -> Option<Range<usize>> {
    const OPEN: &[u8] = b"<directive";
    const CLOSE: &[u8] = b"</directive>";
    let find = |from: usize, what: &[u8]| {
        let rest = text.get(from..)?;
        rest.windows(what.len())
            .position(|w| w == what)
            .map(|at| from + at)
    };
    let mut from = 0;
    loop {
        let start = find(from, OPEN)?;
        from = start + OPEN.len();
        let next = text.get(from)?;
        if next.is_ascii_whitespace() || *next == b'>' {
            return Some(start..find(from, CLOSE)? + CLOSE.len());
        }
    }
}

fn element_hash(text: &[u8]) -> Option<Hash> {
    element(text).map(|range| Hash::of(&text[range]))
}
