//! Syntax highlighting of comments, strings, numbers and keywords: one simple lexer for all
//! languages, enough to show the structure of code.

use anstyle::Style;

use crate::text::{BLUE, CYAN, DIM, GREEN, Line, MAGENTA, PLAIN, RED};

/// Lexical rules of a family of languages; words are separated by spaces.
struct Family {
    names: &'static str,
    comments: &'static str,
    quotes: &'static str,
    keywords: &'static str,
}

const FAMILIES: [Family; 8] = [
    Family {
        names: "rust rs",
        comments: "//",
        quotes: "\"",
        keywords: "as async await break const continue crate dyn else enum false fn for if impl in \
                   let loop match mod move mut pub ref return self Self static struct super trait \
                   true type unsafe use where while",
    },
    Family {
        names: "python py",
        comments: "#",
        quotes: "\"'",
        keywords: "and as assert async await break class continue def del elif else except False \
                   finally for from global if import in is lambda None nonlocal not or pass raise \
                   return True try while with yield",
    },
    Family {
        names: "javascript js jsx typescript ts tsx mjs",
        comments: "//",
        quotes: "\"'`",
        keywords: "async await break case catch class const continue default delete do else export \
                   extends false finally for from function if import in instanceof interface let \
                   new null of return static super switch this throw true try type typeof undefined \
                   var void while yield",
    },
    Family {
        names: "bash sh shell zsh console fish",
        comments: "#",
        quotes: "\"'",
        keywords: "case do done elif else esac export fi for function if in local return then while",
    },
    Family {
        names: "c cpp c++ h hpp java go kotlin swift csharp cs zig php scala",
        comments: "//",
        quotes: "\"'`",
        keywords: "auto bool boolean break case char class const continue default defer do double \
                   else enum false final float for func fun go if import int interface let long map \
                   namespace new nil null package private protected public range return static \
                   string struct switch template this throw true try type using val var void while",
    },
    Family {
        names: "ruby rb perl lua elixir",
        comments: "# --",
        quotes: "\"'",
        keywords: "and begin case class def do else elsif end ensure false for function if in local \
                   module nil not or require rescue return self then true unless until when while \
                   yield",
    },
    Family {
        names: "sql",
        comments: "--",
        quotes: "'\"",
        keywords: "AND AS BY CREATE DELETE DROP FROM GROUP HAVING IN INDEX INSERT INTO IS JOIN LEFT \
                   LIMIT NOT NULL ON OR ORDER PRIMARY KEY SELECT SET TABLE UPDATE VALUES WHERE",
    },
    Family {
        names: "json yaml yml toml ini dockerfile make makefile",
        comments: "#",
        quotes: "\"'",
        keywords: "true false null yes no",
    },
];

/// Highlights a line of code.
pub(crate) fn line(language: &str, code: &str) -> Line {
    let language = language.to_ascii_lowercase();
    let is_named = |family: &&Family| family.names.split(' ').any(|name| name == language);
    match FAMILIES.iter().find(is_named) {
        Some(family) => highlight(family, &language, code),
        None if language == "diff" || language == "patch" => diff_line(code),
        None => Line::plain(code),
    }
}

/// Highlights a line of a diff.
pub(crate) fn diff_line(text: &str) -> Line {
    let style = match text.as_bytes().first() {
        Some(b'+') => GREEN,
        Some(b'-') => RED,
        Some(b'@') => CYAN,
        _ => PLAIN,
    };
    Line::new(text, style)
}

fn highlight(family: &Family, language: &str, code: &str) -> Line {
    let mut line = Line::default();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let (length, style) = token(family, language, rest, first, line.spans.is_empty());
        let (text, after) = rest.split_at(length);
        line.push(text, style);
        rest = after;
    }
    line
}

/// Length in bytes and style of the next token.
fn token(family: &Family, language: &str, rest: &str, first: char, start: bool) -> (usize, Style) {
    // In a shell, `$#` and `a#b` do not start a comment.
    let mut comments = family.comments.split(' ');
    let is_comment = comments.any(|mark| rest.starts_with(mark));
    if is_comment && (start || !matches!(language, "bash" | "sh" | "shell")) {
        return (rest.len(), DIM);
    }
    if family.quotes.contains(first) {
        return (string_len(rest, first), GREEN);
    }
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    if first.is_ascii_digit() {
        let end = rest.find(|it: char| !(is_word(it) || it == '.'));
        return (end.unwrap_or(rest.len()), CYAN);
    }
    if is_word(first) {
        let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
        let word = &rest[..end];
        let is_keyword =
            |known: &str| known == word || language == "sql" && known.eq_ignore_ascii_case(word);
        if family.keywords.split(' ').any(is_keyword) {
            return (end, MAGENTA);
        }
        let is_call = rest[end..].starts_with('(');
        return (end, if is_call { BLUE } else { PLAIN });
    }
    if first == '#' && start {
        return (rest.len(), DIM);
    }
    let end = rest
        .find(|letter: char| {
            is_word(letter) || family.quotes.contains(letter) || "/#-".contains(letter)
        })
        .unwrap_or(rest.len());
    (end.max(first.len_utf8()), PLAIN)
}

/// Length of a quoted string, which may end with the line.
fn string_len(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        if letter == quote && !escaped {
            return at + letter.len_utf8();
        }
        escaped = letter == '\\' && !escaped;
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marked(language: &str, code: &str) -> String {
        let spans = line(language, code).spans;
        let spans = spans.iter().map(|span| match span.style {
            style if style == DIM => format!("/{}/", span.text),
            style if style == GREEN => format!("<{}>", span.text),
            style if style == MAGENTA => format!("*{}*", span.text),
            style if style == CYAN => format!("#{}#", span.text),
            style if style == BLUE => format!("({})", span.text),
            _ => span.text.clone(),
        });
        spans.collect()
    }

    #[test]
    fn tokens_are_highlighted() {
        let table = [
            ("rust", "let x = 41; // so", "*let* x = #41#; /// so/"),
            (
                "python",
                "def f(a): return 'it\\'s'",
                "*def* (f)(a): *return* <'it\\'s'>",
            ),
            ("bash", "echo \"$#\" a#b", "echo <\"$#\"> a#b"),
            ("sh", "# all of it", "/# all of it/"),
            (
                "sql",
                "select 1 from t -- x",
                "*select* #1# *from* t /-- x/",
            ),
            ("json", "{\"a\": true}", "{<\"a\">: *true*}"),
            ("nothing", "let x", "let x"),
            ("js", "`open", "<`open>"),
        ];
        for (language, code, expected) in table {
            assert_eq!(marked(language, code), expected, "{language}");
        }
    }

    proptest! {
        #[test]
        fn highlighting_keeps_the_text(code in "[ -~]{0,60}", which in 0..FAMILIES.len()) {
            prop_assert_eq!(line(FAMILIES[which].names.split(' ').next().unwrap(), &code).text(), code);
        }
    }
}
