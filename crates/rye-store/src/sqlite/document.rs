//! Things as JSON text, and back.

use std::fmt;

use rye_engine::store::StoreError;
use rye_protocol::{Event, EventKind, Millis, SessionId, ThreadId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What nests deeper is not written, since reading it takes stack for every level. Parsers
/// of JSON stop at half of it, so only a program can make such a thing.
const DEEPEST: usize = 256;

/// The text of a thing.
pub(super) fn write<T: Serialize>(thing: &T) -> Result<String, StoreError> {
    // Room for most: a text that grows is copied time and again.
    let mut text = Vec::with_capacity(1000);
    append(&mut text, thing)?;
    finish(text)
}

/// Writes the text of a thing behind others.
pub(super) fn append<T: Serialize>(text: &mut Vec<u8>, thing: &T) -> Result<(), StoreError> {
    let before = text.len();
    serde_json::to_writer(&mut *text, thing).map_err(|error| no_form(&error))?;
    let written = text.get(before..).unwrap_or_default();
    // Most have fewer brackets than may be nested, and to count them is quick.
    if brackets(written) > DEEPEST && depth(written) > DEEPEST {
        let message = format!("it nests deeper than {DEEPEST} levels; nothing was written");
        return Err(StoreError::Unreadable(message));
    }
    Ok(())
}

/// What was written, as a text.
pub(super) fn finish(text: Vec<u8>) -> Result<String, StoreError> {
    String::from_utf8(text).map_err(|error| no_form(&error))
}

fn no_form(why: &dyn fmt::Display) -> StoreError {
    StoreError::Unreadable(format!("it has no JSON form: {why}"))
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

/// An event as it is stored: without what its row says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Told {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) thread: Option<ThreadId>,
    pub(super) at: Millis,
    pub(super) kind: EventKind,
}

impl Told {
    pub(super) fn event(self, session: &SessionId, sequence: u64) -> Event {
        Event {
            sequence: Some(sequence),
            session: session.clone(),
            thread: self.thread,
            at: self.at,
            kind: self.kind,
        }
    }
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
        let fits = write(&nested(DEEPEST)).unwrap();
        assert_eq!(read::<serde_json::Value>(&fits).unwrap(), nested(DEEPEST));
        assert!(write(&nested(DEEPEST + 1)).is_err());
    }
}
