//! `rye vault login`: logs in to a service and stores its token.

use std::time::Duration;

use rye_engine::credential::{CredentialStore as _, Owner, TakeAddress};
use rye_host::LoginMethod;
use rye_host::engine::{runtime, service_logins};
use rye_items::vault::Vault;
use serde_json::{Value, json};

use super::credentials;
use crate::cli::args::LoginServiceArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Printer, Report};

/// How long the user has to log in.
const TIMEOUT: Duration = Duration::from_mins(10);

pub(super) fn run(args: &LoginServiceArgs, vault: Vault, context: &Context) -> Outcome {
    let owner = credentials::owner(&args.owner, context)?;
    let logins = service_logins(context)?;
    let store = credentials::store(vault, context)?;
    let service = args.service.to_string();
    let method = args.device.then_some(LoginMethod::Device);
    let words = args.scope.iter().flat_map(|scope| scope.split_whitespace());
    let scopes: Vec<_> = words.map(str::to_owned).collect();
    let printer = context.printer;
    runtime()?.block_on(async {
        let pending = logins.start(&service, method, &scopes).await?;
        // Printed even with `--quiet`, because the login needs it.
        let url = sanitize(&pending.url);
        printer.print_stderr(&format!("open this URL in a browser:\n{url}\n"));
        if let Some(code) = &pending.code {
            printer.print_stderr(&format!("and type this code: {}\n", sanitize(code)));
        }
        if let Some(take_address) = pending.redirect {
            let text = "If that browser is on another machine, it cannot load the last page: paste \
                        the address of that page here, and press Enter.\n";
            printer.print_stderr(text);
            read_address(take_address, printer);
        }
        let failed = |why: &str| {
            let message = format!("cannot log in to {service}: {why}");
            Failure::failed("login", message)
        };
        let logged_in = tokio::time::timeout(TIMEOUT, pending.credential).await;
        let logged_in = logged_in.map_err(|_| failed("no login within ten minutes"))?;
        let credential = logged_in.map_err(|why| failed(&why))?;
        store.put(&owner, &service, &credential).await?;
        Ok::<_, Failure>(())
    })?;
    Ok(Box::new(ServiceLogin { service, owner }))
}

/// Reads addresses from standard input until one belongs to the login. The thread ends with the
/// process.
fn read_address(take_address: TakeAddress, printer: Printer) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if line.trim().is_empty() {
                continue;
            }
            match take_address(&line) {
                Ok(()) => return,
                Err(why) => printer.print_stderr(&format!("{}\n", sanitize(&why))),
            }
        }
    });
}

struct ServiceLogin {
    service: String,
    owner: Owner,
}

impl Report for ServiceLogin {
    fn json(&self) -> Value {
        json!({ "service": self.service, "owner": self.owner.to_string() })
    }

    fn show(&self, page: &mut Page) {
        let service = paint(BOLD, sanitize(&self.service));
        page.line(format_args!("logged in to {service}"));
    }
}
