//! The sandbox that the kernel confines: the workspace, without the rest of the machine, and
//! without network or with the hosts that the policy allows.
//!
//! File operations are those of the [`LocalSandbox`], limited to paths that commands can see.
//! Commands run through the [launcher], a process that confines itself before it executes them.

mod cgroup;
mod command;
mod files;
mod grants;
mod guard;
mod launcher;
mod network;
mod policy;
mod probe;
mod protected;
mod quarantine;
mod review;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use lillux::path_policy::{PathPolicy, ProtectedPaths};
use lillux::process::Supervisor;
use rye_engine::BoxFuture;
use rye_engine::protocol::{ProjectAccess, SandboxKind};
use rye_engine::review::ChangeReview;
use rye_engine::sandbox::{
    Confinement, Enforcement, Exec, ExecObserver, ExecOutput, FileAccess, FileInfo, Grants,
    NetworkAccess, ProcessAccess, ResolvedPath, Sandbox, SandboxError, SandboxFuture, WalkOptions,
    WalkResult,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::LocalSandbox;
use crate::egress::{NetworkPolicy, Resolver, SecretSource, SystemResolver};
use crate::files::unusable;
use crate::local::{blocking, unresolvable, walk_files};
use files::{ConfinedFiles, FileOperation, FileRequest};
use launcher::ViewSpec;
use policy::ResolvedPolicy;
use quarantine::Quarantine;
use review::Review;

pub use command::{AttachedOutput, PreparedCommand};
pub(crate) use guard::WorkspaceGuard;
pub use launcher::launch;
pub use policy::{ConfinementPolicy, PROTECTED_NAMES, ResourceLimits};
pub use probe::Availability;
pub(crate) use protected::{GuardKind, ProtectedFiles};
pub use review::remove_review;

/// How strongly commands are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Namespaces, with Landlock as a second layer.
    Full,
    /// Landlock alone, without sockets.
    Landlock,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Landlock => "landlock",
        })
    }
}

/// The program that [launches](launch) commands: this program itself, or one for tests.
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
    args: Vec<OsString>,
}

impl Launcher {
    /// A program that calls [`launch`] with the arguments that follow `args`.
    pub fn new<T: Into<OsString>>(
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
        }
    }

    fn command(&self) -> Vec<OsString> {
        let program = self.program.clone().into_os_string();
        [program].into_iter().chain(self.args.clone()).collect()
    }
}

/// Why a workspace cannot be confined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfinedError {
    /// The directory cannot be used.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The workspace contains the home directory, so confining commands to it would protect
    /// nothing.
    #[error("the workspace {} is or contains your home directory", .0.display())]
    ContainsHome(PathBuf),
}

/// Why a sandbox cannot keep changes for a review.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReviewError {
    /// The tier cannot mount an overlay.
    #[error("review mode needs the tier `full`, and commands are confined in the tier `{0}`")]
    Tier(Tier),
    /// The kernel refused the overlay.
    #[error("review mode does not work here: {0}")]
    Overlay(String),
    /// The state directory cannot be used.
    #[error("review mode cannot keep the changes: {0}")]
    State(io::Error),
    /// The state directory is part of the workspace.
    #[error("review mode cannot keep the changes in {}, which is in the workspace", .0.display())]
    Inside(PathBuf),
}

/// A directory of this machine to which the kernel confines commands: they can write only there,
/// and connect only to the hosts that the policy allows. See [`Tier`] for what enforces it.
///
/// Like a [`LocalSandbox`], it ends every process of a command.
#[derive(Clone)]
pub struct ConfinedSandbox {
    local: LocalSandbox,
    launcher: Launcher,
    tier: Tier,
    policy: ConfinementPolicy,
    resolved: ResolvedPolicy,
    masked: Vec<PathBuf>,
    programs: Vec<PathBuf>,
    /// What commands see as `/tmp`.
    tmp: Arc<TempDir>,
    quarantine: Arc<Quarantine>,
    resolver: Arc<dyn Resolver>,
    secrets: Arc<SecretSource>,
    protected: ProtectedPaths,
    project: PathBuf,
    review: Option<Arc<Review>>,
}

impl ConfinedSandbox {
    /// Creates a sandbox in an existing directory. [`Availability::probe`] tells which tiers this
    /// machine can enforce.
    pub fn new(
        workspace: impl AsRef<Path>,
        supervisor: impl Into<Arc<Supervisor>>,
        launcher: Launcher,
        tier: Tier,
        policy: ConfinementPolicy,
    ) -> Result<Self, ConfinedError> {
        let local = LocalSandbox::new(workspace, supervisor)?;
        let workspace = local.workspace().to_owned();
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let home = home.filter(|home| home.is_absolute() && home != Path::new("/"));
        let real_home = home.as_ref().and_then(|home| fs::canonicalize(home).ok());
        if workspace == Path::new("/") || real_home.is_some_and(|it| it.starts_with(&workspace)) {
            return Err(ConfinedError::ContainsHome(workspace));
        }
        let resolved = policy.resolve(&workspace, home.as_deref());
        Ok(Self {
            quarantine: Arc::new(Quarantine::new(&workspace)),
            project: workspace,
            protected: ProtectedPaths::default(),
            review: None,
            local,
            launcher,
            tier,
            policy,
            resolved,
            masked: Vec::new(),
            programs: Vec::new(),
            tmp: Arc::new(tempfile::Builder::new().prefix("rye-").tempdir()?),
            resolver: Arc::new(SystemResolver),
            secrets: Arc::new(|name| Err(format!("there is no vault with {name}"))),
        })
    }

    /// Sets where the names of hosts and of injected secrets are looked up [default: this
    /// machine's resolver, no secrets].
    #[must_use]
    pub fn lookups(mut self, resolver: Arc<dyn Resolver>, secrets: Arc<SecretSource>) -> Self {
        self.resolver = resolver;
        self.secrets = secrets;
        self
    }

    /// Sets the private directories, which are invisible, the user's home directories, and the
    /// project that the workspace is part of.
    #[must_use]
    pub fn protected(mut self, protected: ProtectedPaths, project: impl Into<PathBuf>) -> Self {
        let paths = PathPolicy::new(self.local.workspace(), protected.clone());
        self.masked = paths.private_directories();
        self.protected = protected.clone();
        self.project = project.into();
        self.local = self.local.protected(protected, &self.project);
        self
    }

    /// Restricts the sandbox to what a tool may do with the workspace, and shows it the files of
    /// its program.
    #[must_use]
    pub fn for_tool(mut self, access: ProjectAccess, programs: Vec<PathBuf>) -> Self {
        self.resolved.restrict(access);
        // A confined tool has no network.
        self.policy.network = NetworkPolicy::default();
        self.resolved.network = None;
        let files = self.files();
        let is_below_mask = |path: &Path| self.masked.iter().any(|it| path.starts_with(it));
        let contains_mask = |path: &Path| self.masked.iter().any(|it| it.starts_with(path));
        let is_hidden = |path: &PathBuf| is_below_mask(path) || !files.is_visible(path);
        let programs = programs.into_iter().filter(is_hidden);
        let programs = programs.filter(|path| !contains_mask(path)).collect();
        self.programs = programs;
        self
    }

    /// Makes commands and file tools work on an overlay of the workspace, so that changes reach
    /// the real files only after a [review](Sandbox::review). `dir` keeps the changes; it must be
    /// outside of the workspace. Fails if this machine cannot do it.
    pub fn with_review(self, dir: &Path) -> Result<Self, ReviewError> {
        self.with_review_checkpoints(dir, Box::new(|| {}))
    }

    /// Like [`with_review`](Self::with_review), for tests: calls `checkpoint` between any two
    /// changes of a file while a decision takes effect.
    #[doc(hidden)]
    pub fn with_review_checkpoints(
        mut self,
        dir: &Path,
        checkpoint: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, ReviewError> {
        if self.tier != Tier::Full {
            return Err(ReviewError::Tier(self.tier));
        }
        let (upper, work) = review::create_state(dir).map_err(ReviewError::State)?;
        let upper = fs::canonicalize(upper).map_err(ReviewError::State)?;
        if upper.starts_with(self.local.workspace()) {
            return Err(ReviewError::Inside(upper));
        }
        let spec = ViewSpec {
            upper,
            work,
            tmp: self.tmp.path().to_owned(),
            confinement: self.policy.clone(),
            policy: self.resolved.clone(),
            private: self.protected.private.clone(),
            homes: self.protected.homes.clone(),
            project: self.project.clone(),
        };
        review::probe(&self.launcher, &spec).map_err(ReviewError::Overlay)?;
        let supervisor = Arc::clone(&self.local.supervisor);
        let launcher = self.launcher.clone();
        let review = Review::new(dir.to_owned(), launcher, supervisor, spec, checkpoint);
        self.review = Some(Arc::new(review));
        Ok(self)
    }

    /// The files that commands see, without a review.
    fn files(&self) -> ConfinedFiles {
        ConfinedFiles {
            local: self.local.files.clone(),
            policy: self.resolved.clone(),
            tmp: self.tmp.path().to_owned(),
        }
    }

    /// A file operation for the process that sees the session's changes.
    fn request(&self, operation: FileOperation) -> FileRequest {
        FileRequest {
            operation,
            policy: self.resolved.clone(),
        }
    }

    /// Performs a file operation on the files that commands see.
    fn on_files<'a, T: DeserializeOwned + Send + 'static>(
        &'a self,
        operation: FileOperation,
        body: &[u8],
        direct: impl FnOnce(&ConfinedFiles) -> Result<T, SandboxError> + Send + 'static,
    ) -> SandboxFuture<'a, T> {
        let Some(review) = &self.review else {
            let files = self.files();
            return blocking(move || direct(&files));
        };
        let (request, body) = (self.request(operation), body.to_vec());
        Box::pin(async move {
            let (value, _) = review.request(request, body).await?;
            serde_json::from_value(value).map_err(|error| SandboxError::Exec(error.to_string()))
        })
    }

    /// How strongly commands are confined.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Hash of the policy, with the paths of this machine.
    pub fn policy_hash(&self) -> Hash {
        self.resolved.hash()
    }
}

impl Sandbox for ConfinedSandbox {
    fn kind(&self) -> SandboxKind {
        SandboxKind::Confined
    }

    fn confinement(&self) -> Confinement {
        Confinement {
            files: FileAccess::Workspace,
            network: if self.has_network() {
                NetworkAccess::Proxied
            } else {
                NetworkAccess::None
            },
            processes: ProcessAccess::Own,
            enforcement: Some(Enforcement {
                tier: self.tier.to_string(),
                policy: self.policy_hash().to_hex(),
            }),
        }
    }

    fn working_dir(&self) -> Option<String> {
        self.local.working_dir()
    }

    fn review(&self) -> Option<&dyn ChangeReview> {
        let review = self.review.as_deref()?;
        Some(review)
    }

    fn resolve_path<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ResolvedPath> {
        let (operation, given) = (FileOperation::Resolve(path.to_owned()), path.to_owned());
        let resolved = self.on_files(operation, &[], move |files| Ok(files.resolve_path(&given)));
        Box::pin(async move { resolved.await.unwrap_or_else(|_| unresolvable(path)) })
    }

    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>> {
        let (files, path) = (self.files(), path.to_owned());
        let Some(review) = &self.review else {
            return blocking(move || files.read(&path));
        };
        let request = self.request(FileOperation::Read(path));
        Box::pin(async move {
            let (_, bytes) = review.request(request, Vec::new()).await?;
            Ok(bytes)
        })
    }

    fn walk<'a>(&'a self, walk: &'a WalkOptions) -> SandboxFuture<'a, WalkResult> {
        if self.review.is_none() {
            let files = self.files();
            return match files.host_walk(walk) {
                Ok(walk) => walk_files(files.local, walk),
                Err(error) => Box::pin(std::future::ready(Err(error))),
            };
        }
        self.on_files(FileOperation::Walk(walk.clone()), &[], |_| {
            Ok(WalkResult::default())
        })
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()> {
        let (given, content) = (path.to_owned(), bytes.to_vec());
        let operation = FileOperation::Write(path.to_owned());
        self.on_files(operation, bytes, move |files| files.write(&given, &content))
    }

    fn write_resolved<'a>(
        &'a self,
        path: &'a str,
        permitted: &'a ResolvedPath,
        bytes: &'a [u8],
    ) -> SandboxFuture<'a, ()> {
        let (given, target, content) = (path.to_owned(), permitted.clone(), bytes.to_vec());
        let operation = FileOperation::WriteResolved(path.to_owned(), permitted.clone());
        self.on_files(operation, bytes, move |files| {
            files.write_resolved(&given, &target, &content)
        })
    }

    fn list<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<FileInfo>> {
        let given = path.to_owned();
        let operation = FileOperation::List(path.to_owned());
        self.on_files(operation, &[], move |files| files.list(&given))
    }

    fn stat<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, FileInfo> {
        let given = path.to_owned();
        let operation = FileOperation::Stat(path.to_owned());
        self.on_files(operation, &[], move |files| files.stat(&given))
    }

    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let given = path.to_owned();
        let operation = FileOperation::Mkdir(path.to_owned());
        self.on_files(operation, &[], move |files| files.mkdir(&given))
    }

    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let given = path.to_owned();
        let operation = FileOperation::Rm(path.to_owned());
        self.on_files(operation, &[], move |files| files.rm(&given))
    }

    fn rmdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let given = path.to_owned();
        let operation = FileOperation::Rmdir(path.to_owned());
        self.on_files(operation, &[], move |files| files.rmdir(&given))
    }

    fn set_executable<'a>(&'a self, path: &'a str, executable: bool) -> SandboxFuture<'a, ()> {
        let given = path.to_owned();
        let operation = FileOperation::SetExecutable(path.to_owned(), executable);
        self.on_files(operation, &[], move |files| {
            files.set_executable(&given, executable)
        })
    }

    fn kill<'a>(&'a self, process: &'a str) -> BoxFuture<'a, ()> {
        self.local.kill(process)
    }

    fn widened(&self, grants: &Grants) -> Result<Arc<dyn Sandbox>, SandboxError> {
        if grants.unconfined {
            if self.review.is_some() {
                let reason = "its changes would reach the real files without a review: \
                              request `read`, `write` or `network` instead";
                return Err(unusable("a command without the sandbox", reason));
            }
            return self.local.widened(grants);
        }
        Ok(Arc::new(self.with_grants(grants)?))
    }

    fn settle_quarantined<'a>(&'a self, paths: &'a [String], keep: bool) -> SandboxFuture<'a, ()> {
        let settled = self.quarantine.settle(paths, keep);
        Box::pin(std::future::ready(settled))
    }

    fn exec<'a>(
        &'a self,
        exec: Exec,
        observer: &'a dyn ExecObserver,
    ) -> SandboxFuture<'a, ExecOutput> {
        let command = self.local.shell_command(&exec.command);
        Box::pin(self.run(command, exec, observer))
    }
}
