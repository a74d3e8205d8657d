//! A tool's chain, kept for the next call.
//!
//! A program that keeps running is asked for the same tools again and again. The chain
//! of one is kept with everything that was looked at to build it, and is good for another
//! call if all of that would be found the same now: the files byte by byte, what was not
//! there still not there, and no folder with a name more or less. So the next call sees
//! every change, as if it had built the chain anew, and what runs are bytes that were
//! verified.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rye_items::{ItemRef, Library};

use super::Executor;
use crate::chain::{self, Chain, ChainError};
use crate::error::ExecuteError;

/// How many chains are kept, each with its spaces open. Another takes the place of all.
const MOST: usize = 32;

/// A chain, and the library that it was built from.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) library: Library,
    pub(super) chain: Chain,
}

/// The chains of earlier calls.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// A program that makes one call and ends has no use for what was noted.
    is_in_use: AtomicBool,
    chains: Mutex<HashMap<ItemRef, Arc<Resolved>>>,
}

impl Known {
    fn get(&self, tool: &ItemRef) -> Option<Arc<Resolved>> {
        let chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        chains.get(tool).cloned()
    }

    fn put(&self, tool: &ItemRef, resolved: &Arc<Resolved>) {
        let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        if chains.len() >= MOST && !chains.contains_key(tool) {
            chains.clear();
        }
        chains.insert(tool.clone(), Arc::clone(resolved));
    }
}

impl Executor {
    /// The chain of a tool as it is now, verified.
    pub(super) fn resolved(&self, tool: &ItemRef) -> Result<Arc<Resolved>, ExecuteError> {
        let kept = self.known.get(tool);
        if let Some(kept) = kept.filter(|kept| kept.library.is_fresh()) {
            return Ok(kept);
        }
        let is_first = !self.known.is_in_use.swap(true, Ordering::Relaxed);
        let library = if is_first {
            Library::open(&self.options())
        } else {
            Library::open_recording(&self.options())
        };
        let library = library.map_err(ChainError::from)?;
        let trust = library.trust_with_known_keys();
        let chain = chain::build(&library, &trust, tool, &self.primitives)?;
        let standings = trust.into_key_statuses();
        let library = library.finish_recording(standings);
        let resolved = Arc::new(Resolved { library, chain });
        if !is_first {
            self.known.put(tool, &resolved);
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
    fn a_chain_is_kept_once_nothing_can_change_unnoticed_and_until_something_does() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        fs::create_dir_all(project.join(".ai/tools/rye/bash")).unwrap();
        let roots = Roots::new(&project, folder.path().join("cache"));
        let executor = Executor::new(roots, Arc::new(Supervisor::start().unwrap()));
        let tool = "rye/bash/bash".parse().unwrap();
        let resolved = || executor.resolved(&tool).unwrap();
        let is_kept = || Arc::ptr_eq(&resolved(), &resolved());
        assert!(!is_kept(), "the first call notes nothing");
        // The folder was made in a tick of the clock that will be over soon.
        assert!((0..20_000).any(|_| is_kept()));
        let before = resolved();
        fs::write(project.join(".ai/tools/rye/bash/other.sh"), "").unwrap();
        assert!(!Arc::ptr_eq(&before, &resolved()));
    }
}
