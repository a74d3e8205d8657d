//! Project configuration that the user has accepted for one directory.
//!
//! The configuration of agents can loosen what a project's agents may do, or send a model's
//! API key to another server. Its signature verifies in every repository that the file is
//! copied to. So a project's file in `config/agent/` counts only where the user has accepted
//! this content for this directory: by signing it there, or with `rye config accept`.
//!
//! An acceptance is a file in the user's space, signed with the user's key for its own
//! purpose. Its text names the directory, the file and the hash of the content.

use std::path::PathBuf;

use lillux::Hash;
use lillux::keys::SigningKey;
use serde_json::json;

use crate::signature::{self, ACCEPTANCE, Binding};
use crate::space::{Root, Space, Spaces};
use crate::trust::Trust;
use crate::user_keys::{UserKeyError, UserKeys};
use crate::verify::{self, SignatureFormat};

/// Where acceptances are, relative to the user's `.ai/`.
const FOLDER: &str = "config/accepted";
/// The project's files that need one.
const GUARDED: &str = "config/agent/";
/// Answers that are remembered for a project. They name its directory themselves.
const APPROVED: &str = "config/agent/approved/";

/// One content of one file in one project directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acceptance {
    text: String,
}

impl Acceptance {
    /// Whether a file of this path below `.ai/` needs to be accepted.
    pub fn is_needed(root: &Root, relative: &str) -> bool {
        root.space() == Space::Project
            && relative.starts_with(GUARDED)
            && !relative.starts_with(APPROVED)
    }

    /// The acceptance of a file in a project, whose content has this hash. None for a
    /// project directory that cannot be resolved.
    pub fn new(root: &Root, relative: &str, hash: Hash) -> Option<Self> {
        let project = root.as_dir()?.parent()?.canonicalize().ok()?;
        let project = project.to_str()?;
        // Each value is a JSON text, which is YAML too.
        let text = format!(
            "project: {}\nfile: {}\nhash: {}\n",
            json!(project),
            json!(relative),
            json!(hash.to_hex())
        );
        Some(Self { text })
    }

    /// Whether the user has accepted it.
    pub fn is_recorded(&self, spaces: &Spaces, trust: &Trust<'_>) -> bool {
        let path = self.path();
        let format = SignatureFormat::config(ACCEPTANCE, &path);
        spaces.roots_in(Space::User).any(|root| {
            let Ok(Some(raw)) = root.read(&path) else {
                return false;
            };
            let signed = verify::check(&raw.bytes, &format, trust);
            let is_users = |it: &verify::VerifiedLine| {
                it.line.binding.is_some() && it.key.space == Space::User
            };
            signed.is_ok_and(|signed| is_users(&signed))
                && signature::strip_signature(&raw.bytes) == self.text.as_bytes()
        })
    }

    /// Records it in the space of the user whose keys these are.
    pub fn record(&self, keys: &UserKeys, key: &SigningKey) -> Result<PathBuf, UserKeyError> {
        let binding = Binding::new(ACCEPTANCE, self.path());
        keys.write_signed(&binding, &self.text, key)
    }

    fn path(&self) -> String {
        let name = Hash::digest(&self.text).to_hex();
        format!("{FOLDER}/{name:.32}.yaml")
    }
}
