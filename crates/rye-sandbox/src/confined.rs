//! The sandbox that the kernel confines: the workspace, without the rest of the machine, and
//! without network or with the hosts that the policy allows.
//!
//! File operations are those of the [`LocalSandbox`], limited to paths that commands can see.
//! Commands run through the [launcher], a process that confines itself before it executes them.

mod cgroup;
mod grants;
mod guard;
mod launcher;
mod network;
mod policy;
mod probe;
mod protected;
mod quarantine;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use lillux::path_policy::{PathClass, PathPolicy, ProtectedPaths, resolve};
use lillux::process::{Command, Environment, Exit, Supervisor};
use rye_engine::BoxFuture;
use rye_engine::protocol::{ProjectAccess, SandboxKind};
use rye_engine::sandbox::{
    Confinement, Enforcement, Exec, ExecObserver, ExecOutput, FileAccess, FileInfo, Grants,
    NetworkAccess, ProcessAccess, ResolvedPath, Sandbox, SandboxError, SandboxFuture, WalkOptions,
    WalkResult,
};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::LocalSandbox;
use crate::egress::{EgressSetup, NetworkPolicy, Resolver, SecretSource, SystemResolver};
use cgroup::Cgroup;
use launcher::LaunchSpec;
use network::CommandNetwork;
use policy::ResolvedPolicy;
use quarantine::Quarantine;

pub(crate) use guard::WorkspaceGuard;
pub use launcher::launch;
pub use policy::{ConfinementPolicy, PROTECTED_NAMES, ResourceLimits};
pub use probe::Availability;
pub(crate) use protected::{GuardKind, ProtectedFiles};

/// System directories that the file tools can read, as commands can.
const SYSTEM: [&str; 4] = ["/usr", "/opt", "/bin", "/sbin"];

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
        self.local = self.local.protected(protected, project);
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
        let is_below_mask = |path: &Path| self.masked.iter().any(|it| path.starts_with(it));
        let contains_mask = |path: &Path| self.masked.iter().any(|it| it.starts_with(path));
        let is_hidden = |path: &PathBuf| is_below_mask(path) || !self.is_visible(path);
        let programs = programs.into_iter().filter(is_hidden);
        let programs = programs.filter(|path| !contains_mask(path)).collect();
        self.programs = programs;
        self
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
        files: &ProtectedFiles,
        cgroup: Option<&Cgroup>,
        network: Option<&CommandNetwork>,
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
            proxy: network.map(CommandNetwork::socket),
        };
        let spec = serde_json::to_string(&spec).unwrap_or_default();
        let mut all = self.launcher.command();
        all.push(spec.into());
        all.extend(files.guards().iter().map(launcher::guard_argument));
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
        self.prepare_command(cwd, program, false).await
    }

    /// Prepares a program. `can_ask` says whether a person can be asked about connections.
    async fn prepare_command(
        &self,
        cwd: &Path,
        program: Vec<OsString>,
        can_ask: bool,
    ) -> Result<PreparedCommand, SandboxError> {
        let nonce = nonce()?;
        let before = self.find_protected().await;
        let cgroup = Cgroup::create(&self.resolved.limits);
        let network = self.start_network(can_ask)?;
        let inside = self.inside_path(cwd);
        let (group, proxy) = (cgroup.as_ref(), network.as_ref());
        let program = self.launch_command(inside, &nonce, &before, group, proxy, program);
        Ok(PreparedCommand {
            program,
            nonce,
            before,
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
            _ => self.visible(&cwd.to_string_lossy()),
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
        let given = exec.cwd.as_deref().unwrap_or_default();
        let cwd = self.visible(given)?;
        for (name, value) in self.variables() {
            exec.env.entry(name).or_insert(value);
        }
        let mut command = self.prepare_command(&cwd, command, true).await?;
        let program = std::mem::take(&mut command.program);
        let running = self.local.run_program(program, cwd, exec, observer);
        let outcome = match &mut command.network {
            Some(network) => network.run(running, observer).await,
            None => running.await,
        };
        let quarantined = self.finish(&command).await?;
        let mut output = outcome?;
        if let Some(reason) = command.failure(output.exit_code, &output.stderr) {
            let reason = format!("the command could not be confined: {reason}");
            return Err(SandboxError::Exec(reason));
        }
        output.quarantined = quarantined;
        output.refused_connections = command.refused_connections();
        Ok(output)
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

    /// The path of the host for a path inside of the sandbox: `/tmp` is another directory, but
    /// the workspace may be below it.
    fn host_path(&self, path: &str) -> String {
        let absolute = Path::new(path);
        let policy = &self.resolved;
        let listed = policy.read.iter().chain(&policy.write);
        let mut mounted = listed
            .map(PathBuf::as_path)
            .chain([&*policy.workspace, self.tmp.path()]);
        match absolute.strip_prefix("/tmp") {
            Ok(below) if !mounted.any(|dir| absolute.starts_with(dir)) => {
                let path = self.tmp.path().join(below);
                path.to_string_lossy().into_owned()
            }
            _ => path.to_owned(),
        }
    }

    /// The real path of a file that commands can see.
    fn visible(&self, path: &str) -> Result<PathBuf, SandboxError> {
        let real = self.local.real_path(&self.host_path(path))?;
        if self.is_visible(&real) {
            return Ok(real);
        }
        Err(SandboxError::Outside(path.to_owned()))
    }

    fn is_visible(&self, real: &Path) -> bool {
        let policy = &self.resolved;
        let listed = policy
            .read
            .iter()
            .chain(&policy.write)
            .map(PathBuf::as_path);
        let workspace = Some(&*policy.workspace).filter(|_| policy.access != ProjectAccess::None);
        let own = [self.tmp.path()].into_iter().chain(workspace);
        let mut all = own.chain(SYSTEM.map(Path::new)).chain(listed);
        all.any(|dir| {
            real.starts_with(dir) || resolve(dir).is_some_and(|dir| real.starts_with(dir))
        })
    }

    /// Refuses a path that commands cannot write. What is protected is for the caller to ask about.
    fn check_writable(&self, path: &str) -> Result<(), SandboxError> {
        let real = self.local.real_path(&self.host_path(path))?;
        let policy = &self.resolved;
        let own = [policy.workspace.as_path(), self.tmp.path()];
        let listed = policy.write.iter().map(PathBuf::as_path);
        let is_writable = own.into_iter().chain(listed).any(|dir| {
            real.starts_with(dir) || resolve(dir).is_some_and(|dir| real.starts_with(dir))
        });
        if is_writable {
            return Ok(());
        }
        Err(SandboxError::Outside(path.to_owned()))
    }

    fn is_tmp(&self, path: &str) -> bool {
        let real = self.local.real_path(&self.host_path(path));
        real.is_ok_and(|real| real.starts_with(self.tmp.path()))
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

    fn resolve_path<'a>(&'a self, path: &'a str) -> BoxFuture<'a, ResolvedPath> {
        Box::pin(async move {
            if self.is_tmp(path) {
                return ResolvedPath {
                    path: path.to_owned(),
                    class: PathClass::Plain,
                };
            }
            self.local.resolve_path(path).await
        })
    }

    fn read<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<u8>> {
        Box::pin(async move {
            self.visible(path)?;
            self.local.read(&self.host_path(path)).await
        })
    }

    fn walk<'a>(&'a self, walk: &'a WalkOptions) -> SandboxFuture<'a, WalkResult> {
        Box::pin(async move {
            self.visible(&walk.path)?;
            let walk = WalkOptions {
                path: self.host_path(&walk.path),
                ..walk.clone()
            };
            self.local.walk(&walk).await
        })
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> SandboxFuture<'a, ()> {
        Box::pin(async move {
            self.check_writable(path)?;
            self.local.write(&self.host_path(path), bytes).await
        })
    }

    fn write_resolved<'a>(
        &'a self,
        path: &'a str,
        permitted: &'a ResolvedPath,
        bytes: &'a [u8],
    ) -> SandboxFuture<'a, ()> {
        Box::pin(async move {
            if self.resolve_path(path).await != *permitted {
                return Err(SandboxError::PathChanged(path.to_owned()));
            }
            self.check_writable(path)?;
            if self.is_tmp(path) {
                return self.write(path, bytes).await;
            }
            self.local.write_resolved(path, permitted, bytes).await
        })
    }

    fn list<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, Vec<FileInfo>> {
        Box::pin(async move {
            self.visible(path)?;
            self.local.list(&self.host_path(path)).await
        })
    }

    fn stat<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, FileInfo> {
        Box::pin(async move {
            self.visible(path)?;
            self.local.stat(&self.host_path(path)).await
        })
    }

    fn mkdir<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        Box::pin(async move {
            self.check_writable(path)?;
            self.local.mkdir(&self.host_path(path)).await
        })
    }

    fn rm<'a>(&'a self, path: &'a str) -> SandboxFuture<'a, ()> {
        Box::pin(async move {
            let host_path = self.host_path(path);
            // A link is removed itself, wherever it points.
            let link = Path::new(&host_path);
            let is_link = self.local.workspace().join(link).is_symlink() && !path.ends_with('/');
            match link.parent().and_then(Path::to_str).filter(|_| is_link) {
                Some(parent) => self.check_writable(parent)?,
                None => self.check_writable(path)?,
            }
            self.local.rm(&host_path).await
        })
    }

    fn kill<'a>(&'a self, process: &'a str) -> BoxFuture<'a, ()> {
        self.local.kill(process)
    }

    fn widened(&self, grants: &Grants) -> Result<Arc<dyn Sandbox>, SandboxError> {
        if grants.unconfined {
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
