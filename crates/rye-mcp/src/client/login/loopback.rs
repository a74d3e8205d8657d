//! Local HTTP server that receives the OAuth redirect of the browser.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Path of the redirect URI.
const PATH: &str = "/callback";
/// Maximum size of a request head, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// How long a request may take to arrive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

const SUCCESS_PAGE: &str = "You are logged in. You can close this page.\n";
const REFUSED_PAGE: &str = "You are not logged in. The terminal shows the reason.\n";

/// Listens on the loopback interface for the redirect.
pub(super) struct Loopback {
    listener: TcpListener,
    redirect_uri: String,
}

impl Loopback {
    /// Listens on a port; 0 means any free port.
    pub(super) async fn open(port: u16) -> Result<Self, String> {
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

    pub(super) fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    /// Waits for the browser and returns the redirect URL with its query.
    pub(super) async fn wait_for_redirect(&self) -> Result<String, String> {
        loop {
            let accepted = self.listener.accept().await;
            let (mut stream, _) = accepted.map_err(|error| error.to_string())?;
            let Some(query) = query(&mut stream).await else {
                continue;
            };
            let refused = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("error="));
            let body = if refused.is_none() {
                SUCCESS_PAGE
            } else {
                REFUSED_PAGE
            };
            respond(&mut stream, "200 OK", body).await;
            return match refused {
                None => Ok(format!("{}?{query}", self.redirect_uri)),
                Some(why) => Err(format!("the login was refused: {}", sanitize(why))),
            };
        }
    }
}

/// Query of a request for the redirect path. Answers other requests with 404.
async fn query(stream: &mut TcpStream) -> Option<String> {
    let head = tokio::time::timeout(REQUEST_TIMEOUT, head(stream)).await;
    let head = head.ok()??;
    let line = head.lines().next().unwrap_or_default();
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    let Some(query) = target
        .strip_prefix(PATH)
        .and_then(|it| it.strip_prefix('?'))
    else {
        respond(stream, "404 Not Found", "Not found.\n").await;
        return None;
    };
    Some(query.to_owned())
}

async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut chunk = [0; 1024];
        let count = stream.read(&mut chunk).await.ok()?;
        if count == 0 || head.len() + count > MAX_HEAD {
            return None;
        }
        head.extend_from_slice(&chunk[..count]);
    }
    String::from_utf8(head).ok()
}

/// Sends a response; errors are ignored because the browser may be gone.
async fn respond(stream: &mut TcpStream, status: &str, body: &str) {
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
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
