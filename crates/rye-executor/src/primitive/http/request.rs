//! HTTP requests built from a tool's configuration.

use reqwest::header::{
    ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use reqwest::{Method, Response, Url};
use serde_json::{Map, Value};

use crate::primitive::CallFailure;

const FORM: &str = "application/x-www-form-urlencoded";

/// A request that is ready to be sent.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Vec<u8>>,
    /// Maximum number of retries.
    pub(super) retries: u64,
    /// Whether to follow redirects to other origins.
    follows_other_origins: bool,
}

impl Request {
    /// Builds the request from a configuration that matches the primitive's schema.
    pub(super) fn from_config(config: &Map<String, Value>) -> Result<Self, CallFailure> {
        let method = config.get("method").and_then(Value::as_str);
        let method = method.unwrap_or("GET").to_ascii_uppercase();
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| invalid(format!("unknown method `{method}`")))?;
        let url = config.get("url").and_then(Value::as_str);
        let mut url = parse_url(url.unwrap_or_default(), None)?;
        let query = config.get("query").and_then(Value::as_object);
        if let Some(query) = query.filter(|query| !query.is_empty()) {
            append_pairs(&mut url, query);
        }
        let mut headers = headers(config)?;
        let body = config.get("body").filter(|body| !body.is_null());
        let body = body.map(|body| encode_body(body, &mut headers));
        Ok(Self {
            method,
            url,
            headers,
            body,
            retries: config.get("retries").and_then(Value::as_u64).unwrap_or(0),
            follows_other_origins: config.get("redirects").and_then(Value::as_str)
                == Some("follow"),
        })
    }

    /// Whether repeating the request has no further effect.
    pub(super) fn is_idempotent(&self) -> bool {
        self.method.is_idempotent()
    }

    /// The next request if the response is a redirect. Body and headers are never sent to
    /// another origin (scheme, host and port).
    pub(super) fn redirected(&self, response: &Response) -> Result<Option<Self>, CallFailure> {
        let status = response.status().as_u16();
        let location = response.headers().get(LOCATION);
        let (301 | 302 | 303 | 307 | 308, Some(location)) = (status, location) else {
            return Ok(None);
        };
        let location = String::from_utf8_lossy(location.as_bytes());
        let mut next = self.clone();
        next.url = parse_url(&location, Some(&self.url))?;
        let (from, to) = (self.url.origin(), next.url.origin());
        let refused = |reason: &str| {
            let (from, to) = (from.ascii_serialization(), to.ascii_serialization());
            CallFailure::new(
                "unsafe_redirect",
                format!("refused the redirect from {from} to {to}: {reason}"),
            )
        };
        if self.url.scheme() == "https" && next.url.scheme() == "http" {
            return Err(refused("it downgrades https to http"));
        }
        let becomes_get = status == 303 && self.method != Method::HEAD
            || matches!(status, 301 | 302) && self.method == Method::POST;
        if becomes_get {
            next.method = Method::GET;
            next.body = None;
            next.headers.remove(CONTENT_TYPE);
        }
        if from == to {
            return Ok(Some(next));
        }
        if !self.follows_other_origins {
            let hint = "to allow it, set `redirects: follow` in the tool's `config`";
            return Err(refused("it leads to another origin").with_hint(hint));
        }
        if !matches!(next.method, Method::GET | Method::HEAD) || next.body.is_some() {
            return Err(refused("the body must not be sent to another origin"));
        }
        next.headers = std::mem::take(&mut next.headers)
            .into_iter()
            .filter_map(|(name, value)| Some((name?, value)))
            .filter(|(name, _)| [ACCEPT, ACCEPT_LANGUAGE].contains(name))
            .collect();
        Ok(Some(next))
    }
}

fn parse_url(text: &str, base: Option<&Url>) -> Result<Url, CallFailure> {
    let url = Url::options().base_url(base).parse(text);
    let url = url.map_err(|error| invalid(format!("invalid URL `{text}`: {error}")))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(invalid(format!(
            "unsupported URL scheme `{other}`; use http:// or https://"
        ))),
    }
}

fn headers(config: &Map<String, Value>) -> Result<HeaderMap, CallFailure> {
    let mut headers = HeaderMap::new();
    let given = config.get("headers").and_then(Value::as_object);
    for (name, value) in given.into_iter().flatten() {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let parsed = parsed.map_err(|_| invalid(format!("invalid header name `{name}`")))?;
        // The message must not contain the value, which may be a secret.
        let value = HeaderValue::from_str(&text(value))
            .map_err(|_| invalid(format!("invalid value of the header `{name}`")))?;
        headers.insert(parsed, value);
    }
    Ok(headers)
}

/// Encodes strings as text, objects as a form if the content type says so, other values as JSON.
fn encode_body(body: &Value, headers: &mut HeaderMap) -> Vec<u8> {
    let content_type = headers.get(CONTENT_TYPE);
    let is_form = content_type.is_some_and(|it| it.as_bytes().starts_with(FORM.as_bytes()));
    let (bytes, content_type) = match body {
        Value::String(text) => (text.clone(), "text/plain; charset=utf-8"),
        Value::Object(fields) if is_form => (form(fields), FORM),
        other => (other.to_string(), "application/json"),
    };
    headers
        .entry(CONTENT_TYPE)
        .or_insert(HeaderValue::from_static(content_type));
    bytes.into_bytes()
}

fn form(fields: &Map<String, Value>) -> String {
    let Ok(mut url) = Url::parse("http://form/") else {
        return String::new();
    };
    append_pairs(&mut url, fields);
    url.query().unwrap_or_default().to_owned()
}

/// Appends query pairs to a URL: one per item of a list, none for null.
fn append_pairs(url: &mut Url, fields: &Map<String, Value>) {
    let mut pairs = url.query_pairs_mut();
    for (name, value) in fields {
        match value {
            Value::Null => {}
            Value::Array(items) => {
                for item in items {
                    pairs.append_pair(name, &text(item));
                }
            }
            other => {
                pairs.append_pair(name, &text(other));
            }
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn invalid(message: String) -> CallFailure {
    CallFailure::new("invalid_request", message)
}
