//! Manifests: signed lists of a directory's files.
//!
//! A manifest is the file `rye.manifest` in the directory that it lists. The first line contains
//! the signature, which covers the remaining lines:
//!
//! ```text
//! rye-manifest:v1:dependencies:<fingerprint>:<signature>
//! directory tools/pack
//! file <sha256> helper.py
//! link lib/latest<TAB>v2
//! ```
//!
//! The directory is relative to its `.ai/`, so that a manifest is not valid for another
//! directory. The purpose distinguishes a tool's dependencies from an interpreter's environment.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use lillux::Hash;
use lillux::keys::{Fingerprint, Purpose, Signature, SigningKey};

use crate::integrity::IntegrityProblem;
use crate::trust::{Trust, TrustedKey};
use crate::verify::trusted_key;

/// The file name of a manifest.
pub const MANIFEST: &str = "rye.manifest";

/// Purpose of a manifest for the files that a tool can load from its own directory.
pub(crate) const DEPENDENCIES: Purpose = Purpose::new("dependencies");
/// Purpose of a manifest for an interpreter's environment, such as `.venv` or `node_modules`.
pub(crate) const ENVIRONMENT: Purpose = Purpose::new("environment");

const MAGIC: &str = "rye-manifest:v1";

/// A file or link of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A regular file with the SHA-256 of its bytes.
    File(Hash),
    /// A symbolic link with its unresolved target.
    Link(String),
}

/// The files and links of a directory by relative path.
pub(crate) type Entries = BTreeMap<String, Entry>;

/// Formats the lines that the signature covers.
pub(crate) fn payload(directory: &str, entries: &Entries) -> String {
    let mut text = format!("directory {directory}\n");
    for (path, entry) in entries {
        let _ = match entry {
            Entry::File(hash) => writeln!(text, "file {hash} {path}"),
            Entry::Link(target) => writeln!(text, "link {path}\t{target}"),
        };
    }
    text
}

/// Whether a path fits on one line of a manifest.
pub(crate) fn is_listable(path: &str) -> bool {
    !path.chars().any(char::is_control)
}

/// Formats a manifest with its signature.
pub(crate) fn sign(payload: &str, purpose: Purpose, key: &SigningKey) -> String {
    let signature = key.sign_for(purpose, &Hash::digest(payload));
    let fingerprint = key.public().fingerprint();
    let purpose = purpose.name();
    format!("{MAGIC}:{purpose}:{fingerprint}:{signature}\n{payload}")
}

/// A parsed manifest. Call [`verify`](Self::verify) before you use its entries.
#[derive(Debug)]
pub(crate) struct Manifest<'b> {
    purpose: &'b str,
    pub(crate) fingerprint: Fingerprint,
    signature: Signature,
    pub(crate) payload: &'b str,
}

impl<'b> Manifest<'b> {
    pub(crate) fn parse(bytes: &'b [u8]) -> Result<Self, IntegrityProblem> {
        let malformed =
            || IntegrityProblem::Manifest("the first line is not a manifest header".to_owned());
        let text = std::str::from_utf8(bytes)
            .map_err(|_| IntegrityProblem::Manifest("it is not UTF-8".to_owned()))?;
        let (line, payload) = text.split_once('\n').ok_or_else(malformed)?;
        let line = line
            .strip_prefix(MAGIC)
            .and_then(|line| line.strip_prefix(':'))
            .ok_or_else(malformed)?;
        let mut parts = line.split(':');
        let (Some(purpose), Some(fingerprint), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        Ok(Self {
            purpose,
            fingerprint: fingerprint.parse().map_err(|_| malformed())?,
            signature: signature.parse().map_err(|_| malformed())?,
            payload,
        })
    }

    /// Whether its header names this purpose. Does not check the signature.
    pub(crate) fn is_for(&self, purpose: Purpose) -> bool {
        self.purpose == purpose.name()
    }

    /// Whether this key signed exactly this payload.
    pub(crate) fn is_signed_by(&self, key: &SigningKey, purpose: Purpose) -> bool {
        let hash = Hash::digest(self.payload);
        self.is_for(purpose)
            && self.fingerprint == key.public().fingerprint()
            && key
                .public()
                .verify_for(purpose, &hash, &self.signature)
                .is_ok()
    }

    /// Verifies the signature and that its key is trusted.
    pub(crate) fn verify(
        &self,
        purpose: Purpose,
        trust: &Trust<'_>,
    ) -> Result<Arc<TrustedKey>, IntegrityProblem> {
        let fingerprint = self.fingerprint;
        let key = trusted_key(fingerprint, trust)?;
        let hash = Hash::digest(self.payload);
        if !self.is_for(purpose) || key.key.verify_for(purpose, &hash, &self.signature).is_err() {
            return Err(IntegrityProblem::BadSignature { fingerprint });
        }
        Ok(key)
    }

    /// The listed entries. Fails if the manifest was made for another directory.
    pub(crate) fn entries(&self, directory: &str) -> Result<Entries, IntegrityProblem> {
        let mut lines = self.payload.lines();
        let listed_dir = lines
            .next()
            .and_then(|line| line.strip_prefix("directory "));
        if listed_dir != Some(directory) {
            let listed_dir = listed_dir.unwrap_or_default();
            return Err(IntegrityProblem::Manifest(format!(
                "it lists the directory `{listed_dir}`, not `{directory}`"
            )));
        }
        let entry = |line: &str| -> Option<(String, Entry)> {
            if let Some(file) = line.strip_prefix("file ") {
                let (hash, path) = file.split_once(' ')?;
                return Some((path.to_owned(), Entry::File(hash.parse().ok()?)));
            }
            let (path, target) = line.strip_prefix("link ")?.split_once('\t')?;
            Some((path.to_owned(), Entry::Link(target.to_owned())))
        };
        lines
            .map(|line| {
                entry(line)
                    .ok_or_else(|| IntegrityProblem::Manifest(format!("`{line}` is not an entry")))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_is_valid_only_for_its_directory_and_purpose() {
        let key = SigningKey::generate().unwrap();
        let entries = Entries::from([
            ("a b.py".to_owned(), Entry::File(Hash::digest("x"))),
            ("lib/latest".to_owned(), Entry::Link("v 2".to_owned())),
        ]);
        let payload = payload("tools/pack", &entries);
        let text = sign(&payload, DEPENDENCIES, &key);
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        assert!(manifest.is_signed_by(&key, DEPENDENCIES));
        assert!(!manifest.is_signed_by(&key, ENVIRONMENT));
        assert_eq!(manifest.entries("tools/pack").unwrap(), entries);
        assert!(manifest.entries("tools/other").is_err());
        let relabelled = text.replacen("dependencies", "environment", 1);
        let relabelled = Manifest::parse(relabelled.as_bytes()).unwrap();
        assert!(!relabelled.is_signed_by(&key, ENVIRONMENT));
        let changed = text.replace("a b.py", "a c.py");
        let changed = Manifest::parse(changed.as_bytes()).unwrap();
        assert!(!changed.is_signed_by(&key, DEPENDENCIES));
    }

    #[test]
    fn malformed_manifest_is_rejected() {
        for text in [
            "",
            "\n",
            "rye-manifest:v1:dependencies\n",
            "rye-manifest:v1:a:b:c\n",
        ] {
            assert!(Manifest::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(Manifest::parse(b"\xff\n").is_err());
    }
}
