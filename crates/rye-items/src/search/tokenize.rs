//! Tokenizer for queries and documents.
//!
//! A *run* is a maximal sequence of letters and digits. Its lower-case form is a word;
//! if capitals show that it is a compound (`readFile`, `HTTPServer`), each part is a
//! word as well.

/// Maximum length of a word in bytes; the rest is dropped.
pub(super) const MAX_WORD_LEN: usize = 64;

/// A run in lower case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    whole: &'a str,
    /// Start offsets of all parts but the first.
    cuts: &'a [usize],
}

impl<'a> Run<'a> {
    pub(super) fn whole(self) -> &'a str {
        self.whole
    }

    /// Whether it is a compound.
    pub(super) fn is_joined(self) -> bool {
        !self.cuts.is_empty()
    }

    /// Its parts; the run itself if it is not a compound.
    pub(super) fn parts(self) -> impl Iterator<Item = &'a str> {
        let ends = self.cuts.iter().copied().chain([self.whole.len()]);
        let starts = [0].into_iter().chain(self.cuts.iter().copied());
        starts
            .zip(ends)
            .map(move |(from, to)| &self.whole[from..to])
    }
}

/// Calls `emit` for each run of a text, in order. In scripts written without spaces
/// each character is a run. Combining marks are dropped.
pub(super) fn runs(text: &str, mut emit: impl FnMut(Run<'_>)) {
    let mut run = RunBuilder::default();
    for character in text.chars() {
        if character.is_ascii() {
            if character.is_ascii_alphanumeric() {
                run.push(character, Case::from_ascii(character));
            } else {
                run.finish(&mut emit);
            }
        } else if is_unspaced(character) {
            run.finish(&mut emit);
            run.push(character, Case::Lower);
            run.finish(&mut emit);
        } else if character.is_alphanumeric() {
            let case = if character.is_uppercase() {
                Case::Upper
            } else {
                Case::Lower
            };
            run.push(character, case);
        } else if !is_combining(character) {
            run.finish(&mut emit);
        }
    }
    run.finish(&mut emit);
}

/// Joins the runs of an identifier: `read_file` is also indexed as `readfile`. Returns
/// `None` if there is only one run.
pub(super) fn joined(identifier: &str) -> Option<String> {
    let mut count = 0;
    let mut whole = String::new();
    runs(identifier, |run| {
        count += 1;
        whole.push_str(run.whole());
    });
    whole.truncate(whole.floor_char_boundary(MAX_WORD_LEN));
    (count > 1).then_some(whole)
}

/// Chinese and Japanese characters.
fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Combining diacritical marks.
fn is_combining(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36f}')
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Upper,
    /// Also used for scripts without case.
    Lower,
    Digit,
}

impl Case {
    fn from_ascii(character: char) -> Self {
        match character {
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            _ => Self::Lower,
        }
    }
}

/// A run under construction.
#[derive(Default)]
struct RunBuilder {
    whole: String,
    cuts: Vec<usize>,
    /// Number of consecutive capitals at the end.
    capitals: usize,
    /// Start of the last character.
    last: usize,
}

impl RunBuilder {
    fn push(&mut self, character: char, case: Case) {
        if self.whole.len() + character.len_utf8() > MAX_WORD_LEN {
            return;
        }
        let here = self.whole.len();
        match case {
            // `readF`
            Case::Upper if self.capitals == 0 && here > 0 => self.cut(here),
            // `HTTPSe`: the last capital starts the next part.
            Case::Lower if self.capitals > 1 => self.cut(self.last),
            _ => {}
        }
        self.capitals = match case {
            Case::Upper => self.capitals + 1,
            Case::Lower | Case::Digit => 0,
        };
        self.last = here;
        if character.is_ascii() {
            self.whole.push(character.to_ascii_lowercase());
        } else {
            // `İ` lower-cases to two characters, the second of which is a combining
            // mark.
            let lower = character.to_lowercase().filter(|&c| !is_combining(c));
            self.whole.extend(lower);
        }
    }

    fn cut(&mut self, at: usize) {
        if at > 0 && self.cuts.last() != Some(&at) {
            self.cuts.push(at);
        }
    }

    fn finish(&mut self, emit: &mut impl FnMut(Run<'_>)) {
        if !self.whole.is_empty() {
            emit(Run {
                whole: &self.whole,
                cuts: &self.cuts,
            });
        }
        self.whole.clear();
        self.cuts.clear();
        self.capitals = 0;
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        runs(text, |run| {
            found.extend(run.parts().map(str::to_owned));
            if run.is_joined() {
                found.push(format!("={}", run.whole()));
            }
        });
        found
    }

    #[test]
    fn words_are_split_at_punctuation_case_and_script_boundaries() {
        for (text, expected) in [
            ("", ""),
            ("  read, file! ", "read file"),
            ("read_file-now.py", "read file now py"),
            ("readFile", "read file =readfile"),
            ("HTTPServer", "http server =httpserver"),
            ("parseJSON", "parse json =parsejson"),
            ("Git GIT GitHub", "git git git hub =github"),
            (
                "sha256 utf8 HTTP2 HTTP2Server",
                "sha256 utf8 http2 http2 server =http2server",
            ),
            ("ÄrgerÜber Straße", "ärger über =ärgerüber straße"),
            ("cafe\u{301} İstanbul", "cafe istanbul"),
            ("日本語 テスト", "日 本 語 テ ス ト"),
            ("한국어 검색", "한국어 검색"),
            ("поиск Файлов", "поиск файлов"),
            ("it's", "it s"),
        ] {
            assert_eq!(words(text).join(" "), expected, "{text}");
        }
    }

    #[test]
    fn identifiers_are_also_indexed_as_one_word() {
        assert_eq!(joined("read_file").as_deref(), Some("readfile"));
        assert_eq!(joined("Read-File.v2").as_deref(), Some("readfilev2"));
        assert_eq!(joined("read"), None);
        assert!(joined(&"ab_".repeat(99)).unwrap().len() <= MAX_WORD_LEN);
    }

    proptest! {
        #[test]
        fn all_words_are_short_and_lower_case(text: String) {
            runs(&text, |run| {
                assert!(!run.whole().is_empty() && run.whole().len() <= MAX_WORD_LEN + 8);
                assert_eq!(run.parts().collect::<String>(), run.whole());
                assert!(run.parts().all(|part| !part.is_empty()));
            });
        }
    }
}
