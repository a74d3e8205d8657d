//! Bearer authentication and rate limiting of HTTP requests.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use lillux::Hash;
use tokio_util::task::TaskTracker;

use super::rate_limit::RateLimiter;
use super::{Options, with_guard};

/// Accepted bearer tokens, stored as hashes so that comparing them leaks no timing information.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BearerTokens(Vec<Hash>);

impl BearerTokens {
    /// Parses one token per line. Ignores blank lines and lines that start with `#`.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim);
        let tokens = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(tokens.map(Hash::digest).collect())
    }

    /// Whether there are no tokens, so that requests need none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, token: &str) -> bool {
        self.0.contains(&Hash::digest(token))
    }
}

/// Checks requests before they reach the MCP service.
#[derive(Clone)]
pub(super) struct Guard {
    tokens: Arc<BearerTokens>,
    rate: Option<Arc<RateLimiter>>,
}

impl Guard {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            tokens: Arc::new(options.tokens.clone()),
            rate: options.rate.map(|rate| Arc::new(RateLimiter::new(rate))),
        }
    }

    fn is_authorized(&self, request: &Request) -> bool {
        if self.tokens.is_empty() {
            return true;
        }
        let value = request.headers().get(header::AUTHORIZATION);
        let value = value.and_then(|value| value.to_str().ok());
        let parts = value.and_then(|value| value.split_once(' '));
        parts.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && self.tokens.contains(token.trim())
        })
    }
}

/// Middleware that checks a request and tracks its response until it is sent, so that a shutdown
/// does not cut it off.
pub(super) async fn check(
    State((guard, responses)): State<(Guard, TaskTracker)>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    // Checked first, so that it also limits guessing of tokens.
    if let Some(wait) = guard.rate.as_ref().and_then(|rate| rate.check(from.ip())) {
        let seconds = wait.as_secs().max(1);
        let mut response = (StatusCode::TOO_MANY_REQUESTS, "too many requests\n").into_response();
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        return response;
    }
    if guard.is_authorized(&request) {
        let method = request.method().clone();
        let token = responses.token();
        let mut response = next.run(request).await;
        // The event stream of a `GET` request has no end and is not tracked.
        if method == Method::POST {
            response = response.map(|body| with_guard(body, token));
        }
        // The session has ended, but the SDK answers 202, about which some clients complain.
        if method == Method::DELETE && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        return response;
    }
    let message = "bearer token required; see `rye mcp serve --help`\n";
    let mut response = (StatusCode::UNAUTHORIZED, message).into_response();
    let headers = response.headers_mut();
    headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_parsed_from_lines_without_comments() {
        let tokens = BearerTokens::parse("# of the team\n  abc  \n\nxyz\n");
        assert!(tokens.contains("abc") && tokens.contains("xyz"));
        assert!(!tokens.contains("") && !tokens.contains("# of the team"));
        assert!(BearerTokens::parse("\n#\n").is_empty());
    }
}
