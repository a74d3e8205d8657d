//! Finds words within a small edit distance.

use std::sync::LazyLock;

use levenshtein_automata::{Distance, LevenshteinAutomatonBuilder, SINK_STATE};

/// Automaton tables for one and for two typos. Two adjacent letters swapped are one typo.
static AUTOMATA: [LazyLock<LevenshteinAutomatonBuilder>; 2] = [
    LazyLock::new(|| LevenshteinAutomatonBuilder::new(1, true)),
    LazyLock::new(|| LevenshteinAutomatonBuilder::new(2, true)),
];

/// Finds the words of a list within the tolerated number of typos of `word`. Returns their indices
/// and distances. A typo is an inserted, missing or wrong letter, or two adjacent letters swapped.
pub(super) fn similar<'a>(word: &str, list: impl Iterator<Item = &'a str>) -> Vec<(usize, usize)> {
    let builder = match word.chars().count() {
        0..=3 => return Vec::new(),
        4..=7 => &AUTOMATA[0],
        _ => &AUTOMATA[1],
    };
    let automaton = builder.build_dfa(word);
    let typos = |other: &str| {
        let mut state = automaton.initial_state();
        for byte in other.bytes() {
            state = automaton.transition(state, byte);
            if state == SINK_STATE {
                return None;
            }
        }
        match automaton.distance(state) {
            Distance::Exact(typos) => Some(usize::from(typos)),
            Distance::AtLeast(_) => None,
        }
    };
    list.enumerate()
        .filter_map(|(index, other)| Some((index, typos(other)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(word: &str, list: &[String]) -> Vec<(String, usize)> {
        similar(word, list.iter().map(String::as_str))
            .into_iter()
            .map(|(i, typos)| (list[i].clone(), typos))
            .collect()
    }

    /// Reference implementation: the full distance matrix.
    fn distance(one: &str, other: &str) -> usize {
        let (a, b): (Vec<_>, Vec<_>) = (one.chars().collect(), other.chars().collect());
        let mut d = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 0..=a.len() {
            for j in 0..=b.len() {
                d[i][j] = if i == 0 || j == 0 {
                    i + j
                } else {
                    let mut least = (d[i - 1][j] + 1)
                        .min(d[i][j - 1] + 1)
                        .min(d[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]));
                    if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                        least = least.min(d[i - 2][j - 2] + 1);
                    }
                    least
                };
            }
        }
        d[a.len()][b.len()]
    }

    #[test]
    fn swapped_missing_and_wrong_letters_are_one_typo_each() {
        let near = ["sarch", "search", "seerch", "serach"]; // misspelt
        let mut list = near.to_vec();
        list.extend(["searches", "starchy"]);
        list.sort_unstable();
        let list: Vec<_> = list.into_iter().map(str::to_owned).collect();
        let found = found("search", &list);
        let names: Vec<_> = found.iter().map(|(word, _)| word.as_str()).collect();
        assert_eq!(names, near);
        let typos: Vec<_> = found.iter().map(|(_, typos)| *typos).collect();
        assert_eq!(typos, [1, 0, 1, 1]);
    }

    proptest! {
        #[test]
        fn finds_the_same_words_as_exhaustive_comparison(
            mut list in prop::collection::vec("[abcé]{0,11}", 0..60),
            word in "[abcé]{1,11}",
        ) {
            list.sort();
            list.dedup();
            let max = match word.chars().count() {
                0..=3 => 0,
                4..=7 => 1,
                _ => 2,
            };
            let expected: Vec<_> = list
                .iter()
                .map(|other| (other.clone(), distance(&word, other)))
                .filter(|(_, typos)| max > 0 && *typos <= max)
                .collect();
            prop_assert_eq!(found(&word, &list), expected);
        }
    }
}
