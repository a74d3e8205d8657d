//! Text helpers: shell quoting, stop words, and serde implementations by `Display`/`FromStr`.

use std::path::Path;

/// Quotes a path as one word of a shell command, for hints that can be pasted.
///
/// ```
/// use lillux::shell_word;
///
/// assert_eq!(shell_word("keys/private_key.pem".as_ref()), "keys/private_key.pem");
/// assert_eq!(shell_word("my keys".as_ref()), "'my keys'");
/// assert_eq!(shell_word("-rf".as_ref()), "./-rf");
/// ```
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    if text.starts_with('-') {
        return shell_quote(&format!("./{text}"));
    }
    shell_quote(&text)
}

/// Quotes an argument so that a shell reads it as one word.
///
/// ```
/// use lillux::shell_quote;
///
/// assert_eq!(shell_quote("-c"), "-c");
/// assert_eq!(shell_quote("don't"), r"'don'\''t'");
/// ```
pub fn shell_quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// English words that occur in any sentence; sorted for binary search.
const STOP_WORDS: [&str; 46] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "could", "for", "from", "have", "how",
    "i", "in", "into", "is", "it", "its", "me", "my", "of", "on", "or", "our", "please", "should",
    "some", "that", "the", "their", "them", "these", "this", "those", "to", "want", "we", "what",
    "which", "will", "with", "would", "you", "your",
];

/// Whether a lower-case word is a stop word, which a search query ignores.
///
/// ```
/// use lillux::is_stop_word;
///
/// let query = "send a message to the team";
/// let words: Vec<_> = query.split(' ').filter(|word| !is_stop_word(word)).collect();
/// assert_eq!(words, ["send", "message", "team"]);
/// ```
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

/// Implements `Serialize` by `Display` and `Deserialize` by `FromStr`. The crate that uses it
/// depends on serde.
#[macro_export]
macro_rules! serde_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stop_word_is_found() {
        for word in STOP_WORDS {
            assert!(is_stop_word(word), "{word}");
        }
        assert!(!is_stop_word("todo") && !is_stop_word(""));
    }
}
