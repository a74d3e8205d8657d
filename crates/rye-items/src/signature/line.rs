//! Parses, formats, creates and verifies signature lines.

use std::fmt;
use std::str::FromStr;

use lillux::Hash;
use lillux::hash::Hasher;
use lillux::keys::{BadSignature, Fingerprint, PublicKey, Signature, SigningKey};

use super::binding::Binding;
use super::error::LineError;

/// The start of every signature line.
pub(super) const MARK: &str = "rye:signed:";
/// Pattern of `2026-04-10T03:28:17Z`; `d` is a digit.
pub(super) const TIME_PATTERN: &[u8] = b"dddd-dd-ddTdd:dd:ddZ";
const MAX_PROVENANCE_LENGTH: usize = 200;
const FINGERPRINT_LENGTH: usize = 16;

/// A parsed signature line. Nothing in it is verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureLine {
    /// The signing time according to the signer: `2026-04-10T03:28:17Z`.
    pub time: String,
    /// The hash of the covered bytes.
    pub hash: Hash,
    /// The signature of the hash, or of all fields if the line is bound.
    pub signature: Signature,
    /// The signer's key.
    pub fingerprint: Fingerprint,
    /// The purpose and file that the signature is bound to; none for an unbound signature.
    pub binding: Option<Binding>,
    /// `provider@user`, if the signer added it.
    pub provenance: Option<String>,
}

impl fmt::Display for SignatureLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            time,
            hash,
            signature,
            fingerprint,
            binding,
            provenance,
        } = self;
        write!(f, "{MARK}{time}:{hash}:{signature}:{fingerprint}")?;
        if let Some(binding) = binding {
            write!(f, ";{binding}")?;
        }
        match provenance {
            Some(provenance) => write!(f, "|{provenance}"),
            None => Ok(()),
        }
    }
}

impl FromStr for SignatureLine {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        let fail = |offset: usize, what: String| LineError { what, offset };
        let rest = text
            .strip_prefix(MARK)
            .ok_or_else(|| fail(0, format!("it does not start with `{MARK}`")))?;
        let at = |part: &str| text.len() - part.len();

        let (time, rest) = split_prefix(rest, TIME_PATTERN.len());
        if !is_time(time) {
            let what = "the time is not of the form 2026-04-10T03:28:17Z".to_owned();
            return Err(fail(MARK.len(), what));
        }
        let rest = colon(rest, "the time").map_err(|what| fail(at(rest), what))?;

        let (hash, after) = until_colon(rest);
        let hash = hash
            .parse()
            .map_err(|e| fail(at(rest), format!("the hash: {e}")))?;
        let rest = colon(after, "the hash").map_err(|what| fail(at(after), what))?;

        let (signature, after) = until_colon(rest);
        let signature = signature
            .parse()
            .map_err(|e| fail(at(rest), format!("the signature: {e}")))?;
        let rest = colon(after, "the signature").map_err(|what| fail(at(after), what))?;

        let (fingerprint, provenance) = match rest.split_once('|') {
            Some((fingerprint, provenance)) => (fingerprint, Some(provenance)),
            None => (rest, None),
        };
        let (fingerprint, binding) = match fingerprint.split_once(';') {
            Some((fingerprint, binding)) => (fingerprint, Some(binding)),
            None => (fingerprint, None),
        };
        let fingerprint = fingerprint
            .parse()
            .map_err(|e| fail(at(rest), format!("the key's fingerprint: {e}")))?;
        let binding = binding
            .map(|text| {
                let what = "the binding is not of the form item=PATH";
                let offset = at(rest) + FINGERPRINT_LENGTH + 1;
                Binding::parse(text).ok_or_else(|| fail(offset, what.to_owned()))
            })
            .transpose()?;
        if let Some(what) = provenance.and_then(provenance_problem) {
            return Err(fail(at(provenance.unwrap_or_default()), what));
        }
        Ok(Self {
            time: time.to_owned(),
            hash,
            signature,
            fingerprint,
            binding,
            provenance: provenance.map(str::to_owned),
        })
    }
}

impl SignatureLine {
    /// Signs the hash of a file, bound to a purpose and a path.
    pub fn sign(
        hash: Hash,
        binding: Binding,
        key: &SigningKey,
        time: &str,
        provenance: Option<&str>,
    ) -> Self {
        let provenance = provenance.map(str::to_owned);
        let covered = covered_hash(&binding, time, &hash, provenance.as_deref());
        Self {
            time: time.to_owned(),
            hash,
            signature: key.sign_for(binding.purpose(), &covered),
            fingerprint: key.public().fingerprint(),
            binding: Some(binding),
            provenance,
        }
    }

    /// Verifies the signature with a key.
    pub fn verify(&self, key: &PublicKey) -> Result<(), BadSignature> {
        match &self.binding {
            Some(binding) => {
                key.verify_for(binding.purpose(), &self.covered_hash(), &self.signature)
            }
            None => key.verify(&self.hash, &self.signature),
        }
    }

    /// The hash that the signature covers.
    fn covered_hash(&self) -> Hash {
        match &self.binding {
            Some(binding) => {
                covered_hash(binding, &self.time, &self.hash, self.provenance.as_deref())
            }
            None => self.hash,
        }
    }
}

/// The cache key of a line's signature by a key.
///
/// It includes the purpose, because both a bound and an unbound signature cover a hash: without
/// it, a cached bound signature could pass as an unbound one over the text that it covers.
pub(crate) fn cache_key(key: &PublicKey, line: &SignatureLine) -> Hash {
    let mut hasher = Hasher::default();
    let purpose = line.binding.as_ref().map(|it| it.purpose().name());
    hasher.update(purpose.unwrap_or_default().as_bytes());
    hasher.update(b"\0");
    hasher.update(key.as_bytes());
    hasher.update(line.covered_hash().as_bytes());
    hasher.update(line.signature.as_bytes());
    hasher.finish().0
}

/// The hash that a bound signature covers. No part contains a newline.
fn covered_hash(binding: &Binding, time: &str, hash: &Hash, provenance: Option<&str>) -> Hash {
    let provenance = provenance.unwrap_or_default();
    Hash::digest(format!(
        "rye-signed-file:v1\n{binding}\n{time}\n{hash}\n{provenance}"
    ))
}

/// Splits a text at a byte length. Returns the whole text if it is shorter, or if the split would
/// be inside a character.
fn split_prefix(text: &str, length: usize) -> (&str, &str) {
    text.split_at_checked(length).unwrap_or((text, ""))
}

fn until_colon(text: &str) -> (&str, &str) {
    text.split_at(text.find(':').unwrap_or(text.len()))
}

fn colon<'a>(text: &'a str, after: &str) -> Result<&'a str, String> {
    text.strip_prefix(':')
        .ok_or_else(|| format!("a `:` is missing after {after}"))
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape = bytes.len() == TIME_PATTERN.len()
        && bytes
            .iter()
            .zip(TIME_PATTERN)
            .all(|(found, pattern)| match pattern {
                b'd' => found.is_ascii_digit(),
                other => found == other,
            });
    let number = |from: usize, to: usize| text[from..to].parse::<u32>().unwrap_or(u32::MAX);
    shape
        && (1..=12).contains(&number(5, 7))
        && (1..=31).contains(&number(8, 10))
        && number(11, 13) < 24
        && number(14, 16) < 60
        && number(17, 19) <= 60
}

/// Describes why a text is not a valid `provider@user`; none if it is valid.
pub fn provenance_problem(text: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "@._-+/".contains(c);
    let shape = text
        .split_once('@')
        .is_some_and(|(provider, user)| !provider.is_empty() && !user.is_empty());
    let good = shape && text.len() <= MAX_PROVENANCE_LENGTH && text.chars().all(allowed);
    (!good).then(|| "the provenance is not of the form provider@user".to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "rye:signed:2026-04-10T03:28:17Z:765c9e4c3631c1e76b0383691005d92a25cd9d598fd4e1aec509899901ea2cdd:UllOnPErqDGGEoj1eiKdg8b2smCCmKsHFebDncF-grTll41zRaGQ5e78eiSLKRy2aEDRXkxdqn21BjRHoDBDDw:6ea18199041a1ea8";

    #[test]
    fn line_round_trips_with_and_without_provenance() {
        for text in [
            GOOD.to_owned(),
            format!("{GOOD}|github@leo"),
            format!("{GOOD};item=tools/my/deploy.py"),
            format!("{GOOD};trust=config/keys/trusted/a%20b.toml|github@leo"),
        ] {
            let line: SignatureLine = text.parse().unwrap();
            assert_eq!(line.to_string(), text);
        }
        let padded = GOOD.replace("DBDDw:", "DBDDw==:");
        assert_eq!(padded.parse::<SignatureLine>().unwrap().to_string(), GOOD);
    }

    #[test]
    fn malformed_line_reports_cause_and_offset() {
        let colons: Vec<_> = GOOD.match_indices(':').map(|(i, _)| i).collect();
        for (text, what, offset) in [
            ("signed".to_owned(), "it does not start with", 0),
            (MARK.to_owned(), "the time is not of the form", 11),
            (
                GOOD.replace("T03", " 03"),
                "the time is not of the form",
                11,
            ),
            (
                GOOD.replace("-04-", "-13-"),
                "the time is not of the form",
                11,
            ),
            (
                GOOD.replace("17Z:", "17Z;"),
                "a `:` is missing after the time",
                31,
            ),
            (GOOD.replace("765c", "765C"), "the hash: ", 32),
            (
                GOOD[..colons[5]].to_owned(),
                "a `:` is missing after the hash",
                96,
            ),
            (
                GOOD.replace("UllO", "Ull/"),
                "the signature: '/' at position 3",
                97,
            ),
            (
                GOOD[..colons[6]].to_owned(),
                "a `:` is missing after the signature",
                183,
            ),
            (
                GOOD[..GOOD.len() - 1].to_owned(),
                "the key's fingerprint: ",
                184,
            ),
            (format!("{GOOD};"), "the binding is not", 201),
            (format!("{GOOD};item=a b"), "the binding is not", 201),
            (format!("{GOOD};other=a|x@y"), "the binding is not", 201),
            (format!("{GOOD}|leo"), "the provenance is not", 201),
            (format!("{GOOD}|a@b c"), "the provenance is not", 201),
        ] {
            let error = text.parse::<SignatureLine>().unwrap_err();
            assert!(error.what.starts_with(what), "{text}: {error}");
            assert_eq!(error.offset, offset, "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_fails(text in "rye:signed:\\PC*") {
            if let Ok(line) = text.parse::<SignatureLine>() {
                prop_assert_eq!(line.to_string().parse::<SignatureLine>(), Ok(line));
            }
        }
    }
}
