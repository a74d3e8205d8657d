//! `rye serve`: serves the engine over HTTP.

use rye_engine::Upkeep;
use rye_host::settings;
use rye_server::{OidcOptions, Options, Ready, Scope};
use serde_json::json;

use crate::cli::args::ServeHttpArgs;
use crate::cli::context::Context;
use crate::cli::printer::{AlreadyPrinted, Outcome, document};

pub(crate) fn run(
    args: &ServeHttpArgs,
    settings: &settings::Options,
    context: &Context,
) -> Outcome {
    let options = Options {
        address: args.addr,
        public_url: args.public_url.clone(),
        hosts: args.allow_host.clone(),
        origins: args.allow_origin.clone(),
        max_body: usize::from(args.max_body) * 1024 * 1024,
        drain_timeout: args.drain_timeout,
        upkeep: Upkeep {
            idle_after: args.idle_after,
            ..Upkeep::default()
        },
        max_rate: args.max_rate,
        projects: args.allow_project.clone(),
        sandbox: args.sandbox.map(Into::into),
        model: args.model.clone(),
        oidc: oidc(args),
    };
    rye_server::run(context, settings, options, |ready| announce(ready, context))?;
    Ok(Box::new(AlreadyPrinted))
}

/// The issuer whose tokens are accepted.
fn oidc(args: &ServeHttpArgs) -> Option<OidcOptions> {
    Some(OidcOptions {
        issuer: args.oidc_issuer.clone()?,
        audience: args.oidc_audience.clone()?,
        user_claim: args.oidc_user_claim.clone(),
        org_claim: args.oidc_org_claim.clone(),
        scope_claim: args.oidc_scope_claim.clone(),
        default_scopes: args.oidc_scopes.iter().copied().map(Scope::from).collect(),
    })
}

/// Tells the user where the server is.
fn announce(ready: &Ready, context: &Context) {
    let Ready { url, login } = ready;
    if context.printer.json {
        let line = document(json!({ "url": url, "login": login }), None);
        // A server whose output nobody reads goes on.
        let _ = context.printer.print_stdout(&line);
    } else {
        let text = format!("serving on {url}\nlog in, once and within a minute: {login}\n");
        context.printer.print_stderr(&text);
    }
}
