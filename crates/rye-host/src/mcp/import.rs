//! Adds the servers in the configuration file of another client.

use std::fs;
use std::path::Path;

use lillux::PathContext as _;
use lillux::durable::IfExists;
use lillux::envelope::Secret;
use rye_items::Space;
use rye_items::vault::Vault;
use rye_mcp::client::import::{self, ImportedServer};

use super::ServerName;
use crate::context::Context;
use crate::failure::Failure;
use crate::mcp_items as items;

/// The outcome for a server in the file.
pub struct ImportOutcome {
    /// Name of the server.
    pub name: String,
    /// The secrets that were stored in the vault.
    pub secrets: Vec<String>,
    /// Settings that could not be converted exactly.
    pub notes: Vec<String>,
    /// Why it was skipped, if it was.
    pub failure: Option<Failure>,
}

/// Adds the servers in a file to a space, and their secrets to the vault. With `replace`, overwrites
/// existing ones.
pub fn import(
    file: &Path,
    space: Space,
    replace: bool,
    context: &Context,
) -> Result<Vec<ImportOutcome>, Failure> {
    let text = fs::read_to_string(file).at("read", file)?;
    let dir = context.settings.project().to_string_lossy();
    let servers = import::parse(text.trim_start_matches('\u{feff}'), &dir)
        .map_err(|why| Failure::failed("bad_file", why).at(file))?;
    let library = context.library()?;
    let key = context.require_signing_key()?;
    let root = items::root(library, space)?;
    let user = context.settings.user_space()?;
    let vault = Vault::new(user, Some(context.settings.project()));
    let existing = if replace {
        IfExists::Replace
    } else {
        IfExists::Fail
    };
    let mut rows = Vec::new();
    for entry in servers {
        let ImportedServer {
            name,
            config,
            secrets,
            notes,
        } = entry;
        let added = config
            .map_err(|why| Failure::failed("unsupported", why))
            .and_then(|config| {
                let name: ServerName = name.parse().map_err(Failure::usage)?;
                let item = items::server_file(name.as_str());
                if !replace && root.stat(&item)?.is_some() {
                    let hint = format!("rye mcp import --force {}", file.display());
                    let message = format!("server {name} already exists");
                    return Err(Failure::failed("exists", message).hint(hint));
                }
                // Secrets first, so that a configuration never refers to a missing one.
                for (name, value) in &secrets {
                    vault.set(space, name, &Secret::new(value.clone().into()))?;
                }
                let text = items::server_text(name.as_str(), &config);
                items::write(library, root, &item, &text, existing, key)?;
                Ok(())
            });
        let stored = match &added {
            Ok(()) => secrets.iter().map(|(name, _)| name.to_string()).collect(),
            Err(_) => Vec::new(),
        };
        rows.push(ImportOutcome {
            name,
            secrets: stored,
            notes,
            failure: added.err(),
        });
    }
    Ok(rows)
}
