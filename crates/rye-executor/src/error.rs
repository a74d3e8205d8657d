//! Why a call is refused: nothing runs.

use std::path::PathBuf;

use lillux::PathError;
use rye_items::{ItemError, LookupError, SpaceError};
use serde_json::Value;

use crate::anchor::AnchorError;
use crate::chain::{ChainError, Pair};
use crate::interpreter::InterpreterError;
use crate::parameters::ParameterError;
use crate::template::{LeadsElsewhere, UnknownPlaceholder, ValueAsCode};

/// A call that is refused before anything runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// The chain cannot be built.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// Neighbours of the chain do not fit.
    #[error("the chain does not fit together: {}", problems(.0))]
    Invalid(Vec<Pair>),
    /// The parameters do not fit the tool's schema.
    #[error("the parameters do not fit: {0}")]
    Parameters(#[from] ParameterError),
    /// The merged configuration does not fit the primitive's schema.
    #[error("the configuration does not fit the primitive: {0}")]
    Config(ParameterError),
    /// A configuration file that the tool asks for cannot be read.
    #[error("{0}")]
    ConfigFile(String),
    /// The interpreter cannot be found.
    #[error("{id}: {source}")]
    Interpreter {
        /// Whose interpreter.
        id: String,
        /// Why.
        source: InterpreterError,
    },
    /// The anchor cannot be found.
    #[error("{id}: {source}")]
    Anchor {
        /// Whose anchor.
        id: String,
        /// Why.
        source: AnchorError,
    },
    /// What the tool brings with it does not verify.
    #[error("{0}")]
    Dependency(#[source] ItemError),
    /// How dependencies are verified is described wrongly.
    #[error("`verify_deps`: {0}")]
    VerifyDeps(String),
    /// Variables that the tool needs are not set.
    #[error("the tool needs variables that are not set: {}", .0.join(", "))]
    MissingVariables(Vec<String>),
    /// The command holds a placeholder that stands for nothing.
    #[error("{id}: {source}")]
    Placeholder {
        /// Of which tool.
        id: String,
        /// Which one.
        source: UnknownPlaceholder,
    },
    /// A value of the call would become part of a program's text.
    #[error("{id}: {place}: {source}")]
    ValueAsCode {
        /// The tool.
        id: String,
        /// Where in its configuration.
        place: String,
        /// Which value.
        source: ValueAsCode,
    },
    /// A parameter leads to another address than the tool means.
    #[error(transparent)]
    Address(#[from] LeadsElsewhere),
    /// Somebody must approve its run, and nobody has.
    #[error("{tool} needs a person's approval{}", because(.why.as_deref()))]
    ApprovalRequired {
        /// The tool.
        tool: String,
        /// Why, where it is not the tool itself that says so.
        why: Option<String>,
    },
    /// What was approved is not what would run.
    #[error("{0} is not what was approved: it, or what it runs on, has changed since")]
    ApprovalVoid(String),
    /// A parameter names a path that no tool may use.
    #[error("{tool}: {path} is in a private directory, which no tool may use")]
    PrivatePath {
        /// The tool.
        tool: String,
        /// The path, as it was given.
        path: String,
    },
    /// A folder or file cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A path that cannot be put into a command's words.
    #[error("the path {} is not UTF-8", .0.display())]
    NotText(PathBuf),
}

impl ExecuteError {
    /// A stable word for scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Chain(error) => chain_code(error),
            Self::Invalid(_) => "invalid_chain",
            Self::Parameters(ParameterError::Schema(_)) => "bad_schema",
            Self::Parameters(_) | Self::Address(_) => "invalid_parameters",
            Self::Config(_) | Self::ConfigFile(_) => "invalid_config",
            Self::Interpreter { source, .. } => match source {
                InterpreterError::Description { .. } => "bad_env_config",
                InterpreterError::Unsigned(_) => "unsigned",
                InterpreterError::Changed { .. } => "content_changed",
                _ => "interpreter_not_found",
            },
            Self::Anchor { .. } => "no_anchor",
            Self::Dependency(error) => item_code(error),
            Self::VerifyDeps(_) => "bad_verify_deps",
            Self::MissingVariables(_) => "missing_variables",
            Self::Placeholder { .. } => "unknown_placeholder",
            Self::ValueAsCode { .. } => "value_as_code",
            Self::ApprovalRequired { .. } => "approval_required",
            Self::ApprovalVoid(_) => "approval_void",
            Self::PrivatePath { .. } => "private_path",
            Self::Path(error) if error.is_permission() => "permission",
            Self::Path(_) | Self::NotText(_) => "io",
        }
    }

    /// Whether something is not what was signed.
    pub fn is_integrity(&self) -> bool {
        let leaves = match self {
            Self::Chain(ChainError::Item(error)) | Self::Dependency(error) => leaves_space(error),
            Self::Interpreter { source, .. } => matches!(
                source,
                InterpreterError::Unsigned(_) | InterpreterError::Changed { .. }
            ),
            _ => false,
        };
        leaves || self.integrity().is_some()
    }

    /// The item whose bytes are not vouched for, if that is why.
    pub fn integrity(&self) -> Option<&rye_items::IntegrityError> {
        match self {
            Self::Chain(ChainError::Item(ItemError::Integrity(error)))
            | Self::Dependency(ItemError::Integrity(error)) => Some(error),
            _ => None,
        }
    }

    /// What to do, where there is one thing.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Chain(ChainError::Item(error)) | Self::Dependency(error) => item_hint(error),
            Self::Chain(ChainError::Missing { source, .. }) => source.hint(),
            Self::Chain(ChainError::Needs { source, .. }) => source.hint(),
            Self::Interpreter {
                source: InterpreterError::Changed { found, .. },
                ..
            } => Some(format!(
                "if the program is what you want: put sha256: {found} into the tool and sign it"
            )),
            Self::ApprovalRequired { tool, .. } => {
                Some(format!("a person runs it: rye execute {tool}"))
            }
            Self::ValueAsCode { .. } => Some(
                "pass the value beside the program: as a further argument (a shell's \"$1\"), in \
                 `config.env` (\"$NAME\"), or as JSON on standard input"
                    .to_owned(),
            ),
            Self::MissingVariables(names) => {
                let name = names.first()?;
                Some(format!(
                    "export {name}=…, or put it into the project's .env"
                ))
            }
            _ => None,
        }
    }

    /// All that is wrong with the parameters, for scripts.
    pub fn violations(&self) -> Value {
        match self {
            Self::Parameters(ParameterError::Violations(all))
            | Self::Config(ParameterError::Violations(all)) => {
                serde_json::to_value(all).unwrap_or_default()
            }
            _ => Value::Null,
        }
    }
}

fn problems(pairs: &[Pair]) -> String {
    let all = pairs.iter().filter(|pair| !pair.is_ok()).map(|pair| {
        format!(
            "{} run by {}: {}",
            pair.child,
            pair.parent,
            pair.problems.join(", ")
        )
    });
    all.collect::<Vec<_>>().join("; ")
}

fn chain_code(error: &ChainError) -> &'static str {
    match error {
        ChainError::NotATool(_) => "not_a_tool",
        ChainError::Item(error) => item_code(error),
        ChainError::Missing { .. } => "executor_not_found",
        ChainError::Needs { .. } => "item_not_found",
        ChainError::BadExecutor { .. } => "bad_executor",
        ChainError::Cycle(_) => "cycle",
        ChainError::TooDeep(_) => "too_deep",
        ChainError::NoExecutor(_) => "no_executor",
    }
}

fn leaves_space(error: &ItemError) -> bool {
    matches!(
        error,
        ItemError::Space(SpaceError::LeavesSpace(_))
            | ItemError::Lookup(LookupError::Space(SpaceError::LeavesSpace(_)))
    )
}

fn item_code(error: &ItemError) -> &'static str {
    match error {
        _ if leaves_space(error) => "leaves_space",
        ItemError::Lookup(LookupError::NotFound { .. }) => "not_found",
        ItemError::Lookup(LookupError::Space(_)) | ItemError::Space(_) => "unusable_file",
        ItemError::Lookup(_) => "ambiguous",
        ItemError::Integrity(error) => error.problem.code(),
        ItemError::Metadata { .. } => "bad_metadata",
        _ => "item",
    }
}

fn item_hint(error: &ItemError) -> Option<String> {
    match error {
        ItemError::Lookup(error) => error.hint(),
        ItemError::Space(error) => error.hint(),
        ItemError::Integrity(error) => Some(error.hint()),
        ItemError::Metadata { source, .. } => source.hint.clone(),
        _ => None,
    }
}

fn because(why: Option<&str>) -> String {
    why.map_or_else(String::new, |why| format!(": {why}"))
}
