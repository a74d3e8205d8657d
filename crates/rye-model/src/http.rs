//! Models that are called over HTTP.

mod client;
mod error_response;
mod not_event_stream;

use std::time::Duration;

use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use rye_engine::BoxFuture;
use rye_engine::model::{Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest};
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::answer::{Decoder, DeltaBuffer};
use crate::api::Target;
use crate::price::Price;
use crate::provider::{Key, Provider};
use crate::sse::{self, Event, TooLong};
use crate::surrogates;
use client::{causes, client};
use not_event_stream::ResponsePrefix;

/// Limits for reading an error response: bytes and time.
const MAX_ERROR_LEN: usize = 64 * 1024;
const MAX_ERROR_TIME: Duration = Duration::from_secs(10);
/// How long a provider may take to show that it is running.
const REACH_TIMEOUT: Duration = Duration::from_millis(500);
/// How long to wait for the usage after the content is complete.
const USAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// A model of a provider.
#[derive(Debug)]
pub struct HttpModel {
    provider: Provider,
    target: Target,
    price: Price,
}

impl HttpModel {
    /// Creates a model with the price of its tokens. Sends nothing.
    pub fn new(provider: Provider, target: Target, price: Price) -> Self {
        Self {
            provider,
            target,
            price,
        }
    }

    /// Checks that the provider answers a small request within half a second. The error says why
    /// it can't be used.
    pub(crate) async fn reach(&self) -> Result<(), String> {
        let address = self.provider.address();
        let headers = self.headers().map_err(|error| error.to_string())?;
        let url = self.provider.url("models");
        let sent = client(&url)?.get(url).headers(headers).send();
        match tokio::time::timeout(REACH_TIMEOUT, sent).await {
            // A server that has no list of models is running nevertheless.
            Ok(Ok(response)) if !response.status().is_server_error() => Ok(()),
            Ok(Ok(response)) => Err(format!("{address}: HTTP {}", response.status().as_u16())),
            Ok(Err(_)) | Err(_) => Err(format!("no answer from {address}")),
        }
    }

    async fn ask(
        &self,
        request: &ModelRequest,
        deltas: &Deltas,
    ) -> Result<ModelAnswer, ModelError> {
        let headers = self.headers()?;
        let url = self.provider.url(&self.provider.api.path(&self.target));
        let body = self.provider.api.body(request, &self.target);
        let client = client(&url).map_err(ModelError::Refused)?;
        let sent = client.post(url).headers(headers).body(body).send();
        let response = self.with_idle_timeout(Instant::now(), sent).await?;
        if !response.status().is_success() {
            return Err(self.read_error(response).await);
        }
        let answer = self.read_stream(response, deltas).await;
        answer.map_err(|error| self.sanitize_error(error))
    }

    /// Reads the response stream to its end.
    async fn read_stream(
        &self,
        mut response: Response,
        deltas: &Deltas,
    ) -> Result<ModelAnswer, ModelError> {
        let mut decoder = self.provider.api.decoder();
        let mut reader = sse::Reader::default();
        let mut prefix = ResponsePrefix::new(response.headers(), self.max_error_time());
        let (mut failure, mut pending, mut complete_at) = (None, DeltaBuffer::default(), None);
        let mut last_event_at = Instant::now();
        while !decoder.is_complete() && !prefix.is_enough() {
            if decoder.is_content_complete() {
                complete_at.get_or_insert_with(Instant::now);
            }
            let until = complete_at.map(|at| at + USAGE_TIMEOUT).or(prefix.until());
            let bytes = match with_deadline(
                until,
                self.with_idle_timeout(last_event_at, response.chunk()),
            )
            .await
            {
                Some(Ok(Some(bytes))) => bytes,
                Some(Ok(None)) | None => break,
                Some(Err(error)) => {
                    failure = Some(error);
                    break;
                }
            };
            prefix.push(&bytes);
            let pushed = reader.push(&bytes, |event| {
                prefix.end();
                if !event.is_keep_alive() {
                    last_event_at = Instant::now();
                }
                let data = &*surrogates::encode_lone(event.data);
                decoder.decode(Event { data, ..event }, &mut pending)
            });
            // Deltas before an error are published as well.
            for delta in pending.drain() {
                deltas(delta);
            }
            pushed?;
        }
        match prefix.into_error(&self.provider) {
            Some(error) if failure.is_none() || !error.is_retriable() => Err(error),
            _ => finish(decoder, failure, self.price),
        }
    }

    /// Maximum time for reading an error response.
    fn max_error_time(&self) -> Duration {
        MAX_ERROR_TIME.min(self.provider.idle_timeout)
    }

    /// Awaits `work` until the provider has sent no event for its idle timeout.
    async fn with_idle_timeout<T>(
        &self,
        last_event_at: Instant,
        work: impl Future<Output = Result<T, reqwest::Error>>,
    ) -> Result<T, ModelError> {
        let idle_timeout = self.provider.idle_timeout;
        let left = idle_timeout.saturating_sub(last_event_at.elapsed());
        let Ok(outcome) = tokio::time::timeout(left, work).await else {
            let seconds = idle_timeout.as_secs_f64();
            let message = format!("no data for {seconds} s from {}", self.provider.address());
            return Err(ModelError::Connection(message));
        };
        outcome.map_err(|error| {
            let message = format!("{} ({})", causes(error), self.provider.address());
            ModelError::Connection(message)
        })
    }

    fn headers(&self) -> Result<HeaderMap, ModelError> {
        let provider = &self.provider;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        for (name, value) in provider.api.headers() {
            let name = HeaderName::from_static(name);
            headers.insert(name, HeaderValue::from_static(value));
        }
        match &provider.key {
            Key::None => {}
            Key::Missing { hint: message, .. } | Key::Unreadable(message) => {
                return Err(ModelError::Unauthorized(message.clone()));
            }
            Key::Given { secret, source } => {
                let (name, before) = provider.api.key_header();
                let text = Zeroizing::new(format!("{before}{}", secret.trim()));
                let value = HeaderValue::from_str(&text).map_err(|_| {
                    let message = format!(
                        "the API key from {source} contains characters that cannot be sent"
                    );
                    ModelError::Unauthorized(message)
                });
                let mut value = value?;
                value.set_sensitive(true);
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        for (name, value) in &provider.headers {
            let wrong = || ModelError::Refused(format!("the header `{name}` cannot be sent"));
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

impl Model for HttpModel {
    fn info(&self) -> ModelInfo {
        self.target.info
    }

    fn call(
        &self,
        request: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'_, Result<ModelAnswer, ModelError>> {
        Box::pin(async move { self.ask(&request, &deltas).await })
    }
}

/// Awaits a future, with an optional deadline.
async fn with_deadline<T>(until: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match until {
        None => Some(work.await),
        Some(until) => tokio::time::timeout_at(until, work).await.ok(),
    }
}

/// Ignores a connection error after the end of the answer.
fn finish(
    decoder: Box<dyn Decoder>,
    failure: Option<ModelError>,
    price: Price,
) -> Result<ModelAnswer, ModelError> {
    if decoder.is_content_complete() {
        return decoder.into_answer().finish(price);
    }
    let truncated = || "the stream ended before the answer was complete".to_owned();
    Err(failure.unwrap_or_else(|| ModelError::Connection(truncated())))
}

impl From<TooLong> for ModelError {
    fn from(error: TooLong) -> Self {
        Self::TooLong(error.to_string())
    }
}
