//! The text of a signature line.

use std::fmt;
use std::str::FromStr;

use lillux::Hash;
use lillux::keys::{Fingerprint, Signature};

use super::error::LineError;

/// What every signature line begins with.
pub(super) const MARK: &str = "rye:signed:";
/// `2026-04-10T03:28:17Z`.
pub(super) const TIME_PATTERN: &[u8] = b"dddd-dd-ddTdd:dd:ddZ";
const LONGEST_PROVENANCE: usize = 200;

/// A signature line, read. Says nothing about whether it is true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureLine {
    /// When it was signed, in the signer's words: `2026-04-10T03:28:17Z`.
    pub time: String,
    /// The hash of the covered bytes.
    pub hash: Hash,
    /// The signature over the hash.
    pub signature: Signature,
    /// The key that signed.
    pub fingerprint: Fingerprint,
    /// `provider@user`, where the signer said so.
    pub provenance: Option<String>,
}

impl fmt::Display for SignatureLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            time,
            hash,
            signature,
            fingerprint,
            provenance,
        } = self;
        write!(f, "{MARK}{time}:{hash}:{signature}:{fingerprint}")?;
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
            .ok_or_else(|| fail(0, format!("it does not begin with `{MARK}`")))?;
        let at = |part: &str| text.len() - part.len();

        let (time, rest) = take(rest, TIME_PATTERN.len());
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
        let fingerprint = fingerprint
            .parse()
            .map_err(|e| fail(at(rest), format!("the key's fingerprint: {e}")))?;
        if let Some(what) = provenance.and_then(provenance_problem) {
            return Err(fail(at(provenance.unwrap_or_default()), what));
        }
        Ok(Self {
            time: time.to_owned(),
            hash,
            signature,
            fingerprint,
            provenance: provenance.map(str::to_owned),
        })
    }
}

/// The first bytes of a text and the rest; all of it where it is shorter or
/// the cut would split a character.
fn take(text: &str, length: usize) -> (&str, &str) {
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

/// What is wrong with a `provider@user`, if something is.
pub fn provenance_problem(text: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "@._-+/".contains(c);
    let shape = text
        .split_once('@')
        .is_some_and(|(provider, user)| !provider.is_empty() && !user.is_empty());
    let good = shape && text.len() <= LONGEST_PROVENANCE && text.chars().all(allowed);
    (!good).then(|| "what follows the fingerprint is not of the form provider@user".to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "rye:signed:2026-04-10T03:28:17Z:765c9e4c3631c1e76b0383691005d92a25cd9d598fd4e1aec509899901ea2cdd:UllOnPErqDGGEoj1eiKdg8b2smCCmKsHFebDncF-grTll41zRaGQ5e78eiSLKRy2aEDRXkxdqn21BjRHoDBDDw:6ea18199041a1ea8";

    #[test]
    fn a_line_reads_back_as_written_with_and_without_provenance() {
        for text in [GOOD.to_owned(), format!("{GOOD}|github@leo")] {
            let line: SignatureLine = text.parse().unwrap();
            assert_eq!(line.to_string(), text);
        }
        let padded = GOOD.replace("DBDDw:", "DBDDw==:");
        assert_eq!(padded.parse::<SignatureLine>().unwrap().to_string(), GOOD);
    }

    #[test]
    fn a_malformed_line_says_what_and_where() {
        let colons: Vec<_> = GOOD.match_indices(':').map(|(i, _)| i).collect();
        for (text, what, offset) in [
            ("signed".to_owned(), "it does not begin with", 0),
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
            (format!("{GOOD}|leo"), "what follows the fingerprint", 201),
            (format!("{GOOD}|a@b c"), "what follows the fingerprint", 201),
        ] {
            let error = text.parse::<SignatureLine>().unwrap_err();
            assert!(error.what.starts_with(what), "{text}: {error}");
            assert_eq!(error.offset, offset, "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "rye:signed:\\PC*") {
            if let Ok(line) = text.parse::<SignatureLine>() {
                prop_assert_eq!(line.to_string().parse::<SignatureLine>(), Ok(line));
            }
        }
    }
}
