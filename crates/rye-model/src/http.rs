//! A model that is asked over HTTP.

mod client;
mod no_stream;
mod refused;

use std::time::Duration;

use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use rye_engine::model::{Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest};
use rye_engine::store::Later;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::answer::{Decoder, DeltaBuffer};
use crate::api::Target;
use crate::price::Price;
use crate::provider::{Key, Provider};
use crate::sse::{self, Event, TooLong};
use crate::surrogates;
use client::{causes, client};
use no_stream::Opening;

/// How much of an answer that is none is read, and how long.
const LONGEST_FAULT: usize = 64 * 1024;
const LONGEST_FAULT_TIME: Duration = Duration::from_secs(10);
/// How long is waited, once all is said, for what was used up.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// A model of a provider.
#[derive(Debug)]
pub struct HttpModel {
    provider: Provider,
    target: Target,
    price: Price,
}

impl HttpModel {
    /// A model, and what its tokens cost. Nothing is asked yet.
    pub fn new(provider: Provider, target: Target, price: Price) -> Self {
        Self {
            provider,
            target,
            price,
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
        let response = self.in_time(sent).await?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let heard = self.listen(response, deltas).await;
        heard.map_err(|error| self.fit_to_be_told(error))
    }

    /// Hears the answer to its end.
    async fn listen(
        &self,
        mut response: Response,
        deltas: &Deltas,
    ) -> Result<ModelAnswer, ModelError> {
        let mut decoder = self.provider.api.decoder();
        let mut reader = sse::Reader::default();
        let mut opening = Opening::of(response.headers(), self.longest_fault());
        let (mut trouble, mut told, mut complete_at) = (None, DeltaBuffer::default(), None);
        while !decoder.is_complete() && !opening.is_enough() {
            if decoder.is_content_complete() {
                complete_at.get_or_insert_with(Instant::now);
            }
            let until = complete_at.map(|at| at + AFTERWARDS).or(opening.until());
            let bytes = match before(until, self.in_time(response.chunk())).await {
                Some(Ok(Some(bytes))) => bytes,
                Some(Ok(None)) | None => break,
                Some(Err(error)) => {
                    trouble = Some(error);
                    break;
                }
            };
            opening.hear(&bytes);
            let pushed = reader.push(&bytes, |event| {
                opening.end();
                let data = &*surrogates::encode_lone(event.data);
                decoder.decode(Event { data, ..event }, &mut told)
            });
            // What was said before something went wrong was said.
            for delta in told.take() {
                deltas(delta);
            }
            pushed?;
        }
        match opening.no_stream(&self.provider) {
            Some(error) if trouble.is_none() || !error.is_retriable() => Err(error),
            _ => finish(decoder, trouble, self.price),
        }
    }

    /// How long an answer that is none is listened to.
    fn longest_fault(&self) -> Duration {
        LONGEST_FAULT_TIME.min(self.provider.silence)
    }

    /// Waits for something, but not for ever.
    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, reqwest::Error>>,
    ) -> Result<T, ModelError> {
        let silence = self.provider.silence;
        let Ok(outcome) = tokio::time::timeout(silence, work).await else {
            let seconds = silence.as_secs_f64();
            let message = format!(
                "nothing came for {seconds} s from {}",
                self.provider.address()
            );
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
            Key::Missing(what) => return Err(ModelError::Unauthorized(what.clone())),
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
    ) -> Later<'_, Result<ModelAnswer, ModelError>> {
        Box::pin(async move { self.ask(&request, &deltas).await })
    }
}

/// What comes of something, if it does before a moment.
async fn before<T>(until: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match until {
        None => Some(work.await),
        Some(until) => tokio::time::timeout_at(until, work).await.ok(),
    }
}

/// A connection that breaks after the answer's end does no harm.
fn finish(
    decoder: Box<dyn Decoder>,
    trouble: Option<ModelError>,
    price: Price,
) -> Result<ModelAnswer, ModelError> {
    match (decoder.finish(), trouble) {
        (Err(ModelError::Connection(_)), Some(trouble)) => Err(trouble),
        (Err(error), _) => Err(error),
        (Ok(heard), _) => Ok(ModelAnswer {
            parts: heard.parts,
            stop_reason: heard.stop_reason,
            usage: price.usage(heard.tokens),
        }),
    }
}

impl From<TooLong> for ModelError {
    fn from(error: TooLong) -> Self {
        Self::TooLong(error.to_string())
    }
}
