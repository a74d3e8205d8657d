//! Credentials for agents' tools, owned by a session, the user or an organisation.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lillux::envelope::Secret;
use rye_engine::credential::{Credential, CredentialStore as _, OAuth, Owner};
use rye_engine::protocol::Millis;
use rye_host::Credentials;
use rye_host::engine;
use rye_host::lookup::find_session_in_store;
use rye_items::vault::Vault;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::read_value;
use crate::cli::args::{OwnerArgs, RmArgs, SetArgs};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{BOLD, Page, paint, sanitize};
use crate::cli::printer::{Outcome, Report};

pub(super) fn set(args: &SetArgs, vault: Vault, context: &Context) -> Outcome {
    let owner = owner(&args.owner, context)?;
    let secret = read_value(&args.name)?;
    let credential = if args.oauth {
        parse_oauth_token(&secret)?
    } else {
        Credential::new(text(&secret)?)
    };
    let store = store(vault, context)?;
    let name = args.name.to_string();
    engine::runtime()?.block_on(store.put(&owner, &name, &credential))?;
    Ok(Box::new(CredentialReport {
        action: "stored",
        name,
        owner,
    }))
}

pub(super) fn rm(args: &RmArgs, vault: Vault, context: &Context) -> Outcome {
    let owner = owner(&args.owner, context)?;
    let store = store(vault, context)?;
    let name = args.name.to_string();
    if !engine::runtime()?.block_on(store.remove(&owner, &name))? {
        let message = format!("credential {name} of {owner} not found");
        return Err(Failure::failed("not_found", message).hint("rye vault list"));
    }
    Ok(Box::new(CredentialReport {
        action: "removed",
        name,
        owner,
    }))
}

/// All credentials; empty before the first session.
pub(super) fn all(vault: &Vault, context: &Context) -> Result<Vec<(Owner, String)>, Failure> {
    let database = engine::database(context)?;
    if !database.exists() {
        return Ok(Vec::new());
    }
    let store = Credentials::new(&database, Some(vault.clone()));
    Ok(engine::runtime()?.block_on(store.list())?)
}

pub(super) fn store(vault: Vault, context: &Context) -> Result<Credentials, Failure> {
    let database = engine::database(context)?;
    Ok(Credentials::new(&database, Some(vault)))
}

pub(super) fn owner(args: &OwnerArgs, context: &Context) -> Result<Owner, Failure> {
    match (&args.session, &args.org) {
        (Some(part), _) => find_session_in_store(context, part).map(Owner::Session),
        (None, Some(org)) => Ok(Owner::Org(org.clone())),
        (None, None) => Ok(Owner::User(String::new())),
    }
}

fn text(secret: &Secret) -> Result<&str, Failure> {
    let text = std::str::from_utf8(secret.expose());
    let text = text.map_err(|_| Failure::usage("the credential is not UTF-8 text"))?;
    Ok(text.trim_end_matches(['\r', '\n']))
}

/// An OAuth token as servers return it, plus what is needed to renew it.
#[derive(Deserialize)]
struct OAuthToken {
    access_token: Zeroizing<String>,
    refresh_token: Zeroizing<String>,
    #[serde(default)]
    expires_in: Option<u64>,
    token_url: String,
    client_id: String,
    #[serde(default)]
    client_secret: Option<Zeroizing<String>>,
    #[serde(default)]
    scope: Option<String>,
}

fn parse_oauth_token(secret: &Secret) -> Result<Credential, Failure> {
    let token: OAuthToken = serde_json::from_slice(secret.expose()).map_err(|error| {
        // Only the position: the text may be the secret.
        let message = format!(
            "invalid OAuth token: line {}, column {}",
            error.line(),
            error.column()
        );
        Failure::usage(message).hint("rye vault set --help")
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_millis();
    let now = Millis(u64::try_from(now).unwrap_or(u64::MAX));
    let end = token.expires_in.map(Duration::from_secs);
    Ok(Credential {
        secret: token.access_token,
        oauth: Some(OAuth {
            token_url: token.token_url,
            client_id: token.client_id,
            client_secret: token.client_secret,
            basic_auth: false,
            refresh_token: Some(token.refresh_token),
            scope: token.scope,
            expires_at: end.map(|time| now.after(time)),
        }),
    })
}

struct CredentialReport {
    action: &'static str,
    name: String,
    owner: Owner,
}

impl Report for CredentialReport {
    fn json(&self) -> Value {
        json!({ "name": self.name, "owner": self.owner.to_string() })
    }

    fn show(&self, page: &mut Page) {
        let owner = self.owner.to_string();
        let owner = owner.trim_end_matches(':');
        page.line(format_args!(
            "{} {} (for agents, owner: {})",
            self.action,
            paint(BOLD, sanitize(&self.name)),
            sanitize(owner)
        ));
    }
}
