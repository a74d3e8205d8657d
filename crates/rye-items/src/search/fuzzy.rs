//! Finds words within a small edit distance.
//!
//! The word list is sorted, so words with a common prefix are adjacent: the rows of the
//! distance matrix are kept for the prefix that two neighbours share, and all words
//! with a prefix that is already too distant are skipped at once.

/// Number of typos tolerated in a word.
pub(super) fn max_typos(word: &str) -> usize {
    match word.chars().count() {
        0..=3 => 0,
        4..=7 => 1,
        _ => 2,
    }
}

/// Finds the words of a sorted list within `max` typos of `word`. Returns their
/// indices and distances. A typo is an inserted, missing or wrong letter, or two
/// adjacent letters swapped.
pub(super) fn matches_within<'a>(
    word: &str,
    max: usize,
    count: usize,
    at: impl Fn(usize) -> &'a [u8],
) -> Vec<(usize, usize)> {
    let mut table = Table::new(word, max);
    let mut found = Vec::new();
    let mut index = 0;
    while index < count {
        let candidate = at(index);
        match table.classify(candidate) {
            Outcome::Near(typos) => {
                found.push((index, typos));
                index += 1;
            }
            Outcome::Far => index += 1,
            // No word with this prefix can be close enough.
            Outcome::PrefixTooFar(beginning) => {
                let beginning = &candidate[..beginning];
                index = gallop(index + 1, count, |i| at(i).starts_with(beginning));
            }
        }
    }
    found
}

/// The first index from `from` on for which `holds` is false. Uses galloping search,
/// since the result is usually close.
fn gallop(from: usize, count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (from, 1);
    while low < count && holds((low + step - 1).min(count - 1)) {
        low += step;
        step *= 2;
    }
    let mut high = (low + step - 1).min(count);
    low = low.min(count);
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

enum Outcome {
    Near(usize),
    Far,
    /// A prefix of this many bytes is already too distant.
    PrefixTooFar(usize),
}

struct Table {
    word: Vec<char>,
    max: usize,
    /// The letters of the last candidate, with their end offsets in bytes.
    letters: Vec<(char, usize)>,
    /// `rows[n]`: distances between the first `n` letters and each prefix of the word.
    rows: Vec<Vec<usize>>,
}

impl Table {
    fn new(word: &str, max: usize) -> Self {
        let word: Vec<_> = word.chars().collect();
        let first = (0..=word.len()).collect();
        Self {
            word,
            max,
            letters: Vec::new(),
            rows: vec![first],
        }
    }

    fn classify(&mut self, candidate: &[u8]) -> Outcome {
        let Ok(candidate) = std::str::from_utf8(candidate) else {
            return Outcome::Far;
        };
        let mut length = 0;
        for (start, letter) in candidate.char_indices() {
            let end = start + letter.len_utf8();
            if self.letters.get(length) != Some(&(letter, end)) {
                self.letters.truncate(length);
                self.letters.push((letter, end));
                self.fill(length + 1);
            }
            length += 1;
            // A transposition reaches two rows back.
            let hopeless = |row: &Vec<usize>| row.iter().all(|&d| d > self.max);
            if hopeless(&self.rows[length]) && hopeless(&self.rows[length - 1]) {
                return Outcome::PrefixTooFar(end);
            }
        }
        let typos = self.rows[length][self.word.len()];
        if typos <= self.max {
            Outcome::Near(typos)
        } else {
            Outcome::Far
        }
    }

    fn fill(&mut self, row: usize) {
        let width = self.word.len() + 1;
        if self.rows.len() <= row {
            self.rows.push(vec![0; width]);
        }
        let (above, below) = self.rows.split_at_mut(row);
        let (previous, here) = (&above[row - 1], &mut below[0]);
        let letter = self.letters[row - 1].0;
        here[0] = row;
        for column in 1..width {
            let other = self.word[column - 1];
            let change = previous[column - 1] + usize::from(letter != other);
            let mut least = change.min(previous[column] + 1).min(here[column - 1] + 1);
            if row > 1
                && column > 1
                && letter == self.word[column - 2]
                && other == self.letters[row - 2].0
            {
                least = least.min(above[row - 2][column - 2] + 1);
            }
            here[column] = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(word: &str, max: usize, list: &[String]) -> Vec<(String, usize)> {
        matches_within(word, max, list.len(), |i| list[i].as_bytes())
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
        let found = found("search", 1, &list);
        let names: Vec<_> = found.iter().map(|(word, _)| word.as_str()).collect();
        assert_eq!(names, near);
        let typos: Vec<_> = found.iter().map(|(_, typos)| *typos).collect();
        assert_eq!(typos, [1, 0, 1, 1]);
    }

    proptest! {
        #[test]
        fn finds_the_same_words_as_exhaustive_comparison(
            mut list in prop::collection::vec("[abcé]{0,7}", 0..60),
            word in "[abcé]{1,7}",
            max in 0usize..3,
        ) {
            list.sort();
            list.dedup();
            let expected: Vec<_> = list
                .iter()
                .map(|other| (other.clone(), distance(&word, other)))
                .filter(|(_, typos)| *typos <= max)
                .collect();
            prop_assert_eq!(found(&word, max, &list), expected);
        }
    }
}
