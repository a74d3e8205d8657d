//! Names of secrets. They are also used as file names and environment variables.

use std::fmt;
use std::str::FromStr;

const MAX_LENGTH: usize = 128;

/// The name of a secret: `[A-Za-z_][A-Za-z0-9_.-]{0,127}`. As a file name it cannot escape its
/// directory.
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
        let good = text.starts_with(first) && text.chars().all(further) && text.len() <= MAX_LENGTH;
        if good {
            Ok(Self(text.into()))
        } else {
            Err(SecretNameError)
        }
    }
}

/// The text is not a valid name. The message does not repeat it, because it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret's name has 1 to {MAX_LENGTH} letters, digits, `_`, `.` and `-`, and starts with a letter or `_`"
)]
pub struct SecretNameError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_valid_for_files_and_variables_are_accepted() {
        let longest = "x".repeat(MAX_LENGTH);
        for good in ["A", "_", "API_TOKEN", "db.password-2", longest.as_str()] {
            assert_eq!(good.parse::<SecretName>().unwrap().as_str(), good);
        }
        let long = "x".repeat(MAX_LENGTH + 1);
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
