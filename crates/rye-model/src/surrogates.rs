//! Joins surrogate pairs that a server split over two chunks.
//!
//! JSON escapes an emoji as two surrogates, and some servers send them in different
//! chunks. A Rust string cannot contain a lone surrogate, so until the pair is complete
//! each one is encoded as a noncharacter followed by a private-use character.

use std::borrow::Cow;

/// A noncharacter that marks an encoded surrogate.
const MARKER: char = '\u{fdd0}';
/// Private-use code point of the first encoded surrogate.
const PRIVATE_BASE: u32 = 0xe000;
const FIRST_SURROGATE: u32 = 0xd800;
const FIRST_LOW: u32 = 0xdc00;
const LAST_SURROGATE: u32 = 0xdfff;

/// Makes JSON parseable by encoding lone surrogates for [`append`].
pub(crate) fn encode_lone(json: &str) -> Cow<'_, str> {
    if !has_surrogates(json) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        // Any other escape has two characters.
        let two = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
        let taken = match (
            surrogate(rest),
            surrogate(rest.get(6..).unwrap_or_default()),
        ) {
            (None, _) => &rest[..two],
            (Some(high), Some(low)) if high < FIRST_LOW && low >= FIRST_LOW => &rest[..12],
            (Some(surrogate), _) => {
                text.extend([MARKER, encoded(surrogate)]);
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

fn has_surrogates(json: &str) -> bool {
    let mut escapes = memchr::memmem::find_iter(json.as_bytes(), b"\\u");
    escapes.any(|at| {
        json.as_bytes()
            .get(at + 2)
            .is_some_and(|it| matches!(it, b'd' | b'D'))
    })
}

/// The surrogate that an escape sequence at the start of the text denotes, if any.
fn surrogate(json: &str) -> Option<u32> {
    let digits = json.strip_prefix("\\u")?.get(..4)?;
    let code = u32::from_str_radix(digits, 16).ok()?;
    (FIRST_SURROGATE..=LAST_SURROGATE)
        .contains(&code)
        .then_some(code)
}

fn encoded(surrogate: u32) -> char {
    char::from_u32(PRIVATE_BASE + surrogate - FIRST_SURROGATE)
        .unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Splits an encoded surrogate off the end.
fn split_last(text: &str) -> Option<(&str, u32)> {
    let last = text.chars().next_back()?;
    let before = text[..text.len() - last.len_utf8()].strip_suffix(MARKER)?;
    Some((before, decoded(last)?))
}

fn decoded(encoded: char) -> Option<u32> {
    let surrogate = u32::from(encoded).checked_sub(PRIVATE_BASE)? + FIRST_SURROGATE;
    (surrogate <= LAST_SURROGATE).then_some(surrogate)
}

/// Appends to a text and returns what can be displayed now: an open surrogate at the
/// end is held back until its counterpart arrives.
pub(crate) fn append<'m>(text: &mut String, more: &'m str) -> Cow<'m, str> {
    if !text.ends_with(|it| decoded(it).is_some()) && !more.contains(MARKER) {
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
        Some((before, surrogate)) if surrogate < FIRST_LOW => joined.split_off(before.len()),
        _ => String::new(),
    };
    let displayed = resolve(&joined).into_owned();
    text.push_str(&displayed);
    text.push_str(&open);
    Cow::Owned(displayed)
}

/// Takes an open surrogate off the end of a text, if `next` begins with its counterpart. Servers
/// that start a new content block in the middle of a pair send it there.
pub(crate) fn take_open(text: &mut String, next: &str) -> Option<String> {
    let first = next
        .strip_prefix(MARKER)?
        .chars()
        .next()
        .and_then(decoded)?;
    let (before, last) = split_last(text)?;
    let is_pair = last < FIRST_LOW && first >= FIRST_LOW;
    let at = before.len();
    is_pair.then(|| text.split_off(at))
}

/// Joins encoded pairs and replaces lone surrogates by U+FFFD.
pub(crate) fn resolve(text: &str) -> Cow<'_, str> {
    if !text.contains(MARKER) {
        return Cow::Borrowed(text);
    }
    let mut resolved = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(MARKER) {
        resolved.push_str(before);
        let mut letters = after.chars();
        let Some(surrogate) = letters.next().and_then(decoded) else {
            resolved.push(MARKER);
            rest = after;
            continue;
        };
        rest = letters.as_str();
        let mut next = rest.strip_prefix(MARKER).map(str::chars);
        let low = next
            .as_mut()
            .and_then(|it| decoded(it.next()?))
            .filter(|it| *it >= FIRST_LOW);
        let whole = low.filter(|_| surrogate < FIRST_LOW).and_then(|low| {
            char::from_u32(0x1_0000 + ((surrogate - FIRST_SURROGATE) << 10) + (low - FIRST_LOW))
        });
        resolved.push(whole.unwrap_or(char::REPLACEMENT_CHARACTER));
        if let (Some(_), Some(next)) = (whole, next) {
            rest = next.as_str();
        }
    }
    resolved.push_str(rest);
    Cow::Owned(resolved)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The displayed and the final text of a sequence of JSON strings.
    fn decode_all(chunks: &[&str]) -> (String, String) {
        let (mut text, mut displayed) = (String::new(), String::new());
        for chunk in chunks {
            let chunk: String = serde_json::from_str(&encode_lone(chunk)).unwrap();
            displayed += &append(&mut text, &chunk);
        }
        (displayed, resolve(&text).into_owned())
    }

    #[test]
    fn pairs_are_joined_and_lone_surrogates_replaced() {
        for (chunks, displayed, kept) in [
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
                decode_all(chunks),
                (displayed.to_owned(), kept.to_owned()),
                "{chunks:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn result_does_not_depend_on_the_chunking(
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
            let chunks: Vec<_> = cuts.windows(2).map(|cut| escaped(&units[cut[0]..cut[1]])).collect();
            let chunks: Vec<_> = chunks.iter().map(String::as_str).collect();
            prop_assert_eq!(decode_all(&chunks), (text.clone(), text));
        }

        #[test]
        fn arbitrary_input_never_panics(json in "[\\\\ud83ceDC0-9\"é]{0,24}", more in ".{0,8}") {
            let mut text = encode_lone(&json).into_owned();
            append(&mut text, &more);
            resolve(&text);
        }
    }
}
