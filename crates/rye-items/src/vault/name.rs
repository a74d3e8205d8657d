//! Names of secrets, which are names of files and of variables too.

use std::fmt;
use std::str::FromStr;

const LONGEST: usize = 128;

/// The name of a secret: `[A-Za-z_][A-Za-z0-9_.-]{0,127}`. It names one file and
/// cannot leave its folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Box<str>);

impl SecretName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, SecretNameError> {
        let first = |c: char| c.is_ascii_alphabetic() || c == '_';
        let further = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let good = text.starts_with(first) && text.chars().all(further) && text.len() <= LONGEST;
        if good {
            Ok(Self(text.into()))
        } else {
            Err(SecretNameError)
        }
    }
}

/// A text that names no secret. It is not repeated: it may be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret's name has 1 to {LONGEST} letters, digits, `_`, `.` and `-`, and begins with a letter or `_`"
)]
pub struct SecretNameError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_a_file_and_a_variable_can_have() {
        let longest = "x".repeat(LONGEST);
        for good in ["A", "_", "API_TOKEN", "db.password-2", longest.as_str()] {
            assert_eq!(good.parse::<SecretName>().unwrap().as_str(), good);
        }
        let long = "x".repeat(LONGEST + 1);
        for bad in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "/a",
            ".hidden",
            "-rf",
            "1a",
            "a b",
            "a\0",
            "ä",
            "a\n",
            r"a\b",
            "$(x)",
            long.as_str(),
        ] {
            assert_eq!(bad.parse::<SecretName>(), Err(SecretNameError), "{bad:?}");
        }
    }
}
