//! Conversions from errors of the engine and host to [`Failure`].

use rye_engine::DecideError;
use rye_engine::store::StoreError;
use rye_host::{CallGateError, CompactionError, HostError, MetaToolsError, PolicyError};
use rye_items::Space;

use crate::cli::failure::{Exit, Failure};

/// Hint for a state directory that cannot be written.
pub(crate) const UNWRITABLE_STATE: &str = "export RYE_STATE_DIR=/path/to/writable/directory";

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::NotFound { .. } => Self::failed("not_found", error),
            StoreError::InUse { .. } => {
                Self::new(Exit::Permission, "in_use", error).hint("rye gate list")
            }
            StoreError::Fenced(_) => Self::failed("fenced", error),
            StoreError::Conflict { .. } => Self::failed("conflict", error),
            StoreError::Archived(_) => Self::failed("archived", error),
            StoreError::GateClosed(_) => Self::failed("gate_closed", error),
            StoreError::SingleCall(_) => Self::usage(error),
            StoreError::Unavailable(_) => Self::failed("store", error).hint(UNWRITABLE_STATE),
            StoreError::SessionFailed { session, .. } => {
                let hint = format!("rye session resume {}", session.short());
                Self::failed("session_failed", error).hint(hint)
            }
            _ => Self::failed("unreadable", error),
        }
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::Space(error) => error.into(),
            PolicyError::Config {
                ref path, space, ..
            } => {
                let path = lillux::shell_word(path);
                let next = match space {
                    Space::User => "rye doctor".to_owned(),
                    _ => format!("rye sign {path}"),
                };
                let hint = format!("${{EDITOR:-vi}} {path} && {next}");
                Self::failed("approvals", error).hint(hint)
            }
            other => Self::failed("approvals", other),
        }
    }
}

impl From<CompactionError> for Failure {
    fn from(error: CompactionError) -> Self {
        match error {
            CompactionError::Space(error) => error.into(),
            other => Self::new(Exit::Usage, "bad_config", other),
        }
    }
}

impl From<MetaToolsError> for Failure {
    fn from(error: MetaToolsError) -> Self {
        match error {
            MetaToolsError::Space(error) => error.into(),
            MetaToolsError::Policy(error) => error.into(),
            MetaToolsError::Id(error) => error.into(),
            other => Self::failed("bridge", other),
        }
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Store(error) => error.into(),
            other => Self::failed("host", other),
        }
    }
}

impl From<CallGateError> for Failure {
    fn from(error: CallGateError) -> Self {
        match error {
            CallGateError::Store(error) => error.into(),
            CallGateError::TooMany => Self::failed("too_many_gates", error).hint("rye gate list"),
            other => Self::failed("call_gates", other),
        }
    }
}

impl From<DecideError> for Failure {
    fn from(error: DecideError) -> Self {
        match error {
            DecideError::Store(error) => error.into(),
            DecideError::InvalidAmount(ref gate) => {
                let hint = format!("rye gate approve {}", gate.short());
                Self::usage(error).hint(hint)
            }
            DecideError::GateNotFound(_) => Self::failed("not_found", error).hint("rye gate list"),
            other => Self::usage(other),
        }
    }
}
