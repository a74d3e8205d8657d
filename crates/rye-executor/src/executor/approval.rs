//! Whether a call may run: what it would touch, and who approved that.
//!
//! A tool may say itself that each call has to be approved. So must a call of a runtime,
//! whose parameters are the code that runs, and one whose parameters name a
//! [sensitive](SensitiveReason) path to write to. A call that names a private path is refused,
//! whoever makes it.

use std::path::{Path, PathBuf};

use lillux::path_policy::{PathClass, PathPolicy, SensitiveReason};
use lillux::{Hash, sanitize_line};
use rye_items::Dependencies;
use rye_items::metadata::Metadata;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::chain::Chain;
use crate::error::ExecuteError;

/// The variable that tells a tool which directories are private, and where the paths in its
/// parameters led when they were checked.
pub(super) const PATH_POLICY: &str = "RYE_PATH_POLICY";

/// What runs other tools, or is what they run on.
const FOUNDATIONS: [&str; 2] = ["runtime", "primitive"];

/// Who let a tool run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Approval {
    /// A person asked for it themselves.
    #[default]
    ByUser,
    /// Nobody yet: what needs an approval is refused.
    None,
    /// A person, who was shown the chain of this hash and nothing else.
    ForChain(Hash),
    /// A rule, or a person who was shown the call: the chain of this hash, and the sensitive
    /// paths that it would write to.
    ForCall {
        /// The hash of the chain.
        chain: Hash,
        /// All sensitive paths of the call; with others, the approval is void.
        writes: Vec<SensitiveWrite>,
        /// The workspace of the agent that makes the call, where it is not all of the project.
        workspace: Option<PathBuf>,
    },
}

/// A sensitive path that a call would write to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SensitiveWrite {
    /// The path, as the parameters name it.
    pub path: String,
    /// Where it leads.
    pub real: PathBuf,
    /// Why it is sensitive.
    pub reason: SensitiveReason,
}

/// Why a call needs an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalReason {
    /// The tool says so.
    Declared,
    /// It is a runtime or a primitive.
    RuntimeOrPrimitive,
    /// It writes to a sensitive path.
    SensitiveWrite(SensitiveWrite),
    /// Not all of it verifies.
    Unverified,
}

impl ApprovalReason {
    /// The reason in words, where it is not the tool itself that says so.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Declared => None,
            Self::RuntimeOrPrimitive => Some("its parameters say what runs".to_owned()),
            Self::SensitiveWrite(SensitiveWrite { path, real, reason }) => {
                let leads = if real.ends_with(path) {
                    String::new()
                } else {
                    format!(" ({})", sanitize_line(&real.to_string_lossy()))
                };
                let path = sanitize_line(path);
                Some(format!(
                    "it would change {path}{leads}: {}",
                    reason.reason()
                ))
            }
            Self::Unverified => Some("RYE_DEV_MODE lets it pass unverified".to_owned()),
        }
    }
}

impl Approval {
    /// What the call must stay in to need no approval for it, beside the project.
    pub(super) fn workspace(&self) -> Option<&Path> {
        match self {
            Self::ForCall { workspace, .. } => workspace.as_deref(),
            _ => None,
        }
    }

    /// Whether a chain may run, with what the tool brings along.
    pub(super) fn check(
        &self,
        chain: &Chain,
        dependencies: Option<Dependencies>,
        paths: &CheckedPaths,
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
                let mut needs = needs(&chain.tool().metadata, paths);
                if chain.waived(dependencies) > 0 {
                    needs.push(ApprovalReason::Unverified);
                }
                match needs.first() {
                    None => Ok(()),
                    Some(first) => Err(ExecuteError::ApprovalRequired {
                        tool: tool(),
                        why: first.reason(),
                    }),
                }
            }
        }
    }
}

/// Why a call needs an approval.
pub(super) fn needs(tool: &Metadata, paths: &CheckedPaths) -> Vec<ApprovalReason> {
    let mut needs = Vec::new();
    if tool.requires_approval() == Some(true) {
        needs.push(ApprovalReason::Declared);
    }
    if tool.tool_type().is_some_and(|it| FOUNDATIONS.contains(&it)) {
        needs.push(ApprovalReason::RuntimeOrPrimitive);
    }
    needs.extend(
        paths
            .writes
            .iter()
            .cloned()
            .map(ApprovalReason::SensitiveWrite),
    );
    needs
}

/// The paths that a call's parameters name, checked.
pub(super) struct CheckedPaths {
    /// The sensitive ones that it would write to.
    writes: Vec<SensitiveWrite>,
    /// Where each parameter leads that is one path.
    real: Map<String, Value>,
    /// Whether the tool names parameters that are paths.
    is_declared: bool,
}

impl CheckedPaths {
    /// Classifies the paths in the parameters that a tool declares as such. The error is a
    /// path that is private. A write outside of `workspace` is sensitive.
    pub(super) fn of(
        tool: &Metadata,
        parameters: &Value,
        policy: &PathPolicy,
        workspace: Option<&Path>,
    ) -> Result<Self, String> {
        let (read, written) = (tool.reads(), tool.writes());
        let mut checked = Self {
            writes: Vec::new(),
            real: Map::new(),
            is_declared: !read.is_empty() || !written.is_empty(),
        };
        let written = written.iter().map(|name| (name, true));
        let named = read.iter().map(|name| (name, false)).chain(written);
        for (name, is_written) in named {
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
                    checked.real.insert(name.clone(), json!(real));
                }
            }
        }
        Ok(checked)
    }

    /// The text of [`PATH_POLICY`], for a tool whose parameters name paths.
    pub(super) fn for_program(&self, policy: &PathPolicy) -> Option<String> {
        let private = policy.private_directories();
        let private: Vec<_> = private.iter().map(|path| path.to_string_lossy()).collect();
        let text = json!({ "private": private, "checked": self.real });
        self.is_declared.then(|| text.to_string())
    }
}

/// A path, or a list of paths.
fn paths_in(value: &Value) -> Vec<&str> {
    match value {
        Value::String(path) => vec![path],
        Value::Array(items) => items.iter().flat_map(paths_in).collect(),
        Value::Object(fields) => fields.values().flat_map(paths_in).collect(),
        _ => Vec::new(),
    }
}
