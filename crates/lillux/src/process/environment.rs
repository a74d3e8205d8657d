//! The environment variables of a new process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Which of the caller's variables a process inherits, before
/// [`Command::env`](super::Command::env) adds to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Environment {
    /// All variables of the caller.
    #[default]
    Inherit,
    /// Only `PATH`, `HOME`, `LANG`, `LC_*`, `TZ`, `TMPDIR`, `TERM`, `USER` and `SHELL`.
    Minimal,
    /// No variables of the caller, only those that are added.
    Exact,
}

impl Environment {
    /// The inherited variables and those in `added`, of which the last of each name wins.
    pub(super) fn with_added(self, added: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
        let added: BTreeMap<_, _> = added.iter().cloned().collect();
        let mut all: Vec<_> = std::env::vars_os()
            .filter(|(name, _)| self.inherits(name) && !added.contains_key(name))
            .collect();
        all.extend(added);
        all
    }

    fn inherits(self, name: &OsStr) -> bool {
        const MINIMAL: [&str; 8] = [
            "PATH", "HOME", "LANG", "TZ", "TMPDIR", "TERM", "USER", "SHELL",
        ];
        match self {
            Self::Inherit => true,
            Self::Minimal => {
                MINIMAL.iter().any(|minimal| name == *minimal)
                    || name.as_encoded_bytes().starts_with(b"LC_")
            }
            Self::Exact => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimal_inherits_only_the_listed_names_and_the_locale() {
        for name in ["PATH", "HOME", "LC_ALL", "LC_", "TZ", "SHELL"] {
            assert!(Environment::Minimal.inherits(OsStr::new(name)), "{name}");
        }
        for name in ["OPENAI_API_KEY", "PATHS", "LANGUAGE", "ALC_ALL", ""] {
            assert!(!Environment::Minimal.inherits(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn added_variables_override_inherited_ones() {
        let added = [("PATH".into(), "/a".into()), ("PATH".into(), "/b".into())];
        let all = Environment::Inherit.with_added(&added);
        let paths: Vec<_> = all.iter().filter(|(name, _)| name == "PATH").collect();
        assert_eq!(paths, [&("PATH".into(), "/b".into())]);
        assert_eq!(Environment::Exact.with_added(&added).len(), 1);
    }
}
