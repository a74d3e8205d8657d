//! The keys that the spaces trust. Records of graphs can be signed by any of them, decisions only
//! by keys of the user or the system, because a project must not choose its own approvers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::keys::{Fingerprint, PublicKey};
use rye_engine::audit;
use rye_engine::protocol::{Gate, Resolution};
use rye_executor::Roots;
use rye_graph::TrustPolicy;
use rye_items::trust::{Trust, TrustedKey};
use rye_items::{EmbeddedBundle, Spaces};

/// The keys that the spaces of a project trust. Reads the trust stores for every lookup.
#[derive(Debug)]
pub struct TrustedKeys {
    pub(crate) project: PathBuf,
    pub(crate) user: Option<PathBuf>,
    pub(crate) bundles: Vec<PathBuf>,
    pub(crate) embedded: &'static EmbeddedBundle,
}

impl TrustedKeys {
    /// The trusted keys of these roots.
    pub fn new(roots: &Roots) -> Self {
        Self {
            project: roots.project.clone(),
            user: roots.user.clone(),
            bundles: roots.bundles.clone(),
            embedded: roots.embedded,
        }
    }

    /// The public key with a fingerprint, if the user or the system trusts it.
    pub fn user_key(&self, name: &str) -> Option<PublicKey> {
        self.find_key(None, name).map(|trusted| trusted.key.clone())
    }

    /// The owner of the key with a fingerprint, if the user or the system trusts it.
    pub fn owner(&self, name: &str) -> Option<String> {
        self.find_key(None, name)?.owner.clone()
    }

    /// The name of the person who made a decision: the owner of the key that signed it, or else
    /// the name in the decision.
    pub fn approver(&self, resolution: &Resolution) -> String {
        let receipt = resolution.receipt.as_ref();
        let owner = receipt.and_then(|receipt| self.owner(&receipt.key));
        owner.unwrap_or_else(|| resolution.by.clone())
    }

    fn find_key(&self, project: Option<&Path>, name: &str) -> Option<Arc<TrustedKey>> {
        let fingerprint: Fingerprint = name.parse().ok()?;
        let (user, bundles) = (self.user.as_deref(), &self.bundles);
        let spaces = Spaces::open(project, user, bundles, self.embedded).ok()?;
        let trusted = Trust::new(&spaces).key_status(fingerprint).ok()?;
        Some(trusted)
    }
}

impl TrustPolicy for TrustedKeys {
    fn key(&self, name: &str) -> Option<PublicKey> {
        let trusted = self.find_key(Some(&self.project), name)?;
        (!trusted.decisions_only).then(|| trusted.key.clone())
    }

    fn receipt(&self, gate: &Gate, resolution: &Resolution) -> Result<bool, String> {
        audit::check_receipt(gate, resolution, |name| self.user_key(name))
    }
}

#[cfg(test)]
mod tests {
    use lillux::durable::IfExists;
    use lillux::keys::SigningKey;
    use rye_items::UserKeys;
    use rye_items::trust::TrustFile;
    use serde_json::json;

    use super::*;

    #[test]
    fn decision_requires_a_key_that_the_user_trusts() {
        let dir = tempfile::tempdir().unwrap();
        let [user, project] = ["user", "project"].map(|name| dir.path().join(name));
        let own = UserKeys::new(&user)
            .generate("ada", IfExists::Fail)
            .unwrap();
        let foreign = SigningKey::generate().unwrap();
        let file = TrustFile {
            key: foreign.public().clone(),
            owner: None,
            attestation: None,
            decisions_only: false,
        };
        UserKeys::new(&project).trust(&file, &own).unwrap();
        let mut roots = Roots::new(&project, dir.path().join("cache"));
        roots.user = Some(user);
        let trust = TrustedKeys::new(&roots);
        let name = foreign.public().fingerprint().to_string();
        assert!(trust.key(&name).is_some());
        let gate: Gate = serde_json::from_value(json!({
            "id": "gate:g", "kind": "approval", "title": "go on?", "body": "", "actions": [],
            "status": { "type": "pending" }, "expires_at": null, "created_at": 1,
            "origin": {
                "session": "s", "thread": "t", "prompt": "p", "call": "c", "tool": "flow",
                "resume_key": "k",
            },
        }))
        .unwrap();
        let mut resolution: Resolution = serde_json::from_value(json!({
            "action": "approve", "by": "ada", "at": 2, "source": "cli",
        }))
        .unwrap();
        assert_eq!(trust.receipt(&gate, &resolution), Ok(false));
        resolution.receipt = Some(Box::new(audit::receipt(&gate, &resolution, &foreign)));
        assert!(trust.receipt(&gate, &resolution).is_err());
        resolution.receipt = Some(Box::new(audit::receipt(&gate, &resolution, &own)));
        assert_eq!(trust.receipt(&gate, &resolution), Ok(true));
    }
}
