//! `rye mcp serve`

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use lillux::At as _;
use lillux::process::{Asks, Supervisor};
use rye_mcp::server::http::{self, BearerTokens};
use rye_mcp::server::{Server, serve_stdio};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cli::args::ServeArgs;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::gateway::Items;
use crate::cli::printer::{Outcome, Written};
use crate::settings::{Options, variable};

/// Requests a second of one address, where others than this machine may call.
const RATE: u32 = 100;

pub(crate) fn run(args: &ServeArgs, options: &Options, context: &Context) -> Outcome {
    // Forked off first: it copies this process, which is small now.
    let supervisor = Supervisor::start().map_err(|error| unable("keep processes", error))?;
    let supervisor = Arc::new(supervisor);
    let server = Server::new(Arc::new(Items::new(
        options,
        context,
        Arc::clone(&supervisor),
        args.approvals.into(),
    )));
    // Before there are threads, which would be ended by a signal.
    let ends = Ends::new()?;
    let outcome = match args.http {
        None => runtime(true)?.block_on(over_stdio(server, ends)),
        Some(address) => {
            let options = http_options(args, address)?;
            runtime(false)?.block_on(over_http(server, ends, address, options, context))
        }
    };
    if let Some(supervisor) = Arc::into_inner(supervisor) {
        supervisor.shut_down();
    }
    outcome.map(|()| Box::new(Written) as _)
}

/// One client has one thread: it waits for nobody else's messages.
fn runtime(alone: bool) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = if alone {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    if !alone {
        builder.worker_threads(http::worker_threads());
    }
    let runtime = builder.enable_io().enable_time().build();
    runtime.map_err(|error| unable("serve", error))
}

async fn over_stdio(server: Server, mut ends: Ends) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let serving = serve_stdio(server.clone(), stop.clone());
    tokio::pin!(serving);
    let outcome = tokio::select! {
        outcome = &mut serving => outcome,
        () = ends.one() => {
            // What runs may still answer.
            let last = async {
                server.drain().await;
                stop.cancel();
            };
            let last = async { tokio::join!(last, &mut serving).1 };
            tokio::select! {
                outcome = last => outcome,
                () = ends.one() => Ok(()),
            }
        }
    };
    outcome.map_err(|error| unable("go on serving", error))
}

async fn over_http(
    server: Server,
    mut ends: Ends,
    address: SocketAddr,
    options: http::Options,
    context: &Context,
) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| unable(&format!("listen on {address}"), error))?;
    let address = listener.local_addr();
    let address = address.map_err(|error| unable("serve", error))?;
    let words = format!("serving on http://{address}{}\n", http::PATH);
    if !context.printer.quiet {
        context.printer.aside(&words);
    }
    let stop = CancellationToken::new();
    let (connections, last) = (server.clone(), server);
    let serving = http::serve(
        listener,
        move || connections.remote_connection(),
        &options,
        stop.clone(),
        async move { last.drain().await },
    );
    tokio::pin!(serving);
    let outcome = tokio::select! {
        outcome = &mut serving => outcome,
        () = ends.one() => {
            stop.cancel();
            tokio::select! {
                outcome = &mut serving => outcome,
                () = ends.one() => Ok(()),
            }
        }
    };
    outcome.map_err(|error| unable("go on serving", error))
}

fn http_options(args: &ServeArgs, address: SocketAddr) -> Result<http::Options, Failure> {
    let tokens = match (&args.token_file, variable("RYE_MCP_TOKEN")) {
        (Some(file), _) => {
            let tokens = BearerTokens::parse(&fs::read_to_string(file).at("read", file)?);
            if tokens.is_empty() {
                return Err(Failure::usage("there is no token in it").at(file));
            }
            tokens
        }
        (None, Some(token)) => BearerTokens::parse(&token.to_string_lossy()),
        (None, None) => BearerTokens::default(),
    };
    let is_loopback = address.ip().is_loopback();
    if tokens.is_empty() && !is_loopback {
        let message = format!("{address} can be reached by others, so calls need a token");
        return Err(Failure::new(Exit::Usage, "no_token", message)
            .hint("openssl rand -hex 32 >tokens && rye mcp serve --token-file tokens --http …"));
    }
    Ok(http::Options {
        tokens,
        hosts: args.allow_host.clone(),
        origins: args.allow_origin.clone(),
        max_body: usize::from(args.max_body) * 1024 * 1024,
        rate: args.rate.or((!is_loopback).then_some(RATE)),
    })
}

/// Signals to end.
struct Ends(Asks);

impl Ends {
    fn new() -> Result<Self, Failure> {
        let asks = Asks::listen();
        Ok(Self(
            asks.map_err(|error| unable("wait for signals", error))?,
        ))
    }

    async fn one(&mut self) {
        // What cannot be heard does not come.
        if self.0.next().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn unable(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::failed("mcp_server", format_args!("cannot {what}: {error}"))
}
