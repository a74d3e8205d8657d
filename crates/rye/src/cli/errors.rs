//! How what goes wrong below ends a call.

use lillux::keys::KeyError;
use rye_items::space::SpaceError;
use rye_items::vault::VaultError;

use super::failure::{Exit, Failure};
use crate::settings::SettingsError;

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::Variable { name, .. } => {
                Self::usage(&error).hint(format!("unset {name}"))
            }
            SettingsError::NoUserSpace => {
                Self::usage(error).hint("export USER_SPACE=/the/folder/with/your/.ai")
            }
            SettingsError::File(error) => {
                let command = format!("${{EDITOR:-vi}} {}", error.path.display());
                Self::new(Exit::Usage, "bad_config", &error.what)
                    .at(&error.path)
                    .excerpt(error.excerpt.as_ref())
                    .hint(command)
            }
            SettingsError::Space(error) => error.into(),
            SettingsError::Path(error) => error.into(),
        }
    }
}

impl From<SpaceError> for Failure {
    fn from(error: SpaceError) -> Self {
        let hint = error.hint();
        let failure = match error {
            SpaceError::Path(error) => error.into(),
            SpaceError::LeavesSpace(_) => Self::new(Exit::Integrity, "leaves_space", error),
            SpaceError::NoBundle(_) => Self::usage(error),
            SpaceError::TooLarge { .. } => Self::failed("too_large", error),
            SpaceError::Changing(_) => Self::failed("changing", error),
            _ => Self::failed("not_a_file", error),
        };
        failure.maybe_hint(hint)
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        let hint = error.hint();
        let failure = match error {
            KeyError::Path(error) => error.into(),
            KeyError::Missing(_) => Self::failed("not_found", error),
            KeyError::OpenFile { .. } | KeyError::OpenFolder { .. } => {
                Self::new(Exit::Permission, "permission", error)
            }
            KeyError::Exists(_) => Self::failed("exists", error),
            KeyError::NoRandomness(_) => Self::failed("no_randomness", error),
            _ => Self::failed("bad_key", error),
        };
        failure.maybe_hint(hint)
    }
}

impl From<VaultError> for Failure {
    fn from(error: VaultError) -> Self {
        let hint = error.hint();
        let integrity = error.is_integrity();
        let failure = match error {
            VaultError::Key(error) => error.into(),
            VaultError::Space(error) => error.into(),
            VaultError::Path(error) => error.into(),
            VaultError::NoSecret { .. } | VaultError::NoKey { .. } | VaultError::NoSpace(_) => {
                Self::failed("not_found", error)
            }
            VaultError::Both(_) | VaultError::Empty(_) => Self::usage(error),
            VaultError::TooLarge(_) => Self::failed("too_large", error),
            _ if integrity => Self::new(Exit::Integrity, "bad_envelope", error),
            VaultError::Envelope { .. } => Self::failed("unsupported", error),
            _ => Self::failed("vault", error),
        };
        failure.maybe_hint(hint)
    }
}
