//! Converts responses with an error status into model errors, with advice.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Response, Url};
use rye_engine::model::ModelError;

use super::{HttpModel, MAX_ERROR_LEN};
use crate::provider_error::{self, ProviderError};
use crate::surrogates;

impl HttpModel {
    /// Reads an error response and converts it.
    pub(super) async fn read_error(&self, mut response: Response) -> ModelError {
        let status = response.status().as_u16();
        let delay = retry_after(response.headers());
        let redirect = redirect_host(response.url(), response.headers());
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(bytes)) = response.chunk().await {
                body.extend_from_slice(&bytes);
                if body.len() > MAX_ERROR_LEN {
                    break;
                }
            }
        };
        // After a timeout, the part received so far is used.
        let _ = tokio::time::timeout(self.max_error_time(), read).await;
        let mut error =
            ProviderError::parse(&surrogates::encode_lone(&String::from_utf8_lossy(&body)));
        error.message = self.sanitize(&error.message);
        error.retry_after = delay.or(error.retry_after);
        let here = self.provider.address();
        match error.into_model_error(status) {
            ModelError::Unauthorized(message) => {
                let fix = self.provider.auth_hint();
                ModelError::Unauthorized(format!("{here} responded: {message}; {fix}"))
            }
            ModelError::Refused(message) if status == 404 => ModelError::Refused(format!(
                "{here} has no `{}`: {message}; see `rye models list`",
                self.target.id
            )),
            ModelError::Refused(message) if (300..400).contains(&status) => {
                let redirect = redirect.unwrap_or_else(|| "an invalid address".to_owned());
                ModelError::Refused(format!(
                    "{here} redirects to {redirect}: {message}; the request was not sent there. \
                     If that host is correct, set it as `base_url` in models.yaml"
                ))
            }
            other => other,
        }
    }

    /// Redacts and truncates a message: a server may echo what it was sent.
    fn sanitize(&self, message: &str) -> String {
        let message = surrogates::resolve(message);
        provider_error::short(&self.provider.redactor().redact(&message))
    }

    /// The same for an error within a stream. Adds the address to connection errors.
    pub(super) fn sanitize_error(&self, mut error: ModelError) -> ModelError {
        let here = self.provider.address();
        if let Some(message) = message_of(&mut error) {
            *message = self.sanitize(message);
        }
        match error {
            ModelError::Connection(message) if !message.contains(&here) => {
                ModelError::Connection(format!("{message} ({here})"))
            }
            other => other,
        }
    }
}

fn message_of(error: &mut ModelError) -> Option<&mut String> {
    match error {
        ModelError::Overloaded { message, .. }
        | ModelError::RateLimited { message, .. }
        | ModelError::ContextOverflow(message)
        | ModelError::Connection(message)
        | ModelError::Unauthorized(message)
        | ModelError::Refused(message)
        | ModelError::ImageRejected(message)
        | ModelError::Empty(message)
        | ModelError::TooLong(message) => Some(message),
        _ => None,
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let millis = headers.get("retry-after-ms");
    let millis = millis.and_then(|it| it.to_str().ok()?.trim().parse().ok());
    let header = headers.get(RETRY_AFTER);
    let header =
        || header.and_then(|it| provider_error::retry_after(it.to_str().ok()?, Timestamp::now()));
    millis.map(Duration::from_millis).or_else(header)
}

/// The host of a redirect. The rest of the URL may contain a secret.
fn redirect_host(from: &Url, headers: &HeaderMap) -> Option<String> {
    let to = headers.get(LOCATION)?.to_str().ok()?;
    let to = from.join(to).ok()?;
    let port = to.port().map(|port| format!(":{port}"));
    let (scheme, port) = (to.scheme(), port.unwrap_or_default());
    Some(format!("{scheme}://{}{port}", to.host_str()?))
}
