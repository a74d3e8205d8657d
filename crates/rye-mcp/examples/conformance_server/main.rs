//! The server that the official conformance suite is run against: ours, with the tools,
//! resources and prompts beside its own that the suite looks for by name.
//!
//! It prints its address, and ends when its standard input does, so that it never outlives
//! whoever started it. `cargo xtask test --only conformance` does.

mod fixtures;
mod gateway;
#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::sync::Arc;

use fixtures::Fixtures;
use gateway::System;
use lillux::process::Supervisor;
use rye_mcp::server::{Server, http};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

fn main() -> io::Result<()> {
    // Forked off first: it copies this process, which is small now.
    let supervisor = Supervisor::start().map_err(io::Error::other)?;
    let folder = tempfile::tempdir()?;
    let gateway = System::new(folder.path(), Arc::new(supervisor));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(Server::new(Arc::new(gateway))))
}

async fn serve(server: Server) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    // The suite tells a server that listens on this machine alone by its name.
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
