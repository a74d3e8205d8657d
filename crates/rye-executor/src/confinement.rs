//! Confinement of tools' processes by the kernel.
//!
//! A tool requests it with `sandbox` in its metadata, a caller with [`Request::confine`]. The
//! program that embeds the executor provides the [`Confiner`]; without one, such calls are refused.
//!
//! [`Request::confine`]: crate::Request::confine

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use lillux::Hash;
use rye_items::metadata::Metadata;
use rye_protocol::ToolSandbox;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::chain::{Chain, Link};
use crate::error::ExecuteError;
use crate::primitive::{Call, Primitive};

/// Confines the processes of tools.
pub trait Confiner: Send + Sync {
    /// Chooses how to confine a call.
    fn confine(&self, request: ConfineRequest<'_>) -> Result<Arc<dyn ConfinedCall>, ConfineError>;
}

/// A call whose process is to be confined.
#[derive(Debug)]
pub struct ConfineRequest<'a> {
    /// What the process may use.
    pub sandbox: ToolSandbox,
    /// Directory of the project.
    pub project: &'a Path,
    /// The interpreter and the verified files that the process must be able to read.
    pub programs: Vec<PathBuf>,
}

/// Why a call cannot be confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfineError {
    /// Explanation for the user.
    pub reason: String,
    /// A command that may help.
    pub fix: Option<String>,
}

/// Future of a [`ConfinedCall`]. The error is an explanation for the user.
pub type ConfinedFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// A call that can be confined.
pub trait ConfinedCall: Send + Sync {
    /// Name of the mechanism, such as `full` or `landlock`.
    fn tier(&self) -> String;

    /// Hash of the policy.
    fn policy(&self) -> Hash;

    /// Replaces a process by one that confines itself first.
    fn wrap(&self, process: Process) -> ConfinedFuture<'_, WrappedProcess>;

    /// Ends the call. Returns the files that the process created and that were moved away, because
    /// they decide what programs do later.
    fn finish<'a>(&'a self, process: &'a WrappedProcess) -> ConfinedFuture<'a, Vec<String>>;

    /// Why the process was not confined and therefore did not start, from its outcome.
    fn failure(
        &self,
        process: &WrappedProcess,
        exit_code: Option<i32>,
        stderr: &str,
    ) -> Option<String>;
}

/// A process to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The program and its arguments.
    pub program: Vec<OsString>,
    /// Working directory.
    pub cwd: PathBuf,
    /// All environment variables.
    pub environment: BTreeMap<String, String>,
}

/// A process that confines itself.
pub struct WrappedProcess {
    /// What to start.
    pub process: Process,
    /// State of the [`ConfinedCall`].
    pub state: Box<dyn std::any::Any + Send + Sync>,
}

/// How a call is confined, for its result and its trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallSandbox {
    /// Name of the mechanism, such as `full` or `landlock`.
    pub tier: String,
    /// Hash of the policy.
    pub policy: Hash,
    /// What the process may use.
    #[serde(flatten)]
    pub allowed: ToolSandbox,
}

/// The confinement of a call.
#[derive(Clone)]
pub struct Confinement {
    /// How the call is confined.
    pub sandbox: CallSandbox,
    /// Confines the process.
    pub call: Arc<dyn ConfinedCall>,
}

impl fmt::Debug for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sandbox.fmt(f)
    }
}

/// The declaration of the link nearest to the tool. The error names the item and the mistake.
pub(crate) fn declared(links: &[Link]) -> Result<Option<ToolSandbox>, ExecuteError> {
    let declarations = |link: &Link| parse(link.id().as_str(), &link.metadata).transpose();
    let first = links.iter().find_map(declarations);
    first.transpose()
}

/// The declaration of an item.
pub(crate) fn parse(id: &str, metadata: &Metadata) -> Result<Option<ToolSandbox>, ExecuteError> {
    let Some(field) = metadata.get("sandbox").filter(|it| !it.value.is_null()) else {
        return Ok(None);
    };
    let parsed = ToolSandbox::parse(&field.value);
    let parsed = parsed.map_err(|reason| ExecuteError::SandboxDeclaration {
        id: id.to_owned(),
        position: field.at,
        reason,
    });
    parsed.map(Some)
}

impl Chain {
    /// What the tool declares that its process may use, if it is to be confined.
    pub fn sandbox(&self) -> Result<Option<ToolSandbox>, ExecuteError> {
        declared(&self.links)
    }
}

impl CallSandbox {
    /// Entry of a result's metadata.
    pub(crate) fn entry(&self) -> (String, Value) {
        ("sandbox".to_owned(), json!(self))
    }
}

impl fmt::Display for CallSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tier,
            policy,
            allowed,
        } = self;
        write!(f, "{allowed} (tier {tier}, policy {policy:.12})")
    }
}

/// Key of a result's metadata: the files that were moved away.
pub(crate) const QUARANTINED: &str = "quarantined";

/// Warning about files that were moved away.
pub(crate) fn quarantine_warning(metadata: &Map<String, Value>) -> Option<String> {
    let files = metadata.get(QUARANTINED)?.as_array()?;
    let files: Vec<_> = files.iter().filter_map(Value::as_str).collect();
    let files = lillux::sanitize_line(&files.join(", ")).into_owned();
    Some(format!(
        "moved to .rye-quarantine, because it decides what programs do later: {files}"
    ))
}

/// Chooses how to confine the process of a tool.
pub(crate) fn choose(
    confiner: Option<&dyn Confiner>,
    chain: &Chain,
    request: ConfineRequest<'_>,
) -> Result<Confinement, ExecuteError> {
    let refused = |error: ConfineError| ExecuteError::Sandbox {
        tool: chain.tool().id().to_string(),
        reason: error.reason,
        fix: error.fix,
    };
    let unsupported = ConfineError {
        reason: "this program does not support it".to_owned(),
        fix: None,
    };
    let confiner = confiner.ok_or(unsupported).map_err(refused)?;
    let allowed = request.sandbox;
    let call = confiner.confine(request).map_err(refused)?;
    let sandbox = CallSandbox {
        tier: call.tier(),
        policy: call.policy(),
        allowed,
    };
    Ok(Confinement { sandbox, call })
}

/// Confines a call.
pub(crate) fn confine(
    confiner: Option<&dyn Confiner>,
    chain: &Chain,
    primitive: &dyn Primitive,
    call: &mut Call,
    request: ConfineRequest<'_>,
) -> Result<CallSandbox, ExecuteError> {
    if !primitive.is_confinable() {
        let id = chain.primitive().id();
        return Err(ExecuteError::Sandbox {
            tool: chain.tool().id().to_string(),
            reason: format!("{id} does not run it as a process of its own"),
            fix: None,
        });
    }
    let confinement = choose(confiner, chain, request)?;
    let sandbox = confinement.sandbox.clone();
    call.confinement = Some(confinement);
    Ok(sandbox)
}

/// Directories below which a program's libraries usually are, next to the program's own directory.
const PROGRAM_DIRS: [&str; 3] = ["bin", "sbin", "shims"];

/// What must be readable to run the program of a call.
pub(crate) fn call_program(call: &Call) -> Vec<PathBuf> {
    let Some(program) = call.config.get("command").and_then(Value::as_str) else {
        return Vec::new();
    };
    if program.contains('/') {
        return program_files(&call.cwd.join(program));
    }
    let path = call.environment.get("PATH").map_or("", String::as_str);
    let mut candidates = std::env::split_paths(path).map(|dir| dir.join(program));
    let found = candidates.find(|file| file.is_file());
    found.map_or_else(Vec::new, |file| program_files(&file))
}

/// What must be readable to run a program: its file, or the directory that it is installed in.
fn program_files(program: &Path) -> Vec<PathBuf> {
    let target = std::fs::canonicalize(program).ok();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let installed_in = |file: &Path| {
        let dir = file.parent()?;
        let prefix = dir.parent()?;
        let is_listed = PROGRAM_DIRS.iter().any(|name| dir.ends_with(name));
        // A directory with other things than programs is not shown as a whole.
        let is_shared = ["/", "/usr", "/usr/local"]
            .iter()
            .any(|it| prefix == Path::new(it))
            || prefix.ends_with(".local")
            || home.as_ref().is_some_and(|home| home.starts_with(prefix));
        (is_listed && !is_shared).then(|| prefix.to_owned())
    };
    let files = [Some(program), target.as_deref()].into_iter().flatten();
    files
        .map(|file| installed_in(file).unwrap_or_else(|| file.to_owned()))
        .collect()
}
