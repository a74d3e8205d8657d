//! The sandbox that the kernel confines: the workspace, without network and without the rest of
//! the machine.
//!
//! File operations are those of the [`LocalSandbox`], limited to paths that commands can see.
//! Commands run through the [launcher], a process that confines itself before it executes them.

mod cgroup;
mod files;
mod launcher;
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
    Confinement, Enforcement, Exec, ExecObserver, ExecOutput, FileAccess, FileInfo, NetworkAccess,
    ProcessAccess, ResolvedPath, Sandbox, SandboxError, SandboxFuture, WalkOptions, WalkResult,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::LocalSandbox;
use crate::local::{blocking, unresolvable, walk_files};
use cgroup::Cgroup;
use files::{ConfinedFiles, FileRequest};
use launcher::{LaunchSpec, ViewRef, ViewSpec};
use policy::ResolvedPolicy;
use protected::ProtectedFiles;
use quarantine::Quarantine;
use review::Review;

pub use launcher::launch;
pub use policy::{ConfinementPolicy, PROTECTED_NAMES, ResourceLimits};
pub use probe::Availability;
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

/// A directory of this machine to which the kernel confines commands: they can write only there
/// and have no network. See [`Tier`] for what enforces it.
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
        })
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

    /// Performs a file operation on the files that commands see.
    fn on_files<'a, T: DeserializeOwned + Send + 'static>(
        &'a self,
        request: FileRequest,
        body: &[u8],
        direct: impl FnOnce(&ConfinedFiles) -> Result<T, SandboxError> + Send + 'static,
    ) -> SandboxFuture<'a, T> {
        let Some(review) = &self.review else {
            let files = self.files();
            return blocking(move || direct(&files));
        };
        let body = body.to_vec();
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

    /// The command that runs a program in the sandbox, with the variables that it sets. The caller
    /// runs it under a supervisor, in the workspace.
    fn launch_command(
        &self,
        cwd: PathBuf,
        nonce: &str,
        guards: impl IntoIterator<Item = OsString>,
        cgroup: Option<&Cgroup>,
        view: Option<ViewRef>,
        command: Vec<OsString>,
    ) -> Vec<OsString> {
        let spec = LaunchSpec {
            tier: self.tier,
            nonce: nonce.to_owned(),
            cgroup: cgroup.map(|it| it.dir().to_owned()),
            cwd,
            tmp: self.tmp.path().to_owned(),
            policy: self.resolved.clone(),
            masked: self.masked.clone(),
            programs: self.programs.clone(),
            view,
        };
        let spec = serde_json::to_string(&spec).unwrap_or_default();
        let mut all = self.launcher.command();
        all.push(spec.into());
        all.extend(guards);
        all.push("--".into());
        all.extend(command);
        all
    }

    /// Prepares a program for a supervisor, which runs it in the directory `cwd` of the workspace.
    pub async fn prepare(
        &self,
        cwd: &Path,
        program: Vec<OsString>,
    ) -> Result<PreparedCommand, SandboxError> {
        let before = self.find_protected().await;
        let guards = before.guards();
        let guards = guards.iter().map(launcher::guard_argument).collect();
        let mut prepared = self.prepare_launch(self.inside_path(cwd), guards, None, program)?;
        prepared.before = before;
        Ok(prepared)
    }

    /// Prepares a program that starts in the directory `inside` of the sandbox.
    fn prepare_launch(
        &self,
        inside: PathBuf,
        guards: Vec<OsString>,
        view: Option<ViewRef>,
        program: Vec<OsString>,
    ) -> Result<PreparedCommand, SandboxError> {
        let nonce = nonce()?;
        let cgroup = Cgroup::create(&self.resolved.limits);
        let program = self.launch_command(inside, &nonce, guards, cgroup.as_ref(), view, program);
        Ok(PreparedCommand {
            program,
            nonce,
            before: ProtectedFiles::default(),
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
        inherited.chain([("TMPDIR".to_owned(), tmp)]).collect()
    }

    async fn find_protected(&self) -> ProtectedFiles {
        if self.resolved.access == ProjectAccess::None {
            return ProtectedFiles::default();
        }
        let (workspace, policy) = (self.resolved.workspace.clone(), self.policy.clone());
        let home = self.resolved.home.clone();
        let find = move || ProtectedFiles::find(&workspace, &policy, home.as_deref());
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
        let mut command = self.prepare(&cwd, command).await?;
        let program = std::mem::take(&mut command.program);
        let outcome = self.local.run_program(program, cwd, exec, observer).await;
        let quarantined = self.finish(&command).await?;
        let mut output = check_launched(outcome?, &command)?;
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
            .request(FileRequest::Visible(given), Vec::new())
            .await?;
        let cwd = PathBuf::from(cwd.as_str().unwrap_or_default());
        let guards = review.guards().await?;
        review
            .with_view(async |view| {
                let view = Some(view.reference.clone());
                let inside = self.inside_path(&cwd);
                let mut prepared = self.prepare_launch(inside, guards, view, command)?;
                let program = std::mem::take(&mut prepared.program);
                // The directory may exist only on the overlay.
                let workspace = self.resolved.workspace.clone();
                let ran = self.local.run_program(program, workspace, exec, observer);
                check_launched(ran.await?, &prepared)
            })
            .await
    }

    /// Runs a program with the given standard input and output, without limits of time and output.
    /// Returns how it ended, and the protected files that it created, which are now in
    /// quarantine.
    pub async fn run_attached(
        &self,
        command: Vec<OsString>,
        stdin: OwnedFd,
        stdout: OwnedFd,
        mut on_stderr: impl FnMut(&[u8]) + Send,
    ) -> Result<(Exit, Vec<String>), SandboxError> {
        let failed = |error: &dyn fmt::Display| SandboxError::Exec(error.to_string());
        let cwd = self.resolved.workspace.clone();
        let mut prepared = self.prepare(&cwd, command).await?;
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
            None => Ok((output.exit, quarantined)),
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

/// Fails if the command was not confined, and therefore did not start.
fn check_launched(
    output: ExecOutput,
    command: &PreparedCommand,
) -> Result<ExecOutput, SandboxError> {
    if let Some(reason) = command.failure(output.exit_code, &output.stderr) {
        let reason = format!("the command could not be confined: {reason}");
        return Err(SandboxError::Exec(reason));
    }
    Ok(output)
}

/// A command that a supervisor can run.
#[derive(Debug)]
pub struct PreparedCommand {
    /// The program that confines itself and becomes the command, with its arguments.
    pub program: Vec<OsString>,
    nonce: String,
    before: ProtectedFiles,
    _cgroup: Option<Cgroup>,
}

impl PreparedCommand {
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
            network: NetworkAccess::None,
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
        let (request, given) = (FileRequest::Resolve(path.to_owned()), path.to_owned());
        let resolved = self.on_files(request, &[], move |files| Ok(files.resolve_path(&given)));
        Box::pin(async move { resolved.await.unwrap_or_else(|_| unresolvable(path)) })
    }

    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>> {
        let (files, path) = (self.files(), path.to_owned());
        let Some(review) = &self.review else {
            return blocking(move || files.read(&path));
        };
        Box::pin(async move {
            let (_, bytes) = review.request(FileRequest::Read(path), Vec::new()).await?;
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
        self.on_files(FileRequest::Walk(walk.clone()), &[], |_| {
            Ok(WalkResult::default())
        })
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()> {
        let (given, content) = (path.to_owned(), bytes.to_vec());
        let request = FileRequest::Write(path.to_owned());
        self.on_files(request, bytes, move |files| files.write(&given, &content))
    }

    fn write_resolved<'a>(
        &'a self,
        path: &'a str,
        permitted: &'a ResolvedPath,
        bytes: &'a [u8],
    ) -> SandboxFuture<'a, ()> {
        let (given, target, content) = (path.to_owned(), permitted.clone(), bytes.to_vec());
        let request = FileRequest::WriteResolved(path.to_owned(), permitted.clone());
        self.on_files(request, bytes, move |files| {
            files.write_resolved(&given, &target, &content)
        })
    }

    fn list<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<FileInfo>> {
        let given = path.to_owned();
        let request = FileRequest::List(path.to_owned());
        self.on_files(request, &[], move |files| files.list(&given))
    }

    fn stat<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, FileInfo> {
        let given = path.to_owned();
        let request = FileRequest::Stat(path.to_owned());
        self.on_files(request, &[], move |files| files.stat(&given))
    }

    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let given = path.to_owned();
        let request = FileRequest::Mkdir(path.to_owned());
        self.on_files(request, &[], move |files| files.mkdir(&given))
    }

    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        let given = path.to_owned();
        let request = FileRequest::Rm(path.to_owned());
        self.on_files(request, &[], move |files| files.rm(&given))
    }

    fn kill<'a>(&'a self, process: &'a str) -> BoxFuture<'a, ()> {
        self.local.kill(process)
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
