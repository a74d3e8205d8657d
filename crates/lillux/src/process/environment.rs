//! Which variables a process sees.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The environment a process starts with, before [`Command::env`](super::Command::env) adds to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Environment {
    /// Everything the calling process has.
    #[default]
    Inherit,
    /// Of the calling process's variables only `PATH`, `HOME`, `LANG`, `LC_*`,
    /// `TZ`, `TMPDIR`, `TERM`, `USER` and `SHELL`.
    Minimal,
    /// Nothing: exactly what is added.
    Exact,
}

impl Environment {
    /// The variables to start with, less those that `added` sets, then those; of the same name the last wins.
    pub(super) fn with(self, added: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
        let added: BTreeMap<_, _> = added.iter().cloned().collect();
        let mut all: Vec<_> = std::env::vars_os()
            .filter(|(name, _)| self.passes(name) && !added.contains_key(name))
            .collect();
        all.extend(added);
        all
    }

    fn passes(self, name: &OsStr) -> bool {
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
    fn minimal_passes_the_listed_names_and_locale_only() {
        for name in ["PATH", "HOME", "LC_ALL", "LC_", "TZ", "SHELL"] {
            assert!(Environment::Minimal.passes(OsStr::new(name)), "{name}");
        }
        for name in ["OPENAI_API_KEY", "PATHS", "LANGUAGE", "ALC_ALL", ""] {
            assert!(!Environment::Minimal.passes(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn what_is_added_wins() {
        let added = [("PATH".into(), "/a".into()), ("PATH".into(), "/b".into())];
        let all = Environment::Inherit.with(&added);
        let paths: Vec<_> = all.iter().filter(|(name, _)| name == "PATH").collect();
        assert_eq!(paths, [&("PATH".into(), "/b".into())]);
        assert_eq!(Environment::Exact.with(&added).len(), 1);
    }
}
