//! Servers that are reached over a network: with headers of theirs, or the tokens of whoever
//! logged in.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr as _;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use rmcp::service::{ClientInitializeError, serve_client_with_lifecycle_and_ct};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::AuthClient;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig,
};
use tokio_util::sync::CancellationToken;

use super::super::ask::Asks;
use super::super::connection::{Client, Connection, does_not_know, lifecycle};
use super::super::error::{ClientError, ClientErrorKind};
use super::super::http::Http;
use super::super::login::{self, LoginGrant, LoginRequest, Tokens};
use super::super::said::Heard;
use super::{Attempt, Connector, ServerSpec, Values, open, parts, transport_words, words};

/// How many redirects are followed, within the same origin.
const REDIRECTS: usize = 5;

impl Connector {
    pub(super) async fn http(
        &self,
        server: &ServerSpec,
        values: &Values,
        heard: &Heard,
        is_modern: bool,
    ) -> Result<Connection, Attempt> {
        let failed = |kind| Attempt::Failed(kind);
        let http = self.http_client().map_err(failed)?;
        let headers = headers(&values.named).map_err(|why| failed(ClientErrorKind::Config(why)))?;
        let mut config = StreamableHttpClientTransportConfig::with_uri(values.url.as_str());
        config.max_sse_event_size = server.config.max_message;
        // Who gives a token by hand is not logged in for.
        let has_own = headers.contains_key(&http::header::AUTHORIZATION);
        let config = config.custom_headers(headers);
        let tokens = Tokens::of(server, &values.url, heard.redactor()).filter(|_| !has_own);
        let manager = match &tokens {
            Some(tokens) => tokens.manager().await,
            None => Ok(None),
        };
        match manager.map_err(|why| failed(ClientErrorKind::Config(why)))? {
            Some(manager) => {
                let http = AuthClient::new(http, manager);
                converse(server, http, config, heard, is_modern, &self.asks).await
            }
            None => converse(server, http, config, heard, is_modern, &self.asks).await,
        }
    }

    fn http_client(&self) -> Result<Http, ClientErrorKind> {
        let http = self.http.get_or_init(http_client).clone();
        http.map(Http).map_err(ClientErrorKind::Unreachable)
    }

    /// Lets a person log in to a server, and keeps the tokens.
    pub(in crate::client) async fn log_in(
        &self,
        server: &ServerSpec,
        ask: &LoginRequest,
        show: impl FnOnce(&str) + Send,
    ) -> Result<LoginGrant, ClientError> {
        let values = open(server)?;
        let tokens = tokens(server, &values)?;
        // It sees to the certificates.
        self.http_client().map_err(|kind| server.error(kind))?;
        ask.run(server, &values.url, &values.oauth, &tokens, show)
            .await
    }
}
/// Forgets a server's tokens, and says whether there were any.
pub(in crate::client) fn log_out(server: &ServerSpec) -> Result<bool, ClientError> {
    let tokens = tokens(server, &open(server)?)?;
    let forgotten = tokens.forget();
    forgotten.map_err(|error| server.error(ClientErrorKind::Config(error.to_string())))
}

fn tokens(server: &ServerSpec, values: &Values) -> Result<Tokens, ClientError> {
    let wrong = |why: &str| server.error(ClientErrorKind::Config(why.to_owned()));
    if values.url.is_empty() {
        return Err(wrong("nobody logs in to a process of this machine"));
    }
    let tokens = Tokens::of(server, &values.url, &values.redactor);
    tokens.ok_or_else(|| wrong("there is no user space, so there is no vault for tokens"))
}

/// Begins the conversation over HTTP.
async fn converse(
    server: &ServerSpec,
    http: impl StreamableHttpClient<Error = reqwest::Error> + Sync,
    config: StreamableHttpClientTransportConfig,
    heard: &Heard,
    is_modern: bool,
    asks: &Asks,
) -> Result<Connection, Attempt> {
    let transport = StreamableHttpClientTransport::with_client(http, config);
    let client = Arc::new(Client::new(&server.id, asks, heard.redactor()));
    let closing = CancellationToken::new();
    let served = serve_client_with_lifecycle_and_ct(
        Arc::clone(&client),
        transport,
        lifecycle(is_modern),
        // The SDK cancels what it is given when it ends for whatever reason.
        closing.child_token(),
    );
    let error = match served.await {
        Ok(running) => {
            let parts = parts(server, Arc::default(), heard, client, None);
            return Ok(Connection::keep(running, closing, parts));
        }
        Err(error) => error,
    };
    if does_not_know(&error) {
        return Err(Attempt::OtherRevision);
    }
    let kind = match &error {
        ClientInitializeError::TransportError { error, .. } => login::wanted(error),
        _ => None,
    };
    if let Some(kind) = kind {
        return Err(Attempt::Failed(kind));
    }
    let words = match &error {
        // Of all that is said, its cause is what helps.
        ClientInitializeError::TransportError { error, .. } => transport_words(error),
        error => words(error),
    };
    let words = heard.redactor().redact(&words).into_owned();
    Err(Attempt::Failed(match error {
        ClientInitializeError::TransportError { .. }
        | ClientInitializeError::ConnectionClosed(_) => ClientErrorKind::Unreachable(words),
        _ => ClientErrorKind::Handshake(words),
    }))
}

fn headers(named: &BTreeMap<String, String>) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let mut headers = HashMap::new();
    for (name, value) in named {
        let header = HeaderName::from_str(name)
            .map_err(|_| format!("`headers`: {name:?} is no name of a header"))?;
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("`headers.{name}` holds what a header cannot"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

fn http_client() -> Result<reqwest::Client, String> {
    // Another part of the program may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Headers may hold secrets, which are nobody's but this server's.
    let same_origin = Policy::custom(|attempt| {
        let first = attempt.previous().first().map(reqwest::Url::origin);
        if attempt.previous().len() > REDIRECTS {
            attempt.error("it was sent on too often")
        } else if first == Some(attempt.url().origin()) {
            attempt.follow()
        } else {
            attempt.stop()
        }
    });
    let builder = reqwest::Client::builder()
        .tcp_nodelay(true)
        .redirect(same_origin)
        .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")));
    builder
        .build()
        .map_err(|error| format!("no HTTP client can be made: {}", words(&error)))
}
