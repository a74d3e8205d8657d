//! Server for the official MCP conformance suite: the Rye server with additional tools, resources
//! and prompts that the suite expects.
//!
//! Prints its URL and ends when its standard input is closed, so that it does not outlive its
//! parent. `cargo xtask test --only conformance` runs it.

mod fixtures;
mod gateway;
#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::sync::Arc;

use fixtures::Fixtures;
use gateway::SystemGateway;
use lillux::process::Supervisor;
use rye_mcp::server::{Server, http};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

fn main() -> io::Result<()> {
    // Forked first, while the process is small.
    let supervisor = Supervisor::start().map_err(io::Error::other)?;
    let dir = tempfile::tempdir()?;
    let gateway = SystemGateway::new(dir.path(), Arc::new(supervisor));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(Server::new(Arc::new(gateway))))
}

async fn serve(server: Server) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    // The suite recognises a local server by the name `localhost`.
    let port = listener.local_addr()?.port();
    writeln!(io::stdout(), "http://localhost:{port}{}", http::PATH)?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        stopping.cancel();
    });
    let fixtures = Fixtures::new(server.clone());
    let make = move || fixtures.connection();
    let options = http::Options::default();
    http::serve(listener, make, &options, stop, async move {
        server.drain().await;
    })
    .await
}
