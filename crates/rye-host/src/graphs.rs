//! Whose word counts in the runs of graphs: the keys that a project's spaces trust.

use std::path::PathBuf;

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
}

impl Trusting for Trusted {
    fn key(&self, name: &str) -> Option<PublicKey> {
        let fingerprint: Fingerprint = name.parse().ok()?;
        let spaces = Spaces::open(
            Some(&self.project),
            self.user.as_deref(),
            &self.bundles,
            self.embedded,
        );
        let spaces = spaces.ok()?;
        let trusted = Trust::new(&spaces).standing(fingerprint).ok()?;
        Some(trusted.key.clone())
    }

    fn receipt(&self, gate: &Gate, resolution: &Resolution) -> Result<bool, String> {
        proof::check_receipt(gate, resolution, |name| self.key(name))
    }
}
