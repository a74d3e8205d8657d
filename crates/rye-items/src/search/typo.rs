//! Words that differ from another in a letter or two.
//!
//! The words are in order, so those that begin alike stand together: the rows of
//! the usual table of distances are kept for the beginning that two neighbours
//! share, and where no word with some beginning can be near enough, all of them
//! are skipped at once.

/// How many mistakes are forgiven in a word.
pub(super) fn allowed(word: &str) -> usize {
    match word.chars().count() {
        0..=3 => 0,
        4..=7 => 1,
        _ => 2,
    }
}

/// The words of an ordered list within `most` mistakes of `word`, as places in
/// the list with the number of mistakes: a letter too many, too few or wrong, or
/// two that changed places.
pub(super) fn near<'a>(
    word: &str,
    most: usize,
    count: usize,
    at: impl Fn(usize) -> &'a [u8],
) -> Vec<(usize, usize)> {
    let mut table = Table::new(word, most);
    let mut found = Vec::new();
    let mut index = 0;
    while index < count {
        let candidate = at(index);
        match table.place(candidate) {
            Outcome::Near(mistakes) => {
                found.push((index, mistakes));
                index += 1;
            }
            Outcome::Far => index += 1,
            // No word that begins so can be near.
            Outcome::Hopeless(beginning) => {
                let beginning = &candidate[..beginning];
                index = first_beyond(index + 1, count, |i| at(i).starts_with(beginning));
            }
        }
    }
    found
}

/// The first place from `from` on where what holds for the places before it ends.
/// In steps that double, since it is mostly near.
fn first_beyond(from: usize, count: usize, holds: impl Fn(usize) -> bool) -> usize {
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
    /// Already the first bytes, this many, are too far away.
    Hopeless(usize),
}

struct Table {
    word: Vec<char>,
    most: usize,
    /// The letters of the last candidate, and where each ends in its bytes.
    letters: Vec<(char, usize)>,
    /// `rows[n]`: mistakes between the first `n` letters and each beginning of the word.
    rows: Vec<Vec<usize>>,
}

impl Table {
    fn new(word: &str, most: usize) -> Self {
        let word: Vec<_> = word.chars().collect();
        let first = (0..=word.len()).collect();
        Self {
            word,
            most,
            letters: Vec::new(),
            rows: vec![first],
        }
    }

    fn place(&mut self, candidate: &[u8]) -> Outcome {
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
            let hopeless = |row: &Vec<usize>| row.iter().all(|&d| d > self.most);
            if hopeless(&self.rows[length]) && hopeless(&self.rows[length - 1]) {
                return Outcome::Hopeless(end);
            }
        }
        let mistakes = self.rows[length][self.word.len()];
        if mistakes <= self.most {
            Outcome::Near(mistakes)
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

    fn found(word: &str, most: usize, list: &[String]) -> Vec<(String, usize)> {
        near(word, most, list.len(), |i| list[i].as_bytes())
            .into_iter()
            .map(|(i, mistakes)| (list[i].clone(), mistakes))
            .collect()
    }

    /// The textbook's table, whole.
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
    fn a_swapped_a_missing_and_a_wrong_letter_are_one_mistake_each() {
        let near = ["sarch", "search", "seerch", "serach"]; // misspelt
        let mut list = near.to_vec();
        list.extend(["searches", "starchy"]);
        list.sort_unstable();
        let list: Vec<_> = list.into_iter().map(str::to_owned).collect();
        let found = found("search", 1, &list);
        let names: Vec<_> = found.iter().map(|(word, _)| word.as_str()).collect();
        assert_eq!(names, near);
        let mistakes: Vec<_> = found.iter().map(|(_, mistakes)| *mistakes).collect();
        assert_eq!(mistakes, [1, 0, 1, 1]);
    }

    proptest! {
        #[test]
        fn finds_what_comparing_with_every_word_finds(
            mut list in prop::collection::vec("[abcé]{0,7}", 0..60),
            word in "[abcé]{1,7}",
            most in 0usize..3,
        ) {
            list.sort();
            list.dedup();
            let expected: Vec<_> = list
                .iter()
                .map(|other| (other.clone(), distance(&word, other)))
                .filter(|(_, mistakes)| *mistakes <= most)
                .collect();
            prop_assert_eq!(found(&word, most, &list), expected);
        }
    }
}
