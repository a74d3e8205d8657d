//! Connecting over HTTP, with configured headers or with OAuth tokens from a login.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr as _;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use lillux::error_chain;
use reqwest::redirect::Policy;
use rmcp::service::ClientInitializeError;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::AuthClient;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig,
};

use super::super::connection::{Connection, is_unsupported_revision};
use super::super::diagnostics::DiagnosticsLog;
use super::super::error::{ClientError, ClientErrorKind};
use super::super::http::{BoundedHttpClient, SseTransport};
use super::super::in_flight::InFlightRequests;
use super::super::login::{self, LoginGrant, LoginRequest, TokenStore};
use super::{
    ConnectError, Connector, ResolvedValues, ServerSpec, describe_transport_error, resolve_values,
};

/// Maximum number of redirects to follow, all within the same origin.
const MAX_REDIRECTS: usize = 5;

impl Connector {
    pub(super) async fn connect_http(
        &self,
        server: &ServerSpec,
        values: &ResolvedValues,
        log: &DiagnosticsLog,
        use_discover: bool,
    ) -> Result<Connection, ConnectError> {
        let failed = |kind| ConnectError::Failed(kind);
        let http = self.http_client().map_err(failed)?;
        let headers = headers(&values.named).map_err(|why| failed(ClientErrorKind::Config(why)))?;
        let mut config = StreamableHttpClientTransportConfig::with_uri(values.url.as_str());
        config.max_sse_event_size = server.config.max_message;
        // A configured `Authorization` header replaces the tokens of a login.
        let has_authorization = headers.contains_key(&http::header::AUTHORIZATION);
        let config = config.custom_headers(headers);
        let tokens = TokenStore::for_server(server, &values.url, log.redactor())
            .filter(|_| !has_authorization);
        let manager = match &tokens {
            Some(tokens) => tokens.manager().await,
            None => Ok(None),
        };
        let manager = manager.map_err(|why| failed(ClientErrorKind::Config(why)))?;
        let attempt = HttpAttempt {
            server,
            config,
            log,
            use_discover,
        };
        if let Some(manager) = manager {
            let client = AuthClient::new(http.clone(), manager);
            self.connect_with(attempt, client, &http).await
        } else {
            self.connect_with(attempt, http.clone(), &http).await
        }
    }

    /// Connects over streamable HTTP. If the server rejects that as servers of the older
    /// HTTP+SSE transport do, tries that transport.
    async fn connect_with<C>(
        &self,
        attempt: HttpAttempt<'_>,
        client: C,
        http: &BoundedHttpClient,
    ) -> Result<Connection, ConnectError>
    where
        C: StreamableHttpClient<Error = reqwest::Error> + Sync,
    {
        let HttpAttempt {
            server,
            config,
            log,
            use_discover,
        } = attempt;
        let (url, headers) = (Arc::clone(&config.uri), config.custom_headers.clone());
        let limit = config.max_sse_event_size;
        let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
        let known = Arc::default();
        let connected = self.handshake(server, transport, log, use_discover, known, None);
        let error = match connected.await {
            Ok(connection) => return Ok(connection),
            Err(error) => connect_error(error, log),
        };
        // A server that supports the other protocol revision is contacted again with it.
        if matches!(error, ConnectError::UnsupportedRevision) || !http.is_post_rejected() {
            return Err(error);
        }
        let known = Arc::new(InFlightRequests::default());
        let opened = SseTransport::open(client, &url, headers, Arc::clone(&known), limit);
        match opened.await {
            Ok(transport) => {
                let connected = self.handshake(server, transport, log, false, known, None);
                connected.await.map_err(|error| connect_error(error, log))
            }
            // There is no such transport either, so the first error is the informative one.
            Err(_) => Err(error),
        }
    }

    fn http_client(&self) -> Result<BoundedHttpClient, ClientErrorKind> {
        let http = self.http.get_or_init(http_client).clone();
        http.map(BoundedHttpClient::new)
            .map_err(ClientErrorKind::Unreachable)
    }

    /// Logs the user in to a server and stores the tokens.
    pub(in crate::client) async fn log_in(
        &self,
        server: &ServerSpec,
        request: &LoginRequest,
        show: impl FnOnce(&str) + Send,
    ) -> Result<LoginGrant, ClientError> {
        let values = resolve_values(server)?;
        let tokens = token_store(server, &values)?;
        // Installs the crypto provider that the SDK's OAuth client needs.
        self.http_client().map_err(|kind| server.error(kind))?;
        request
            .run(server, &values.url, &values.oauth, &tokens, show)
            .await
    }
}

/// An attempt to connect over HTTP.
struct HttpAttempt<'a> {
    server: &'a ServerSpec,
    config: StreamableHttpClientTransportConfig,
    log: &'a DiagnosticsLog,
    use_discover: bool,
}

/// Deletes the tokens of a server; false if there were none.
pub(in crate::client) fn log_out(server: &ServerSpec) -> Result<bool, ClientError> {
    let tokens = token_store(server, &resolve_values(server)?)?;
    let deleted = tokens.delete();
    deleted.map_err(|error| server.error(ClientErrorKind::Config(error.to_string())))
}

fn token_store(server: &ServerSpec, values: &ResolvedValues) -> Result<TokenStore, ClientError> {
    let wrong = |why: &str| server.error(ClientErrorKind::Config(why.to_owned()));
    if values.url.is_empty() {
        return Err(wrong("a server that runs as a local process has no login"));
    }
    let tokens = TokenStore::for_server(server, &values.url, &values.redactor);
    tokens.ok_or_else(|| wrong("no vault for tokens: there is no user space"))
}

/// Converts an error of the handshake over HTTP.
fn connect_error(error: ClientInitializeError, log: &DiagnosticsLog) -> ConnectError {
    if is_unsupported_revision(&error) {
        return ConnectError::UnsupportedRevision;
    }
    let redact = |text: String| log.redactor().redact(&text).into_owned();
    ConnectError::Failed(match error {
        ClientInitializeError::TransportError { error, .. } => {
            let needed = login::login_needed(&error);
            // Only the cause is informative.
            let cause = || ClientErrorKind::Unreachable(redact(describe_transport_error(&error)));
            needed.unwrap_or_else(cause)
        }
        error @ ClientInitializeError::ConnectionClosed(_) => {
            ClientErrorKind::Unreachable(redact(error_chain(&error)))
        }
        error => ClientErrorKind::Handshake(redact(error_chain(&error))),
    })
}

fn headers(named: &BTreeMap<String, String>) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let mut headers = HashMap::new();
    for (name, value) in named {
        let header = HeaderName::from_str(name)
            .map_err(|_| format!("`headers`: invalid header name {name:?}"))?;
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("`headers.{name}`: invalid header value"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

fn http_client() -> Result<reqwest::Client, String> {
    // Fails if another part of the program has installed a provider, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Headers may hold secrets, so they must not be sent to another origin.
    let same_origin = Policy::custom(|attempt| {
        let first = attempt.previous().first().map(reqwest::Url::origin);
        if attempt.previous().len() > MAX_REDIRECTS {
            attempt.error("too many redirects")
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
        .map_err(|error| format!("cannot create an HTTP client: {}", error_chain(&error)))
}
