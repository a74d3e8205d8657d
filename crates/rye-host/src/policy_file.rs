//! Loads the approval policy: `approvals.yaml` of all spaces.

use std::path::PathBuf;

use rye_engine::policy::{LimitPolicy, Mode, Policy};
use rye_items::trust::IgnoredFile;
use rye_items::{Space, SpaceError, Spaces};
use rye_model::ConfigFile;

use crate::config::{self, ConfigFiles};

/// The policy file, relative to a space's `.ai/`.
pub const POLICY_FILE: &str = "config/agent/approvals.yaml";

/// Why a policy or command file cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A file is invalid.
    #[error("{}: {reason}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Its space. After a correction, files of all spaces but the user's must be signed again.
        space: Space,
        /// The error, with its position.
        reason: String,
    },
    /// A space cannot be read.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

/// Loads the rules of all spaces, and returns the files that were ignored. Rules of the project
/// precede those of the user and the system, but a denial of the user precedes all. Of a project
/// file that the user has not accepted for its directory, only rules that tighten the policy
/// apply.
pub fn load_policy(spaces: &Spaces) -> Result<(Policy, Vec<IgnoredFile>), PolicyError> {
    let ConfigFiles {
        accepted,
        unaccepted,
        mut ignored,
    } = config::load(spaces, POLICY_FILE)?;
    let mut policy = Policy::default();
    if let Some((file, mut notice)) = unaccepted {
        let parsed = parse(Space::Project, &file)?;
        let tightening = tightening(parsed.clone());
        if tightening != parsed {
            let reason = &notice.reason;
            notice.reason = format!("only its restrictions apply: {reason}");
            ignored.push(notice);
        }
        policy = tightening;
    }
    let mut denied = Vec::new();
    for (space, file) in accepted {
        let parsed = parse(space, &file)?;
        if space == Space::User {
            let denies = parsed.rules.iter().filter(|rule| rule.action == Mode::Deny);
            denied.extend(denies.cloned());
        }
        policy.rules.extend(parsed.rules);
        // The most specific file wins.
        policy.limits = policy.limits.or(parsed.limits);
    }
    denied.append(&mut policy.rules);
    policy.rules = denied;
    Ok((policy, ignored))
}

fn parse(space: Space, file: &ConfigFile) -> Result<Policy, PolicyError> {
    serde_saphyr::from_str(&file.text).map_err(|error| PolicyError::Config {
        path: file.path.clone(),
        space,
        reason: error.to_string(),
    })
}

/// The part of a policy that only makes more calls ask or fail.
fn tightening(policy: Policy) -> Policy {
    let rules = policy.rules.into_iter();
    Policy {
        rules: rules.filter(|rule| rule.action != Mode::Allow).collect(),
        limits: policy.limits.filter(|limits| *limits == LimitPolicy::End),
    }
}
