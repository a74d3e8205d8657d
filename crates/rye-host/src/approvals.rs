//! What an agent may do without asking: `approvals.yaml` of the spaces.

use std::path::PathBuf;

use rye_engine::bridge::{Mode, Policy};
use rye_items::trust::Ignored;
use rye_items::{Space, SpaceError, Spaces};

use crate::config;

/// The file that says so, relative to a space's `.ai/`.
pub const APPROVALS: &str = "config/agent/approvals.yaml";

/// Why nobody knows what an agent may do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApprovalsError {
    /// A file says what cannot be.
    #[error("{}: {why}", path.display())]
    Config {
        /// Which.
        path: PathBuf,
        /// Of which space: all but the user's own are signed again once they are corrected.
        space: Space,
        /// What is wrong with it, and where.
        why: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

/// The rules of all spaces, project over user over system, and the files that do not count.
/// What the user denies is denied, whatever a project says.
pub fn approvals(spaces: &Spaces) -> Result<(Policy, Vec<Ignored>), ApprovalsError> {
    let (files, ignored) = config::files(spaces, APPROVALS)?;
    let mut policy = Policy::default();
    let mut denied = Vec::new();
    for (space, file) in files {
        let read: Result<Policy, _> = serde_saphyr::from_str(&file.text);
        let read = read.map_err(|error| ApprovalsError::Config {
            path: file.path.clone(),
            space,
            why: error.to_string(),
        })?;
        if space == Space::User {
            let denies = read.rules.iter().filter(|rule| rule.action == Mode::Deny);
            denied.extend(denies.cloned());
        }
        policy.rules.extend(read.rules);
        // The most specific counts.
        policy.limits = policy.limits.or(read.limits);
    }
    denied.append(&mut policy.rules);
    policy.rules = denied;
    Ok((policy, ignored))
}
