//! Ids: made here, in the order of time, or the caller's own.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

/// The longest id.
const LONGEST: usize = 256;

/// Why a text is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no id: it is 1 to 256 visible ASCII characters")]
pub struct IdError(String);

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        // Shared: an id stands in many places, and is copied from each to the next.
        pub struct $name(Arc<str>);

        impl $name {
            /// A new one, later than all before it.
            #[expect(clippy::new_without_default, reason = "each is another")]
            pub fn new() -> Self {
                let mut text = Uuid::encode_buffer();
                let text: &str = Uuid::now_v7().hyphenated().encode_lower(&mut text);
                Self(text.into())
            }

            /// Its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                let fits = (1..=LONGEST).contains(&text.len());
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
    /// Of a session.
    SessionId,
    /// Of a thread.
    ThreadId,
    /// Of an entry.
    EntryId,
    /// Of something that waits in a thread's queue.
    QueueItemId,
    /// Of a tool call, as the model named it.
    CallId,
    /// Of a sandbox.
    SandboxId,
    /// Of an order to whoever runs a session.
    OrderId,
}

impl From<SessionId> for QueueItemId {
    /// The one prompt of a session that is for one.
    fn from(session: SessionId) -> Self {
        Self(session.0)
    }
}

/// Of a gate: `gate:{session}:{thread}:{queue item}:{resume key}`. The same key in the same
/// item is the same gate, also after a restart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(from = "String")]
pub struct GateId(Arc<str>);

impl GateId {
    /// The gate that a tool asks for.
    pub fn of(
        session: &SessionId,
        thread: &ThreadId,
        item: &QueueItemId,
        resume_key: &str,
    ) -> Self {
        Self(format!("gate:{session}:{thread}:{item}:{resume_key}").into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
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
    fn new_ids_come_in_the_order_of_time() {
        let ids: Vec<_> = (0..100).map(|_| EntryId::new()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn an_id_that_could_break_a_line_or_a_path_of_a_log_is_refused() {
        for bad in ["", "a b", "a\nb", "é", &"x".repeat(257)] {
            assert!(bad.parse::<SessionId>().is_err(), "{bad:?}");
        }
        assert!("slack:T1:C2:17.5".parse::<ThreadId>().is_ok());
        assert!(serde_json::from_str::<SessionId>("\"a b\"").is_err());
    }
}
