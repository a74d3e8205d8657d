//! `rye mcp login` and `rye mcp logout`: OAuth tokens for servers.

use rye_host::mcp_items as items;
use rye_mcp::client::{LoginGrant, LoginRequest, Pool};
use serde_json::{Value, json};

use super::super::execute::StartedSupervisor;
use crate::cli::args::{LoginArgs, LogoutArgs};
use crate::cli::context::Context;
use crate::cli::page::{BOLD, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn log_in(
    args: &LoginArgs,
    context: &Context,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    let library = context.library()?;
    let item = items::ServerItem::load(library, args.name.as_str())?;
    let server = item.server(context);
    let words = args.scope.iter().flat_map(|scope| scope.split_whitespace());
    let ask = LoginRequest {
        scopes: words.map(str::to_owned).collect(),
        challenge: None,
    };
    let printer = context.printer;
    // Printed even with `--quiet`, because the login needs it.
    let show = move |url: &str| {
        printer.print_stderr(&format!("open this URL in a browser:\n{}\n", sanitize(url)));
    };
    let granted = super::with_pool(supervisor, context, async |pool| {
        pool.log_in(&server, &ask, show).await
    })??;
    Ok(Box::new(LoginReport {
        server: args.name.to_string(),
        granted,
    }))
}

struct LoginReport {
    server: String,
    granted: LoginGrant,
}

impl Report for LoginReport {
    fn json(&self) -> Value {
        json!({
            "server": self.server,
            "issuer": self.granted.issuer,
            "scopes": self.granted.scopes,
        })
    }

    fn show(&self, page: &mut Page) {
        let scopes = match self.granted.scopes.as_slice() {
            [] => String::new(),
            all => format!(" with scopes {}", sanitize(&all.join(", "))),
        };
        let server = paint(BOLD, &self.server);
        page.line(format_args!("logged in to {server}{scopes}"));
    }
}

pub(crate) fn log_out(args: &LogoutArgs, context: &Context) -> Outcome {
    let library = context.library()?;
    let item = items::ServerItem::load(library, args.name.as_str())?;
    let was_logged_in = Pool::log_out(&item.server(context))?;
    Ok(Box::new(LogoutReport {
        server: args.name.to_string(),
        was_logged_in,
    }))
}

struct LogoutReport {
    server: String,
    was_logged_in: bool,
}

impl Report for LogoutReport {
    fn json(&self) -> Value {
        json!({ "server": self.server, "was_logged_in": self.was_logged_in })
    }

    fn show(&self, page: &mut Page) {
        let server = paint(BOLD, &self.server);
        if self.was_logged_in {
            page.line(format_args!("logged out of {server}"));
        } else {
            page.line(format_args!("not logged in to {server}"));
        }
    }
}
