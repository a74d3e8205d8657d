//! What answers well, and is no answer: a page that wants one to log in, an error without a
//! status, a server that does not stream.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use rye_engine::model::ModelError;
use tokio::time::Instant;

use super::LONGEST_FAULT;
use crate::provider::Provider;
use crate::provider_error::{ProviderError, first_line};

/// What is streams, and what may be where a server does not say it well.
const STREAMS: [&str; 3] = [
    "text/event-stream",
    "text/plain",
    "application/octet-stream",
];

/// What comes before the first event, which is nothing where all is well.
pub(super) struct Opening {
    /// What it is said to be.
    kind: Option<String>,
    said: Option<Vec<u8>>,
    until: Instant,
}

impl Opening {
    pub(super) fn of(headers: &HeaderMap, longest: Duration) -> Self {
        let kind = headers.get(CONTENT_TYPE);
        let kind = kind.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
        Self {
            kind: kind.filter(|it| !it.trim().is_empty()),
            said: Some(Vec::new()),
            until: Instant::now() + longest,
        }
    }

    /// Whether it is said to be something else than a stream.
    fn is_other(&self) -> bool {
        let plain = |kind: &String| {
            let plain = kind.split(';').next().unwrap_or_default();
            plain.trim().to_ascii_lowercase()
        };
        let kind = self.kind.as_ref().map(plain);
        kind.is_some_and(|kind| !STREAMS.contains(&&*kind))
    }

    pub(super) fn hear(&mut self, bytes: &[u8]) {
        if let Some(said) = &mut self.said {
            let room = LONGEST_FAULT.saturating_sub(said.len());
            said.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// An event has come: it is a stream, whatever it is called.
    pub(super) fn end(&mut self) {
        self.said = None;
    }

    /// Until when it is listened to, where it is no stream.
    pub(super) fn until(&self) -> Option<Instant> {
        (self.said.is_some() && self.is_other()).then_some(self.until)
    }

    /// Whether enough was heard of what is no stream.
    pub(super) fn is_enough(&self) -> bool {
        let said = self.said.as_ref();
        said.is_some_and(|said| said.len() >= LONGEST_FAULT) && self.is_other()
    }

    /// Why there is no answer, if no event has come, but something else has.
    pub(super) fn no_stream(self, provider: &Provider) -> Option<ModelError> {
        let is_other = self.is_other();
        let said = self.said.filter(|said| is_other || !said.is_empty())?;
        let said = String::from_utf8_lossy(&said);
        let said = provider.masks().mask(&said).into_owned();
        let kind = self.kind.as_deref().unwrap_or("something else");
        let read = ProviderError::parse(&said);
        let status = read.status();
        let message = match first_line(&read.message) {
            line if line.is_empty() => "nothing".to_owned(),
            line => line,
        };
        let message = format!(
            "{} gave no stream but {}: {message}",
            provider.address(),
            first_line(kind)
        );
        Some(match status {
            Some(status) => ProviderError { message, ..read }.into_model_error(status),
            // To ask again would be the same; is it the right address?
            None if is_other => ModelError::Refused(format!(
                "{message}; see that `base_url` in models.yaml is the address of its API"
            )),
            None => ModelError::Connection(message),
        })
    }
}
