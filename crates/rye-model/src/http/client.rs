//! HTTP clients with connection pools.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;

/// Timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(20);

/// An error with its causes, without the URL, which may contain a secret.
pub(super) fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// The client for a URL. Plain HTTP needs no certificates and does not wait until the
/// system's are loaded.
pub(super) fn client(url: &str) -> Result<Client, String> {
    static PLAIN: OnceLock<Result<Client, String>> = OnceLock::new();
    static SAFE: OnceLock<Result<Client, String>> = OnceLock::new();
    let made = if url.starts_with("http://") {
        PLAIN.get_or_init(|| make(builder().tls_certs_only([])))
    } else {
        SAFE.get_or_init(|| make(builder()))
    };
    made.clone()
}

fn builder() -> reqwest::ClientBuilder {
    // Another part of the program may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .tcp_nodelay(true)
        .connect_timeout(CONNECT)
        // Never send the key to another host.
        .redirect(Policy::none())
        .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")))
}

fn make(builder: reqwest::ClientBuilder) -> Result<Client, String> {
    let made = builder.build();
    made.map_err(|error| format!("no HTTP client can be made: {}", causes(error)))
}
