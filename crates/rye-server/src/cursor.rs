//! Positions in the events of a session.

use std::fmt;

use rye_protocol::Session;

/// A position in the events of a session: after the event with a sequence number.
///
/// The incarnation distinguishes sessions that have used the same id one after the other, because
/// one was deleted, or deleted and imported again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// `None` for any.
    incarnation: Option<String>,
    sequence: u64,
}

impl Cursor {
    /// The position after an event of a session.
    pub(crate) fn new(session: &Session, sequence: u64) -> Self {
        let incarnation = Some(incarnation(session));
        Self {
            incarnation,
            sequence,
        }
    }

    /// Parses a cursor. A number alone is a position in the present incarnation.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (incarnation, number) = match text.rsplit_once('-') {
            Some((incarnation, number))
                if !incarnation.is_empty()
                    && incarnation.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
            {
                (Some(incarnation.to_owned()), number)
            }
            Some(_) => return None,
            None => (None, text),
        };
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Self {
            incarnation,
            sequence: number.parse().ok()?,
        })
    }

    /// The sequence number, if the position exists in a session with this many events.
    pub(crate) fn in_session(&self, session: &Session, last: u64) -> Option<u64> {
        let own = self.incarnation.as_ref();
        let is_same = own.is_none_or(|own| *own == incarnation(session));
        (is_same && self.sequence <= last).then_some(self.sequence)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.incarnation {
            Some(incarnation) => write!(f, "{incarnation}-{}", self.sequence),
            None => write!(f, "{}", self.sequence),
        }
    }
}

/// What distinguishes a session from others with the same id.
fn incarnation(session: &Session) -> String {
    let since = session.imported_at.unwrap_or(session.created_at);
    format!("{:x}", since.0)
}

#[cfg(test)]
mod tests {
    use rye_protocol::{Millis, Purpose, SessionId};

    use super::*;

    #[test]
    fn cursor_is_valid_in_its_incarnation_up_to_the_end() {
        let session = Session::new(SessionId::new(), Purpose::default(), Millis(0xabc));
        let cursor = Cursor::parse("abc-7").unwrap();
        assert_eq!(cursor, Cursor::new(&session, 7));
        assert_eq!(cursor.to_string(), "abc-7");
        assert_eq!(cursor.in_session(&session, 7), Some(7));
        assert_eq!(cursor.in_session(&session, 6), None);
        assert_eq!(Cursor::parse("7").unwrap().in_session(&session, 9), Some(7));
        let imported = Session {
            imported_at: Some(Millis(0xdef)),
            ..session
        };
        assert_eq!(cursor.in_session(&imported, 7), None);
    }

    #[test]
    fn text_that_is_no_cursor_is_refused() {
        for text in [
            "",
            "-",
            "-3",
            "a-",
            "abc",
            "1-x",
            "a--1",
            "1-99999999999999999999",
            "+1",
        ] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
    }
}
