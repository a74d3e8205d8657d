//! `rye mcp login` and `rye mcp logout`

use rye_mcp::client::{LoginGrant, LoginRequest, Pool};
use serde_json::{Value, json};

use super::super::execute::Keeper;
use super::items;
use crate::cli::args::{LoginArgs, LogoutArgs};
use crate::cli::context::Context;
use crate::cli::page::{BOLD, Page, paint, plain};
use crate::cli::printer::{Outcome, Report};

pub(crate) fn log_in(args: &LoginArgs, context: &Context, keeper: &mut Keeper) -> Outcome {
    let library = context.library()?;
    let item = items::ServerItem::load(&library, &args.name)?;
    let server = item.server(context);
    let words = args.scope.iter().flat_map(|scope| scope.split_whitespace());
    let ask = LoginRequest {
        scopes: words.map(str::to_owned).collect(),
        challenge: None,
    };
    let printer = context.printer;
    // It is what the person came for, so `--quiet` does not hide it.
    let show = move |url: &str| {
        printer.aside(&format!(
            "open this address in a browser:\n{}\n",
            plain(url)
        ));
    };
    let granted = items::with_pool(keeper, context, async |pool| {
        pool.log_in(&server, &ask, show).await
    })??;
    Ok(Box::new(LoggedIn {
        server: args.name.to_string(),
        granted,
    }))
}

struct LoggedIn {
    server: String,
    granted: LoginGrant,
}

impl Report for LoggedIn {
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
            all => format!(", for {}", plain(&all.join(", "))),
        };
        let server = paint(BOLD, &self.server);
        page.line(format_args!("logged in to {server}{scopes}"));
    }
}

pub(crate) fn log_out(args: &LogoutArgs, context: &Context) -> Outcome {
    let library = context.library()?;
    let item = items::ServerItem::load(&library, &args.name)?;
    let was_there = Pool::log_out(&item.server(context))?;
    Ok(Box::new(LoggedOut {
        server: args.name.to_string(),
        was_there,
    }))
}

struct LoggedOut {
    server: String,
    was_there: bool,
}

impl Report for LoggedOut {
    fn json(&self) -> Value {
        json!({ "server": self.server, "was_logged_in": self.was_there })
    }

    fn show(&self, page: &mut Page) {
        let server = paint(BOLD, &self.server);
        if self.was_there {
            page.line(format_args!("the tokens for {server} are gone"));
        } else {
            page.line(format_args!("nobody was logged in to {server}"));
        }
    }
}
