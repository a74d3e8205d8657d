//! Whose word counts: the keys that the spaces trust. Records of graphs may be signed by any of
//! them; decisions only by those that the user or the system trusts, for a project must not
//! name who may approve what it does.

use std::path::{Path, PathBuf};

use lillux::keys::{Fingerprint, PublicKey};
use rye_engine::proof;
use rye_engine::protocol::{Gate, Resolution};
use rye_executor::Places;
use rye_graph::Trusting;
use rye_items::trust::Trust;
use rye_items::{Embedded, Spaces};

/// The keys that the spaces of a project trust, as they are when they are asked for.
#[derive(Debug)]
pub struct Trusted {
    project: PathBuf,
    user: Option<PathBuf>,
    bundles: Vec<PathBuf>,
    embedded: &'static Embedded,
}

impl Trusted {
    /// Of these places.
    pub fn of(places: &Places) -> Self {
        Self {
            project: places.project.clone(),
            user: places.user.clone(),
            bundles: places.bundles.clone(),
            embedded: places.embedded,
        }
    }

    /// The public key of a fingerprint, if the user or the system trusts it.
    pub(crate) fn user_key(&self, name: &str) -> Option<PublicKey> {
        self.key_in(None, name)
    }

    fn key_in(&self, project: Option<&Path>, name: &str) -> Option<PublicKey> {
        let fingerprint: Fingerprint = name.parse().ok()?;
        let (user, bundles) = (self.user.as_deref(), &self.bundles);
        let spaces = Spaces::open(project, user, bundles, self.embedded).ok()?;
        let trusted = Trust::new(&spaces).standing(fingerprint).ok()?;
        Some(trusted.key.clone())
    }
}

impl Trusting for Trusted {
    fn key(&self, name: &str) -> Option<PublicKey> {
        self.key_in(Some(&self.project), name)
    }

    fn receipt(&self, gate: &Gate, resolution: &Resolution) -> Result<bool, String> {
        proof::check_receipt(gate, resolution, |name| self.user_key(name))
    }
}
