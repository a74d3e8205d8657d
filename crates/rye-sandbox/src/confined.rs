//! The sandbox that the kernel confines: the workspace, without the rest of the machine, and
//! without network or with the hosts that the policy allows.
//!
//! File operations are those of the [`LocalSandbox`], limited to paths that commands can see.
//! Commands run through the [launcher], a process that confines itself before it executes them.

mod cgroup;
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
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use lillux::path_policy::{PathPolicy, ProtectedPaths};
use lillux::process::{Command, Environment, Exit, Supervisor};
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
use tokio::task::spawn_blocking;

use crate::LocalSandbox;
use crate::egress::{EgressSetup, NetworkPolicy, Resolver, SecretSource, SystemResolver};
use crate::files::unusable;
use crate::local::{blocking, unresolvable, walk_files};
use cgroup::Cgroup;
use files::{ConfinedFiles, FileOperation, FileRequest};
use launcher::{LaunchSpec, ViewRef, ViewSpec};
use network::CommandNetwork;
use policy::ResolvedPolicy;
use quarantine::Quarantine;
use review::Review;

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

/// How a command ended whose streams are not captured.
#[derive(Debug)]
pub struct AttachedOutput {
    /// How it ended.
    pub exit: Exit,
    /// Protected files that it created, which are now in quarantine.
    pub quarantined: Vec<String>,
    /// Connections that were refused, each with the reason.
    pub refused_connections: Vec<String>,
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

    /// Prepares a program for a supervisor, which runs it in the directory `cwd` of the workspace.
    pub async fn prepare(
        &self,
        cwd: &Path,
        program: Vec<OsString>,
    ) -> Result<PreparedCommand, SandboxError> {
        self.prepare_command(cwd, program, false).await
    }

    /// Prepares a program that sees the real workspace. `can_ask` says whether a person can be
    /// asked about connections.
    async fn prepare_command(
        &self,
        cwd: &Path,
        program: Vec<OsString>,
        can_ask: bool,
    ) -> Result<PreparedCommand, SandboxError> {
        let before = self.find_protected().await;
        let guards = before.guards();
        let guards = guards.iter().map(launcher::guard_argument).collect();
        let inside = self.inside_path(cwd);
        let mut prepared = self.prepare_launch(inside, guards, None, can_ask, program)?;
        prepared.before = before;
        Ok(prepared)
    }

    /// Prepares a program that starts in the directory `inside` of the sandbox.
    fn prepare_launch(
        &self,
        inside: PathBuf,
        guards: Vec<OsString>,
        view: Option<ViewRef>,
        can_ask: bool,
        program: Vec<OsString>,
    ) -> Result<PreparedCommand, SandboxError> {
        let nonce = nonce()?;
        let cgroup = Cgroup::create(&self.resolved.limits);
        let network = self.start_network(can_ask)?;
        let spec = LaunchSpec {
            tier: self.tier,
            nonce: nonce.clone(),
            cgroup: cgroup.as_ref().map(|it| it.dir().to_owned()),
            cwd: inside,
            tmp: self.tmp.path().to_owned(),
            policy: self.resolved.clone(),
            masked: self.masked.clone(),
            programs: self.programs.clone(),
            proxy: network.as_ref().map(CommandNetwork::socket),
            view,
        };
        let spec = serde_json::to_string(&spec).unwrap_or_default();
        let mut all = self.launcher.command();
        all.push(spec.into());
        all.extend(guards);
        all.push("--".into());
        all.extend(program);
        Ok(PreparedCommand {
            program: all,
            nonce,
            before: ProtectedFiles::default(),
            network,
            _cgroup: cgroup,
        })
    }

    /// Checks the workspace after a command, even if it failed. Returns the protected files that
    /// it created, which are now in quarantine.
    pub async fn finish(&self, command: &PreparedCommand) -> Result<Vec<String>, SandboxError> {
        if self.resolved.access != ProjectAccess::Workspace {
            return Ok(Vec::new());
        }
        let after = self.find_protected().await;
        self.quarantine.take(&after.created_since(&command.before))
    }

    /// The name of a variable for the launcher, if only the command may get it.
    pub fn command_variable(name: &str) -> String {
        format!("{}{name}", launcher::VARIABLE)
    }

    /// The directory in which a program starts if it asks for `cwd`; its own temporary one if it
    /// does not see the workspace.
    pub fn starting_dir(&self, cwd: &Path) -> Result<PathBuf, SandboxError> {
        match self.resolved.access {
            ProjectAccess::None => Ok(self.tmp.path().to_owned()),
            _ => self.files().visible(&cwd.to_string_lossy()),
        }
    }

    /// Variables of a command in addition to the minimal environment.
    pub fn variables(&self) -> Vec<(String, String)> {
        let inherited = self.policy.inherited_variables();
        let inherited =
            inherited.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
        let tmp = match self.tier {
            Tier::Full => "/tmp".to_owned(),
            Tier::Landlock => self.tmp.path().to_string_lossy().into_owned(),
        };
        let own = [("TMPDIR".to_owned(), tmp)].into_iter();
        let proxy = self.has_network().then(network::variables);
        // Of two values, the first counts.
        proxy
            .into_iter()
            .flatten()
            .chain(own)
            .chain(inherited)
            .collect()
    }

    /// Whether commands have a network. A tier without namespaces cannot restrict it to a proxy:
    /// Landlock tells ports apart, but not hosts.
    fn has_network(&self) -> bool {
        self.tier == Tier::Full && self.policy.network.is_enabled()
    }

    /// Starts the network of a command, if it has one.
    fn start_network(&self, can_ask: bool) -> Result<Option<CommandNetwork>, SandboxError> {
        if !self.has_network() {
            return Ok(None);
        }
        let setup = EgressSetup {
            policy: self.policy.network.clone(),
            resolver: Arc::clone(&self.resolver),
            secrets: Arc::clone(&self.secrets),
        };
        let started = CommandNetwork::start(setup, can_ask);
        let failed = |error| SandboxError::Exec(format!("cannot start the egress proxy: {error}"));
        started.map(Some).map_err(failed)
    }

    async fn find_protected(&self) -> ProtectedFiles {
        if self.resolved.access == ProjectAccess::None {
            return ProtectedFiles::default();
        }
        let (workspace, policy) = (self.resolved.workspace.clone(), self.policy.clone());
        let home = self.resolved.home.clone();
        let unprotected = self.resolved.unprotected.clone();
        let find = move || {
            let mut files = ProtectedFiles::find(&workspace, &policy, home.as_deref());
            files.release(&unprotected);
            files
        };
        spawn_blocking(find).await.unwrap_or_default()
    }

    /// Runs a program with its arguments. Its standard streams are those of `exec`.
    pub async fn run(
        &self,
        command: Vec<OsString>,
        mut exec: Exec,
        observer: &dyn ExecObserver,
    ) -> Result<ExecOutput, SandboxError> {
        for (name, value) in self.variables() {
            exec.env.entry(name).or_insert(value);
        }
        if let Some(review) = &self.review {
            return self.run_on_overlay(review, command, exec, observer).await;
        }
        let given = exec.cwd.as_deref().unwrap_or_default();
        let cwd = self.files().visible(given)?;
        let mut command = self.prepare_command(&cwd, command, true).await?;
        let program = std::mem::take(&mut command.program);
        let running = self.local.run_program(program, cwd, exec, observer);
        let outcome = command.wait(running, observer).await;
        let quarantined = self.finish(&command).await?;
        let mut output = outcome?;
        output.quarantined = quarantined;
        Ok(output)
    }

    /// Runs a program on the overlay. Protected files that it creates are part of the changes
    /// that a person reviews.
    async fn run_on_overlay(
        &self,
        review: &Review,
        command: Vec<OsString>,
        exec: Exec,
        observer: &dyn ExecObserver,
    ) -> Result<ExecOutput, SandboxError> {
        let given = exec.cwd.clone().unwrap_or_default();
        let (cwd, _) = review
            .request(self.request(FileOperation::Visible(given)), Vec::new())
            .await?;
        let cwd = PathBuf::from(cwd.as_str().unwrap_or_default());
        let guards = review.guards(self.request(FileOperation::Guards)).await?;
        review
            .with_view(async |view| {
                let view = Some(view.reference.clone());
                let inside = self.inside_path(&cwd);
                let mut prepared = self.prepare_launch(inside, guards, view, true, command)?;
                let program = std::mem::take(&mut prepared.program);
                // The directory may exist only on the overlay.
                let workspace = self.resolved.workspace.clone();
                let running = self.local.run_program(program, workspace, exec, observer);
                prepared.wait(running, observer).await
            })
            .await
    }

    /// Runs a program with the given standard input and output, without limits of time and output,
    /// and without questions about connections.
    pub async fn run_attached(
        &self,
        command: Vec<OsString>,
        stdin: OwnedFd,
        stdout: OwnedFd,
        mut on_stderr: impl FnMut(&[u8]) + Send,
    ) -> Result<AttachedOutput, SandboxError> {
        let failed = |error: &dyn fmt::Display| SandboxError::Exec(error.to_string());
        let cwd = self.resolved.workspace.clone();
        let mut prepared = self.prepare_command(&cwd, command, false).await?;
        let mut program = std::mem::take(&mut prepared.program).into_iter();
        let nonce = &prepared.nonce;
        let mut failure = None;
        let output = {
            let mut command = Command::new(program.next().unwrap_or_default())
                .args(program)
                .cwd(cwd)
                .environment(Environment::Minimal)
                .stdin_fd(stdin)
                .stdout_fd(stdout)
                .output_limit(0)
                .on_output(|_, bytes| match bytes.strip_prefix(nonce.as_bytes()) {
                    Some(reason) => failure = Some(String::from_utf8_lossy(reason).into_owned()),
                    None => on_stderr(bytes),
                });
            for (name, value) in self.variables() {
                command = command.env(name, value);
            }
            self.local.supervisor.exec(command).await
        };
        let quarantined = self.finish(&prepared).await?;
        let output = output.map_err(|error| failed(&error))?;
        match failure {
            Some(reason) => Err(failed(&reason)),
            None => Ok(AttachedOutput {
                exit: output.exit,
                quarantined,
                refused_connections: prepared.refused_connections(),
            }),
        }
    }

    /// The path inside of the sandbox for a path of the host.
    fn inside_path(&self, real: &Path) -> PathBuf {
        match (self.tier, real.strip_prefix(self.tmp.path())) {
            (Tier::Full, Ok(below)) => Path::new("/tmp").join(below),
            _ => real.to_owned(),
        }
    }
}

/// A command that a supervisor can run.
#[derive(Debug)]
pub struct PreparedCommand {
    /// The program that confines itself and becomes the command, with its arguments.
    pub program: Vec<OsString>,
    nonce: String,
    before: ProtectedFiles,
    network: Option<CommandNetwork>,
    _cgroup: Option<Cgroup>,
}

impl PreparedCommand {
    /// Waits for the running command, and meanwhile asks the observer about connections. Fails if
    /// the command was not confined, and therefore did not start.
    async fn wait(
        &mut self,
        running: impl Future<Output = Result<ExecOutput, SandboxError>>,
        observer: &dyn ExecObserver,
    ) -> Result<ExecOutput, SandboxError> {
        let outcome = match &mut self.network {
            Some(network) => network.run(running, observer).await,
            None => running.await,
        };
        let mut output = outcome?;
        if let Some(reason) = self.failure(output.exit_code, &output.stderr) {
            let reason = format!("the command could not be confined: {reason}");
            return Err(SandboxError::Exec(reason));
        }
        output.refused_connections = self.refused_connections();
        Ok(output)
    }

    /// The connections that were refused, each with the reason.
    fn refused_connections(&self) -> Vec<String> {
        let network = self.network.as_ref();
        network.map_or_else(Vec::new, CommandNetwork::refused)
    }

    /// Why the command was not confined, and therefore did not start.
    pub fn failure<'a>(&self, exit_code: Option<i32>, stderr: &'a str) -> Option<&'a str> {
        let is_launcher = exit_code == Some(launcher::FAILED.into());
        let (_, reason) = stderr.split_once(&self.nonce).filter(|_| is_launcher)?;
        Some(reason)
    }
}

/// A random text that a command cannot guess.
fn nonce() -> Result<String, SandboxError> {
    let mut bytes = [0; 16];
    let mut file =
        fs::File::open("/dev/urandom").map_err(|error| SandboxError::Exec(error.to_string()))?;
    io::Read::read_exact(&mut file, &mut bytes)
        .map_err(|error| SandboxError::Exec(error.to_string()))?;
    Ok(Hash::digest(bytes).to_hex())
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
