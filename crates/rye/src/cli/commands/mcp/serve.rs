//! `rye mcp serve`: runs the MCP server.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use anstream::adapter::strip_str;
use lillux::PathContext as _;
use lillux::process::{ShutdownSignals, Supervisor};
use rye_host::gateway::{ItemGateway, Reply};
use rye_host::settings::{Options, variable};
use rye_mcp::server::http::{self, BearerTokens};
use rye_mcp::server::{Server, serve_stdio};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cli::args::ServeArgs;
use crate::cli::context::Context;
use crate::cli::failure::{Exit, Failure};
use crate::cli::page::Page;
use crate::cli::printer::{AlreadyPrinted, Outcome, Report};

/// Default number of requests per second and address, except on loopback.
const RATE: u32 = 100;

pub(crate) fn run(args: &ServeArgs, options: &Options, context: &Context) -> Outcome {
    // It forks, which is cheapest while the process is small.
    let supervisor = Supervisor::start().map_err(|error| unable("start the supervisor", error))?;
    let supervisor = Arc::new(supervisor);
    let server = Server::new(Arc::new(ItemGateway::new(
        options,
        context,
        Arc::clone(&supervisor),
        args.approvals.into(),
        plain_text,
    )));
    // Before any threads start, because a signal would otherwise end the process.
    let signals = SignalStream::new()?;
    let outcome = match args.http {
        None => runtime(true)?.block_on(serve_on_stdio(server, signals)),
        Some(address) => {
            let options = http_options(args, address)?;
            runtime(false)?.block_on(serve_over_http(server, signals, address, options, context))
        }
    };
    if let Some(supervisor) = Arc::into_inner(supervisor) {
        supervisor.shut_down();
    }
    outcome.map(|()| Box::new(AlreadyPrinted) as _)
}

/// The result of a tool as text without colours.
fn plain_text(reply: &Reply) -> String {
    let report: &dyn Report = match reply {
        Reply::Search(found) => found,
        Reply::Item(item) => &**item,
        Reply::Copy(copy) => copy,
        Reply::Signed(batch) => batch,
    };
    let mut page = Page::new(None);
    report.show(&mut page);
    strip_str(page.as_str()).to_string()
}

/// A runtime with one thread for a single client, or several for HTTP.
fn runtime(single_client: bool) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = if single_client {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    if !single_client {
        builder.worker_threads(http::worker_threads());
    }
    let runtime = builder.enable_io().enable_time().build();
    runtime.map_err(|error| unable("serve", error))
}

async fn serve_on_stdio(server: Server, mut signals: SignalStream) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let serving = serve_stdio(server.clone(), stop.clone());
    tokio::pin!(serving);
    let outcome = tokio::select! {
        outcome = &mut serving => outcome,
        () = signals.next() => {
            // Let running calls finish.
            let last = async {
                server.drain().await;
                stop.cancel();
            };
            let last = async { tokio::join!(last, &mut serving).1 };
            tokio::select! {
                outcome = last => outcome,
                () = signals.next() => Ok(()),
            }
        }
    };
    outcome.map_err(|error| unable("serve", error))
}

async fn serve_over_http(
    server: Server,
    mut signals: SignalStream,
    address: SocketAddr,
    options: http::Options,
    context: &Context,
) -> Result<(), Failure> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| unable(&format!("listen on {address}"), error))?;
    let address = listener.local_addr();
    let address = address.map_err(|error| unable("serve", error))?;
    let text = format!("serving on http://{address}{}\n", http::PATH);
    if !context.printer.quiet {
        context.printer.print_stderr(&text);
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
        () = signals.next() => {
            stop.cancel();
            tokio::select! {
                outcome = &mut serving => outcome,
                () = signals.next() => Ok(()),
            }
        }
    };
    outcome.map_err(|error| unable("serve", error))
}

fn http_options(args: &ServeArgs, address: SocketAddr) -> Result<http::Options, Failure> {
    let tokens = match (&args.token_file, variable("RYE_MCP_TOKEN")) {
        (Some(file), _) => {
            let tokens = BearerTokens::parse(&fs::read_to_string(file).at("read", file)?);
            if tokens.is_empty() {
                return Err(Failure::usage("the token file is empty").at(file));
            }
            tokens
        }
        (None, Some(token)) => BearerTokens::parse(&token.to_string_lossy()),
        (None, None) => BearerTokens::default(),
    };
    let is_loopback = address.ip().is_loopback();
    if tokens.is_empty() && !is_loopback {
        let message = format!("{address} is not a loopback address, so a token is required");
        return Err(Failure::new(Exit::Usage, "no_token", message).hint(format!(
            "openssl rand -hex 32 >tokens && rye mcp serve --token-file tokens --http {address}"
        )));
    }
    Ok(http::Options {
        tokens,
        hosts: args.allow_host.clone(),
        origins: args.allow_origin.clone(),
        max_body: usize::from(args.max_body) * 1024 * 1024,
        rate: args.rate.or((!is_loopback).then_some(RATE)),
    })
}

/// Stream of SIGINT and SIGTERM.
struct SignalStream(ShutdownSignals);

impl SignalStream {
    fn new() -> Result<Self, Failure> {
        let signals = ShutdownSignals::listen();
        Ok(Self(
            signals.map_err(|error| unable("wait for signals", error))?,
        ))
    }

    async fn next(&mut self) {
        // After an error no signal arrives any more.
        if self.0.next().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn unable(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::failed("mcp_server", format_args!("cannot {what}: {error}"))
}
