//! Errors that refuse a call before anything runs.

use std::path::PathBuf;

use lillux::PathError;
use rye_items::{IntegrityError, ItemError, LookupError, Position, SpaceError};
use serde_json::Value;

use crate::anchor::AnchorError;
use crate::chain::{ChainError, Pair};
use crate::executor::UnknownName;
use crate::interpreter::InterpreterError;
use crate::parameters::ParameterError;
use crate::template::{PathTraversal, UnknownPlaceholder, ValueAsCode};

/// Why a call was refused before anything ran.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// The chain cannot be built.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// Neighbouring links are incompatible.
    #[error("invalid chain: {}", problems(.0))]
    InvalidChain(Vec<Pair>),
    /// The parameters do not match the tool's schema.
    #[error("invalid parameters: {0}")]
    Parameters(#[from] ParameterError),
    /// The merged configuration does not match the primitive's schema.
    #[error("invalid configuration for the primitive: {0}")]
    Config(ParameterError),
    /// A configuration file that `config_resolve` names is invalid.
    #[error("{0}")]
    ConfigFile(String),
    /// A configuration file that `config_resolve` names cannot be parsed.
    #[error("{0}")]
    ConfigSyntax(#[source] ItemError),
    /// An interpreter cannot be found or may not be used.
    #[error("{id}: {source}")]
    Interpreter {
        /// Item that declares the interpreter.
        id: String,
        /// The underlying error.
        source: InterpreterError,
    },
    /// The anchor cannot be resolved.
    #[error("{id}: {source}")]
    Anchor {
        /// Item that declares the anchor.
        id: String,
        /// The underlying error.
        source: AnchorError,
    },
    /// A file that the tool can load does not verify.
    #[error("{0}")]
    Dependency(#[source] ItemError),
    /// Several items or directories of the call do not verify.
    #[error("{}", lines(.error, .all))]
    Unverified {
        /// The first problem.
        error: Box<ExecuteError>,
        /// All problems.
        all: Vec<IntegrityError>,
        /// The command that signs everything.
        command: String,
    },
    /// The `verify_deps` declaration is invalid.
    #[error("`verify_deps`: {0}")]
    VerifyDeps(String),
    /// Environment variables in `requires_env` are not set.
    #[error("required environment variables are not set: {}", .0.join(", "))]
    MissingVariables(Vec<String>),
    /// The command contains an unknown placeholder.
    #[error("{id}: {source}")]
    Placeholder {
        /// The tool.
        id: String,
        /// The placeholder.
        source: UnknownPlaceholder,
    },
    /// An argument of the program is a parameter that the call does not pass.
    #[error("{id}: `args` uses `{{{parameter}}}`, but the call has no parameter `{parameter}`")]
    NoValue {
        /// The tool.
        id: String,
        /// The parameter.
        parameter: String,
    },
    /// The item has keys or placeholders without a meaning.
    #[error("{id}: {}", list(.unknown))]
    UnknownNames {
        /// The item.
        id: String,
        /// The keys and placeholders.
        unknown: Vec<UnknownName>,
    },
    /// A value of the call would become part of program code.
    #[error("{id}: {location}: {source}")]
    ValueAsCode {
        /// The tool.
        id: String,
        /// Position in the configuration, such as `args[1]`.
        location: String,
        /// The value.
        source: ValueAsCode,
    },
    /// A runtime or primitive was called without a tool, whose file it needs.
    #[error("{id} runs the files of tools and cannot be called without one")]
    NeedsTool {
        /// The runtime or primitive.
        id: String,
        /// A parameter that replaces the file.
        parameter: Option<String>,
    },
    /// A YAML tool does not set the parameter of its runtime that is the script.
    #[error(
        "{id}: `config.{parameter}` is missing: a YAML tool is no script that {runtime} can run"
    )]
    NoScript {
        /// The tool.
        id: String,
        /// The parameter of the runtime.
        parameter: String,
        /// The runtime.
        runtime: String,
    },
    /// A parameter would change the path of a URL.
    #[error(transparent)]
    UrlPath(#[from] PathTraversal),
    /// The call requires approval and was not approved.
    #[error("{tool} requires approval{}", suffix(.reason.as_deref()))]
    ApprovalRequired {
        /// The tool.
        tool: String,
        /// The reason, unless the tool itself declares it.
        reason: Option<String>,
    },
    /// A rule of the approval policy denies the call.
    #[error("denied by the approval policy: {0}")]
    Denied(String),
    /// The approval policy cannot be loaded, so that a denial might be missed.
    #[error("the approval policy cannot be used: {0}")]
    Policy(String),
    /// The chain or the paths of the call differ from the approved ones.
    #[error("{0}: the tool or its chain changed after it was approved")]
    ApprovalVoid(String),
    /// A parameter names a path that tools may not access.
    #[error("{tool}: {path} is in a private directory that tools may not access")]
    PrivatePath {
        /// The tool.
        tool: String,
        /// The path as given in the parameters.
        path: String,
    },
    /// The `sandbox` declaration of an item is invalid.
    #[error("{id}: {position}: `sandbox`: {reason}")]
    SandboxDeclaration {
        /// The item.
        id: String,
        /// Position of the declaration.
        position: Position,
        /// The mistake.
        reason: String,
    },
    /// The tool cannot be confined.
    #[error("{tool} cannot be confined: {reason}")]
    Sandbox {
        /// The tool.
        tool: String,
        /// Explanation for the user.
        reason: String,
        /// A command that may help.
        fix: Option<String>,
    },
    /// A file or directory cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A path cannot be used in a command line.
    #[error("the path {} is not valid UTF-8", .0.display())]
    NotUtf8(PathBuf),
}

/// Where `rye mcp add` writes servers.
const MCP_SERVERS: &str = "mcp/servers/";

impl ExecuteError {
    /// Stable error code for scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Chain(error) => chain_code(error),
            Self::InvalidChain(_) => "invalid_chain",
            Self::Parameters(ParameterError::Schema(_)) => "bad_schema",
            Self::Parameters(_) | Self::UrlPath(_) => "invalid_parameters",
            Self::Config(_) | Self::ConfigFile(_) | Self::ConfigSyntax(_) | Self::Policy(_) => {
                "invalid_config"
            }
            Self::Interpreter { source, .. } => match source {
                InterpreterError::InvalidDeclaration { .. } => "bad_env_config",
                InterpreterError::MissingHash(_) => "unsigned",
                InterpreterError::HashMismatch { .. } => "content_changed",
                _ => "interpreter_not_found",
            },
            Self::Anchor { .. } => "no_anchor",
            Self::Dependency(error) => item_code(error),
            Self::Unverified { error, .. } => error.code(),
            Self::VerifyDeps(_) => "bad_verify_deps",
            Self::MissingVariables(_) => "missing_variables",
            Self::Placeholder { .. } | Self::NoValue { .. } => "unknown_placeholder",
            Self::UnknownNames { .. } => "unknown_name",
            Self::ValueAsCode { .. } => "value_as_code",
            Self::NeedsTool { .. } => "needs_tool",
            Self::NoScript { .. } => "no_command",
            Self::ApprovalRequired { .. } => "approval_required",
            Self::ApprovalVoid(_) => "approval_void",
            Self::Denied(_) => "denied",
            Self::PrivatePath { .. } => "private_path",
            Self::SandboxDeclaration { .. } => "bad_sandbox",
            Self::Sandbox { .. } => "sandbox",
            Self::Path(error) if error.is_permission() => "permission",
            Self::Path(_) | Self::NotUtf8(_) => "io",
        }
    }

    /// Whether the call was refused because content does not match its signature.
    pub fn is_integrity(&self) -> bool {
        let leaves_space = match self {
            Self::Chain(ChainError::Item(error)) | Self::Dependency(error) => leaves_space(error),
            Self::Interpreter { source, .. } => matches!(
                source,
                InterpreterError::MissingHash(_) | InterpreterError::HashMismatch { .. }
            ),
            _ => false,
        };
        leaves_space || self.integrity().is_some()
    }

    /// The item whose signature does not verify, if that is the reason.
    pub fn integrity(&self) -> Option<&rye_items::IntegrityError> {
        match self {
            Self::Chain(ChainError::Item(ItemError::Integrity(error)))
            | Self::Dependency(ItemError::Integrity(error)) => Some(error),
            Self::Unverified { error, .. } => error.integrity(),
            _ => None,
        }
    }

    /// Advice on how to fix the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Chain(ChainError::Item(error))
            | Self::Dependency(error)
            | Self::ConfigSyntax(error) => item_hint(error),
            Self::Unverified { command, .. } => Some(format!("{command} # after reading them")),
            Self::Chain(ChainError::ExecutorNotFound { source, .. }) => source.hint(),
            Self::Chain(ChainError::ItemNotFound { item, source, .. }) => {
                match item.strip_prefix(MCP_SERVERS) {
                    Some(server) => Some(format!("rye mcp add {server} -- COMMAND")),
                    None => source.hint(),
                }
            }
            Self::Interpreter {
                source: InterpreterError::HashMismatch { found, .. },
                ..
            } => Some(format!(
                "if the change is intended, set `sha256: {found}` in the tool and sign it"
            )),
            Self::Interpreter {
                source:
                    InterpreterError::NotFound {
                        unsigned: Some(dir),
                        ..
                    },
                ..
            } => Some(format!("rye sign --manifest {}", lillux::shell_word(dir))),
            Self::NoValue { parameter, .. } => Some(format!(
                "pass `{parameter}`, or give it a `default` or set `config.args` in the tool"
            )),
            Self::NoScript { parameter, .. } => {
                Some(format!("set `config.{parameter}` in the tool, and sign it"))
            }
            Self::Chain(ChainError::NoExecutor {
                misspelt: Some(name),
                ..
            }) => {
                let nearest = name.nearest.as_deref()?;
                Some(format!(
                    "rename `{}` to `{nearest}`, and sign the tool",
                    name.location
                ))
            }
            Self::NeedsTool { id, parameter } => Some(match parameter {
                Some(parameter) => format!("rye execute {id} --{parameter} …"),
                None => format!("write a tool with `executor_id: {id}` and execute that"),
            }),
            Self::Chain(ChainError::NotARuntime { executor, .. }) => {
                Some(format!("rye execute {executor} # to run that tool itself"))
            }
            Self::Chain(ChainError::UnknownPrimitive(_)) => Some(
                "to build on a primitive, set `executor_id: rye/core/primitives/execute` and \
                 `tool_type: runtime`"
                    .to_owned(),
            ),
            Self::ApprovalRequired { tool, .. } => Some(format!("rye execute {tool}")),
            Self::Sandbox { fix, .. } => fix.clone(),
            Self::ValueAsCode { .. } => Some(
                "pass the value separately: as an extra argument (\"$1\" in a shell), in \
                 `config.env` (\"$NAME\"), or as JSON on standard input"
                    .to_owned(),
            ),
            Self::MissingVariables(names) => {
                let name = names.first()?;
                Some(format!("export {name}=…, or set it in the project's .env"))
            }
            _ => None,
        }
    }

    /// Schema violations as JSON; null for other errors.
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

/// The first problem, followed by the others.
fn lines(first: &ExecuteError, all: &[IntegrityError]) -> String {
    let first = first.to_string();
    let others = all.iter().map(IntegrityError::to_string);
    let others = others.filter(|other| *other != first);
    [first.clone()]
        .into_iter()
        .chain(others)
        .collect::<Vec<_>>()
        .join("; ")
}

fn list(unknown: &[UnknownName]) -> String {
    let unknown = unknown.iter().map(UnknownName::to_string);
    unknown.collect::<Vec<_>>().join("; ")
}

fn chain_code(error: &ChainError) -> &'static str {
    match error {
        ChainError::NotATool(_) => "not_a_tool",
        ChainError::Item(error) => item_code(error),
        ChainError::ExecutorNotFound { .. } => "executor_not_found",
        ChainError::ItemNotFound { .. } => "item_not_found",
        ChainError::InvalidId { .. } => "invalid_executor_id",
        ChainError::Cycle(_) => "cycle",
        ChainError::TooDeep(_) => "too_deep",
        ChainError::NoExecutor { .. } => "no_executor",
        ChainError::NotARuntime { .. } => "not_a_runtime",
        ChainError::UnknownPrimitive(_) => "unknown_primitive",
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

fn suffix(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}
