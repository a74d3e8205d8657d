//! A character that is cut in two.
//!
//! JSON writes an emoji as two escapes, and some servers send one with a piece of an answer
//! and the other with the next. Neither is a character, so no text can hold it: until they
//! are together each half is kept as two characters that no text has.

use std::borrow::Cow;

/// No character, and never will be one: what follows is a half.
const HALF: char = '\u{fdd0}';
/// Where halves are kept, from the first to the last.
const KEPT: u32 = 0xe000;
const FIRST: u32 = 0xd800;
const LOW: u32 = 0xdc00;
const LAST: u32 = 0xdfff;

/// A JSON text that can be read: halves that stand alone are kept for [`add`].
pub(crate) fn readable(json: &str) -> Cow<'_, str> {
    if !has_halves(json) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        // Whatever else is escaped is two letters.
        let two = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
        let taken = match (half(rest), half(rest.get(6..).unwrap_or_default())) {
            (None, _) => &rest[..two],
            (Some(high), Some(low)) if high < LOW && low >= LOW => &rest[..12],
            (Some(half), _) => {
                text.extend([HALF, kept(half)]);
                rest = &rest[6..];
                continue;
            }
        };
        text.push_str(taken);
        rest = &rest[taken.len()..];
    }
    text.push_str(rest);
    Cow::Owned(text)
}

fn has_halves(json: &str) -> bool {
    let mut escapes = memchr::memmem::find_iter(json.as_bytes(), b"\\u");
    escapes.any(|at| {
        json.as_bytes()
            .get(at + 2)
            .is_some_and(|it| matches!(it, b'd' | b'D'))
    })
}

/// The half that a text begins with, if it is one.
fn half(json: &str) -> Option<u32> {
    let digits = json.strip_prefix("\\u")?.get(..4)?;
    let code = u32::from_str_radix(digits, 16).ok()?;
    (FIRST..=LAST).contains(&code).then_some(code)
}

fn kept(half: u32) -> char {
    char::from_u32(KEPT + half - FIRST).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The half that a text ends with, and what is before it.
fn split_last(text: &str) -> Option<(&str, u32)> {
    let last = text.chars().next_back()?;
    let before = text[..text.len() - last.len_utf8()].strip_suffix(HALF)?;
    Some((before, of(last)?))
}

fn of(kept: char) -> Option<u32> {
    let half = u32::from(kept).checked_sub(KEPT)? + FIRST;
    (half <= LAST).then_some(half)
}

/// Adds more to a text, and gives what can be told of it now: a half at its end is kept
/// there until the other comes.
pub(crate) fn add<'m>(text: &mut String, more: &'m str) -> Cow<'m, str> {
    if !text.ends_with(|it| of(it).is_some()) && !more.contains(HALF) {
        text.push_str(more);
        return Cow::Borrowed(more);
    }
    let mut joined = String::new();
    if let Some((before, _)) = split_last(text) {
        let kept = text.split_off(before.len());
        joined.push_str(&kept);
    }
    joined.push_str(more);
    let open = match split_last(&joined) {
        Some((before, half)) if half < LOW => joined.split_off(before.len()),
        _ => String::new(),
    };
    let told = settled(&joined).into_owned();
    text.push_str(&told);
    text.push_str(&open);
    Cow::Owned(told)
}

/// A text whose halves are together; one that stands alone is a sign that something is missing.
pub(crate) fn settled(text: &str) -> Cow<'_, str> {
    if !text.contains(HALF) {
        return Cow::Borrowed(text);
    }
    let mut settled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(HALF) {
        settled.push_str(before);
        let mut letters = after.chars();
        let Some(half) = letters.next().and_then(of) else {
            settled.push(HALF);
            rest = after;
            continue;
        };
        rest = letters.as_str();
        let mut next = rest.strip_prefix(HALF).map(str::chars);
        let low = next
            .as_mut()
            .and_then(|it| of(it.next()?))
            .filter(|it| *it >= LOW);
        let whole = low
            .filter(|_| half < LOW)
            .and_then(|low| char::from_u32(0x1_0000 + ((half - FIRST) << 10) + (low - LOW)));
        settled.push(whole.unwrap_or(char::REPLACEMENT_CHARACTER));
        if let (Some(_), Some(next)) = (whole, next) {
            rest = next.as_str();
        }
    }
    settled.push_str(rest);
    Cow::Owned(settled)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is told and kept of JSON strings that come one after another.
    fn heard(pieces: &[&str]) -> (String, String) {
        let (mut text, mut told) = (String::new(), String::new());
        for piece in pieces {
            let piece: String = serde_json::from_str(&readable(piece)).unwrap();
            told += &add(&mut text, &piece);
        }
        (told, settled(&text).into_owned())
    }

    #[test]
    fn halves_are_joined_and_one_alone_is_replaced() {
        for (pieces, told, kept) in [
            (
                &[r#""hi \ud83d""#, r#""\ude00 end""#][..],
                "hi 😀 end",
                "hi 😀 end",
            ),
            (&[r#""\uD83D\uDE00""#], "😀", "😀"),
            (&[r#""a\ud83d""#, r#""""#, r#""\ude00""#], "a😀", "a😀"),
            (&[r#""a\ud83d""#], "a", "a\u{fffd}"),
            (&[r#""a\ud83d""#, r#""b""#], "a\u{fffd}b", "a\u{fffd}b"),
            (&[r#""\ude00b""#], "\u{fffd}b", "\u{fffd}b"),
            (
                &[r#""\ud83d\ud83d""#, r#""\ude00""#],
                "\u{fffd}😀",
                "\u{fffd}😀",
            ),
            (
                &[r#""\\ud83d \"\u00e4\\\\ude00""#],
                r#"\ud83d "ä\\ude00"#,
                r#"\ud83d "ä\\ude00"#,
            ),
            (
                &["\"\u{e000} \u{fdd0}\""],
                "\u{e000} \u{fdd0}",
                "\u{e000} \u{fdd0}",
            ),
        ] {
            assert_eq!(
                heard(pieces),
                (told.to_owned(), kept.to_owned()),
                "{pieces:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn wherever_a_text_is_cut_it_is_the_same(
            text in "[a\\\\\"é😀🎉]{0,12}", cuts in prop::collection::vec(0..30usize, 0..6)
        ) {
            let units: Vec<_> = text.encode_utf16().collect();
            let mut cuts: Vec<_> = cuts.into_iter().map(|at| at.min(units.len())).collect();
            cuts.extend([0, units.len()]);
            cuts.sort_unstable();
            let escaped = |units: &[u16]| {
                let units = units.iter().map(|unit| format!("\\u{unit:04x}"));
                format!("\"{}\"", units.collect::<String>())
            };
            let pieces: Vec<_> = cuts.windows(2).map(|cut| escaped(&units[cut[0]..cut[1]])).collect();
            let pieces: Vec<_> = pieces.iter().map(String::as_str).collect();
            prop_assert_eq!(heard(&pieces), (text.clone(), text));
        }

        #[test]
        fn whatever_comes_nothing_breaks(json in "[\\\\ud83ceDC0-9\"é]{0,24}", more in ".{0,8}") {
            let mut text = readable(&json).into_owned();
            add(&mut text, &more);
            settled(&text);
        }
    }
}
