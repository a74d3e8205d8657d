//! Connects to hosts: resolves the name, checks every address, connects to one of them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rye_engine::BoxFuture;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::address::is_public;
use super::policy::{Host, NetworkPolicy, Target};
use super::{EgressProxy, Refusal};

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Resolves host names to addresses.
pub trait Resolver: Send + Sync {
    /// The addresses of a name, best first.
    fn resolve<'a>(
        &'a self,
        name: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The resolver of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(
        &'a self,
        name: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) })
    }
}

impl EgressProxy {
    /// Connects to a permitted target, at an address that was checked.
    pub(super) async fn connect(&self, target: &Target) -> Result<TcpStream, Refusal> {
        let resolver = &self.setup.resolver;
        let addresses = match &target.host {
            Host::Address(address) => vec![SocketAddr::new(*address, target.port)],
            Host::Name(name) => timeout(RESOLVE_TIMEOUT, resolver.resolve(name, target.port))
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
                .map_err(Refusal::Unresolvable)?,
        };
        let usable = check(&self.setup.policy, target, addresses)?;
        let mut last = io::ErrorKind::NotFound.into();
        for address in usable {
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Only costs latency if it fails.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(Refusal::Unreachable(last))
    }
}

/// The addresses that may be used. Fails if there are addresses, but none of these.
fn check(
    policy: &NetworkPolicy,
    target: &Target,
    addresses: Vec<SocketAddr>,
) -> Result<Vec<SocketAddr>, Refusal> {
    let mut refused = None;
    let mut usable = Vec::new();
    for mut address in addresses {
        address.set_port(target.port);
        if is_public(address.ip()) || policy.private.contains(&address) {
            usable.push(address);
        } else {
            refused = Some(address.ip());
        }
    }
    match refused {
        Some(address) if usable.is_empty() => Err(Refusal::NotPublic(address)),
        _ => Ok(usable),
    }
}
