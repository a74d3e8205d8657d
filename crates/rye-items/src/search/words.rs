//! Text as words: what is searched for, and what is found.
//!
//! A *run* is what stands between two characters that are neither letter nor
//! digit. In lower case it is a word; where capitals show that it is made of
//! several (`readFile`, `HTTPServer`), each of them is a word as well.

/// No word is longer, in bytes; what is behind that does not count.
pub(super) const LONGEST: usize = 64;

/// A run, in lower case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    whole: &'a str,
    /// Where each part but the first begins.
    cuts: &'a [usize],
}

impl<'a> Run<'a> {
    pub(super) fn whole(self) -> &'a str {
        self.whole
    }

    /// Whether it has several parts.
    pub(super) fn is_joined(self) -> bool {
        !self.cuts.is_empty()
    }

    /// The words it is made of; it alone where it is not joined.
    pub(super) fn parts(self) -> impl Iterator<Item = &'a str> {
        let ends = self.cuts.iter().copied().chain([self.whole.len()]);
        let starts = [0].into_iter().chain(self.cuts.iter().copied());
        starts
            .zip(ends)
            .map(move |(from, to)| &self.whole[from..to])
    }
}

/// Gives each run of a text, in order. Characters of scripts that are written
/// without spaces are a run each; marks that combine with a letter are dropped.
pub(super) fn runs(text: &str, mut give: impl FnMut(Run<'_>)) {
    let mut run = Building::default();
    for character in text.chars() {
        if character.is_ascii() {
            if character.is_ascii_alphanumeric() {
                run.push(character, Case::of_ascii(character));
            } else {
                run.finish(&mut give);
            }
        } else if is_unspaced(character) {
            run.finish(&mut give);
            run.push(character, Case::Lower);
            run.finish(&mut give);
        } else if character.is_alphanumeric() {
            let case = if character.is_uppercase() {
                Case::Upper
            } else {
                Case::Lower
            };
            run.push(character, case);
        } else if !is_combining(character) {
            run.finish(&mut give);
        }
    }
    run.finish(&mut give);
}

/// Letters and digits of an identifier in a row, in lower case: `read_file` is
/// also looked for as `readfile`. None where there is nothing to join.
pub(super) fn joined(identifier: &str) -> Option<String> {
    let mut count = 0;
    let mut whole = String::new();
    runs(identifier, |run| {
        count += 1;
        whole.push_str(run.whole());
    });
    whole.truncate(whole.floor_char_boundary(LONGEST));
    (count > 1).then_some(whole)
}

/// Chinese, Japanese.
fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Accents that follow their letter.
fn is_combining(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36f}')
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Upper,
    /// Or of a script without cases.
    Lower,
    Digit,
}

impl Case {
    fn of_ascii(character: char) -> Self {
        match character {
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            _ => Self::Lower,
        }
    }
}

/// A run in the making.
#[derive(Default)]
struct Building {
    whole: String,
    cuts: Vec<usize>,
    /// How many capitals in a row stand at the end.
    capitals: usize,
    /// Where the last character begins.
    last: usize,
}

impl Building {
    fn push(&mut self, character: char, case: Case) {
        if self.whole.len() + character.len_utf8() > LONGEST {
            return;
        }
        let here = self.whole.len();
        match case {
            // `readF`
            Case::Upper if self.capitals == 0 && here > 0 => self.cut(here),
            // `HTTPSe`: the last capital begins the next part.
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
            // `İ` becomes two characters, the second of which combines.
            let lower = character.to_lowercase().filter(|&c| !is_combining(c));
            self.whole.extend(lower);
        }
    }

    fn cut(&mut self, at: usize) {
        if at > 0 && self.cuts.last() != Some(&at) {
            self.cuts.push(at);
        }
    }

    fn finish(&mut self, give: &mut impl FnMut(Run<'_>)) {
        if !self.whole.is_empty() {
            give(Run {
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
    fn words_end_where_a_person_sees_an_end() {
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
    fn an_identifier_is_also_one_word() {
        assert_eq!(joined("read_file").as_deref(), Some("readfile"));
        assert_eq!(joined("Read-File.v2").as_deref(), Some("readfilev2"));
        assert_eq!(joined("read"), None);
        assert!(joined(&"ab_".repeat(99)).unwrap().len() <= LONGEST);
    }

    proptest! {
        #[test]
        fn any_text_gives_short_words_in_lower_case(text: String) {
            runs(&text, |run| {
                assert!(!run.whole().is_empty() && run.whole().len() <= LONGEST + 8);
                assert_eq!(run.parts().collect::<String>(), run.whole());
                assert!(run.parts().all(|part| !part.is_empty()));
            });
        }
    }
}
