//! Search queries.

use lillux::keys::Fingerprint;

use crate::id::ItemKind;
use crate::space::Space;

use super::tokenize::{self, Run};

/// Words of a query that are used; the rest is ignored.
const MAX_WORDS: usize = 32;
/// Bytes of a query that are used.
const MAX_TEXT_LEN: usize = 8 << 10;
/// Default number of hits.
const LIMIT: usize = 20;

/// A search query: words and filters. An empty filter list matches everything; an empty
/// text lists all items that pass the filters, ordered by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Words in any order. Only the first 32 are used.
    pub text: String,
    /// Only items of these kinds.
    pub kinds: Vec<ItemKind>,
    /// Only items in these spaces. An item is not hidden by one that shadows it from a
    /// space that is not listed here.
    pub spaces: Vec<Space>,
    /// Only items in this category or below it: `rye/bash` includes `rye/bash/extra`,
    /// but not `rye/bashful`.
    pub category: Option<String>,
    /// Only items whose signature line names this key.
    pub signer: Option<Fingerprint>,
    /// Only items with this risk level, ignoring case.
    pub risk: Option<String>,
    /// Only items that can be executed.
    pub runnable: bool,
    /// Maximum number of hits.
    pub limit: usize,
}

impl Query {
    /// A query without filters and with the default limit of 20.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            kinds: Vec::new(),
            spaces: Vec::new(),
            category: None,
            signer: None,
            risk: None,
            runnable: false,
            limit: LIMIT,
        }
    }

    /// The part of the text that is used.
    pub(super) fn used_text(&self) -> &str {
        let text = self.text.trim_start();
        &text[..text.floor_char_boundary(MAX_TEXT_LEN)]
    }

    /// The distinct words of the text, in order.
    pub(super) fn words(&self) -> Vec<Word> {
        let mut found: Vec<Word> = Vec::new();
        tokenize::runs(self.used_text(), |run| {
            if found.len() < MAX_WORDS && !found.iter().any(|word| word.whole == run.whole()) {
                found.push(Word::from_run(run));
            }
        });
        found
    }
}

/// Drops stop words, unless all words are stop words.
pub(super) fn without_stop_words(words: &[Word]) -> Vec<&Word> {
    let is_content = |word: &&Word| !lillux::is_stop_word(&word.whole);
    let content: Vec<_> = words.iter().filter(is_content).collect();
    if content.is_empty() {
        words.iter().collect()
    } else {
        content
    }
}

/// A query word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// The whole word in lower case: `readfile` for `readFile`.
    pub(super) whole: String,
    /// Its parts if it has several: `read`, `file`.
    pub(super) parts: Vec<String>,
}

impl Word {
    fn from_run(run: Run<'_>) -> Self {
        let parts: Vec<_> = run.parts().map(str::to_owned).collect();
        Self {
            whole: run.whole().to_owned(),
            parts: if parts.len() > 1 { parts } else { Vec::new() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_queries_are_truncated() {
        let long: Vec<_> = (0..10_000).map(|n| format!("word{n}")).collect();
        assert_eq!(Query::new(long.join(" ")).words().len(), MAX_WORDS);
        let spaces = " ".repeat(1 << 20) + "word";
        assert_eq!(Query::new(spaces).words().len(), 1);
        let commas = ",".repeat(1 << 20) + "word";
        assert_eq!(Query::new(commas).words(), []);
        let one = "é".repeat(1 << 20);
        assert!(Query::new(one).words()[0].whole.len() <= tokenize::MAX_WORD_LEN);
    }

    #[test]
    fn stop_words_are_ignored_next_to_other_words() {
        for (text, counting) in [
            ("send a message to the team", "send message team"),
            ("to", "to"),
            ("For the", "for the"),
            ("the toFor", "tofor"),
        ] {
            let words = Query::new(text).words();
            let left = without_stop_words(&words).into_iter();
            let left: Vec<_> = left.map(|word| word.whole.as_str()).collect();
            assert_eq!(left.join(" "), counting);
        }
    }

    #[test]
    fn repeated_words_count_once() {
        let words = Query::new("read READ readFile").words();
        let wholes: Vec<_> = words.iter().map(|word| word.whole.as_str()).collect();
        assert_eq!(wholes, ["read", "readfile"]);
        assert_eq!(words[1].parts, ["read", "file"]);
    }
}
