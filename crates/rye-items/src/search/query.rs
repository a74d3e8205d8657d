//! What is asked.

use lillux::keys::Fingerprint;

use crate::id::ItemKind;
use crate::space::Space;

use super::words::{self, Run};

/// How many words of a query count; more say nothing more.
const MOST_WORDS: usize = 32;
/// How much of a query's text is looked at.
const LONGEST_TEXT: usize = 8 << 10;
/// How many hits are given where nobody says otherwise.
const LIMIT: usize = 20;

/// A question to the catalogue: words, and what a hit must be. An empty list
/// leaves a filter out; an empty text lists all that pass, ordered by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Words in any order. Only the first 32 count.
    pub text: String,
    /// Only items of these kinds.
    pub kinds: Vec<ItemKind>,
    /// Only items of these spaces. What shadows an item from a space that was
    /// not asked for does not hide it.
    pub spaces: Vec<Space>,
    /// Only items of this category and those below it: `rye/bash` has
    /// `rye/bash/extra` in it, not `rye/bashful`.
    pub category: Option<String>,
    /// Only items that say to be signed by this key.
    pub signer: Option<Fingerprint>,
    /// Only items of this risk.
    pub risk: Option<String>,
    /// Only what something runs.
    pub runs: bool,
    /// How many hits at most.
    pub limit: usize,
}

impl Query {
    /// Words without filters, twenty hits.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            kinds: Vec::new(),
            spaces: Vec::new(),
            category: None,
            signer: None,
            risk: None,
            runs: false,
            limit: LIMIT,
        }
    }

    /// What of the text is looked at.
    pub(super) fn looked_at(&self) -> &str {
        let text = self.text.trim_start();
        &text[..text.floor_char_boundary(LONGEST_TEXT)]
    }

    /// The words of the text, each once, in their order.
    pub(super) fn words(&self) -> Vec<Word> {
        let mut found: Vec<Word> = Vec::new();
        words::runs(self.looked_at(), |run| {
            if found.len() < MOST_WORDS && !found.iter().any(|word| word.whole == run.whole()) {
                found.push(Word::of(run));
            }
        });
        found
    }
}

/// The words that say something; all, where none does.
pub(super) fn saying_something(words: &[Word]) -> Vec<&Word> {
    let says = |word: &&Word| !lillux::says_nothing(&word.whole);
    let some: Vec<_> = words.iter().filter(says).collect();
    if some.is_empty() {
        words.iter().collect()
    } else {
        some
    }
}

/// A word of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// All of it, in lower case: `readfile` for `readFile`.
    pub(super) whole: String,
    /// Its parts where it has several: `read`, `file`.
    pub(super) parts: Vec<String>,
}

impl Word {
    fn of(run: Run<'_>) -> Self {
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
    fn a_query_without_end_has_an_end() {
        let long: Vec<_> = (0..10_000).map(|n| format!("word{n}")).collect();
        assert_eq!(Query::new(long.join(" ")).words().len(), MOST_WORDS);
        let spaces = " ".repeat(1 << 20) + "word";
        assert_eq!(Query::new(spaces).words().len(), 1);
        let commas = ",".repeat(1 << 20) + "word";
        assert_eq!(Query::new(commas).words(), []);
        let one = "é".repeat(1 << 20);
        assert!(Query::new(one).words()[0].whole.len() <= words::LONGEST);
    }

    #[test]
    fn words_that_say_nothing_do_not_count_beside_others() {
        for (text, counting) in [
            ("send a message to the team", "send message team"),
            ("to", "to"),
            ("For the", "for the"),
            ("the toFor", "tofor"),
        ] {
            let words = Query::new(text).words();
            let left = saying_something(&words).into_iter();
            let left: Vec<_> = left.map(|word| word.whole.as_str()).collect();
            assert_eq!(left.join(" "), counting);
        }
    }

    #[test]
    fn a_word_said_twice_counts_once() {
        let words = Query::new("read READ readFile").words();
        let wholes: Vec<_> = words.iter().map(|word| word.whole.as_str()).collect();
        assert_eq!(wholes, ["read", "readfile"]);
        assert_eq!(words[1].parts, ["read", "file"]);
    }
}
