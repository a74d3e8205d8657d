//! Documents of the web, for the tool `fetch`: the interface of a client that follows a network
//! policy.

use crate::BoxFuture;

/// What the network policy says about the host of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebAccess {
    /// The policy allows it.
    Allowed,
    /// A person decides.
    Ask,
    /// The policy refuses it, for this reason.
    Refused(String),
}

/// A response without its redirects followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebResponse {
    /// Status code.
    pub status: u16,
    /// Absolute URL of a redirect.
    pub redirect: Option<String>,
    /// The header `Content-Type`.
    pub content_type: Option<String>,
    /// The body, up to the client's limit.
    pub body: Vec<u8>,
    /// Whether the body is longer.
    pub is_truncated: bool,
}

/// Why a document cannot be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WebError(pub String);

/// Fetches documents.
pub trait WebClient: Send + Sync + 'static {
    /// The host and port that a URL names, as `HOST:PORT`, and what the policy says about it. Fails
    /// if the URL is invalid.
    fn access(&self, url: &str) -> Result<(String, WebAccess), WebError>;

    /// Sends one request. The caller has asked about the access. Addresses that are not public are
    /// refused here.
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<WebResponse, WebError>>;
}
