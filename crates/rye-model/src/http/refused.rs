//! What an answer that is none says, and what to do about it.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Response, Url};
use rye_engine::model::ModelError;

use super::{HttpModel, LONGEST_FAULT};
use crate::provider_error::{self, ProviderError};
use crate::surrogates;

impl HttpModel {
    /// What an answer that is none says, and what to do about it.
    pub(super) async fn refused(&self, mut response: Response) -> ModelError {
        let status = response.status().as_u16();
        let asked = retry_after(response.headers());
        let elsewhere = elsewhere(response.url(), response.headers());
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(bytes)) = response.chunk().await {
                body.extend_from_slice(&bytes);
                if body.len() > LONGEST_FAULT {
                    break;
                }
            }
        };
        // What came by then says enough.
        let _ = tokio::time::timeout(self.longest_fault(), read).await;
        let mut said =
            ProviderError::parse(&surrogates::encode_lone(&String::from_utf8_lossy(&body)));
        said.message = self.told(&said.message);
        said.retry_after = asked.or(said.retry_after);
        let here = self.provider.address();
        match said.into_model_error(status) {
            ModelError::Unauthorized(message) => {
                let fix = self.provider.auth_hint();
                ModelError::Unauthorized(format!("{here} said: {message}; {fix}"))
            }
            ModelError::Refused(message) if status == 404 => ModelError::Refused(format!(
                "{here} has no `{}`: {message}; see `rye models list`",
                self.target.id
            )),
            ModelError::Refused(message) if (300..400).contains(&status) => {
                let elsewhere = elsewhere.unwrap_or_else(|| "no address that is one".to_owned());
                ModelError::Refused(format!(
                    "{here} sends elsewhere, to {elsewhere}: {message}; nothing was sent there. \
                     If it is right, name it as `base_url` in models.yaml"
                ))
            }
            other => other,
        }
    }

    /// A message as it may be told: a server may repeat what it was sent.
    fn told(&self, message: &str) -> String {
        let message = surrogates::resolve(message);
        provider_error::short(&self.provider.masks().mask(&message))
    }

    /// The same of an error that came amid a stream; with the address, where the connection
    /// is to blame.
    pub(super) fn fit_to_be_told(&self, mut error: ModelError) -> ModelError {
        let here = self.provider.address();
        if let Some(message) = message_of(&mut error) {
            *message = self.told(message);
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
        | ModelError::Empty(message)
        | ModelError::TooLong(message) => Some(message),
        _ => None,
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let millis = headers.get("retry-after-ms");
    let millis = millis.and_then(|it| it.to_str().ok()?.trim().parse().ok());
    let told = headers.get(RETRY_AFTER);
    let told =
        || told.and_then(|it| provider_error::retry_after(it.to_str().ok()?, Timestamp::now()));
    millis.map(Duration::from_millis).or_else(told)
}

/// The server that an answer sends to. The rest of the address may hold a secret.
fn elsewhere(from: &Url, headers: &HeaderMap) -> Option<String> {
    let to = headers.get(LOCATION)?.to_str().ok()?;
    let to = from.join(to).ok()?;
    let port = to.port().map(|port| format!(":{port}"));
    let (scheme, port) = (to.scheme(), port.unwrap_or_default());
    Some(format!("{scheme}://{}{port}", to.host_str()?))
}
