//! Requests to token endpoints (RFC 6749).

use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum length of an error message of a server, in characters.
const MAX_MESSAGE: usize = 300;

/// The client as registered at the server.
#[derive(Clone, Copy)]
pub(super) struct ClientCredentials<'a> {
    pub(super) id: &'a str,
    pub(super) secret: Option<&'a str>,
    /// The credentials are in the header `Authorization`.
    pub(super) is_basic: bool,
}

/// An issued token.
#[derive(Deserialize)]
pub(super) struct TokenResponse {
    pub(super) access_token: Zeroizing<String>,
    pub(super) expires_in: Option<u64>,
    pub(super) refresh_token: Option<Zeroizing<String>>,
}

/// Why a server issued nothing. Messages contain no secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenError {
    /// The server refused, with a code such as `invalid_grant`; the code is empty if it gave none.
    Refused { code: String, message: String },
    /// The server did not answer as expected; a retry may succeed.
    Unreachable(String),
}

impl TokenError {
    pub(super) fn message(self) -> String {
        match self {
            Self::Refused { message, .. } | Self::Unreachable(message) => message,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorResponse {
    error: String,
    error_description: String,
}

/// Sends a form and parses the response. The name of what it must contain is for errors.
pub(super) async fn post<T: DeserializeOwned>(
    url: &str,
    credentials: ClientCredentials<'_>,
    mut form: Vec<(&str, &str)>,
    what: &str,
) -> Result<T, TokenError> {
    let mut request = client()?.post(url).header("accept", "application/json");
    match credentials.secret {
        Some(secret) if credentials.is_basic => {
            let [id, secret] = [credentials.id, secret].map(encode);
            let pair = Zeroizing::new(format!("{id}:{secret}"));
            let pair = Base64::encode_string(pair.as_bytes());
            request = request.header("authorization", format!("Basic {pair}"));
        }
        secret => {
            form.push(("client_id", credentials.id));
            form.extend(secret.map(|secret| ("client_secret", secret)));
        }
    }
    let request = request
        .header("content-type", "application/x-www-form-urlencoded")
        .body(encode_form(&form));
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let body = Zeroizing::new(response.bytes().await.map_err(unreachable)?.to_vec());
    // Some servers report errors with status 200.
    let error: ErrorResponse = serde_json::from_slice(&body).unwrap_or_default();
    if status.is_success() && error.error.is_empty() {
        // The parser's error could contain the token.
        return serde_json::from_slice(&body)
            .map_err(|_| TokenError::Unreachable(format!("the response contains no {what}")));
    }
    let message = match (error.error.as_str(), error.error_description.as_str()) {
        ("", _) => format!("the server responded with {status}"),
        (error, "") => error.to_owned(),
        (error, description) => format!("{error}: {description}"),
    };
    let message = message.chars().take(MAX_MESSAGE).collect();
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Err(TokenError::Unreachable(message));
    }
    Err(TokenError::Refused {
        code: error.error,
        message,
    })
}

fn client() -> Result<Client, TokenError> {
    // Fails if it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Without redirects, so that the token is only sent to the configured address.
    let builder = Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(unreachable)
}

fn unreachable(error: reqwest::Error) -> TokenError {
    TokenError::Unreachable(error.without_url().to_string())
}

/// Bytes to encode: all but the unreserved characters.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Encodes a form.
fn encode_form(form: &[(&str, &str)]) -> String {
    let pairs = form
        .iter()
        .map(|(name, value)| format!("{name}={}", encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_percent_encoded() {
        let form = [("a", "x y"), ("b", "1&2=3+4/ä")];
        assert_eq!(encode_form(&form), "a=x%20y&b=1%262%3D3%2B4%2F%C3%A4");
    }
}
