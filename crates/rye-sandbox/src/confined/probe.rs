//! Finds out how strongly this machine can confine commands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use super::launcher::{LaunchSpec, MIN_ABI, ViewSpec, abi};
use super::policy::ConfinementPolicy;
use super::{Launcher, Tier};
use super::{cgroup, review};

/// Settings of the kernel that block user namespaces, the value that blocks, and the fix.
const BLOCKERS: [(&str, &str, &str); 3] = [
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "sudo sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "sudo sysctl -w user.max_user_namespaces=10000",
    ),
];

/// What this machine can enforce.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Availability {
    /// The strongest tier that works; `None` if commands cannot be confined.
    pub tier: Option<Tier>,
    /// Why the tier `full` does not work.
    pub full_error: Option<String>,
    /// Why the tier `landlock` does not work.
    pub landlock_error: Option<String>,
    /// Version of Landlock; 0 if the kernel has none.
    pub landlock_abi: u32,
    /// A command that may make the tier `full` work.
    pub fix: Option<String>,
    /// Controllers of cgroups that limit each command as a whole; if there are none, only single
    /// processes are limited.
    pub cgroup_controllers: Vec<String>,
}

impl Availability {
    /// Tries the tiers by confining `true`.
    pub fn probe(launcher: &Launcher) -> Self {
        let full_error = run_true(launcher, Tier::Full).err();
        let landlock_error = run_true(launcher, Tier::Landlock).err();
        let tier = match (&full_error, &landlock_error) {
            (None, _) => Some(Tier::Full),
            (_, None) => Some(Tier::Landlock),
            _ => None,
        };
        Self {
            tier,
            fix: full_error.as_ref().and_then(|_| fix()),
            full_error,
            landlock_error,
            landlock_abi: abi(),
            cgroup_controllers: cgroup::controllers(),
        }
    }

    /// Tries to mount an overlay for review mode, with the changes in a directory below `state`.
    /// The error is the reason why it does not work.
    pub fn probe_review(launcher: &Launcher, state: &Path) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let workspace = tempfile::tempdir().map_err(text)?;
        let workspace = fs::canonicalize(workspace.path()).map_err(text)?;
        fs::create_dir_all(state).map_err(text)?;
        let changes = tempfile::Builder::new().prefix("review-").tempdir_in(state);
        let changes = changes.map_err(text)?;
        let (upper, work) = review::create_state(changes.path()).map_err(text)?;
        let confinement = ConfinementPolicy::default();
        let spec = ViewSpec {
            upper,
            work,
            tmp: workspace.clone(),
            policy: confinement.resolve(&workspace, None),
            confinement,
            private: Vec::new(),
            homes: Vec::new(),
            project: workspace,
        };
        let probed = review::probe(launcher, &spec);
        // The kernel leaves a directory that its owner cannot enter.
        review::remove_review(changes.path()).map_err(text)?;
        probed
    }

    /// Finds the strongest tier, without trying weaker ones.
    pub fn probe_tier(launcher: &Launcher) -> Result<Tier, Self> {
        if run_true(launcher, Tier::Full).is_ok() {
            return Ok(Tier::Full);
        }
        let all = Self::probe(launcher);
        all.tier.ok_or(all)
    }
}

/// A command that removes a known obstacle to user namespaces.
fn fix() -> Option<String> {
    let blocker = BLOCKERS.iter().find(|(file, blocks, _)| {
        fs::read_to_string(file).is_ok_and(|value| value.trim() == *blocks)
    });
    blocker.map(|(_, _, fix)| (*fix).to_owned())
}

/// Runs `true` in a tier.
fn run_true(launcher: &Launcher, tier: Tier) -> Result<(), String> {
    if tier == Tier::Landlock && abi() < MIN_ABI {
        return Err(format!(
            "Landlock version {MIN_ABI} is needed (Linux 6.2), and this kernel has version {}",
            abi()
        ));
    }
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let workspace = fs::canonicalize(dir.path()).map_err(|error| error.to_string())?;
    let tmp = workspace.join("tmp");
    fs::create_dir(&tmp).map_err(|error| error.to_string())?;
    let spec = LaunchSpec {
        tier,
        nonce: String::new(),
        cgroup: None,
        cwd: workspace.clone(),
        tmp,
        policy: ConfinementPolicy::default().resolve(&workspace, None),
        masked: Vec::new(),
        programs: Vec::new(),
        proxy: None,
        view: None,
    };
    let spec = serde_json::to_string(&spec).map_err(|error| error.to_string())?;
    let candidates = ["/bin/true", "/usr/bin/true"].map(PathBuf::from);
    let program = candidates.into_iter().find(|path| path.exists());
    let program = program.unwrap_or_else(|| Path::new("true").to_owned());
    let mut command = Command::new(&launcher.program);
    command
        .args(&launcher.args)
        .arg(spec)
        .arg("--")
        .arg(program);
    let output = command.env_clear().stdin(Stdio::null()).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(if reason.is_empty() {
        output.status.to_string()
    } else {
        reason
    })
}
