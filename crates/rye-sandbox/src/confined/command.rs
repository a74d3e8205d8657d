//! Commands of the confined sandbox: each runs through the launcher, with its own network, and is
//! checked afterwards.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lillux::Hash;
use lillux::process::{Command, Environment, Exit};
use rye_engine::protocol::ProjectAccess;
use rye_engine::sandbox::{Exec, ExecObserver, ExecOutput, SandboxError};
use tokio::task::spawn_blocking;

use super::cgroup::Cgroup;
use super::files::FileOperation;
use super::launcher::{self, LaunchSpec, ViewRef};
use super::network::{self, CommandNetwork};
use super::protected::ProtectedFiles;
use super::review::Review;
use super::{ConfinedSandbox, Tier};
use crate::egress::EgressSetup;

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

impl ConfinedSandbox {
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
    pub(super) fn has_network(&self) -> bool {
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
