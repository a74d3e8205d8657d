//! A model that is asked over HTTP.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use rye_engine::mask::Masks;
use rye_engine::model::{Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest};
use rye_engine::store::Later;
use zeroize::Zeroizing;

use crate::answer::{Decoder, Told};
use crate::api::{Api, Target};
use crate::fault::{self, Said};
use crate::price::Price;
use crate::sse::{self, TooLong};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(20);
/// How much of an answer that is none is read.
const LONGEST_FAULT: usize = 64 * 1024;

/// Where a key is from.
#[derive(Clone)]
pub enum Key {
    /// None is sent.
    None,
    /// There it is.
    Given {
        /// The key.
        secret: Arc<Zeroizing<String>>,
        /// Where it was found, for whoever must put it right.
        found: String,
    },
    /// There should be one: what to do, as a sentence.
    Missing(String),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Given { found, .. } => write!(f, "Given({found})"),
            Self::Missing(what) => write!(f, "Missing({what})"),
        }
    }
}

/// Who is asked.
#[derive(Debug, Clone)]
pub struct Provider {
    /// How it is spoken to.
    pub api: Api,
    /// Its address, to which the API's own path is added.
    pub base_url: String,
    /// What it lets us in for.
    pub key: Key,
    /// Headers of its own.
    pub headers: Vec<(String, String)>,
    /// How long it may say nothing.
    pub silence: Duration,
}

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
        let (headers, url) = (self.headers()?, self.url());
        let body = self.provider.api.body(request, &self.target);
        let client = client(&url).map_err(ModelError::Refused)?;
        let sent = client.post(url).headers(headers).body(body).send();
        let response = self.in_time(sent).await?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let heard = self.listen(response, deltas).await;
        heard.map_err(|error| self.error_without_key(error))
    }

    /// Hears the answer to its end.
    async fn listen(
        &self,
        mut response: Response,
        deltas: &Deltas,
    ) -> Result<ModelAnswer, ModelError> {
        let mut decoder = self.provider.api.decoder();
        let mut reader = sse::Reader::default();
        let (mut trouble, mut told) = (None, Told::default());
        while !decoder.is_done() {
            let bytes = match self.in_time(response.chunk()).await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                Err(error) => {
                    trouble = Some(error);
                    break;
                }
            };
            let pushed = reader.push(&bytes, |event| decoder.take(event, &mut told));
            // What was said before something went wrong was said.
            for delta in told.take() {
                deltas(delta);
            }
            pushed?;
        }
        finish(decoder, trouble, self.price)
    }

    /// Waits for something, but not for ever.
    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, reqwest::Error>>,
    ) -> Result<T, ModelError> {
        let silence = self.provider.silence;
        let Ok(outcome) = tokio::time::timeout(silence, work).await else {
            let seconds = silence.as_secs_f64();
            let message = format!("nothing came for {seconds} s from {}", self.address());
            return Err(ModelError::Connection(message));
        };
        outcome.map_err(|error| {
            let message = format!("{} ({})", causes(error), self.address());
            ModelError::Connection(message)
        })
    }

    /// What an answer that is none says, and what to do about it.
    async fn refused(&self, mut response: Response) -> ModelError {
        let status = response.status().as_u16();
        let asked = retry_after(response.headers());
        let mut body = Vec::new();
        while let Ok(Some(bytes)) = self.in_time(response.chunk()).await {
            body.extend_from_slice(&bytes);
            if body.len() > LONGEST_FAULT {
                break;
            }
        }
        let mut said = Said::read(&String::from_utf8_lossy(&body));
        said.message = self.without_key(&said.message);
        said.retry_after = asked.or(said.retry_after);
        let here = self.address();
        match said.with_status(status) {
            ModelError::Unauthorized(message) => {
                let fix = match &self.provider.key {
                    Key::Given { found, .. } => {
                        format!("the key is from {found}: see that it is right and still valid")
                    }
                    Key::None => {
                        "no key was sent: name one in models.yaml with `api_key_env`".to_owned()
                    }
                    Key::Missing(what) => what.clone(),
                };
                ModelError::Unauthorized(format!("{here} said: {message}; {fix}"))
            }
            ModelError::Refused(message) if status == 404 => ModelError::Refused(format!(
                "{here} has no `{}`: {message}; see `rye models list`",
                self.target.id
            )),
            ModelError::Refused(message) if (300..400).contains(&status) => {
                ModelError::Refused(format!("{here} sends elsewhere: {message}"))
            }
            other => other,
        }
    }

    /// A server may repeat what it was sent.
    fn without_key(&self, message: &str) -> String {
        match &self.provider.key {
            Key::Given { secret, .. } => Masks::new([secret.as_str()]).mask(message).into_owned(),
            Key::None | Key::Missing(_) => message.to_owned(),
        }
    }

    /// The same in an error that came amid a stream.
    fn error_without_key(&self, error: ModelError) -> ModelError {
        let clean = |message: String| self.without_key(&message);
        match error {
            ModelError::Overloaded {
                message,
                retry_after,
            } => ModelError::Overloaded {
                message: clean(message),
                retry_after,
            },
            ModelError::RateLimited {
                message,
                retry_after,
            } => ModelError::RateLimited {
                message: clean(message),
                retry_after,
            },
            ModelError::ContextOverflow(message) => ModelError::ContextOverflow(clean(message)),
            ModelError::Connection(message) => ModelError::Connection(clean(message)),
            ModelError::Unauthorized(message) => ModelError::Unauthorized(clean(message)),
            ModelError::Refused(message) => ModelError::Refused(clean(message)),
            ModelError::Empty(message) => ModelError::Empty(clean(message)),
            ModelError::TooLong(message) => ModelError::TooLong(clean(message)),
            other => other,
        }
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
            Key::Given { secret, found } => {
                let (name, before) = provider.api.key_header();
                let text = Zeroizing::new(format!("{before}{}", secret.trim()));
                let value = HeaderValue::from_str(&text).map_err(|_| {
                    let message =
                        format!("the key from {found} cannot be sent: it has odd characters");
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
            let value = HeaderValue::from_str(value).map_err(|_| wrong())?;
            headers.insert(name, value);
        }
        Ok(headers)
    }

    fn url(&self) -> String {
        let path = self.provider.api.path(&self.target);
        format!("{}/{path}", self.address())
    }

    fn address(&self) -> &str {
        self.provider.base_url.trim_end_matches('/')
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

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let millis = headers.get("retry-after-ms");
    let millis = millis.and_then(|it| it.to_str().ok()?.trim().parse().ok());
    let told = headers.get(RETRY_AFTER);
    let told = || told.and_then(|it| fault::retry_after(it.to_str().ok()?, Timestamp::now()));
    millis.map(Duration::from_millis).or_else(told)
}

/// An error with its causes, and without the address: it may hold a secret.
fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// The client for an address. One that needs no certificates does not wait until the
/// machine's are read.
fn client(url: &str) -> Result<Client, String> {
    static PLAIN: OnceLock<Result<Client, String>> = OnceLock::new();
    static SAFE: OnceLock<Result<Client, String>> = OnceLock::new();
    let made = if url.starts_with("http://") {
        PLAIN.get_or_init(|| make(builder().tls_certs_only([])))
    } else {
        SAFE.get_or_init(|| make(builder()))
    };
    made.clone()
}

fn builder() -> reqwest::ClientBuilder {
    // Another part of the program may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .tcp_nodelay(true)
        .connect_timeout(CONNECT)
        // A key is for the place that it was meant for.
        .redirect(Policy::none())
        .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")))
}

fn make(builder: reqwest::ClientBuilder) -> Result<Client, String> {
    let made = builder.build();
    made.map_err(|error| format!("no HTTP client can be made: {}", causes(error)))
}
