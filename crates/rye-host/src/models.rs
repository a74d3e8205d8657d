//! Loads the model catalogue: `models.yaml` of all spaces, with keys from the environment or the
//! vault.

use std::path::Path;

use rye_items::trust::IgnoredFile;
use rye_items::vault::{SecretName, Vault, VaultError};
use rye_items::{SpaceError, Spaces};
use rye_model::{Catalogue, Config, ConfigError, Keys};
use zeroize::Zeroizing;

use crate::config;

/// The file with the models, relative to a space's `.ai/`.
pub const MODELS_FILE: &str = "config/agent/models.yaml";

/// Why the models cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelsError {
    /// A file is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A space cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

/// Loads the models of all spaces, and returns the files that were ignored. Paths of scripted
/// models are relative to the workspace.
pub fn load_models(
    workspace: &Path,
    spaces: &Spaces,
    vault: Option<Vault>,
) -> Result<(Catalogue, Vec<IgnoredFile>), ModelsError> {
    let (files, ignored) = config::load(spaces, MODELS_FILE)?.into_accepted();
    let files = files.into_iter();
    let files: Vec<_> = files.map(|(_, file)| file).collect();
    let config = Config::merge(&files)?;
    let catalogue = Catalogue::new(workspace).with_config(config);
    Ok((catalogue.keys(VaultKeys { vault }), ignored))
}

/// API keys from the environment and the vault.
struct VaultKeys {
    vault: Option<Vault>,
}

impl Keys for VaultKeys {
    fn variable(&self, name: &str) -> Option<Zeroizing<String>> {
        rye_model::Environment.variable(name)
    }

    fn secret(&self, name: &str) -> Result<Option<Zeroizing<String>>, String> {
        vault_secret(self.vault.as_ref(), name)
    }
}

/// A secret of the vault; `None` if there is none of this name.
pub(crate) fn vault_secret(
    vault: Option<&Vault>,
    name: &str,
) -> Result<Option<Zeroizing<String>>, String> {
    let Some(vault) = vault else {
        return Ok(None);
    };
    let name: SecretName = name.parse().map_err(|error| format!("{error}"))?;
    match vault.get(None, &name) {
        Ok(opened) => {
            let text = std::str::from_utf8(opened.secret.expose());
            let text = text.map_err(|_| "the secret is not UTF-8 text".to_owned())?;
            Ok(Some(Zeroizing::new(text.to_owned())))
        }
        Err(VaultError::NoSecret { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
