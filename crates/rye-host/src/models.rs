//! Which models there are: `models.yaml` of the spaces, with keys from the environment or
//! the vault.

use std::path::Path;

use rye_items::trust::IgnoredFile;
use rye_items::vault::{SecretName, Vault, VaultError};
use rye_items::{SpaceError, Spaces};
use rye_model::{Catalogue, Config, ConfigError, Keys};
use zeroize::Zeroizing;

use crate::config;

/// The file that says which models there are, relative to a space's `.ai/`.
pub const MODELS: &str = "config/agent/models.yaml";

/// Why nobody knows which models there are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelsError {
    /// A file says what cannot be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

/// The models of the spaces, whose scripts are relative to a folder, and the files that
/// do not count, since nobody who is trusted has signed them.
pub fn models(
    workspace: &Path,
    spaces: &Spaces,
    vault: Option<Vault>,
) -> Result<(Catalogue, Vec<IgnoredFile>), ModelsError> {
    let (files, ignored) = config::files(spaces, MODELS)?.accepted();
    let files = files.into_iter();
    let files: Vec<_> = files.map(|(_, file)| file).collect();
    let config = Config::merge(&files)?;
    let catalogue = Catalogue::new(workspace).with_config(config);
    Ok((catalogue.keys(Found { vault }), ignored))
}

/// Keys from the environment, else from the vault.
struct Found {
    vault: Option<Vault>,
}

impl Keys for Found {
    fn variable(&self, name: &str) -> Option<Zeroizing<String>> {
        rye_model::Environment.variable(name)
    }

    fn secret(&self, name: &str) -> Result<Option<Zeroizing<String>>, String> {
        let Some(vault) = &self.vault else {
            return Ok(None);
        };
        let name: SecretName = name.parse().map_err(|error| format!("{error}"))?;
        match vault.get(None, &name) {
            Ok(opened) => {
                let text = std::str::from_utf8(opened.secret.expose());
                let text = text.map_err(|_| "it is no text".to_owned())?;
                Ok(Some(Zeroizing::new(text.to_owned())))
            }
            Err(VaultError::NoSecret { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}
