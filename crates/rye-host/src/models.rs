//! Which models there are: `models.yaml` of the spaces, with keys from the environment or
//! the vault.

use std::path::Path;

use rye_items::trust::{Ignored, Trust};
use rye_items::vault::{SecretName, Vault, VaultError};
use rye_items::verify::{self, Form};
use rye_items::{Comment, Space, SpaceError, Spaces};
use rye_model::{Catalogue, Config, ConfigError, ConfigFile, Keys};
use zeroize::Zeroizing;

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
) -> Result<(Catalogue, Vec<Ignored>), ModelsError> {
    let (files, ignored) = files(spaces)?;
    let config = Config::merge(&files)?;
    let catalogue = Catalogue::new(workspace).with_config(config);
    Ok((catalogue.keys(Found { vault }), ignored))
}

/// The files that count, the most specific first, and those that do not. The user's own
/// counts as it is.
fn files(spaces: &Spaces) -> Result<(Vec<ConfigFile>, Vec<Ignored>), SpaceError> {
    const FORM: Form = Form {
        comment: Comment::HASH,
        partial: false,
    };
    let trust = Trust::new(spaces);
    let (mut files, mut ignored) = (Vec::new(), Vec::new());
    for root in spaces.roots() {
        let path = root.path_of(MODELS);
        let raw = match (root.space(), root.read(MODELS)) {
            (_, Ok(None)) => continue,
            (_, Ok(Some(raw))) => raw,
            (Space::User, Err(error)) => return Err(error),
            // What somebody else's folder holds must not keep a person from their models.
            (_, Err(error)) => {
                let why = error.to_string();
                ignored.push(Ignored { path, why });
                continue;
            }
        };
        let judged = match root.space() {
            Space::User => Ok(()),
            _ => verify::check(&raw.bytes, &FORM, &trust).map(drop),
        };
        match judged {
            Ok(()) => files.push(ConfigFile {
                path,
                text: String::from_utf8_lossy(&raw.bytes).into_owned(),
            }),
            Err(problem) => {
                let why = problem.to_string();
                ignored.push(Ignored { path, why });
            }
        }
    }
    Ok((files, ignored))
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
