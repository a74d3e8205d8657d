//! Fetches documents under the network policy, in the process of the host, for any sandbox.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use rye_engine::BoxFuture;
use rye_engine::web::{WebAccess, WebClient, WebError, WebResponse};
use tokio::time::timeout;
use url::Url;

use super::dial::Resolver;
use super::http::{Body, encrypt, host_header, send};
use super::policy::{NetworkPolicy, Target, Verdict};
use super::{EgressProxy, EgressSetup, Refusal, SecretSource};

/// Time limit of a request with its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a body, in bytes.
const MAX_BODY: usize = 5 * 1024 * 1024;
/// Content types in the order of preference. Some sites have Markdown.
const ACCEPT: &str =
    "text/markdown, text/html, text/plain;q=0.9, application/json;q=0.9, */*;q=0.5";

/// A client that connects where the network policy allows it, to addresses that were checked.
pub struct EgressClient {
    proxy: Arc<EgressProxy>,
}

impl EgressClient {
    /// Creates a client with the policy of the sandbox.
    pub fn new(
        policy: NetworkPolicy,
        resolver: Arc<dyn Resolver>,
        secrets: Arc<SecretSource>,
    ) -> Self {
        let setup = EgressSetup {
            policy,
            resolver,
            secrets,
        };
        Self {
            proxy: EgressProxy::new(setup, None),
        }
    }

    fn verdict(&self, target: &Destination) -> WebAccess {
        let policy = &self.proxy.setup.policy;
        let is_injected = !self.injections(target).is_empty();
        match policy.verdict(&target.target) {
            Verdict::Denied => WebAccess::Refused(Refusal::Denied.to_string()),
            _ if is_injected => WebAccess::Allowed,
            Verdict::Allowed => WebAccess::Allowed,
            // Commands without a network say nothing about a person who is asked.
            Verdict::NotAllowed if policy.ask == Some(false) => {
                WebAccess::Refused(Refusal::NotAllowed.to_string())
            }
            Verdict::NotAllowed | Verdict::Ask => WebAccess::Ask,
        }
    }

    /// The secrets for a destination, as the proxy adds them to requests for `http://HOST`.
    fn injections(&self, to: &Destination) -> Vec<&super::Injection> {
        if to.is_secure {
            return Vec::new();
        }
        self.proxy.injections(&to.target)
    }

    async fn request(&self, url: &str) -> Result<WebResponse, Refusal> {
        let mut to = Destination::parse(url).map_err(|error| failed(error.0))?;
        let mut headers = Vec::new();
        let mut secure = to.is_secure.then(|| to.target.clone());
        for injection in self.injections(&to) {
            headers.push(self.proxy.injected_header(injection)?);
            secure = injection.target();
        }
        if let Some(secure) = &secure {
            to.target = secure.clone();
        }
        if self.proxy.setup.policy.verdict(&to.target) == Verdict::Denied {
            return Err(Refusal::Denied);
        }
        let mut request = Request::new(Empty::<Bytes>::new());
        let path = to.path().parse();
        *request.uri_mut() = path.map_err(|_| failed("the path of the URL is invalid"))?;
        add_headers(request.headers_mut(), &to.target, headers);
        let stream = self.proxy.connect(&to.target).await?;
        let response = match &secure {
            Some(target) => send(encrypt(stream, target).await?, request).await?,
            None => send(stream, request).await?,
        };
        read(response, &to.url).await
    }
}

impl WebClient for EgressClient {
    fn access(&self, url: &str) -> Result<(String, WebAccess), WebError> {
        let to = Destination::parse(url)?;
        let access = self.verdict(&to);
        Ok((to.target.to_string(), access))
    }

    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<WebResponse, WebError>> {
        Box::pin(async move {
            let response = timeout(REQUEST_TIMEOUT, self.request(url)).await;
            let late = || {
                WebError(format!(
                    "no response within {} s",
                    REQUEST_TIMEOUT.as_secs()
                ))
            };
            response
                .map_err(|_| late())?
                .map_err(|refusal| WebError(refusal.to_string()))
        })
    }
}

/// Where a URL leads.
struct Destination {
    url: Url,
    target: Target,
    is_secure: bool,
}

impl Destination {
    fn parse(text: &str) -> Result<Self, WebError> {
        let invalid = |why: &str| WebError(format!("invalid URL: {why}"));
        let url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
        let is_secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(invalid("write `https://HOST/…`")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("it has a user name or a password"));
        }
        let host = url.host_str().ok_or_else(|| invalid("it has no host"))?;
        let port = url.port_or_known_default();
        let target = Target::parse(host, port).map_err(|error| invalid(&error.to_string()))?;
        Ok(Self {
            url,
            target,
            is_secure,
        })
    }

    /// Path and query.
    fn path(&self) -> String {
        match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        }
    }
}

fn add_headers(headers: &mut HeaderMap, target: &Target, injected: Vec<(HeaderName, HeaderValue)>) {
    headers.extend(host_header(target).map(|host| (header::HOST, host)));
    for (name, value) in [
        (header::USER_AGENT, "rye"),
        (header::ACCEPT, ACCEPT),
        (header::ACCEPT_ENCODING, "identity"),
        (header::CONNECTION, "close"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.extend(injected);
}

/// Reads the response up to the limit.
async fn read(response: Response<Body>, url: &Url) -> Result<WebResponse, Refusal> {
    let header = |name: HeaderName| {
        let value = response.headers().get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = header(header::LOCATION).filter(|_| is_redirect);
    let redirect = location.and_then(|it| url.join(&it).ok()).map(String::from);
    if let Some(encoding) = header(header::CONTENT_ENCODING)
        && !encoding.eq_ignore_ascii_case("identity")
    {
        let message = format!(
            "the server compresses the document with {encoding}, although it was asked not to"
        );
        return Err(failed(message));
    }
    let mut result = WebResponse {
        status: response.status().as_u16(),
        redirect,
        content_type: header(header::CONTENT_TYPE),
        ..WebResponse::default()
    };
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failed(error.to_string()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let rest = MAX_BODY - result.body.len();
        result.body.extend(&data[..data.len().min(rest)]);
        if data.len() > rest {
            result.is_truncated = true;
            break;
        }
    }
    Ok(result)
}

fn failed(message: impl Into<String>) -> Refusal {
    Refusal::Unreachable(std::io::Error::other(message.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_are_not_plain_http_are_rejected() {
        for url in [
            "example.org",
            "ftp://example.org",
            "file:///etc/passwd",
            "data:text/plain,x",
            "https://user@example.org",
            "https://user:secret@example.org",
            "https://",
            "http://a b",
        ] {
            assert!(Destination::parse(url).is_err(), "{url}");
        }
        for (url, target, path) in [
            ("https://Example.org", "example.org:443", "/"),
            ("http://example.org/a?b=c#d", "example.org:80", "/a?b=c"),
            ("https://bücher.example/", "xn--bcher-kva.example:443", "/"),
            ("http://[::1]:8080/", "[::1]:8080", "/"),
            // Spellings of an address that a resolver would accept.
            ("http://2130706433/", "127.0.0.1:80", "/"),
            ("http://0x7f.1/", "127.0.0.1:80", "/"),
        ] {
            let found = Destination::parse(url).unwrap();
            assert_eq!(found.target.to_string(), target, "{url}");
            assert_eq!(found.path(), path, "{url}");
        }
    }
}
