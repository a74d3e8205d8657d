//! Identifiers: version 7 UUIDs, or chosen by the caller; their short forms for people.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Maximum length of an id.
const MAX_LEN: usize = 256;

/// Length of the short form of an id.
const SHORT: usize = 8;

/// The short form of an id, for people: its last 8 characters. The beginning of a generated
/// id is a timestamp, so ids that are created together differ only at the end.
pub fn short_id(id: &str) -> &str {
    let start = id.len().saturating_sub(SHORT);
    id.get(start..).unwrap_or(id)
}

/// Whether a user who types `part` may mean this id: it is a prefix or a suffix of it. An
/// empty part matches nothing.
pub fn matches_id(id: &str, part: &str) -> bool {
    !part.is_empty() && (id.starts_with(part) || id.ends_with(part))
}

/// The text is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid id `{0}`: must be 1 to 256 visible ASCII characters")]
pub struct IdError(String);

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        // Reference-counted, because ids are copied often.
        pub struct $name(Arc<str>);

        impl $name {
            /// Generates an id that sorts after all ids generated before.
            #[expect(clippy::new_without_default, reason = "each call returns a different value")]
            pub fn new() -> Self {
                let mut text = Uuid::encode_buffer();
                let text: &str = Uuid::now_v7().hyphenated().encode_lower(&mut text);
                Self(text.into())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The short form for people, see [`short_id`].
            pub fn short(&self) -> &str {
                short_id(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                let fits = (1..=MAX_LEN).contains(&text.len());
                if fits && text.bytes().all(|byte| byte.is_ascii_graphic()) {
                    Ok(Self(text.into()))
                } else {
                    Err(IdError(text.chars().take(40).collect()))
                }
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                text.to_owned().try_into()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().into()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": "^[!-~]{1,256}$" })
            }
        }
    )*};
}

ids! {
    /// Id of a session.
    SessionId,
    /// Id of a thread.
    ThreadId,
    /// Id of an entry.
    EntryId,
    /// Id of a prompt.
    PromptId,
    /// Id of a tool call, as chosen by the model.
    CallId,
    /// Id of a sandbox.
    SandboxId,
    /// Id of a command to the host of a session.
    CommandId,
    /// Id of a schedule.
    ScheduleId,
    /// Id of a webhook.
    WebhookId,
    /// Id of an event that is sent to a webhook.
    DeliveryId,
    /// Id of a hook.
    HookId,
}

impl From<SessionId> for PromptId {
    /// The prompt id of a session that has a single prompt.
    fn from(session: SessionId) -> Self {
        Self(session.0)
    }
}

/// Id of a gate: `gate:{session}:{thread}:{prompt}:{resume key}`. Derived, so the
/// same key in the same prompt is the same gate after a restart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(from = "String")]
pub struct GateId(Arc<str>);

impl GateId {
    /// The id of the gate that a tool opens under a resume key.
    pub fn new(
        session: &SessionId,
        thread: &ThreadId,
        prompt: &PromptId,
        resume_key: &str,
    ) -> Self {
        Self(format!("gate:{session}:{thread}:{prompt}:{resume_key}").into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The short form for people: 8 hexadecimal characters of a hash of the id. The end of
    /// the id itself is a resume key, which many gates share.
    pub fn short(&self) -> String {
        let hash = Sha256::digest(self.0.as_bytes());
        let bytes = hash.iter().take(SHORT / 2);
        bytes.fold(String::new(), |mut short, byte| {
            let _ = write!(short, "{byte:02x}");
            short
        })
    }
}

impl From<String> for GateId {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Serialize for GateId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for GateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for GateId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GateId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_are_sorted_by_time() {
        let ids: Vec<_> = (0..100).map(|_| EntryId::new()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn short_ids_are_the_last_eight_characters() {
        assert_eq!(short_id("01a1b2c3-0000-7000-8000-0123456789ab"), "456789ab");
        assert_eq!(short_id("job-1"), "job-1");
    }

    #[test]
    fn prefixes_and_suffixes_match_an_id() {
        assert!(matches_id("20260715-101500-3f9a", "2026"));
        assert!(matches_id("20260715-101500-3f9a", "500-3f9a"));
        assert!(!matches_id("20260715-101500-3f9a", "1015"));
        assert!(!matches_id("20260715-101500-3f9a", ""));
    }

    #[test]
    fn gates_of_one_prompt_have_different_short_ids() {
        let (session, thread, item) = (SessionId::new(), ThreadId::new(), PromptId::new());
        let gate = |key: &str| GateId::new(&session, &thread, &item, key).short();
        assert_eq!(gate("call-1").len(), SHORT);
        assert_ne!(gate("call-1"), gate("call-2"));
    }

    #[test]
    fn ids_with_spaces_control_or_non_ascii_characters_are_rejected() {
        for bad in ["", "a b", "a\nb", "é", &"x".repeat(257)] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad:?}");
        }
        assert!("slack:T1:C2:17.5".parse::<ThreadId>().is_ok());
        assert!(serde_json::from_str::<SessionId>("\"a b\"").is_err());
    }
}
