//! Reserved request headers and authorization challenges.

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderName, StatusCode};
use rmcp::transport::common::http_header::{HEADER_LAST_EVENT_ID, HEADER_SESSION_ID};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, StreamableHttpError,
};

use super::Error;

/// Rejects a configured header that only the transport may set.
pub(super) fn reject_reserved_header(name: &HeaderName) -> Result<(), Error> {
    let reserved = ["accept", HEADER_SESSION_ID, HEADER_LAST_EVENT_ID];
    let is_reserved = |other: &str| name.as_str().eq_ignore_ascii_case(other);
    if reserved.into_iter().any(is_reserved) {
        let name = name.to_string();
        return Err(StreamableHttpError::ReservedHeaderConflict(name));
    }
    Ok(())
}

/// Converts a 401 or 403 response with a challenge to the SDK's errors.
pub(super) fn check_authorization(status: StatusCode, headers: &HeaderMap) -> Result<(), Error> {
    let Some(challenge) = headers.get(WWW_AUTHENTICATE) else {
        return Ok(());
    };
    let challenge = String::from_utf8_lossy(challenge.as_bytes()).into_owned();
    match status {
        StatusCode::UNAUTHORIZED => Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(
            challenge,
        ))),
        StatusCode::FORBIDDEN => {
            let scope = scope(&challenge);
            let error = InsufficientScopeError::new(challenge, scope);
            Err(StreamableHttpError::InsufficientScope(error))
        }
        _ => Ok(()),
    }
}

/// The `scope` of a challenge, quoted or not.
fn scope(challenge: &str) -> Option<String> {
    let at = challenge.to_ascii_lowercase().find("scope=")?;
    let value = &challenge[at + "scope=".len()..];
    let value = match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => value.split([',', ';', ' ']).next(),
    };
    value.filter(|value| !value.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_scope_is_parsed_quoted_or_not() {
        let cases = [
            (
                r#"Bearer error="insufficient_scope", scope="a b""#,
                Some("a b"),
            ),
            ("Bearer SCOPE=read:data, error=x", Some("read:data")),
            ("Bearer realm=x", None),
            ("Bearer scope=", None),
        ];
        for (challenge, expected) in cases {
            assert_eq!(scope(challenge).as_deref(), expected, "{challenge}");
        }
    }
}
