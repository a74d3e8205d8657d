//! Cache of verified chains for long-running processes.
//!
//! A cached chain remembers every file and directory that was accessed to build it. It is reused
//! only if all of them are unchanged: the same file contents, the same directory entries, and
//! missing files still missing. So every call sees every change, and only verified bytes run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rye_items::{ItemRef, Library};

use super::Executor;
use crate::chain::{self, Chain, ChainError};
use crate::error::ExecuteError;

/// Capacity of the cache; it is cleared when it is full.
const CAPACITY: usize = 32;

/// A chain and the library that it was built from.
#[derive(Debug)]
pub(super) struct ResolvedChain {
    pub(super) library: Library,
    pub(super) chain: Chain,
}

/// Chains of earlier calls, by tool.
#[derive(Debug, Default)]
pub(super) struct ChainCache {
    /// Whether there was a call before. The first call does not fill the cache, because most
    /// processes make only one call.
    is_in_use: AtomicBool,
    chains: Mutex<HashMap<ItemRef, Arc<ResolvedChain>>>,
}

impl ChainCache {
    fn get(&self, tool: &ItemRef) -> Option<Arc<ResolvedChain>> {
        let chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        chains.get(tool).cloned()
    }

    fn insert(&self, tool: &ItemRef, resolved: &Arc<ResolvedChain>) {
        let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        if chains.len() >= CAPACITY && !chains.contains_key(tool) {
            chains.clear();
        }
        chains.insert(tool.clone(), Arc::clone(resolved));
    }
}

impl Executor {
    /// Returns the current, verified chain of a tool, from the cache if it is still fresh.
    pub(super) fn resolve_chain(&self, tool: &ItemRef) -> Result<Arc<ResolvedChain>, ExecuteError> {
        let cached = self.chains.get(tool);
        if let Some(cached) = cached.filter(|cached| cached.library.is_fresh()) {
            return Ok(cached);
        }
        let is_first = !self.chains.is_in_use.swap(true, Ordering::Relaxed);
        let library = if is_first {
            Library::open(&self.options())
        } else {
            Library::open_recording(&self.options())
        };
        let library = library.map_err(ChainError::from)?;
        let trust = library.trust_with_known_keys();
        let chain = chain::build(&library, &trust, tool, &self.primitives)?;
        let statuses = trust.into_key_statuses();
        let library = library.finish_recording(statuses);
        let resolved = Arc::new(ResolvedChain { library, chain });
        if !is_first {
            self.chains.insert(tool, &resolved);
        }
        Ok(resolved)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use lillux::process::Supervisor;

    use super::*;
    use crate::executor::Roots;

    #[test]
    fn chain_is_cached_until_a_file_changes() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        fs::create_dir_all(project.join(".ai/tools/rye/bash")).unwrap();
        let roots = Roots::new(&project, dir.path().join("cache"));
        let executor = Executor::new(roots, Arc::new(Supervisor::start().unwrap()));
        let tool = "rye/bash/bash".parse().unwrap();
        let resolved = || executor.resolve_chain(&tool).unwrap();
        let is_cached = || Arc::ptr_eq(&resolved(), &resolved());
        assert!(!is_cached(), "the first call does not fill the cache");
        // Chains are cached once the modification times are older than the clock's resolution.
        assert!((0..20_000).any(|_| is_cached()));
        let before = resolved();
        fs::write(project.join(".ai/tools/rye/bash/other.sh"), "").unwrap();
        assert!(!Arc::ptr_eq(&before, &resolved()));
    }
}
