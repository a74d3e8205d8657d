//! Failures as errors of the protocol.

use agent_client_protocol::v1::schema;
use agent_client_protocol::{Error, ErrorCode};
use rye_engine::protocol::{ErrorCode as EngineErrorCode, ErrorInfo};
use rye_engine::store::StoreError;
use rye_host::{Failure, FailureKind};
use serde_json::json;

/// An error for the editor: what a command would print, with its code and hint as data.
pub(crate) fn error(failure: impl Into<Failure>) -> Error {
    let failure = failure.into();
    let code = match failure.kind {
        FailureKind::Usage => ErrorCode::INVALID_PARAMS,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    let message = match &failure.hint {
        Some(hint) => format!("{}; {hint}", failure.message),
        None => failure.message.clone(),
    };
    Error::new(code, message).data(failure.json())
}

/// An error of the store or a session.
pub(crate) fn store_error(failure: StoreError) -> Error {
    error(failure)
}

/// A request with invalid parameters.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_PARAMS, message.into())
}

/// There is no session with this id.
pub(crate) fn unknown_session(id: &schema::SessionId) -> Error {
    let message = format!("there is no session {id}");
    Error::new(ErrorCode::RESOURCE_NOT_FOUND, message).data(json!({ "sessionId": id }))
}

/// Why a turn failed.
pub(crate) fn turn_error(failure: &ErrorInfo) -> Error {
    let code = match failure.code {
        EngineErrorCode::AuthRequired => ErrorCode::AUTH_REQUIRED,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    Error::new(code, failure.message.clone()).data(json!({ "code": failure.code }))
}
