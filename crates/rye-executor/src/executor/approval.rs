//! Approval of calls.
//!
//! A call requires approval if the tool declares it, if the tool is a runtime, whose parameters
//! are code, or if it writes to a [sensitive](SensitiveReason) path. A call that names a private path
//! is always refused.

use std::path::{Path, PathBuf};

use lillux::path_policy::{PathClass, PathPolicy, SensitiveReason};
use lillux::{Hash, sanitize_line};
use rye_items::Dependencies;
use rye_items::metadata::Metadata;
use rye_protocol::policy::{CallFacts, Cause, Mode, Policy, ReviewReason};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::chain::{self, Chain, Link};
use crate::error::ExecuteError;

/// Environment variable that tells a tool the private directories and the resolved paths of its
/// parameters.
pub(super) const PATH_POLICY: &str = "RYE_PATH_POLICY";

/// Approval that a call is made with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Approval {
    /// A user makes the call directly.
    #[default]
    ByUser,
    /// Not approved: the [policy](super::Executor::with_policy) decides, and a call that requires
    /// approval is refused.
    None,
    /// A user approved the chain with this hash.
    ForChain(Hash),
    /// A rule or a user approved the chain with this hash and the sensitive writes.
    ForCall {
        /// Chain hash.
        chain: Hash,
        /// All sensitive writes of the call; the approval is void if they differ.
        writes: Vec<SensitiveWrite>,
        /// Workspace of the agent that makes the call, unless it is the whole project.
        workspace: Option<PathBuf>,
    },
}

/// A write to a sensitive path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SensitiveWrite {
    /// The path as given in the parameters.
    pub path: String,
    /// The path with all symbolic links resolved.
    pub real: PathBuf,
    /// Why the path is sensitive.
    pub reason: SensitiveReason,
}

/// Why a call requires approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalReason {
    /// The tool declares it.
    Declared,
    /// The tool is a runtime or a primitive, whose parameters are code.
    RuntimeOrPrimitive,
    /// The call writes to a sensitive path.
    SensitiveWrite(SensitiveWrite),
    /// Development mode accepts files that do not verify.
    Unverified,
}

impl ApprovalReason {
    /// This reason in the form that the policy expects. `None` if the tool itself declares that it
    /// requires approval: the policy gets that from the tool's metadata. `can_be_allowed_by_rule`
    /// says whether a rule may allow a write.
    pub fn to_review(
        &self,
        can_be_allowed_by_rule: impl FnOnce(&Self) -> bool,
    ) -> Option<ReviewReason> {
        Some(ReviewReason {
            text: self.message()?,
            can_be_allowed_by_rule: can_be_allowed_by_rule(self),
            applies_to_all_params: false,
        })
    }

    /// Explanation for the user, unless the tool itself declares it.
    pub fn message(&self) -> Option<String> {
        match self {
            Self::Declared => None,
            Self::RuntimeOrPrimitive => Some("its parameters contain code to run".to_owned()),
            Self::SensitiveWrite(SensitiveWrite { path, real, reason }) => {
                let resolved = if real.ends_with(path) {
                    String::new()
                } else {
                    format!(" ({})", sanitize_line(&real.to_string_lossy()))
                };
                let path = sanitize_line(path);
                Some(format!(
                    "it writes to {path}{resolved}: {}",
                    reason.reason()
                ))
            }
            Self::Unverified => {
                Some("it contains unverified files, which RYE_DEV_MODE accepts".to_owned())
            }
        }
    }
}

impl Approval {
    /// Workspace outside of which a write requires approval.
    pub(super) fn workspace(&self) -> Option<&Path> {
        match self {
            Self::ForCall { workspace, .. } => workspace.as_deref(),
            _ => None,
        }
    }

    /// Checks whether the call may run.
    pub(super) fn check(
        &self,
        chain: &Chain,
        dependencies: Option<Dependencies>,
        paths: &CheckedPaths,
        is_confined: bool,
        policy: impl FnOnce() -> Result<Policy, ExecuteError>,
    ) -> Result<(), ExecuteError> {
        let tool = || chain.tool().id().to_string();
        match self {
            Self::ByUser => Ok(()),
            Self::ForChain(approved) if *approved == chain.hash_with(dependencies) => Ok(()),
            Self::ForCall {
                chain: approved,
                writes,
                ..
            } if *approved == chain.hash_with(dependencies) && *writes == paths.writes => Ok(()),
            Self::ForChain(_) | Self::ForCall { .. } => Err(ExecuteError::ApprovalVoid(tool())),
            Self::None => {
                let mut reasons = reasons(&chain.tool().metadata, paths);
                if chain.waived_files(dependencies) > 0 {
                    reasons.push(ApprovalReason::Unverified);
                }
                decide_unapproved(chain.tool(), &reasons, is_confined, &policy()?)
            }
        }
    }
}

/// Decides about a call that no person approved. No rule allows code in the parameters, unverified
/// files or sensitive writes, because no person would see them.
pub(super) fn decide_unapproved(
    tool: &Link,
    reasons: &[ApprovalReason],
    is_confined: bool,
    policy: &Policy,
) -> Result<(), ExecuteError> {
    let (id, metadata) = (tool.id().to_string(), &tool.metadata);
    let policy_name = format!("rye:{id}");
    let reviewed = reasons.iter().filter_map(|it| it.to_review(|_| false));
    let reviewed: Vec<ReviewReason> = reviewed.collect();
    let decision = policy.decide(&CallFacts {
        space: Some(tool.space().as_str()),
        requires_approval: metadata.requires_approval() == Some(true),
        is_confined,
        reasons: &reviewed,
        ..CallFacts::new(&policy_name, metadata.risk_level())
    });
    let reason = match decision.cause {
        Cause::Reason(at) => reviewed.into_iter().nth(at).map(|reason| reason.text),
        Cause::Declared => None,
        other => Some(other.text().to_owned()),
    };
    match decision.mode {
        Mode::Allow => Ok(()),
        Mode::Ask => Err(ExecuteError::ApprovalRequired { tool: id, reason }),
        Mode::Deny => Err(ExecuteError::Denied(id)),
    }
}

/// Reasons why a call requires approval.
pub(super) fn reasons(tool: &Metadata, paths: &CheckedPaths) -> Vec<ApprovalReason> {
    let mut reasons = Vec::new();
    if tool.requires_approval() == Some(true) {
        reasons.push(ApprovalReason::Declared);
    }
    if chain::is_executor(tool) {
        reasons.push(ApprovalReason::RuntimeOrPrimitive);
    }
    reasons.extend(
        paths
            .writes
            .iter()
            .cloned()
            .map(ApprovalReason::SensitiveWrite),
    );
    reasons
}

/// The classified paths in a call's parameters.
pub(super) struct CheckedPaths {
    /// Writes to sensitive paths.
    writes: Vec<SensitiveWrite>,
    /// Resolved path of each parameter that is a single path.
    resolved: Map<String, Value>,
    /// Whether the tool declares parameters that are paths.
    has_path_parameters: bool,
}

impl CheckedPaths {
    /// Classifies the parameters that the tool declares as paths. A write outside of `workspace`
    /// is sensitive. The error is a private path.
    pub(super) fn new(
        tool: &Metadata,
        parameters: &Value,
        policy: &PathPolicy,
        workspace: Option<&Path>,
    ) -> Result<Self, String> {
        let (read, written) = (tool.reads(), tool.writes());
        let mut checked = Self {
            writes: Vec::new(),
            resolved: Map::new(),
            has_path_parameters: !read.is_empty() || !written.is_empty(),
        };
        let written = written.iter().map(|name| (name, true));
        let declared = read.iter().map(|name| (name, false)).chain(written);
        for (name, is_written) in declared {
            let value = parameters.get(name).unwrap_or(&Value::Null);
            for path in paths_in(value) {
                let found = policy.classify(path);
                let is_outside = workspace.is_some_and(|it| !found.real.starts_with(it));
                let class = match found.class {
                    PathClass::Plain | PathClass::Sensitive(_) if is_outside => {
                        PathClass::Sensitive(SensitiveReason::Outside)
                    }
                    class => class,
                };
                match class {
                    PathClass::Private => return Err(path.to_owned()),
                    PathClass::Sensitive(reason) if is_written => {
                        checked.writes.push(SensitiveWrite {
                            path: path.to_owned(),
                            real: found.real.clone(),
                            reason,
                        });
                    }
                    PathClass::Sensitive(_) | PathClass::Plain => {}
                }
                if let (true, Some(real)) = (value.is_string(), found.real.to_str()) {
                    checked.resolved.insert(name.clone(), json!(real));
                }
            }
        }
        Ok(checked)
    }

    /// Value of [`PATH_POLICY`], for a tool with path parameters.
    pub(super) fn policy_json(&self, policy: &PathPolicy) -> Option<String> {
        let private = policy.private_directories();
        let private: Vec<_> = private.iter().map(|path| path.to_string_lossy()).collect();
        let text = json!({ "private": private, "checked": self.resolved });
        self.has_path_parameters.then(|| text.to_string())
    }
}

/// All strings in a value, which is a path or contains paths.
fn paths_in(value: &Value) -> Vec<&str> {
    match value {
        Value::String(path) => vec![path],
        Value::Array(items) => items.iter().flat_map(paths_in).collect(),
        Value::Object(fields) => fields.values().flat_map(paths_in).collect(),
        _ => Vec::new(),
    }
}
