//! `rye sandbox serve`: the other end of the `remote` and `docker` sandboxes.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rye_host::SandboxKind;
use rye_host::engine::{confinement, runtime, start_supervisor};
use rye_host::sandbox::{
    SandboxOptions, SandboxServer, Secret, ServeOptions, build_here, tls_acceptor,
};
use tokio::net::TcpListener;

use crate::cli::args::SandboxServeArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::printer::{AlreadyPrinted, Outcome};

pub(crate) fn run(args: &SandboxServeArgs, context: &Context) -> Outcome {
    // It forks, so it must start before any threads.
    let supervisor = Arc::new(start_supervisor()?);
    let options = SandboxOptions {
        kind: SandboxKind::Confined,
        resume_in: None,
        workspace: None,
        project: args.workspace.clone(),
        // Only sessions have changes to review.
        review: false,
        confinement: confinement(context)?,
        protected: context.protected(),
    };
    let sandbox = build_here(
        args.sandbox.into(),
        &args.workspace,
        &options,
        None,
        &supervisor,
    )?;
    let secret = args.token_file.as_deref().map(read_secret).transpose()?;
    let options = ServeOptions {
        secret,
        client_timeout: Duration::from_secs(args.client_timeout),
    };
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let server = SandboxServer::new(sandbox, options);
        match args.listen {
            None => {
                let served = server.serve_stdio(tokio::io::stdin(), tokio::io::stdout());
                served.await.map_err(failure)
            }
            Some(address) => listen(&server, address, args, context).await,
        }
    });
    // A read of standard input may be under way.
    runtime.shutdown_background();
    outcome.map(|()| Box::new(AlreadyPrinted) as _)
}

async fn listen(
    server: &SandboxServer,
    address: SocketAddr,
    args: &SandboxServeArgs,
    context: &Context,
) -> Result<(), Failure> {
    let tls = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
    let tls = tls.map(|(certificate, key)| tls_acceptor(certificate, key));
    let tls = tls.transpose().map_err(failure)?;
    if tls.is_none() && !address.ip().is_loopback() {
        let message = format!("serving {address} without TLS would send secrets in clear text");
        return Err(Failure::usage(message).hint("rye sandbox serve --help"));
    }
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| failure(format_args!("cannot listen on {address}: {error}")))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let address = listener.local_addr().map_err(failure)?;
    if !context.printer.quiet {
        let text = format!("serving on {scheme}://{address}\n");
        context.printer.print_stderr(&text);
    }
    server.serve_tcp(listener, tls).await;
    Ok(())
}

fn read_secret(path: &Path) -> Result<Secret, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| failure(format_args!("cannot read {}: {error}", path.display())))?;
    Secret::new(&text).ok_or_else(|| {
        let message = format!(
            "the secret in {} has fewer than 32 characters",
            path.display()
        );
        let hint = format!("openssl rand -hex 32 >{}", lillux::shell_word(path));
        Failure::usage(message).hint(hint)
    })
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::failed("sandbox", error)
}
