//! Bindings: the purpose and the file path that a signature is valid for.

use std::fmt;

use lillux::keys::Purpose;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Purpose of the signature of an item.
pub const ITEM: Purpose = Purpose::new("item");
/// Purpose of the signature of a trust file.
pub const TRUST: Purpose = Purpose::new("trust");
/// Purpose of the signature of a revocation file.
pub const REVOCATION: Purpose = Purpose::new("revocation");
/// Purpose of the signature of a stored project approval.
pub const APPROVAL: Purpose = Purpose::new("approval");
/// Purpose of the signature of an accepted project configuration.
pub const ACCEPTANCE: Purpose = Purpose::new("acceptance");

/// The purposes that a signature line can name.
const PURPOSES: [Purpose; 5] = [ITEM, TRUST, REVOCATION, APPROVAL, ACCEPTANCE];
/// The directories in `.ai/` whose files are not signed as items.
const PURPOSE_DIRS: [(&str, Purpose); 4] = [
    ("config/keys/trusted", TRUST),
    ("config/keys/revoked", REVOCATION),
    ("config/agent/approved", APPROVAL),
    ("config/accepted", ACCEPTANCE),
];
const MAX_PATH_LENGTH: usize = 4096;

/// The purpose and the file of a signature: `item=tools/my/deploy.py`.
///
/// The path is relative to the space's `.ai/`, so it names the kind, the id and the
/// extension, but not the space: a copy of an item in another space still verifies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Binding {
    purpose: Purpose,
    path: String,
}

impl Binding {
    /// Creates a binding. The path is relative to `.ai/`.
    pub fn new(purpose: Purpose, path: impl Into<String>) -> Self {
        Self {
            purpose,
            path: path.into(),
        }
    }

    /// The binding that a file of a space must have. The path determines the purpose.
    pub fn for_path(path: impl Into<String>) -> Self {
        let path = path.into();
        let is_in = |(dir, _): &&(&str, Purpose)| {
            let inner = path.strip_prefix(*dir);
            inner.is_some_and(|inner| inner.starts_with('/'))
        };
        let purpose = PURPOSE_DIRS
            .iter()
            .find(is_in)
            .map_or(ITEM, |(_, purpose)| *purpose);
        Self::new(purpose, path)
    }

    /// The binding of an item's file.
    pub fn item(path: impl Into<String>) -> Self {
        Self::new(ITEM, path)
    }

    /// The purpose of the signature.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The file, relative to `.ai/`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Parses `item=tools/my/deploy.py`. Accepts only the canonical form that
    /// [`Display`](fmt::Display) writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (purpose, path) = text.split_once('=')?;
        let purpose = PURPOSES.into_iter().find(|known| known.name() == purpose)?;
        let decoded = percent_decode_str(path).decode_utf8().ok()?;
        let binding = Self::new(purpose, decoded);
        let is_valid = !path.is_empty() && path.len() <= MAX_PATH_LENGTH;
        (is_valid && binding.to_string() == text).then_some(binding)
    }
}

/// Bytes that could end the comment, and the separators of the line.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'_')
    .remove(b'-');

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.purpose.name())?;
        utf8_percent_encode(&self.path, ENCODED).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binding_round_trips() {
        for path in ["tools/a.py", "tools/[page] -->.ts", "config/ä|;=%.yaml"] {
            let binding = Binding::item(path);
            let text = binding.to_string();
            assert_eq!(Binding::parse(&text), Some(binding));
            let after = text.strip_prefix("item=").unwrap();
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-%".contains(&b);
            assert!(after.bytes().all(plain), "{text}");
        }
    }

    #[test]
    fn binding_has_one_spelling() {
        for text in [
            "",
            "item",
            "item=",
            "other=tools/a.py",
            "item=tools/%61.py",
            "item=tools/%2f",
            "item=tools/%F",
            "item=tools/%+1",
            "item=tools/%FF",
            "item=tools/a b",
            " item=tools/a",
        ] {
            assert_eq!(Binding::parse(text), None, "{text}");
        }
    }
}
