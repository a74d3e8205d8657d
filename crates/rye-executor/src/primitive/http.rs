//! `http_client`: a request over HTTP, tried again where that is safe.

mod request;
mod response;
mod retry;

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use self::request::Request;
use super::{Call, CallFailure, CallFuture, CallOutcome, Primitive};

/// How long a call may take that says nothing about it.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);
/// Beyond it a clock may overflow.
const LONGEST_TIMEOUT: Duration = Duration::from_hours(24 * 365);
/// How many redirects are followed.
const REDIRECTS: usize = 10;

/// Sends requests. The client behind it is made when the first is sent: it
/// reads the machine's certificates, which other tools need not wait for.
#[derive(Debug, Default)]
pub struct HttpClient {
    client: OnceLock<Result<Client, String>>,
}

impl Primitive for HttpClient {
    fn run(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            let mut metadata = Map::new();
            let mut done = match self.answer(call, &mut metadata).await {
                Ok(done) => done,
                Err(failed) => CallOutcome {
                    failure: Some(failed),
                    ..CallOutcome::default()
                },
            };
            done.metadata.extend(metadata);
            done
        })
    }

    fn optional(&self) -> &'static [&'static str] {
        &["body", "headers", "query"]
    }

    fn runs_programs(&self) -> bool {
        false
    }
}

impl HttpClient {
    async fn answer(
        &self,
        call: Call,
        metadata: &mut Map<String, Value>,
    ) -> Result<CallOutcome, CallFailure> {
        let request = Request::read(&call.config)?;
        let client = self.client.get_or_init(client).clone();
        let client = client.map_err(|why| CallFailure::new("http_client", why))?;
        let timeout = call.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let deadline = Instant::now() + timeout.min(LONGEST_TIMEOUT);
        let limit = response::limit(&call.config);
        let exchange = async {
            let response = send(&client, &request, deadline, metadata).await?;
            response::read(response, limit, call.spill.open()).await
        };
        match tokio::time::timeout_at(deadline, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CallFailure::new(
                "timeout",
                format!(
                    "there was no whole answer within {:.1} s",
                    timeout.as_secs_f64()
                ),
            )),
        }
    }
}

/// Sends a request, and again where that may help and can do no harm.
async fn send(
    client: &Client,
    request: &Request,
    deadline: Instant,
    metadata: &mut Map<String, Value>,
) -> Result<Response, CallFailure> {
    let mut attempt = 0;
    loop {
        let outcome = follow(client, request).await;
        let tries_left = request.is_idempotent() && attempt < request.retries;
        let wait = match &outcome {
            Ok(response) => retry::after_answer(response, attempt),
            Err(Trouble::Connection(_)) => Some(retry::backoff(attempt)),
            Err(Trouble::Final(_)) => None,
        };
        attempt += 1;
        let time_left = deadline.saturating_duration_since(Instant::now());
        let Some(wait) = wait.filter(|wait| tries_left && *wait < time_left) else {
            if attempt > 1 {
                metadata.insert("attempts".into(), json!(attempt));
            }
            return outcome.map_err(Trouble::into_failed);
        };
        tokio::time::sleep(wait).await;
    }
}

/// Why there is no answer.
enum Trouble {
    /// The connection could not be made, or broke.
    Connection(CallFailure),
    /// It would be the same the next time.
    Final(CallFailure),
}

impl Trouble {
    fn into_failed(self) -> CallFailure {
        match self {
            Self::Connection(failed) | Self::Final(failed) => failed,
        }
    }
}

/// Sends a request and follows redirects, with what each place may see.
async fn follow(client: &Client, request: &Request) -> Result<Response, Trouble> {
    let mut current = request.clone();
    for _ in 0..=REDIRECTS {
        let mut builder = client.request(current.method.clone(), current.url.clone());
        builder = builder.headers(current.headers.clone());
        if let Some(body) = &current.body {
            builder = builder.body(body.clone());
        }
        let response = builder.send().await.map_err(trouble)?;
        match current.redirected(&response).map_err(Trouble::Final)? {
            Some(next) => current = next,
            None => return Ok(response),
        }
    }
    Err(Trouble::Final(CallFailure::new(
        "too_many_redirects",
        format!("it was sent on more than {REDIRECTS} times"),
    )))
}

fn trouble(error: reqwest::Error) -> Trouble {
    let failed = CallFailure::new("connection", causes(error));
    Trouble::Connection(failed)
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

fn client() -> Result<Client, String> {
    // Another part of the program may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        Client::builder()
            .tcp_nodelay(true)
            .redirect(Policy::none())
            .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")))
    };
    // A machine without certificates can still speak to those that need none.
    let made = builder()
        .build()
        .or_else(|_| builder().tls_certs_only([]).build());
    made.map_err(|error| format!("no HTTP client can be made: {}", causes(error)))
}
