//! Tokens, renewed over HTTP: OAuth 2.0, RFC 6749 section 6.

use std::time::Duration;

use reqwest::{Client, StatusCode};
use rye_engine::BoxFuture;
use rye_engine::credential::{OAuth, RefreshError, RefreshedToken, Refresher};
use serde::Deserialize;
use zeroize::Zeroizing;

/// How long a server may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Renews tokens at the address that their credential names.
#[derive(Debug, Clone, Default)]
pub struct HttpRefresher;

/// What a server answers.
#[derive(Deserialize)]
struct Answer {
    access_token: Zeroizing<String>,
    expires_in: Option<u64>,
    refresh_token: Option<Zeroizing<String>>,
}

/// And where it does not.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
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
        .body(encoded(&form));
    let answer = request.send().await.map_err(unreachable)?;
    let status = answer.status();
    let body = Zeroizing::new(answer.bytes().await.map_err(unreachable)?.to_vec());
    if status.is_success() {
        // What a parser says of it would show it.
        let answer: Answer = serde_json::from_slice(&body).map_err(|_| {
            RefreshError::Unreachable("the server gave something else than a token".to_owned())
        })?;
        return Ok(RefreshedToken {
            access_token: answer.access_token,
            expires_in: answer.expires_in.map(Duration::from_secs),
            refresh_token: answer.refresh_token,
        });
    }
    let said: Refusal = serde_json::from_slice(&body).unwrap_or_default();
    let words = match (said.error.as_str(), said.error_description.as_str()) {
        ("", _) => format!("the server said {status}"),
        (error, "") => error.to_owned(),
        (error, more) => format!("{error}: {more}"),
    };
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Err(RefreshError::Unreachable(words));
    }
    Err(RefreshError::Refused(words))
}

fn client() -> Result<Client, RefreshError> {
    // Another part of the program may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // A token is sent to the address that was signed for, and to no other.
    let builder = Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(unreachable)
}

fn unreachable(error: reqwest::Error) -> RefreshError {
    RefreshError::Unreachable(error.without_url().to_string())
}

/// A form as it is sent.
fn encoded(form: &[(&str, &str)]) -> String {
    let pairs = form
        .iter()
        .map(|(name, value)| format!("{name}={}", escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn escaped(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let bytes = value.bytes().map(|byte| match byte {
        byte if plain(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_token_is_made_of_it_arrives() {
        let form = [("a", "x y"), ("b", "1&2=3+4/ä")];
        assert_eq!(encoded(&form), "a=x%20y&b=1%262%3D3%2B4%2F%C3%A4");
    }
}
