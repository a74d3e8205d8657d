//! Things as JSON text, and back.

use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rye_engine::store::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What nests deeper is not written, since reading it takes stack for every level. Parsers
/// of JSON stop at half of it, so only a program can make such a thing.
const DEEPEST: usize = 256;

/// Things as text, for the database.
#[derive(Debug, Default)]
pub(super) struct Text(pub(super) Vec<u8>);

impl ToSql for Text {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(&self.0)))
    }
}

impl Text {
    /// An empty one.
    pub(super) fn new() -> Self {
        // Room for most: a text that grows is copied time and again.
        Self(Vec::with_capacity(1000))
    }

    /// Writes a thing at its end.
    pub(super) fn append(&mut self, thing: &impl Serialize) -> Result<(), StoreError> {
        let Self(text) = self;
        let before = text.len();
        serde_json::to_writer(&mut *text, thing)
            .map_err(|error| StoreError::Unreadable(format!("it has no JSON form: {error}")))?;
        let written = text.get(before..).unwrap_or_default();
        // Most have fewer brackets than may be nested, and to count them is quick.
        if brackets(written) > DEEPEST && depth(written) > DEEPEST {
            let message = format!("it nests deeper than {DEEPEST} levels; nothing was written");
            return Err(StoreError::Unreadable(message));
        }
        Ok(())
    }
}

/// The text of a thing.
pub(super) fn write(thing: &impl Serialize) -> Result<Text, StoreError> {
    let mut text = Text::new();
    text.append(thing)?;
    Ok(text)
}

/// The thing of a text.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    let mut parser = serde_json::Deserializer::from_str(text);
    // What a parser let through elsewhere lies deeper in here; `write` has set the limit.
    parser.disable_recursion_limit();
    T::deserialize(&mut parser).map_err(|error| {
        let start: String = text.chars().take(120).collect();
        StoreError::Unreadable(format!("{error}, in {start}"))
    })
}

/// How many brackets open, within texts too. Counted in bytes, many of which are added at once.
fn brackets(json: &[u8]) -> usize {
    let opens = |byte: &u8| u8::from(byte | 0x20 == b'{');
    let parts = json.chunks(usize::from(u8::MAX));
    parts
        .map(|part| usize::from(part.iter().map(opens).sum::<u8>()))
        .sum()
}

fn depth(json: &[u8]) -> usize {
    let (mut level, mut deepest) = (0usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                level += 1;
                deepest = deepest.max(level);
            }
            b'}' | b']' if !quoted => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn brackets_within_texts_do_not_nest() {
        assert_eq!(depth(br#"{"a":["[[[[","\"[["]}"#), 2);
        assert_eq!(depth(b"7"), 0);
        assert_eq!(depth(b"[[],[[]]]"), 3);
    }

    #[test]
    fn all_brackets_that_open_are_counted() {
        assert_eq!(brackets(br#"{"a":["[[[[","\"[["],"{":"}"}"#), 9);
        assert_eq!(brackets("[[]}{;Z{|".repeat(300).as_bytes()), 4 * 300);
        assert_eq!(brackets(&[b'['; 1_000]), 1_000);
    }

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let Text(fits) = write(&nested(DEEPEST)).unwrap();
        let fits = String::from_utf8(fits).unwrap();
        assert_eq!(read::<serde_json::Value>(&fits).unwrap(), nested(DEEPEST));
        assert!(write(&nested(DEEPEST + 1)).is_err());
    }
}
