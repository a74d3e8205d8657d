//! Relays the bytes of a `CONNECT` request, after a check of the client's first message.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client_hello::{self, ClientHello, HANDSHAKE, ReadError};
use super::policy::{Host, Target};
use super::{EgressProxy, IDLE_TIMEOUT, Refusal};

/// The port on which only TLS is relayed.
const HTTPS: u16 = 443;

/// The alert `unrecognized_name` of TLS, which clients show.
const UNRECOGNISED_NAME: [u8; 7] = [21, 3, 1, 0, 2, 2, 112];

const BUFFER_SIZE: usize = 32 * 1024;

impl EgressProxy {
    /// Relays until both sides have ended, one fails, or no data came for a while.
    pub(super) async fn relay(
        &self,
        client: impl AsyncRead + AsyncWrite,
        server: TcpStream,
        target: &Target,
    ) {
        let (mut client_in, client_out) = tokio::io::split(client);
        let client_out = tokio::sync::Mutex::new(client_out);
        let (server_in, mut server_out) = server.into_split();
        let activity = Activity::default();
        let to_server = async {
            let first = match read_first(&mut client_in, target).await? {
                Ok(first) => first,
                Err(refusal) => {
                    self.report(target, &refusal);
                    let mut client = client_out.lock().await;
                    client.write_all(&UNRECOGNISED_NAME).await?;
                    client.flush().await?;
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
            };
            server_out.write_all(&first).await?;
            copy(&mut client_in, &mut server_out, &activity).await
        };
        // Some servers speak first.
        let to_client = async {
            let mut server_in = server_in;
            let mut buffer = vec![0; BUFFER_SIZE];
            loop {
                let count = activity.read(&mut server_in, &mut buffer).await?;
                let mut client = client_out.lock().await;
                if count == 0 {
                    return client.shutdown().await;
                }
                client
                    .write_all(buffer.get(..count).unwrap_or_default())
                    .await?;
                client.flush().await?;
            }
        };
        // An end of either side is how every tunnel ends.
        let _ = tokio::try_join!(to_server, to_client);
    }
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_SIZE];
    loop {
        let count = activity.read(from, &mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..count).unwrap_or_default())
            .await?;
    }
}

/// When data last came from either side.
struct Activity {
    start: Instant,
    /// Milliseconds after the start.
    last: AtomicU64,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
        }
    }
}

impl Activity {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Reads; fails if neither side sent data for the idle timeout.
    async fn read(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        loop {
            if let Ok(count) = timeout(IDLE_TIMEOUT, from.read(buffer)).await {
                self.last.store(self.now(), Ordering::Relaxed);
                return count;
            }
            let idle = self.now().saturating_sub(self.last.load(Ordering::Relaxed));
            if u128::from(idle) >= IDLE_TIMEOUT.as_millis() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

/// Reads the client's first message, and checks that it is one for the target.
async fn read_first(
    client: &mut (impl AsyncRead + Unpin),
    target: &Target,
) -> io::Result<Result<Vec<u8>, Refusal>> {
    let mut first = Vec::new();
    loop {
        let read = timeout(IDLE_TIMEOUT, client.read_buf(&mut first)).await;
        let count = read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        if first.first().is_none_or(|kind| *kind != HANDSHAKE) {
            // It speaks another protocol, or has nothing to say.
            return Ok(match target.port {
                HTTPS if count > 0 => Err(Refusal::NotTls),
                _ => Ok(first),
            });
        }
        match client_hello::parse(&first) {
            Ok(hello) => return Ok(check(&hello, target).map(|()| first)),
            Err(ReadError::Incomplete) if count > 0 && first.len() < client_hello::MAX_SIZE => {}
            Err(_) => return Ok(Err(Refusal::NotTls)),
        }
    }
}

/// The server name must be the host of the request. A client sends none for an address.
fn check(hello: &ClientHello, target: &Target) -> Result<(), Refusal> {
    if hello.is_encrypted {
        return Err(Refusal::EncryptedServerName);
    }
    match (&hello.server_name, &target.host) {
        (Some(name), Host::Name(host)) if name == host => Ok(()),
        (None, Host::Address(_)) => Ok(()),
        (None, Host::Name(_)) => Err(Refusal::NoServerName),
        (Some(name), _) => Err(Refusal::ServerName(
            lillux::sanitize_line(name).into_owned(),
        )),
    }
}
