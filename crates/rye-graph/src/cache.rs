//! Cache of node results, for nodes with `cache_result`.
//!
//! The key is a hash over the graph, the tool, the parameters and the tool's chain. If any of
//! them changes, the cached result no longer applies.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use lillux::Hash;
use lillux::cas::Cas;
use lillux::durable::{self, IfExists, WriteError};
use lillux::keys::{Purpose, Signature, SigningKey};
use rye_items::ItemId;
use serde_json::Value;

use crate::error::RecordError;

/// The purpose of the signature under a cached result.
const GRAPH_RESULT: Purpose = Purpose::new("graph-result");

/// Cached results of a project.
pub(crate) struct ResultCache {
    dir: PathBuf,
    /// Key that signs results; without a key nothing is cached.
    key: Option<Arc<SigningKey>>,
}

impl ResultCache {
    pub(crate) fn new(dir: PathBuf, key: Option<Arc<SigningKey>>) -> Self {
        Self { dir, key }
    }

    fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    pub(crate) fn key(graph: &Hash, item: &ItemId, params: &Value, chain: &Hash) -> String {
        let params = lillux::canonical::to_vec(params);
        let params = params.unwrap_or_else(|_| unique_params(item));
        let head = format!("rye graph cache 1\n{graph}\n{item}\n{chain}\n");
        Hash::digest([head.as_bytes(), &params].concat()).to_hex()
    }

    /// Returns a cached result if its signature verifies.
    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        let public = self.key.as_ref()?.public();
        let text = fs::read_to_string(self.dir.join(key)).ok()?;
        let (hash, signature) = text.split_once(' ')?;
        let signature: Signature = signature.trim().parse().ok()?;
        public
            .verify_for(GRAPH_RESULT, &signed_hash(key, hash), &signature)
            .ok()?;
        let bytes = Cas::open_existing(self.store()).ok()?;
        let bytes = bytes.get(&hash.parse().ok()?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(crate) fn insert(&self, key: &str, result: &Value) -> Result<(), RecordError> {
        let Some(signing) = &self.key else {
            return Ok(());
        };
        let bytes = serde_json::to_vec(result).unwrap_or_default();
        let hash = Cas::open(self.store())?.put(&bytes)?.hash.to_hex();
        let signature = signing.sign_for(GRAPH_RESULT, &signed_hash(key, &hash));
        durable::create_dir(&self.dir, 0o700).map_err(WriteError::from)?;
        let text = format!("{hash} {signature}\n");
        let path = self.dir.join(key);
        Ok(durable::write(
            &path,
            text.as_bytes(),
            0o600,
            IfExists::Replace,
        )?)
    }
}

/// The hash that the signature of a result covers.
fn signed_hash(key: &str, hash: &str) -> Hash {
    Hash::digest(format!("rye graph result 1\n{key}\n{hash}"))
}

/// Unique bytes for parameters without a canonical form, so that they never match.
fn unique_params(item: &ItemId) -> Vec<u8> {
    format!("{item} {}", lillux::time::now().monotonic_ns).into_bytes()
}
