//! Maps errors of keys and envelopes to error codes and exit codes.

use lillux::envelope::{OpenError, ParseEnvelopeError, SealError, WriteError};
use lillux::keys::KeyError;

use super::{Exit, Failure};

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        let hint = error.hint();
        let failure = match error {
            KeyError::Path(error) => error.into(),
            KeyError::Missing(_) => Self::new(Exit::Failed, "not_found", error),
            KeyError::InsecureFile { .. } | KeyError::InsecureDirectory { .. } => {
                Self::new(Exit::Permission, "permission", error)
            }
            KeyError::Exists(_) => Self::new(Exit::Failed, "exists", error)
                .hint("use --force to replace the pair; the old private key is then lost"),
            KeyError::Randomness(_) => Self::new(Exit::Failed, "no_randomness", error),
            KeyError::IsDirectory(_)
            | KeyError::NotAFile(_)
            | KeyError::TooLarge(_)
            | KeyError::Unusable { .. } => Self::new(Exit::Failed, "bad_key", error),
        };
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<SealError> for Failure {
    fn from(error: SealError) -> Self {
        match error {
            SealError::NoRecipients
            | SealError::TooManyRecipients(_)
            | SealError::DuplicateRecipient(_)
            | SealError::BadLabel => Self::usage(error),
            SealError::TooLarge => Self::new(Exit::Failed, "too_large", error),
            SealError::Randomness(_) => Self::new(Exit::Failed, "no_randomness", error),
            SealError::Cipher => Self::new(Exit::Failed, "cipher", error),
        }
    }
}

impl From<ParseEnvelopeError> for Failure {
    fn from(error: ParseEnvelopeError) -> Self {
        match error {
            ParseEnvelopeError::UnknownVersion(_) | ParseEnvelopeError::UnknownSuite => {
                Self::new(Exit::Failed, "unsupported", error)
            }
            ParseEnvelopeError::NotJson { .. }
            | ParseEnvelopeError::NoVersion
            | ParseEnvelopeError::Damaged(_)
            | ParseEnvelopeError::NotCanonical(_)
            | ParseEnvelopeError::TooLarge => Self::new(Exit::Integrity, "bad_envelope", error),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let code = match error {
            OpenError::NotARecipient { .. } => "not_a_recipient",
            OpenError::Changed => "bad_envelope",
            OpenError::LabelMismatch { .. } => "label_mismatch",
        };
        Self::new(Exit::Integrity, code, error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Path(error) => error.into(),
            WriteError::Exists(_) => Self::new(Exit::Failed, "exists", error),
            WriteError::NotAFile(_) => Self::new(Exit::Failed, "not_a_file", error),
        }
    }
}
