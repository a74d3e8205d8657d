//! Who may call over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use lillux::Hash;

use super::Options;
use super::answers::Answers;
use super::rate::Rate;

/// BearerTokens, of which only the hashes are kept: to compare them tells nothing about them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BearerTokens(Vec<Hash>);

impl BearerTokens {
    /// The tokens of a text, one a line; empty lines and what begins with `#` do not count.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim);
        let tokens = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(tokens.map(Hash::digest).collect())
    }

    /// Whether there are none, so that anybody may call.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, token: &str) -> bool {
        self.0.contains(&Hash::digest(token))
    }
}

#[derive(Clone)]
pub(super) struct Guard {
    tokens: Arc<BearerTokens>,
    rate: Option<Arc<Rate>>,
}

impl Guard {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            tokens: Arc::new(options.tokens.clone()),
            rate: options.rate.map(|rate| Arc::new(Rate::new(rate))),
        }
    }

    fn lets_in(&self, request: &Request) -> bool {
        if self.tokens.is_empty() {
            return true;
        }
        let value = request.headers().get(header::AUTHORIZATION);
        let value = value.and_then(|value| value.to_str().ok());
        let parts = value.and_then(|value| value.split_once(' '));
        parts.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && self.tokens.has(token.trim())
        })
    }
}

/// Lets a request in, or says why not, and follows its answer. One layer for both: each
/// that a request passes costs it some microseconds.
pub(super) async fn check(
    State((guard, answers)): State<(Guard, Answers)>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    // Guesses at tokens count, too.
    if let Some(wait) = guard.rate.as_ref().and_then(|rate| rate.take(from.ip())) {
        let seconds = wait.as_secs().max(1);
        let mut response = (StatusCode::TOO_MANY_REQUESTS, "too many requests\n").into_response();
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        return response;
    }
    if guard.lets_in(&request) {
        let is_end = request.method() == Method::DELETE;
        let mut response = answers.follow(request, next).await;
        // A session is ended at once. That it was only accepted, clients complain about.
        if is_end && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        return response;
    }
    let message = "a bearer token is needed; `rye mcp serve --help` says where it is from\n";
    let mut response = (StatusCode::UNAUTHORIZED, message).into_response();
    let headers = response.headers_mut();
    headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_lines_without_comments() {
        let tokens = BearerTokens::parse("# of the team\n  abc  \n\nxyz\n");
        assert!(tokens.has("abc") && tokens.has("xyz"));
        assert!(!tokens.has("") && !tokens.has("# of the team"));
        assert!(BearerTokens::parse("\n#\n").is_empty());
    }
}
