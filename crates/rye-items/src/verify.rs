//! Verification: from bytes to a signature that holds, by a key that counts.

mod cache;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lillux::Hash;
use lillux::keys::Purpose;

use crate::comment::CommentStyle;
use crate::integrity::IntegrityProblem;
use crate::item::Coverage;
use crate::signature::{self, Binding, SignatureLine, SignedFile};
use crate::trust::{DistrustReason, Trust, TrustedKey};

pub use cache::{CachedVerification, CoarseInstant, VerificationCache};

/// What a file's bytes are checked as.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SignatureFormat {
    /// The comment that carries the signature line.
    pub comment: CommentStyle,
    /// Whether the signature may cover the `<directive>` element alone.
    pub partial: bool,
    /// What a bound signature must have been made for; none for a file in no space.
    pub binding: Option<Binding>,
}

impl SignatureFormat {
    /// A YAML or TOML file that is signed for a purpose, with its path below `.ai/`.
    pub fn config(purpose: Purpose, path: &str) -> Self {
        Self {
            comment: CommentStyle::HASH,
            partial: false,
            binding: Some(Binding::new(purpose, path)),
        }
    }
}

/// Whether this process refuses signatures in the published format, which say nothing about
/// what they were made for.
static REQUIRE_BOUND: AtomicBool = AtomicBool::new(false);

/// Refuses unbound signatures from now on, in all of this process. The user's own setting
/// turns it on before the first file is verified; nothing turns it off again.
pub fn require_bound_signatures() {
    REQUIRE_BOUND.store(true, Ordering::Relaxed);
}

/// Whether unbound signatures are refused.
pub fn requires_bound_signatures() -> bool {
    REQUIRE_BOUND.load(Ordering::Relaxed)
}

/// A signature that holds.
#[derive(Debug, Clone)]
pub struct VerifiedLine {
    /// The line.
    pub line: SignatureLine,
    /// The key.
    pub key: Arc<TrustedKey>,
    /// How much it covers.
    pub coverage: Coverage,
    /// Where in the file the covered element is, if that is all.
    pub(crate) element: Option<Range<usize>>,
}

/// A signature that is the named key's over the bytes, if that key is the one
/// its fingerprint means. Whether the key counts is another question.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) line: SignatureLine,
    pub(crate) coverage: Coverage,
    /// Where in the file the covered element is, if that is all.
    pub(crate) element: Option<Range<usize>>,
}

/// Checks bytes: the line, the hash, the key, the signature, in this order.
pub fn check(
    bytes: &[u8],
    format: &SignatureFormat,
    trust: &Trust<'_>,
) -> Result<VerifiedLine, IntegrityProblem> {
    let claim = claim(bytes, format)?;
    check_binding(&claim.line, format.binding.as_ref())?;
    let key = verify_line(&claim.line, trust)?;
    Ok(VerifiedLine {
        line: claim.line,
        key,
        coverage: claim.coverage,
        element: claim.element,
    })
}

/// Judges the key and the signature of a line whose hash and binding fit its file.
pub(crate) fn verify_line(
    line: &SignatureLine,
    trust: &Trust<'_>,
) -> Result<Arc<TrustedKey>, IntegrityProblem> {
    let key = trusted_key(line, trust)?;
    trust
        .cache()
        .verify(&key.key, line)
        .map_err(|_| IntegrityProblem::BadSignature {
            fingerprint: line.fingerprint,
        })?;
    Ok(key)
}

/// Checks that a line was made for the file it is in.
pub(crate) fn check_binding(
    line: &SignatureLine,
    expected: Option<&Binding>,
) -> Result<(), IntegrityProblem> {
    match (&line.binding, expected) {
        (None, _) if requires_bound_signatures() => Err(IntegrityProblem::Unbound),
        (Some(found), Some(expected)) if found != expected => Err(IntegrityProblem::Moved {
            signed_for: found.clone(),
            expected: expected.clone(),
        }),
        _ => Ok(()),
    }
}

/// The line of a file whose hash is that of its bytes.
pub(crate) fn claim(bytes: &[u8], format: &SignatureFormat) -> Result<Claim, IntegrityProblem> {
    let split = signature::split(bytes, &format.comment).map_err(IntegrityProblem::Line)?;
    let found = split.hash();
    let (coverage, element) = if found == split.line.hash {
        (Coverage::Whole, None)
    } else if let Some(element) = covered_element(bytes, &split).filter(|_| format.partial) {
        (Coverage::Partial, Some(element))
    } else {
        return Err(IntegrityProblem::Changed {
            expected: split.line.hash,
            found: Some(found),
        });
    };
    Ok(Claim {
        line: split.line,
        coverage,
        element,
    })
}

/// Where the directive element behind the signature line is, if that is what
/// was signed. Who uses a partial file uses this range of it and no other: what
/// stands before the line may hold an element too.
fn covered_element(file: &[u8], split: &SignedFile<'_>) -> Option<Range<usize>> {
    let start = file.len() - split.after.len();
    let range = element(split.after)?;
    let covered = Hash::digest(&split.after[range.clone()]) == split.line.hash;
    covered.then(|| start + range.start..start + range.end)
}

/// The key of a line, if it counts.
pub(crate) fn trusted_key(
    line: &SignatureLine,
    trust: &Trust<'_>,
) -> Result<Arc<TrustedKey>, IntegrityProblem> {
    let fingerprint = line.fingerprint;
    trust
        .key_status(fingerprint)
        .map_err(|distrust| match distrust {
            DistrustReason::Revoked(revocation) => IntegrityProblem::Revoked(revocation),
            DistrustReason::Unknown { ignored } => IntegrityProblem::Untrusted {
                fingerprint,
                trusted: trust.trusted(),
                ignored,
            },
        })
}

/// Where the directive element of a text is: from the first `<directive` tag to the last
/// `</directive>`, as publishers hash it. An element may contain others of the same name.
fn element(text: &[u8]) -> Option<Range<usize>> {
    const OPEN: &[u8] = b"<directive";
    const CLOSE: &[u8] = b"</directive>";
    let is_tag = |at: usize| match text.get(at + OPEN.len()) {
        Some(next) => next.is_ascii_whitespace() || *next == b'>',
        None => false,
    };
    let mut opening = text.windows(OPEN.len()).enumerate();
    let (start, _) = opening.find(|(at, letters)| *letters == OPEN && is_tag(*at))?;
    let end = text.windows(CLOSE.len()).rposition(|it| it == CLOSE)? + CLOSE.len();
    (start < end).then_some(start..end)
}
