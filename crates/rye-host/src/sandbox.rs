//! Chooses and builds the sandbox of a session, and loads the policy of the confined one.

mod provider;
mod targets;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use lillux::path_policy::ProtectedPaths;
use lillux::process::Supervisor;
use rye_engine::web::WebClient;
use rye_items::Spaces;
use rye_items::trust::IgnoredFile;
use rye_items::vault::{SecretName, Vault};
use rye_sandbox::{
    ConfinedError, ConfinedSandbox, EgressClient, Launcher, NetworkPolicy, ReviewError,
    SecretSource, SystemResolver,
};
use zeroize::Zeroizing;

use crate::SandboxKind;
use crate::config::{self, ConfigFiles};
use crate::context::Context;
use crate::policy_file::PolicyError;
use crate::settings::Origin;

pub(crate) use provider::HostSandboxes;
pub use provider::{SandboxOptions, build_here};
pub use rye_sandbox::{
    Availability, ConfinementPolicy, SandboxServer, Secret, ServeError, ServeOptions, ServedKind,
    Tier, tls_acceptor,
};
pub use targets::{TargetCheck, check_targets};

/// The policy of the confined sandbox, relative to a space's `.ai/`.
pub const SANDBOX_FILE: &str = "config/agent/sandbox.yaml";

/// The hidden command with which a program starts itself as the launcher of confined commands.
const LAUNCHER_COMMAND: &str = "sandbox-launcher";

static SELF_LAUNCHER: OnceLock<Launcher> = OnceLock::new();

/// Runs the launcher if this process was started as one, and returns its exit code. Otherwise
/// makes this program the launcher of its confined sandboxes. Call it first in `main`.
pub fn run_launcher() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|it| it == LAUNCHER_COMMAND) {
        let arguments: Vec<OsString> = arguments.collect();
        return Some(rye_sandbox::launch(arguments));
    }
    if let Ok(program) = std::env::current_exe() {
        // Set once; a second call would set the same.
        let _ = SELF_LAUNCHER.set(Launcher::new(program, [LAUNCHER_COMMAND]));
    }
    None
}

/// The launcher, if this program [can be one](run_launcher).
pub fn launcher() -> Option<&'static Launcher> {
    SELF_LAUNCHER.get()
}

/// Why commands cannot be confined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfinementError {
    /// The program does not call [`run_launcher`].
    #[error("this program cannot launch confined commands")]
    NoLauncher,
    /// The machine can enforce no tier.
    #[error(
        "this machine cannot confine commands: {}",
        .0.full_error.as_deref().unwrap_or("unknown reason")
    )]
    Unavailable(Availability),
    /// The workspace cannot be confined.
    #[error(transparent)]
    Workspace(#[from] ConfinedError),
    /// Changes cannot be kept for a review.
    #[error(transparent)]
    Review(#[from] ReviewError),
}

impl ConfinementError {
    /// A command that may help.
    pub fn fix(&self) -> Option<String> {
        match self {
            Self::Unavailable(availability) => availability.fix.clone(),
            Self::Workspace(_) => Some("rye prompt --workspace DIR".to_owned()),
            Self::Review(ReviewError::Tier(_)) => {
                let fix = launcher().and_then(|it| Availability::probe(it).fix);
                fix.or_else(|| Some("rye sandbox check".to_owned()))
            }
            Self::Review(ReviewError::Inside(_)) => {
                Some("export RYE_STATE_DIR=/path/to/state".to_owned())
            }
            Self::Review(_) => Some("rye sandbox check".to_owned()),
            Self::NoLauncher => None,
        }
    }
}

/// The strongest tier of this machine, tried once per process.
pub fn strongest_tier() -> Result<Tier, ConfinementError> {
    static FOUND: OnceLock<Result<Tier, Availability>> = OnceLock::new();
    let launcher = launcher().ok_or(ConfinementError::NoLauncher)?;
    let found = FOUND.get_or_init(|| Availability::probe_tier(launcher));
    found.clone().map_err(ConfinementError::Unavailable)
}

/// Chooses the sandbox of a new session: confined in a project, virtual if there is none or
/// commands cannot be confined. Tells the user why it is virtual.
pub(crate) fn default_kind(
    context: &Context,
    workspace: &Path,
    supervisor: &Arc<Supervisor>,
    policy: &ConfinementPolicy,
) -> SandboxKind {
    let project = &context.settings.dirs.project;
    if project.origin == Origin::Default {
        let text = "not in a project, so the agent works with files in memory; `rye init` makes \
                    this directory a project";
        context.reporter().info(text);
        return SandboxKind::Virtual;
    }
    let built = confined(
        workspace,
        Arc::clone(supervisor),
        policy.clone(),
        context.protected(),
        project.value.clone(),
        context.vault(),
    );
    match built {
        Ok(_) => SandboxKind::Confined,
        Err(error) => {
            let text = format!("the agent works with files in memory: {error}");
            let hint = error.fix();
            context.reporter().warn(&text, hint.as_deref());
            SandboxKind::Virtual
        }
    }
}

/// Builds a confined sandbox in the strongest tier of this machine.
pub fn confined(
    workspace: &Path,
    supervisor: Arc<Supervisor>,
    policy: ConfinementPolicy,
    protected: ProtectedPaths,
    project: PathBuf,
    vault: Option<Vault>,
) -> Result<ConfinedSandbox, ConfinementError> {
    confined_in(
        None, workspace, supervisor, policy, protected, project, vault,
    )
}

/// Like [`confined`], in a given tier.
pub fn confined_in(
    tier: Option<Tier>,
    workspace: &Path,
    supervisor: Arc<Supervisor>,
    policy: ConfinementPolicy,
    protected: ProtectedPaths,
    project: PathBuf,
    vault: Option<Vault>,
) -> Result<ConfinedSandbox, ConfinementError> {
    let launcher = launcher().ok_or(ConfinementError::NoLauncher)?;
    let tier = match tier {
        Some(tier) => tier,
        None => strongest_tier()?,
    };
    let sandbox = ConfinedSandbox::new(workspace, supervisor, launcher.clone(), tier, policy)?;
    let sandbox = sandbox.lookups(Arc::new(SystemResolver), secrets(vault));
    Ok(sandbox.protected(protected, project))
}

/// The client of the tool `fetch`, which follows the network policy of confined commands.
pub(crate) fn web_client(network: NetworkPolicy, vault: Option<Vault>) -> Arc<dyn WebClient> {
    Arc::new(EgressClient::new(
        network,
        Arc::new(SystemResolver),
        secrets(vault),
    ))
}

/// The secrets that the egress proxy can inject: those of the vault.
fn secrets(vault: Option<Vault>) -> Arc<SecretSource> {
    Arc::new(move |name| {
        let vault = vault.as_ref().ok_or("there is no vault")?;
        let name: SecretName = name.parse().map_err(text)?;
        let opened = vault.get(None, &name).map_err(text)?;
        let secret = std::str::from_utf8(opened.secret.expose()).map_err(text)?;
        Ok(Zeroizing::new(
            secret.trim_end_matches(['\r', '\n']).to_owned(),
        ))
    })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Loads the policy of all spaces, and returns the files that were ignored. Of a project file that
/// the user has not accepted for its directory, only the part that restricts commands applies.
pub fn load_sandbox_policy(
    spaces: &Spaces,
) -> Result<(ConfinementPolicy, Vec<IgnoredFile>), PolicyError> {
    let ConfigFiles {
        accepted,
        unaccepted,
        mut ignored,
    } = config::load(spaces, SANDBOX_FILE)?;
    let mut policy = ConfinementPolicy::default();
    if let Some((file, mut notice)) = unaccepted {
        let parsed = parse(rye_items::Space::Project, &file)?;
        let tightening = parsed.clone().tightening();
        if tightening != parsed {
            let reason = &notice.reason;
            notice.reason = format!("only its restrictions apply: {reason}");
            ignored.push(notice);
        }
        policy = tightening;
    }
    for (space, file) in accepted {
        policy.merge(parse(space, &file)?);
    }
    Ok((policy, ignored))
}

fn parse(
    space: rye_items::Space,
    file: &rye_model::ConfigFile,
) -> Result<ConfinementPolicy, PolicyError> {
    let parsed: Result<Option<_>, _> = serde_saphyr::from_str(&file.text);
    let parsed = parsed.map_err(|error| PolicyError::Config {
        path: file.path.clone(),
        space,
        reason: error.to_string(),
    })?;
    Ok(parsed.unwrap_or_default())
}
