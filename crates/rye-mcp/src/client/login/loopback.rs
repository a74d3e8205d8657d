//! Local HTTP server that receives the OAuth redirect of the browser.

use std::time::Duration;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Path of the redirect URI.
const PATH: &str = "/callback";
/// How long to wait until the browser has received the page.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

const SUCCESS_PAGE: &str = "You are logged in. You can close this page.\n";
const REFUSED_PAGE: &str = "You are not logged in. The terminal shows the reason.\n";

/// Listens on the loopback interface for the redirect of a browser.
#[derive(Debug)]
pub struct Loopback {
    listener: TcpListener,
    redirect_uri: String,
}

impl Loopback {
    /// Listens on a port; 0 means any free port. The error is a message for people.
    pub async fn open(port: u16) -> Result<Self, String> {
        let bound = async {
            let listener = TcpListener::bind(("127.0.0.1", port)).await?;
            let redirect_uri = format!("http://{}{PATH}", listener.local_addr()?);
            Ok::<_, std::io::Error>(Self {
                listener,
                redirect_uri,
            })
        };
        let bound = bound.await;
        bound.map_err(|error| format!("cannot listen for the browser: {error}"))
    }

    /// The address to which the browser must be redirected.
    pub fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    /// Waits for the browser and returns the redirect URL with its query. The error is a message for
    /// people.
    pub async fn wait_for_redirect(self) -> Result<String, String> {
        let (sender, mut queries) = mpsc::channel(1);
        let callback = |RawQuery(query): RawQuery| async move {
            let Some(query) = query else {
                return not_found().await.into_response();
            };
            let page = refusal(&query).map_or(SUCCESS_PAGE, |_| REFUSED_PAGE);
            let _ = sender.try_send(query);
            ([(header::CONNECTION, "close")], page).into_response()
        };
        let router = Router::new().route(PATH, get(callback)).fallback(not_found);
        let stop = CancellationToken::new();
        let serve = axum::serve(self.listener, router)
            .with_graceful_shutdown(stop.clone().cancelled_owned())
            .into_future();
        let mut serve = std::pin::pin!(serve);
        let query = tokio::select! {
            Some(query) = queries.recv() => query,
            _ = &mut serve => return Err("cannot accept the browser".to_owned()),
        };
        stop.cancel();
        let _ = tokio::time::timeout(RESPONSE_TIMEOUT, serve).await;
        match refusal(&query) {
            None => Ok(format!("{}?{query}", self.redirect_uri)),
            Some(why) => Err(format!("the login was refused: {}", sanitize(why))),
        }
    }
}

/// The reason in the query of a refused login.
fn refusal(query: &str) -> Option<&str> {
    let mut pairs = query.split('&');
    pairs.find_map(|pair| pair.strip_prefix("error="))
}

async fn not_found() -> impl IntoResponse {
    let close = [(header::CONNECTION, "close")];
    (StatusCode::NOT_FOUND, close, "Not found.\n")
}

/// Removes characters of a query value that could steer a terminal.
fn sanitize(word: &str) -> String {
    let is_allowed = |c: &char| c.is_ascii_alphanumeric() || "_-. ".contains(*c);
    word.replace('+', " ")
        .chars()
        .filter(is_allowed)
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    async fn get(redirect_uri: &str, target: &str) -> String {
        let host = redirect_uri.strip_prefix("http://").unwrap();
        let host = host.split('/').next().unwrap();
        let mut stream = TcpStream::connect(host).await.unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn only_the_redirect_path_is_accepted() {
        let loopback = Loopback::open(0).await.unwrap();
        let redirect_uri = loopback.redirect_uri().to_owned();
        let request = async {
            assert!(get(&redirect_uri, "/favicon.ico").await.contains("404"));
            assert!(get(&redirect_uri, "/callback").await.contains("404"));
            get(&redirect_uri, "/callback?code=a&state=b").await
        };
        let (redirect, answer) = tokio::join!(loopback.wait_for_redirect(), request);
        assert_eq!(redirect.unwrap(), format!("{redirect_uri}?code=a&state=b"));
        assert!(answer.contains("You are logged in."), "{answer}");
    }

    #[tokio::test]
    async fn refused_login_is_an_error() {
        let loopback = Loopback::open(0).await.unwrap();
        let redirect_uri = loopback.redirect_uri().to_owned();
        let request = get(&redirect_uri, "/callback?error=access_denied%1b[2J&state=b");
        let (redirect, answer) = tokio::join!(loopback.wait_for_redirect(), request);
        let error = redirect.unwrap_err();
        assert_eq!(error, "the login was refused: access_denied1b2J");
        assert!(answer.contains("You are not logged in."), "{answer}");
    }
}
