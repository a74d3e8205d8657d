//! Tests of text replacement.

use proptest::prelude::*;

use super::apply::{Change, apply};
use super::document::Document;

fn change(old: &str, new: &str, all: bool) -> Change {
    let (old, new) = (old.to_owned(), new.to_owned());
    Change { old, new, all }
}

fn edit(text: &str, changes: &[Change]) -> Result<String, String> {
    let document = Document::parse(text.as_bytes()).unwrap();
    let (edited, _) = apply(&document, changes)?;
    Ok(String::from_utf8(edited.bytes()).unwrap())
}

#[test]
fn unique_text_is_replaced() {
    for (text, old, new, all, edited) in [
        ("a b c", "b", "x", false, "a x c"),
        ("a\nb\nc\n", "b\n", "", false, "a\nc\n"),
        ("a a a", "a", "b", true, "b b b"),
        ("xxx", "xx", "y", true, "yx"),
        // Line endings and the byte order mark are preserved.
        (
            "\u{feff}a\r\nb\r\n",
            "a\nb",
            "x\ny\nz",
            false,
            "\u{feff}x\r\ny\r\nz\r\n",
        ),
        ("a\r\nb\r\n", "a\r\nb", "x\r\ny", false, "x\r\ny\r\n"),
        ("a\nb\n", "a\r\nb", "x\r\ny", false, "x\ny\n"),
        ("a\nb\r\nc\r\n", "b\nc", "x\ny", false, "a\nx\r\ny\r\n"),
        ("a\nb\r\nc\n", "a\n", "x\n", false, "x\nb\r\nc\n"),
    ] {
        let outcome = edit(text, &[change(old, new, all)]);
        assert_eq!(outcome.as_deref(), Ok(edited), "{text:?} {old:?}");
    }
    let both = [change("a", "b", false), change("b", "c", false)];
    assert_eq!(edit("a", &both).as_deref(), Ok("c"), "one after the other");
}

#[test]
fn error_explains_how_to_correct_the_edit() {
    let code = "fn one() {\n\tlet x = 1;\n}\n\nfn two() {\n    let y = 2;\n    let z = 3;\n}\n";
    for (text, old, new, expected) in [
        (
            "a",
            "",
            "b",
            "`old` is empty: give the text to replace, or use `write`",
        ),
        ("a", "a", "a", "`old` and `new` are the same"),
        (
            "",
            "a",
            "b",
            "`old` is not in the file, which is empty: use `write`",
        ),
        (
            "a\na\nb a",
            "a",
            "b",
            "`old` occurs 3 times, in lines 1, 2, 3: add",
        ),
        ("aaa", "aa", "b", "`old` occurs 2 times, in line 1: add"),
        (
            code,
            "2\tlet x = 1;",
            "x",
            "`old` is not in the file with the line numbers of",
        ),
        (
            code,
            "fn one() {\n    let x = 1;",
            "x",
            "`old` is not in the file; it matches except for whitespace: the file is indented \
             with tabs, `old` with spaces\n1\tfn one() {\n2\t\tlet x = 1;",
        ),
        (
            code,
            "  let y = 2;\n  let z = 3;",
            "x",
            "`old` is not in the file; it matches except for whitespace: the file is indented \
             by more or less than `old`\n6\t    let y = 2;\n7\t    let z = 3;",
        ),
        (
            "let a = 1;  \nlet b;\n",
            "let a = 1;\nlet b;",
            "x",
            "`old` is not in the file; it matches except for whitespace: there is whitespace \
             at the end of a line\n1\tlet a = 1;  \n2\tlet b;",
        ),
        (
            code,
            "fn one() {\\n",
            "x",
            "`old` is not in the file: it is over-escaped (unescaped, it matches at line 1)",
        ),
        (
            code,
            "let w = 9;",
            "let y = 2;",
            "`old` is not in the file; `new` is at line 6: was the edit already made?",
        ),
        (
            code,
            "fn two() {\n    let y = 5;\n    let z = 3;\n",
            "x",
            "`old` is not in the file; the closest match is line 5 (- is the file, + is `old`):\n  \
             5\tfn two() {\n- 6\t    let y = 2;\n+ \t    let y = 5;\n  7\t    let z = 3;",
        ),
        (
            code,
            "let zz = 3;",
            "x",
            "`old` is not in the file; the closest match is line 7 (- is the file, + is `old`):\n- \
             7\t    let z = 3;\n+ \tlet zz = 3;",
        ),
        (
            code,
            "SELECT * FROM",
            "x",
            "`old` is not in the file, nor anything similar: `read`",
        ),
    ] {
        let error = edit(text, &[change(old, new, false)]).unwrap_err();
        assert!(error.starts_with(expected), "{old:?}:\n{error}");
    }
    let several = [change("one", "1", false), change("three", "3", false)];
    let error = edit(code, &several).unwrap_err();
    assert!(
        error.starts_with("edit 2 of 2: `old` is not in the file"),
        "{error}"
    );
    assert!(error.ends_with("No edit was applied."), "{error}");
}

/// Lines of text with a unique mark.
fn marked_text() -> impl Strategy<Value = (String, String, bool)> {
    let lines = || prop::collection::vec("[a-c \tü]{0,6}", 0..6);
    let ending = prop::sample::select(vec!["\n", "\r\n"]);
    (lines(), lines(), ending, any::<bool>()).prop_map(|(before, after, ending, bom)| {
        let bom = if bom { "\u{feff}" } else { "" };
        let text = [before.join(ending), "<MARK>".to_owned(), after.join(ending)];
        (
            format!("{bom}{}", text.join(ending)),
            ending.to_owned(),
            true,
        )
    })
}

proptest! {
    #[test]
    fn reverting_an_edit_restores_every_byte(
        (text, ..) in marked_text(),
        new in "<[x-z\n]{1,8}>",
    ) {
        let changed = edit(&text, &[change("<MARK>", &new, false)]).unwrap();
        prop_assert!(changed.matches("\r\n").count() == 0 || changed.matches('\n').count() == changed.matches("\r\n").count());
        let back = edit(&changed, &[change(&new, "<MARK>", false)]).unwrap();
        prop_assert_eq!(back, text);
    }

    #[test]
    fn several_edits_are_all_or_nothing(
        text in "[abc\n]{0,30}",
        changes in prop::collection::vec(("[abc]{1,2}", "[abcd]{0,2}", any::<bool>()), 1..5),
    ) {
        let changes: Vec<_> = changes.iter().map(|(old, new, all)| change(old, new, *all)).collect();
        let mut step_by_step = Ok(text.clone());
        for one in &changes {
            step_by_step = step_by_step.and_then(|text| edit(&text, std::slice::from_ref(one)));
        }
        match (edit(&text, &changes), step_by_step) {
            (Ok(at_once), Ok(in_steps)) => prop_assert_eq!(at_once, in_steps),
            (at_once, in_steps) => prop_assert!(at_once.is_err() && in_steps.is_err()),
        }
    }
}
