//! Landlock rules: a second layer in the tier `full`, and the only protection of files in the tier
//! `landlock`.

#![expect(
    unsafe_code,
    reason = "no library tells the version of Landlock; the block says why it is sound"
)]

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rye_engine::protocol::ProjectAccess;

use super::{Context, Launch, LaunchError, LaunchSpec, error};
use crate::confined::protected::GuardKind;

/// The newest Landlock version whose rights this module uses, if the kernel supports them.
const NEWEST: ABI = ABI::V9;

/// The oldest version that can confine writes on its own: before it, a file can be truncated.
pub(in super::super) const MIN_ABI: u32 = 3;

/// System directories that commands of the tier `landlock` can read.
const SYSTEM: [&str; 9] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/proc",
];

/// Files of `/etc` that commands of the tier `landlock` can read.
const ETC: [&str; 22] = [
    "bash.bashrc",
    "ca-certificates",
    "gitconfig",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "pki",
    "profile",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];

const DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

type Rights = BitFlags<AccessFs>;

/// The version of Landlock; 0 if the kernel has none.
pub(in super::super) fn abi() -> u32 {
    const VERSION: libc::c_int = 1;
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the kernel reads no memory and creates nothing.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Restricts a process whose root contains only what it may see: writes only where the policy
/// allows them, no signals to processes outside, and no TCP unless there is a proxy.
pub(super) fn restrict_inside(spec: &LaunchSpec) -> Result<(), LaunchError> {
    if abi() == 0 {
        return Ok(());
    }
    let policy = &spec.policy;
    // With a proxy, the empty network namespace alone confines TCP, so that programs can also
    // connect to each other.
    let mut rules = Rules::new(spec.proxy.is_none())?;
    rules.allow(Path::new("/"), read())?;
    for device in ["/dev", "/dev/pts"] {
        rules.allow(Path::new(device), device_rights())?;
    }
    let fixed = [PathBuf::from("/tmp"), PathBuf::from("/dev/shm")];
    for path in fixed.iter().chain(&policy.home) {
        rules.allow(path, all())?;
    }
    let is_writable = policy.access == ProjectAccess::Workspace;
    let workspace = is_writable.then_some(&policy.workspace);
    for path in workspace.into_iter().chain(&policy.write) {
        rules.allow(path, all() & !AccessFs::ResolveUnix)?;
    }
    rules.restrict().map(drop)
}

/// Restricts a process that sees the host's files.
pub(super) fn restrict_host(launch: &Launch) -> Result<(), LaunchError> {
    let (spec, policy) = (&launch.spec, &launch.spec.policy);
    let step = "cannot confine files with Landlock";
    if abi() < MIN_ABI {
        return Err(error(step, "the kernel is too old"));
    }
    let workspace = Some(&policy.workspace).filter(|_| policy.access != ProjectAccess::None);
    let visible = workspace.into_iter().chain([&spec.tmp]);
    for path in visible.chain(&policy.read).chain(&policy.write) {
        if let Some(masked) = spec.masked.iter().find(|it| it.starts_with(path)) {
            let (masked, path) = (masked.display(), path.display());
            let reason = format!("{masked} is private, but inside of {path}");
            return Err(error(step, reason));
        }
    }
    let mut rules = Rules::new(true)?;
    let etc = ETC.iter().map(|name| Path::new("/etc").join(name));
    let system = SYSTEM.iter().map(PathBuf::from).chain(etc);
    let listed = policy.read.iter().chain(&spec.programs).chain(workspace);
    for path in system.chain(listed.cloned()) {
        rules.allow(&path, read())?;
    }
    for path in DEVICES {
        rules.allow(Path::new(path), device_rights())?;
    }
    rules.allow(&spec.tmp, all() & !AccessFs::ResolveUnix)?;
    for path in &policy.write {
        rules.allow(path, all() & !AccessFs::ResolveUnix)?;
    }
    if policy.access != ProjectAccess::Workspace {
        return rules.enforce();
    }
    let guards = launch.guards.iter();
    let guards = guards.filter(|guard| guard.kind == GuardKind::ReadOnly);
    let guards: HashSet<_> = guards
        .map(|guard| policy.workspace.join(&guard.path))
        .collect();
    rules.allow_unguarded(&policy.workspace, &guards)?;
    rules.enforce()
}

fn all() -> Rights {
    AccessFs::from_all(NEWEST)
}

fn read() -> Rights {
    AccessFs::from_read(NEWEST)
}

fn device_rights() -> Rights {
    AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::IoctlDev
}

struct Rules(Option<RulesetCreated>);

impl Rules {
    fn new(denies_tcp: bool) -> Result<Self, LaunchError> {
        let ruleset = Ruleset::default()
            .handle_access(all())
            .and_then(|it| {
                if denies_tcp {
                    it.handle_access(AccessNet::from_all(NEWEST))
                } else {
                    Ok(it)
                }
            })
            .and_then(|it| it.scope(Scope::from_all(NEWEST)))
            .and_then(Ruleset::create);
        Ok(Self(Some(ruleset.context("cannot use Landlock")?)))
    }

    /// Allows the rights at a path and below it. Skips a path that does not exist.
    fn allow(&mut self, path: &Path, rights: Rights) -> Result<(), LaunchError> {
        let Ok(metadata) = fs::metadata(path) else {
            return Ok(());
        };
        let file = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let file = file.context(format!("cannot open {}", path.display()))?;
        self.add(&file, metadata.is_dir(), rights)
    }

    fn add(&mut self, file: &OwnedFd, is_dir: bool, rights: Rights) -> Result<(), LaunchError> {
        let rights = if is_dir {
            rights
        } else {
            rights & AccessFs::from_file(NEWEST)
        };
        if let Some(rules) = self.0.take() {
            let added = rules.add_rule(PathBeneath::new(file, rights));
            self.0 = Some(added.context("cannot add a Landlock rule")?);
        }
        Ok(())
    }

    /// Allows writes below a directory, except in guarded files and directories. A rule covers
    /// everything below its path, so no entry can be created in a directory with a guard
    /// somewhere below it; the other entries of such a directory are allowed one by one.
    fn allow_unguarded(
        &mut self,
        dir: &Path,
        guards: &HashSet<PathBuf>,
    ) -> Result<(), LaunchError> {
        let step = || format!("cannot read {}", dir.display());
        if !guards.iter().any(|guard| guard.starts_with(dir)) {
            return self.allow_entry(dir);
        }
        for entry in fs::read_dir(dir).context(step())? {
            let path = entry.context(step())?.path();
            if guards.contains(&path) {
                continue;
            }
            if guards.iter().any(|guard| guard.starts_with(&path)) {
                self.allow_unguarded(&path, guards)?;
            } else {
                self.allow_entry(&path)?;
            }
        }
        Ok(())
    }

    /// Allows writes to an entry of the workspace, unless it is a link, which may lead anywhere.
    fn allow_entry(&mut self, path: &Path) -> Result<(), LaunchError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let step = || format!("cannot open {}", path.display());
        let file = openat(CWD, path, flags, Mode::empty()).context(step())?;
        let kind =
            rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file).context(step())?.st_mode);
        if kind.is_symlink() {
            return Ok(());
        }
        self.add(&file, kind.is_dir(), all() & !AccessFs::ResolveUnix)
    }

    /// Restricts the process, or fails if the kernel does not do it.
    fn enforce(self) -> Result<(), LaunchError> {
        match self.restrict()? {
            RulesetStatus::NotEnforced => {
                let reason = "the kernel did not enforce it";
                Err(error("cannot confine files with Landlock", reason))
            }
            _ => Ok(()),
        }
    }

    fn restrict(self) -> Result<RulesetStatus, LaunchError> {
        let Some(rules) = self.0 else {
            return Ok(RulesetStatus::NotEnforced);
        };
        let status = rules.restrict_self().context("cannot enforce Landlock")?;
        Ok(status.ruleset)
    }
}
