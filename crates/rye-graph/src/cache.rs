//! Results of nodes, kept under what exactly gave them.
//!
//! A key is the hash of the graph, the call with everything filled in, and what would run:
//! if any of them changes, so does the key, and nothing that is kept fits any more.

use std::fs;
use std::path::PathBuf;

use lillux::Hash;
use lillux::cas::Cas;
use lillux::durable::{self, IfExists};
use lillux::keys::{PublicKey, Purpose, Signature, SigningKey};
use rye_items::ItemId;
use serde_json::Value;

use crate::record::RecordError;

/// The purpose of the signature under a cached result.
const GRAPH_RESULT: Purpose = Purpose::new("graph-result");

/// The results that a project keeps.
pub(crate) struct Cache {
    folder: PathBuf,
    store: PathBuf,
    /// Who signs what is kept; without a key nothing is.
    key: Option<(SigningKey, PublicKey)>,
}

impl Cache {
    pub(crate) fn new(folder: PathBuf, store: PathBuf, key: Option<SigningKey>) -> Self {
        let key = key.map(|key| {
            let public = key.public().clone();
            (key, public)
        });
        Self { folder, store, key }
    }

    pub(crate) fn key(graph: &Hash, item: &ItemId, params: &Value, runs: &Hash) -> String {
        let params = lillux::canonical::to_vec(params);
        let params = params.unwrap_or_else(|_| params_text(item));
        let head = format!("rye graph cache 1\n{graph}\n{item}\n{runs}\n");
        Hash::digest([head.as_bytes(), &params].concat()).to_hex()
    }

    /// What was kept, if it is what was kept: whoever can write here cannot make results up.
    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        let (_, public) = self.key.as_ref()?;
        let text = fs::read_to_string(self.folder.join(key)).ok()?;
        let (hash, signature) = text.split_once(' ')?;
        let signature: Signature = signature.trim().parse().ok()?;
        public
            .verify_for(GRAPH_RESULT, &bound(key, hash), &signature)
            .ok()?;
        let bytes = Cas::open_existing(&self.store).ok()?;
        let bytes = bytes.get(&hash.parse().ok()?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(crate) fn put(&self, key: &str, result: &Value) -> Result<(), RecordError> {
        let Some((signing, _)) = &self.key else {
            return Ok(());
        };
        let bytes = serde_json::to_vec(result).unwrap_or_default();
        let hash = Cas::open(&self.store)?.put(&bytes)?.hash.to_hex();
        let signature = signing.sign_for(GRAPH_RESULT, &bound(key, &hash));
        durable::create_dir(&self.folder, 0o700)?;
        let text = format!("{hash} {signature}\n");
        let path = self.folder.join(key);
        Ok(durable::write(
            &path,
            text.as_bytes(),
            0o600,
            IfExists::Replace,
        )?)
    }
}

fn bound(key: &str, hash: &str) -> Hash {
    Hash::digest(format!("rye graph result 1\n{key}\n{hash}"))
}

/// Parameters that have no canonical form are never the same twice.
fn params_text(item: &ItemId) -> Vec<u8> {
    format!("{item} {}", lillux::time::now().monotonic_ns).into_bytes()
}
