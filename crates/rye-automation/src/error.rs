//! Errors of definitions.

use rye_engine::store::StoreError;

/// Why a definition cannot be stored or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AutomationError {
    /// The cron expression cannot be parsed.
    #[error("invalid cron expression `{expression}`: {reason}")]
    InvalidCron {
        /// The expression.
        expression: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The cron expression never matches.
    #[error("the cron expression `{0}` matches no time")]
    NeverDue(String),
    /// The time zone database does not have this name.
    #[error("unknown time zone `{0}`")]
    UnknownTimeZone(String),
    /// A field of the definition is invalid.
    #[error("invalid {field}: {reason}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Others kept changing it at the same time.
    #[error("{kind} {id} is being changed by others")]
    Busy {
        /// Kind of the object.
        kind: &'static str,
        /// Id of the object.
        id: String,
    },
    /// A secret cannot be generated, encrypted or decrypted.
    #[error("cannot use the secret: {0}")]
    Secret(String),
    /// The HTTP client cannot be set up.
    #[error("cannot set up the HTTP client: {0}")]
    HttpClient(String),
    /// The store refused the operation.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AutomationError {
    /// The object does not exist.
    pub(crate) fn not_found(kind: &'static str, id: &str) -> Self {
        let id = id.to_owned();
        StoreError::NotFound { kind, id }.into()
    }
}
