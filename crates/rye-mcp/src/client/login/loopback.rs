//! Where a browser brings the code: an address of this machine, for as long as it takes.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The path of the address.
const PATH: &str = "/callback";
/// The longest request.
const LONGEST: usize = 16 * 1024;
/// How long one may take to come.
const PATIENCE: Duration = Duration::from_secs(10);

const THANKS: &str = "You are logged in. This page can be closed.\n";
const REFUSED: &str = "You are not logged in. The terminal says why.\n";

pub(super) struct Loopback {
    listener: TcpListener,
    address: String,
}

impl Loopback {
    /// Listens on a port, or on any if it is 0.
    pub(super) async fn open(port: u16) -> Result<Self, String> {
        let opened = async {
            let listener = TcpListener::bind(("127.0.0.1", port)).await?;
            let address = format!("http://{}{PATH}", listener.local_addr()?);
            Ok::<_, std::io::Error>(Self { listener, address })
        };
        let opened = opened.await;
        opened.map_err(|error| format!("cannot listen for the browser: {error}"))
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Waits for the browser, and gives the whole address that it came with.
    pub(super) async fn called(&self) -> Result<String, String> {
        loop {
            let accepted = self.listener.accept().await;
            let (mut stream, _) = accepted.map_err(|error| error.to_string())?;
            let Some(query) = query(&mut stream).await else {
                continue;
            };
            let refusal = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("error="));
            let words = if refusal.is_none() { THANKS } else { REFUSED };
            answer(&mut stream, "200 OK", words).await;
            return match refusal {
                None => Ok(format!("{}?{query}", self.address)),
                Some(why) => Err(format!("the login was refused: {}", plain(why))),
            };
        }
    }
}

/// What a request for the path asks with; any other request is turned away.
async fn query(stream: &mut TcpStream) -> Option<String> {
    let head = tokio::time::timeout(PATIENCE, head(stream)).await;
    let head = head.ok()??;
    let line = head.lines().next().unwrap_or_default();
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    let Some(query) = target
        .strip_prefix(PATH)
        .and_then(|it| it.strip_prefix('?'))
    else {
        answer(stream, "404 Not Found", "There is nothing here.\n").await;
        return None;
    };
    Some(query.to_owned())
}

async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await.ok()?;
        if count == 0 || head.len() + count > LONGEST {
            return None;
        }
        head.extend_from_slice(&piece[..count]);
    }
    String::from_utf8(head).ok()
}

/// A browser that is gone has to be told nothing.
async fn answer(stream: &mut TcpStream, status: &str, words: &str) {
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{words}",
        words.len()
    );
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// A word that came with an address, without what a terminal would take for a command.
fn plain(word: &str) -> String {
    let good = |c: &char| c.is_ascii_alphanumeric() || "_-. ".contains(*c);
    word.replace('+', " ")
        .chars()
        .filter(good)
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(address: &str, target: &str) -> String {
        let host = address.strip_prefix("http://").unwrap();
        let host = host.split('/').next().unwrap();
        let mut stream = TcpStream::connect(host).await.unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn only_the_path_that_was_given_is_taken() {
        let loopback = Loopback::open(0).await.unwrap();
        let address = loopback.address().to_owned();
        let asking = async {
            assert!(ask(&address, "/favicon.ico").await.contains("404"));
            assert!(ask(&address, "/callback").await.contains("404"));
            ask(&address, "/callback?code=a&state=b").await
        };
        let (called, answer) = tokio::join!(loopback.called(), asking);
        assert_eq!(called.unwrap(), format!("{address}?code=a&state=b"));
        assert!(answer.contains("You are logged in."), "{answer}");
    }

    #[tokio::test]
    async fn a_refusal_is_told() {
        let loopback = Loopback::open(0).await.unwrap();
        let address = loopback.address().to_owned();
        let asking = ask(&address, "/callback?error=access_denied%1b[2J&state=b");
        let (called, answer) = tokio::join!(loopback.called(), asking);
        let error = called.unwrap_err();
        assert_eq!(error, "the login was refused: access_denied1b2J");
        assert!(answer.contains("You are not logged in."), "{answer}");
    }
}
