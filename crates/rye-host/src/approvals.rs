//! What an agent may do without asking: `approvals.yaml` of the spaces.

use std::path::PathBuf;

use rye_engine::meta_tools::{LimitPolicy, Mode, Policy};
use rye_items::trust::IgnoredFile;
use rye_items::{Space, SpaceError, Spaces};
use rye_model::ConfigFile;

use crate::config::{self, Files};

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
/// What the user denies is denied, whatever a project says. Of a project's file that the
/// user has not accepted for its directory, what tightens counts.
pub fn approvals(spaces: &Spaces) -> Result<(Policy, Vec<IgnoredFile>), ApprovalsError> {
    let Files {
        counting,
        unaccepted,
        mut ignored,
    } = config::files(spaces, APPROVALS)?;
    let mut policy = Policy::default();
    if let Some((file, mut notice)) = unaccepted {
        let read = read(Space::Project, &file)?;
        let tightening = tightening(read.clone());
        if tightening != read {
            let why = &notice.reason;
            notice.reason = format!("what it allows does not count: {why}");
            ignored.push(notice);
        }
        policy = tightening;
    }
    let mut denied = Vec::new();
    for (space, file) in counting {
        let read = read(space, &file)?;
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

fn read(space: Space, file: &ConfigFile) -> Result<Policy, ApprovalsError> {
    serde_saphyr::from_str(&file.text).map_err(|error| ApprovalsError::Config {
        path: file.path.clone(),
        space,
        why: error.to_string(),
    })
}

/// What of a policy only makes more calls ask or fail.
fn tightening(policy: Policy) -> Policy {
    let rules = policy.rules.into_iter();
    Policy {
        rules: rules.filter(|rule| rule.action != Mode::Allow).collect(),
        limits: policy.limits.filter(|limits| *limits == LimitPolicy::End),
    }
}
