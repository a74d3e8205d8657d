//! Signature verification: checks the signature line, the hash, the binding, the key and the
//! signature of a file.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lillux::Hash;
use lillux::keys::{Fingerprint, Purpose};

use crate::comment::CommentStyle;
use crate::integrity::IntegrityProblem;
use crate::item::Coverage;
use crate::signature::{self, Binding, SignatureLine, SignedFile};
use crate::trust::{DistrustReason, IgnoredFile, Trust, TrustedKey};

/// How a file must be signed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SignatureFormat {
    /// The comment style of the signature line.
    pub comment: CommentStyle,
    /// Whether the signature may cover the `<directive>` element alone.
    pub partial: bool,
    /// The binding that a bound signature must have; none for a file outside all spaces.
    pub binding: Option<Binding>,
}

impl SignatureFormat {
    /// The format of a YAML or TOML file that is signed for a purpose. The path is relative to
    /// `.ai/`.
    pub fn config(purpose: Purpose, path: &str) -> Self {
        Self {
            comment: CommentStyle::HASH,
            partial: false,
            binding: Some(Binding::new(purpose, path)),
        }
    }
}

/// Whether this process refuses unbound signatures.
static REQUIRE_BOUND: AtomicBool = AtomicBool::new(false);

/// Refuses unbound signatures in the whole process. Called before the first file is verified if
/// the user's settings require it; cannot be undone.
pub fn require_bound_signatures() {
    REQUIRE_BOUND.store(true, Ordering::Relaxed);
}

/// Whether unbound signatures are refused.
pub fn requires_bound_signatures() -> bool {
    REQUIRE_BOUND.load(Ordering::Relaxed)
}

/// A verified signature line.
#[derive(Debug, Clone)]
pub struct VerifiedLine {
    /// The signature line.
    pub line: SignatureLine,
    /// The signer's key.
    pub key: Arc<TrustedKey>,
    /// How much of the file the signature covers.
    pub coverage: Coverage,
    /// The byte range of the covered element, for partial coverage.
    pub(crate) element: Option<Range<usize>>,
}

/// A signature line whose hash matches the file. Neither the signature nor the trust in the key is
/// checked yet.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) line: SignatureLine,
    pub(crate) coverage: Coverage,
    /// The byte range of the covered element, for partial coverage.
    pub(crate) element: Option<Range<usize>>,
}

/// Verifies a file: its signature line, hash, binding, key and signature, in this order.
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

/// Verifies the key and the signature of a line whose hash and binding were checked.
pub(crate) fn verify_line(
    line: &SignatureLine,
    trust: &Trust<'_>,
) -> Result<Arc<TrustedKey>, IntegrityProblem> {
    let key = trusted_key(line.fingerprint, trust)?;
    trust
        .cache()
        .verify(&key.key, line)
        .map_err(|_| IntegrityProblem::BadSignature {
            fingerprint: line.fingerprint,
        })?;
    Ok(key)
}

/// Checks that a signature line is bound to its file.
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

/// Parses the signature line of a file and compares its hash with the content.
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

/// The byte range of the `<directive>` element after the signature line, if its hash was signed.
/// Callers must use only this range, because the text before the line may contain an element too.
fn covered_element(file: &[u8], split: &SignedFile<'_>) -> Option<Range<usize>> {
    let start = file.len() - split.after.len();
    let range = element(split.after)?;
    let covered = Hash::digest(&split.after[range.clone()]) == split.line.hash;
    covered.then(|| start + range.start..start + range.end)
}

/// The key with this fingerprint, if it is trusted.
pub(crate) fn trusted_key(
    fingerprint: Fingerprint,
    trust: &Trust<'_>,
) -> Result<Arc<TrustedKey>, IntegrityProblem> {
    let untrusted = |ignored| IntegrityProblem::Untrusted {
        fingerprint,
        trusted: trust.trusted(),
        ignored,
    };
    match trust.key_status(fingerprint) {
        Ok(key) if key.decisions_only => {
            let reason = "the key may sign decisions only".to_owned();
            Err(untrusted(vec![IgnoredFile::new(key.path.clone(), reason)]))
        }
        Ok(key) => Ok(key),
        Err(DistrustReason::Revoked(revocation)) => Err(IntegrityProblem::Revoked(revocation)),
        Err(DistrustReason::Unknown { ignored }) => Err(untrusted(ignored)),
    }
}

/// The byte range of the `<directive>` element, as publishers hash it: from the first `<directive`
/// tag to the last `</directive>`. Elements may be nested.
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
