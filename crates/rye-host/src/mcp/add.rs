//! Writes and signs the configuration of a server.

use std::path::PathBuf;

use lillux::durable::{IfExists, WriteError};
use lillux::envelope::Secret;
use rye_items::Space;
use rye_items::vault::{SecretName, Vault};
use rye_mcp::client::{ConfigValue, ServerConfig, Transport};

use crate::context::Context;
use crate::failure::Failure;
use crate::mcp_items as items;

/// A server to add.
pub struct NewServer<'a> {
    /// Its name.
    pub name: &'a str,
    /// How to reach it.
    pub transport: Transport,
    /// Name of a variable or header whose value is stored in the vault.
    pub secret: Option<&'a str>,
    /// Space of its configuration.
    pub space: Space,
    /// Overwrite an existing server.
    pub replace: bool,
}

/// Writes and signs the configuration of a server, and returns its path. `read_secret` asks for the
/// value of the secret.
pub fn add(
    new: NewServer<'_>,
    context: &Context,
    read_secret: impl FnOnce(&str) -> Result<Secret, Failure>,
) -> Result<PathBuf, Failure> {
    let library = context.library()?;
    let key = context.require_signing_key()?;
    let root = items::root(library, new.space)?;
    let file = items::server_file(new.name);
    if !new.replace && root.stat(&file)?.is_some() {
        return Err(WriteError::Exists(root.path_to(&file)).into());
    }
    let mut config = ServerConfig::new(new.transport);
    // Reject an invalid configuration before anything is written.
    ServerConfig::parse(&config.to_value()).map_err(Failure::usage)?;
    if let Some(variable) = new.secret {
        let name = secret_name(new.name, variable)?;
        let user = context.settings.user_space()?;
        let vault = Vault::new(user, Some(context.settings.project()));
        vault.set(new.space, &name, &read_secret(variable)?)?;
        refer_to_secret(&mut config, variable, name);
    }
    let existing = if new.replace {
        IfExists::Replace
    } else {
        IfExists::Fail
    };
    let text = items::server_text(new.name, &config);
    items::write(library, root, &file, &text, existing, key)
}

/// Sets a variable or header to the value of a secret.
fn refer_to_secret(config: &mut ServerConfig, variable: &str, name: SecretName) {
    let (values, prefix) = match &mut config.transport {
        Transport::Stdio { env, .. } => (env, ""),
        // An Authorization header is almost always a bearer token.
        Transport::Http { headers, .. } if variable.eq_ignore_ascii_case("authorization") => {
            (headers, "Bearer ")
        }
        Transport::Http { headers, .. } => (headers, ""),
    };
    let prefix = prefix.to_owned();
    values.insert(variable.to_owned(), ConfigValue::Vault { prefix, name });
}

/// Name of a server's secret in the vault.
fn secret_name(server: &str, variable: &str) -> Result<SecretName, Failure> {
    let name = rye_mcp::client::secret_name(server, variable);
    name.ok_or_else(|| Failure::usage(format!("name too long for a secret: {variable}")))
}
