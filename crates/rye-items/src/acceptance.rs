//! Project configuration that the user has accepted for one directory.
//!
//! Agent configuration can loosen what a project's agents may do, or send a model's API key to
//! another server, and its signature is valid in every repository that the file is copied to. So
//! a project's file in `config/agent/` takes effect only if the user has accepted this content
//! for this directory, by signing it there or with `rye config accept`.
//!
//! An acceptance is a file in the user's space, signed with the user's key for the purpose
//! `acceptance`. It contains the directory, the file and the hash of the content.

use std::path::PathBuf;

use lillux::Hash;
use lillux::keys::SigningKey;
use serde_json::json;

use crate::signature::{self, ACCEPTANCE, Binding};
use crate::space::{Root, Space, Spaces};
use crate::trust::Trust;
use crate::user_keys::{UserKeyError, UserKeys};
use crate::verify::{self, SignatureFormat};

/// The directory of acceptances, relative to the user's `.ai/`.
const DIR: &str = "config/accepted";
/// Files of the project that need an acceptance.
const GUARDED: &str = "config/agent/";
/// Stored project approvals. They need no acceptance, because each names its project directory.
const APPROVED: &str = "config/agent/approved/";

/// The user's acceptance of one file with one content in one project directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acceptance {
    text: String,
}

impl Acceptance {
    /// Whether a file, given by its path relative to `.ai/`, needs an acceptance.
    pub fn is_needed(root: &Root, relative: &str) -> bool {
        root.space() == Space::Project
            && relative.starts_with(GUARDED)
            && !relative.starts_with(APPROVED)
    }

    /// The acceptance of a project's file with this content hash. None if the project directory
    /// cannot be resolved.
    pub fn new(root: &Root, relative: &str, hash: Hash) -> Option<Self> {
        let project = root.as_dir()?.parent()?.canonicalize().ok()?;
        let project = project.to_str()?;
        // JSON strings are also valid YAML.
        let text = format!(
            "project: {}\nfile: {}\nhash: {}\n",
            json!(project),
            json!(relative),
            json!(hash.to_hex())
        );
        Some(Self { text })
    }

    /// Whether the user's space contains this acceptance with a valid signature.
    pub fn is_recorded(&self, spaces: &Spaces, trust: &Trust<'_>) -> bool {
        let path = self.path();
        let format = SignatureFormat::config(ACCEPTANCE, &path);
        spaces.roots_in(Space::User).any(|root| {
            let Ok(Some(raw)) = root.read(&path) else {
                return false;
            };
            let signed = verify::check(&raw.bytes, &format, trust);
            let is_by_user = |it: &verify::VerifiedLine| {
                it.line.binding.is_some() && it.key.space == Space::User
            };
            signed.is_ok_and(|signed| is_by_user(&signed))
                && signature::strip_signature(&raw.bytes) == self.text.as_bytes()
        })
    }

    /// Writes the acceptance to the user's space. Returns the path of its file.
    pub fn record(&self, keys: &UserKeys, key: &SigningKey) -> Result<PathBuf, UserKeyError> {
        let binding = Binding::new(ACCEPTANCE, self.path());
        keys.write_signed(&binding, &self.text, key)
    }

    fn path(&self) -> String {
        let name = Hash::digest(&self.text).to_hex();
        format!("{DIR}/{name:.32}.yaml")
    }
}
