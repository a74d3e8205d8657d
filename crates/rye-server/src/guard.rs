//! Checks `Host` and `Origin`, so that a web page cannot use a visitor's browser to call a server
//! on the same machine.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::problem::Problem;

/// The names under which the server may be called.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Lower-case host names without port.
    hosts: BTreeSet<String>,
    /// Origins of web pages on other hosts.
    origins: BTreeSet<String>,
}

impl Guard {
    /// Permits loopback names, the address of the server, and what the options name.
    pub(crate) fn new(address: SocketAddr, hosts: &[String], origins: &[String]) -> Self {
        let loopback = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
        let ip = address.ip();
        let bound = (!ip.is_unspecified()).then(|| match ip {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        });
        let named = hosts.iter().map(|host| host.to_ascii_lowercase());
        let origins = origins.iter().map(|origin| origin.to_ascii_lowercase());
        Self {
            hosts: loopback.into_iter().chain(bound).chain(named).collect(),
            origins: origins.collect(),
        }
    }

    fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let forbidden = |code, detail: &str| Problem::new(StatusCode::FORBIDDEN, code, detail);
        let text = |name| {
            let value = headers.get(name)?;
            // An unreadable value matches nothing.
            Some(value.to_str().unwrap_or("?").to_ascii_lowercase())
        };
        let host = text(header::HOST).or_else(|| uri.authority().map(ToString::to_string));
        let Some(host) = host else {
            return Err(Problem::invalid(
                "no_host",
                "the request has no Host header",
            ));
        };
        if !self.hosts.contains(without_port(&host)) {
            let detail = "the server does not serve this Host";
            return Err(
                forbidden("foreign_host", detail).hint("rye serve --allow-host rye.example.org")
            );
        }
        let Some(origin) = text(header::ORIGIN) else {
            return Ok(());
        };
        let is_same = origin
            .split_once("://")
            .is_some_and(|(_, authority)| authority == host);
        if is_same || self.origins.contains(&origin) {
            return Ok(());
        }
        Err(forbidden(
            "foreign_origin",
            "requests of this Origin are not permitted",
        )
        .hint("rye serve --allow-origin https://app.example.org"))
    }
}

/// A host name without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Middleware that refuses requests under a foreign name.
pub(crate) async fn check(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    match guard.check(request.headers(), request.uri()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn is_permitted(host: &str, origin: Option<&str>) -> bool {
        let guard = Guard::new(
            "10.0.0.1:8080".parse().unwrap(),
            &["Rye.example.org".to_owned()],
            &["https://app.example.org".to_owned()],
        );
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        guard.check(&headers, &Uri::from_static("/")).is_ok()
    }

    #[test]
    fn own_names_are_permitted_with_any_port() {
        for host in [
            "localhost",
            "127.0.0.1:99",
            "[::1]:8080",
            "10.0.0.1",
            "RYE.example.org:443",
        ] {
            assert!(is_permitted(host, None), "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.",
            "",
            "::1",
        ] {
            assert!(!is_permitted(host, None), "{host}");
        }
    }

    #[test]
    fn pages_of_the_server_itself_and_permitted_ones_may_call_it() {
        let is_permitted = |origin| is_permitted("localhost:8080", Some(origin));
        assert!(is_permitted("http://localhost:8080"));
        assert!(is_permitted("https://app.example.org"));
        for origin in [
            "http://localhost:9999",
            "https://evil.example",
            "null",
            "localhost:8080",
        ] {
            assert!(!is_permitted(origin), "{origin}");
        }
    }
}
