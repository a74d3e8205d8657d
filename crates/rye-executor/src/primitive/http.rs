//! The `http_client` primitive: sends an HTTP request and retries it if that is safe.

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

/// Time limit of calls that do not set one.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);
/// Upper limit, so that computing the deadline cannot overflow.
const MAX_TIMEOUT: Duration = Duration::from_hours(24 * 365);
/// Number of redirects to follow.
const MAX_REDIRECTS: usize = 10;

/// The `http_client` primitive. The HTTP client is created for the first request, because
/// loading the system's certificates takes time.
#[derive(Debug, Default)]
pub struct HttpClient {
    client: OnceLock<Result<Client, String>>,
}

impl Primitive for HttpClient {
    fn run(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            let mut metadata = Map::new();
            let result = self.exchange(call, &mut metadata).await;
            CallOutcome::new(result, metadata)
        })
    }

    fn check(&self, call: Call) -> Result<(), CallFailure> {
        Request::from_config(&call.config).map(drop)
    }

    fn optional_keys(&self) -> &'static [&'static str] {
        &["body", "headers", "query"]
    }

    fn runs_programs(&self) -> bool {
        false
    }
}

impl HttpClient {
    async fn exchange(
        &self,
        call: Call,
        metadata: &mut Map<String, Value>,
    ) -> Result<CallOutcome, CallFailure> {
        let request = Request::from_config(&call.config)?;
        let client = self.client.get_or_init(client).clone();
        let client = client.map_err(|message| CallFailure::new("http_client", message))?;
        let timeout = call.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let deadline = Instant::now() + timeout.min(MAX_TIMEOUT);
        let limit = response::limit(&call.config);
        let exchange = async {
            let response = send(&client, &request, deadline, metadata).await?;
            response::read(response, limit, call.spill.open()).await
        };
        match tokio::time::timeout_at(deadline, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CallFailure::new(
                "timeout",
                format!("no complete response within {:.1} s", timeout.as_secs_f64()),
            )),
        }
    }
}

/// Sends a request and retries it if it is idempotent and the error may be temporary.
async fn send(
    client: &Client,
    request: &Request,
    deadline: Instant,
    metadata: &mut Map<String, Value>,
) -> Result<Response, CallFailure> {
    let mut attempt = 0;
    loop {
        let outcome = send_following_redirects(client, request).await;
        let tries_left = request.is_idempotent() && attempt < request.retries;
        let wait = match &outcome {
            Ok(response) => retry::after_response(response, attempt),
            Err(SendError::Connection(_)) => Some(retry::backoff(attempt)),
            Err(SendError::Permanent(_)) => None,
        };
        attempt += 1;
        let time_left = deadline.saturating_duration_since(Instant::now());
        let Some(wait) = wait.filter(|wait| tries_left && *wait < time_left) else {
            if attempt > 1 {
                metadata.insert("attempts".into(), json!(attempt));
            }
            return outcome.map_err(SendError::into_failure);
        };
        tokio::time::sleep(wait).await;
    }
}

/// Why a request got no response.
enum SendError {
    /// The connection failed; a retry may succeed.
    Connection(CallFailure),
    /// A retry would fail as well.
    Permanent(CallFailure),
}

impl SendError {
    fn into_failure(self) -> CallFailure {
        match self {
            Self::Connection(failure) | Self::Permanent(failure) => failure,
        }
    }
}

/// Sends a request and follows redirects. Redirected requests carry only safe headers.
async fn send_following_redirects(
    client: &Client,
    request: &Request,
) -> Result<Response, SendError> {
    let mut current = request.clone();
    for _ in 0..=MAX_REDIRECTS {
        let mut builder = client.request(current.method.clone(), current.url.clone());
        builder = builder.headers(current.headers.clone());
        if let Some(body) = &current.body {
            builder = builder.body(body.clone());
        }
        let response = builder.send().await.map_err(connection_error)?;
        match current
            .redirected(&response)
            .map_err(SendError::Permanent)?
        {
            Some(next) => current = next,
            None => return Ok(response),
        }
    }
    Err(SendError::Permanent(CallFailure::new(
        "too_many_redirects",
        format!("more than {MAX_REDIRECTS} redirects"),
    )))
}

fn connection_error(error: reqwest::Error) -> SendError {
    SendError::Connection(CallFailure::new("connection", error_chain(error)))
}

/// Formats an error with its causes, but without the URL, which may contain a secret.
fn error_chain(error: reqwest::Error) -> String {
    lillux::error_chain(&error.without_url())
}

fn client() -> Result<Client, String> {
    // Fails if another part of the process has installed a provider; that is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        Client::builder()
            .tcp_nodelay(true)
            .redirect(Policy::none())
            .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")))
    };
    // Without system certificates, plain HTTP still works.
    let client = builder()
        .build()
        .or_else(|_| builder().tls_certs_only([]).build());
    client.map_err(|error| format!("cannot create an HTTP client: {}", error_chain(error)))
}
