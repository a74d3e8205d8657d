//! Detects successful responses that are not event streams: login pages, errors without
//! an error status, servers that do not stream.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use rye_engine::model::ModelError;
use tokio::time::Instant;

use super::MAX_ERROR_LEN;
use crate::provider::Provider;
use crate::provider_error::{ProviderError, first_line};

/// Content types of streams, including those of servers that declare them inaccurately.
const STREAMS: [&str; 3] = [
    "text/event-stream",
    "text/plain",
    "application/octet-stream",
];

/// Content type of a response, and its bytes until the first event arrives.
pub(super) struct ResponsePrefix {
    /// The declared content type.
    kind: Option<String>,
    body: Option<Vec<u8>>,
    until: Instant,
}

impl ResponsePrefix {
    pub(super) fn new(headers: &HeaderMap, longest: Duration) -> Self {
        let kind = headers.get(CONTENT_TYPE);
        let kind = kind.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
        Self {
            kind: kind.filter(|it| !it.trim().is_empty()),
            body: Some(Vec::new()),
            until: Instant::now() + longest,
        }
    }

    /// Whether the declared content type is not that of a stream.
    fn is_other(&self) -> bool {
        let plain = |kind: &String| {
            let plain = kind.split(';').next().unwrap_or_default();
            plain.trim().to_ascii_lowercase()
        };
        let kind = self.kind.as_ref().map(plain);
        kind.is_some_and(|kind| !STREAMS.contains(&&*kind))
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if let Some(body) = &mut self.body {
            let room = MAX_ERROR_LEN.saturating_sub(body.len());
            body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// An event arrived, so it is a stream, whatever its content type.
    pub(super) fn end(&mut self) {
        self.body = None;
    }

    /// Deadline for reading a response that is not a stream.
    pub(super) fn until(&self) -> Option<Instant> {
        (self.body.is_some() && self.is_other()).then_some(self.until)
    }

    /// Whether enough of a response that is not a stream has been read.
    pub(super) fn is_enough(&self) -> bool {
        let body = self.body.as_ref();
        body.is_some_and(|body| body.len() >= MAX_ERROR_LEN) && self.is_other()
    }

    /// The error for a response without events, if it has other content.
    pub(super) fn into_error(self, provider: &Provider) -> Option<ModelError> {
        let is_other = self.is_other();
        let body = self.body.filter(|body| is_other || !body.is_empty())?;
        let body = String::from_utf8_lossy(&body);
        let body = provider.redactor().redact(&body).into_owned();
        let kind = self
            .kind
            .as_deref()
            .unwrap_or("data without a content type");
        let read = ProviderError::parse(&body);
        let status = read.status();
        let message = match first_line(&read.message) {
            line if line.is_empty() => "nothing".to_owned(),
            line => line,
        };
        let message = format!(
            "{} returned {} instead of an event stream: {message}",
            provider.address(),
            first_line(kind)
        );
        Some(match status {
            Some(status) => ProviderError { message, ..read }.into_model_error(status),
            None if is_other => {
                ModelError::NotAStream(format!("{message}; check `base_url` in models.yaml"))
            }
            None => ModelError::Connection(message),
        })
    }
}
