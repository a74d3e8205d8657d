//! Refreshes OAuth 2.0 tokens over HTTP (RFC 6749, section 6).

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, StatusCode};
use rye_engine::BoxFuture;
use rye_engine::credential::{OAuth, RefreshError, RefreshedToken, Refresher};
use serde::Deserialize;
use zeroize::Zeroizing;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Refreshes tokens at the token endpoint of the credential.
#[derive(Debug, Clone, Default)]
pub struct HttpRefresher;

/// A successful response.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: Zeroizing<String>,
    expires_in: Option<u64>,
    refresh_token: Option<Zeroizing<String>>,
}

/// An error response.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorResponse {
    error: String,
    error_description: String,
}

impl Refresher for HttpRefresher {
    fn refresh<'a>(
        &'a self,
        oauth: &'a OAuth,
    ) -> BoxFuture<'a, Result<RefreshedToken, RefreshError>> {
        Box::pin(refresh(oauth))
    }
}

async fn refresh(oauth: &OAuth) -> Result<RefreshedToken, RefreshError> {
    let mut form = vec![
        ("grant_type", "refresh_token"),
        ("refresh_token", oauth.refresh_token.as_str()),
        ("client_id", oauth.client_id.as_str()),
    ];
    if let Some(secret) = &oauth.client_secret {
        form.push(("client_secret", secret.as_str()));
    }
    if let Some(scope) = &oauth.scope {
        form.push(("scope", scope));
    }
    let request = client()?
        .post(&oauth.token_url)
        .header("accept", "application/json")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(encode_form(&form));
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let body = Zeroizing::new(response.bytes().await.map_err(unreachable)?.to_vec());
    if status.is_success() {
        // The parser's error could contain the token.
        let token: TokenResponse = serde_json::from_slice(&body).map_err(|_| {
            RefreshError::Unreachable("the response contains no access token".to_owned())
        })?;
        return Ok(RefreshedToken {
            access_token: token.access_token,
            expires_in: token.expires_in.map(Duration::from_secs),
            refresh_token: token.refresh_token,
        });
    }
    let response: ErrorResponse = serde_json::from_slice(&body).unwrap_or_default();
    let message = match (response.error.as_str(), response.error_description.as_str()) {
        ("", _) => format!("the server responded with {status}"),
        (error, "") => error.to_owned(),
        (error, description) => format!("{error}: {description}"),
    };
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Err(RefreshError::Unreachable(message));
    }
    Err(RefreshError::Refused(message))
}

fn client() -> Result<Client, RefreshError> {
    // Fails if it is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Without redirects, so that the token is only sent to the configured address.
    let builder = Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(unreachable)
}

fn unreachable(error: reqwest::Error) -> RefreshError {
    RefreshError::Unreachable(error.without_url().to_string())
}

/// Bytes to encode: all but the unreserved characters.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Encodes a form.
fn encode_form(form: &[(&str, &str)]) -> String {
    let pairs = form
        .iter()
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, ENCODED)));
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
