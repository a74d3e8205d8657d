//! A request as the configuration describes it.

use reqwest::header::{
    ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use reqwest::{Method, Response, Url};
use serde_json::{Map, Value};

use crate::primitive::CallFailure;

const FORM: &str = "application/x-www-form-urlencoded";

/// A request that can be sent.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Vec<u8>>,
    /// How often it may be sent again.
    pub(super) retries: u64,
    /// Whether a redirect to another origin is followed.
    leaves_origin: bool,
}

impl Request {
    /// Reads a configuration, which fits the schema.
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, CallFailure> {
        let method = config.get("method").and_then(Value::as_str);
        let method = method.unwrap_or("GET").to_ascii_uppercase();
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| wrong(format!("there is no method `{method}`")))?;
        let url = config.get("url").and_then(Value::as_str);
        let mut url = address(url.unwrap_or_default(), None)?;
        let query = config.get("query").and_then(Value::as_object);
        if let Some(query) = query.filter(|query| !query.is_empty()) {
            put_pairs(&mut url, query);
        }
        let mut headers = headers(config)?;
        let body = config.get("body").filter(|body| !body.is_null());
        let body = body.map(|body| encoded(body, &mut headers));
        Ok(Self {
            method,
            url,
            headers,
            body,
            retries: config.get("retries").and_then(Value::as_u64).unwrap_or(0),
            leaves_origin: config.get("redirects").and_then(Value::as_str) == Some("follow"),
        })
    }

    /// Whether sending it twice does what sending it once does.
    pub(super) fn is_idempotent(&self) -> bool {
        self.method.is_idempotent()
    }

    /// The request that an answer asks for instead, if it is a redirect. The body stays within
    /// the origin (scheme, host and port) that it was meant for, and so do the headers.
    pub(super) fn redirected(&self, response: &Response) -> Result<Option<Self>, CallFailure> {
        let status = response.status().as_u16();
        let place = response.headers().get(LOCATION);
        let (301 | 302 | 303 | 307 | 308, Some(place)) = (status, place) else {
            return Ok(None);
        };
        let place = String::from_utf8_lossy(place.as_bytes());
        let mut next = self.clone();
        next.url = address(&place, Some(&self.url))?;
        let (from, to) = (self.url.origin(), next.url.origin());
        let refused = |why: &str| {
            let (from, to) = (from.ascii_serialization(), to.ascii_serialization());
            CallFailure::new(
                "unsafe_redirect",
                format!("the redirect from {from} to {to} is not followed: {why}"),
            )
        };
        if self.url.scheme() == "https" && next.url.scheme() == "http" {
            return Err(refused("it leaves https"));
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
        if !self.leaves_origin {
            let hint = "a tool that means it sets `redirects: follow` in its `config`";
            return Err(refused("it leads to another origin").with_hint(hint));
        }
        if !matches!(next.method, Method::GET | Method::HEAD) || next.body.is_some() {
            return Err(refused("what was to be sent is meant for the first origin"));
        }
        next.headers = std::mem::take(&mut next.headers)
            .into_iter()
            .filter_map(|(name, value)| Some((name?, value)))
            .filter(|(name, _)| [ACCEPT, ACCEPT_LANGUAGE].contains(name))
            .collect();
        Ok(Some(next))
    }
}

fn address(text: &str, base: Option<&Url>) -> Result<Url, CallFailure> {
    let url = Url::options().base_url(base).parse(text);
    let url = url.map_err(|error| wrong(format!("`{text}` is no address: {error}")))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(wrong(format!(
            "`{other}` is not spoken here; an address begins with http:// or https://"
        ))),
    }
}

fn headers(config: &Map<String, Value>) -> Result<HeaderMap, CallFailure> {
    let mut headers = HeaderMap::new();
    let given = config.get("headers").and_then(Value::as_object);
    for (name, value) in given.into_iter().flatten() {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let parsed = parsed.map_err(|_| wrong(format!("`{name}` is no name of a header")))?;
        // The value may be a secret, so it is not repeated.
        let value = HeaderValue::from_str(&text(value))
            .map_err(|_| wrong(format!("the value of the header `{name}` cannot be sent")))?;
        headers.insert(parsed, value);
    }
    Ok(headers)
}

/// Text as it is, a form where the headers say so, everything else as JSON.
fn encoded(body: &Value, headers: &mut HeaderMap) -> Vec<u8> {
    let kind = headers.get(CONTENT_TYPE);
    let is_form = kind.is_some_and(|kind| kind.as_bytes().starts_with(FORM.as_bytes()));
    let (bytes, kind) = match body {
        Value::String(text) => (text.clone(), "text/plain; charset=utf-8"),
        Value::Object(fields) if is_form => (form(fields), FORM),
        other => (other.to_string(), "application/json"),
    };
    headers
        .entry(CONTENT_TYPE)
        .or_insert(HeaderValue::from_static(kind));
    bytes.into_bytes()
}

fn form(fields: &Map<String, Value>) -> String {
    let Ok(mut url) = Url::parse("http://form/") else {
        return String::new();
    };
    put_pairs(&mut url, fields);
    url.query().unwrap_or_default().to_owned()
}

/// Adds pairs to an address: one for each item of a list, none for null.
fn put_pairs(url: &mut Url, fields: &Map<String, Value>) {
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

fn wrong(why: String) -> CallFailure {
    CallFailure::new("invalid_request", why)
}
