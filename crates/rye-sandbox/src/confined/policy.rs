//! The policy of the confined sandbox: which paths a command can use, and its limits.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use lillux::Hash;
use rye_engine::protocol::ProjectAccess;
use serde::{Deserialize, Serialize};

use crate::config::{DockerConfig, RemoteConfig};
use crate::egress::NetworkPolicy;

/// Names of files and directories that decide what programs do later. They are read-only at any
/// depth of the workspace.
pub const PROTECTED_NAMES: [&str; 11] = [
    ".git",
    ".ai",
    ".envrc",
    ".vscode",
    ".claude",
    ".husky",
    ".cargo",
    ".codex",
    ".cursor",
    ".devcontainer",
    ".idea",
];

/// Toolchains and download caches below the home directory that commands can read.
const HOME_READ: [&str; 19] = [
    ".cargo/bin",
    ".cargo/config.toml",
    ".cargo/git",
    ".cargo/registry",
    ".rustup",
    ".pyenv",
    ".local/bin",
    ".local/lib",
    ".local/share/uv",
    ".cache/pip",
    ".cache/uv",
    ".nvm",
    ".npm/_cacache",
    ".volta",
    ".sdkman",
    "go/pkg",
    ".gitconfig",
    ".config/git/config",
    ".config/git/ignore",
];

/// Variables that name toolchains in other places; commands inherit them.
const TOOLCHAIN_VARIABLES: [(&str, &[&str]); 2] = [
    ("CARGO_HOME", &["bin", "config.toml", "git", "registry"]),
    ("RUSTUP_HOME", &["."]),
];

/// What a policy file can change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfinementPolicy {
    /// Additional paths that commands can read; `~` is the home directory.
    pub read: Vec<String>,
    /// Additional paths that commands can read and write.
    pub write: Vec<String>,
    /// Additional names that are read-only at any depth of the workspace.
    pub protect: Vec<String>,
    /// Additional environment variables that commands inherit.
    pub environment: Vec<String>,
    /// Hosts that commands may connect to.
    pub network: NetworkPolicy,
    /// Whether changes reach the workspace only after a review.
    pub review: Option<bool>,
    /// Limits of each command.
    pub limits: ResourceLimits,
    /// Containers of the `docker` sandbox.
    pub docker: DockerConfig,
    /// The machine of the `remote` sandbox.
    pub remote: Option<RemoteConfig>,
}

/// Resource limits of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceLimits {
    /// Maximum number of processes and threads [default: 4096].
    pub processes: Option<u64>,
    /// Maximum memory of each process, and of the whole command where a cgroup is delegated to this
    /// process, in MiB [default: three quarters of the machine's].
    pub memory_mib: Option<u64>,
    /// Maximum size of a file that a command writes, in MiB [default: 16384].
    pub file_size_mib: Option<u64>,
    /// Maximum number of open descriptors of a process [default: 16384].
    pub open_files: Option<u64>,
    /// Maximum CPU time of the whole command, in percent of one processor [default: no limit]. Has
    /// an effect only where a cgroup is delegated to this process.
    pub cpu_percent: Option<u64>,
}

const DEFAULT_PROCESSES: u64 = 4096;
const DEFAULT_FILE_SIZE_MIB: u64 = 16 * 1024;
const DEFAULT_OPEN_FILES: u64 = 16 * 1024;

impl ConfinementPolicy {
    /// Adds the lists of a less specific policy, and those of its limits that are not set here.
    pub fn merge(&mut self, other: Self) {
        let docker = other.docker;
        let own = &mut self.docker;
        own.image = own.image.take().or(docker.image);
        own.network = own.network.take().or(docker.network);
        own.socket = own.socket.take().or(docker.socket);
        self.remote = self.remote.take().or(other.remote);
        self.read.extend(other.read);
        self.write.extend(other.write);
        self.protect.extend(other.protect);
        self.environment.extend(other.environment);
        self.network.merge(other.network);
        self.review = self.review.or(other.review);
        let (own, other) = (&mut self.limits, other.limits);
        own.processes = own.processes.or(other.processes);
        own.memory_mib = own.memory_mib.or(other.memory_mib);
        own.file_size_mib = own.file_size_mib.or(other.file_size_mib);
        own.open_files = own.open_files.or(other.open_files);
        own.cpu_percent = own.cpu_percent.or(other.cpu_percent);
    }

    /// The part of the policy that only restricts commands further.
    #[must_use]
    pub fn tightening(self) -> Self {
        Self {
            protect: self.protect,
            network: self.network.tightening(),
            review: self.review.filter(|review| *review),
            ..Self::default()
        }
    }

    /// Whether a file or directory of this name is read-only.
    pub(crate) fn protects(&self, name: &OsStr) -> bool {
        let names = PROTECTED_NAMES
            .iter()
            .chain([&super::quarantine::DIRECTORY]);
        names.into_iter().any(|it| name == *it) || self.protect.iter().any(|it| name == &**it)
    }

    /// Variables that commands inherit in addition to the minimal environment.
    pub(crate) fn inherited_variables(&self) -> impl Iterator<Item = &str> {
        let toolchains = TOOLCHAIN_VARIABLES.into_iter().map(|(name, _)| name);
        toolchains.chain(self.environment.iter().map(String::as_str))
    }

    /// Resolves the policy on this machine.
    pub(crate) fn resolve(&self, workspace: &Path, home: Option<&Path>) -> ResolvedPolicy {
        let from_home = |text: &str| match (text.strip_prefix('~'), home) {
            (Some(rest), Some(home)) => home.join(rest.trim_start_matches('/')),
            _ => PathBuf::from(text),
        };
        let mut read: Vec<_> = self.read.iter().map(|text| from_home(text)).collect();
        read.extend(HOME_READ.iter().filter_map(|path| Some(home?.join(path))));
        for (variable, paths) in TOOLCHAIN_VARIABLES {
            if let Some(root) = env::var_os(variable).map(PathBuf::from) {
                read.extend(paths.iter().map(|path| root.join(path)));
            }
        }
        read.push(PathBuf::from("/opt"));
        let write = self.write.iter().map(|text| from_home(text));
        ResolvedPolicy {
            workspace: workspace.to_owned(),
            access: ProjectAccess::Workspace,
            home: home.map(Path::to_owned),
            read: existing(read),
            write: existing(write.collect()),
            unprotected: Vec::new(),
            network: self.network.is_enabled().then(|| {
                let network = serde_json::to_vec(&self.network).unwrap_or_default();
                Hash::digest(network).to_hex()
            }),
            limits: Limits {
                processes: self.limits.processes.unwrap_or(DEFAULT_PROCESSES),
                memory: self.limits.memory_mib.map_or_else(default_memory, mib),
                file_size: mib(self.limits.file_size_mib.unwrap_or(DEFAULT_FILE_SIZE_MIB)),
                open_files: self.limits.open_files.unwrap_or(DEFAULT_OPEN_FILES),
                cpu_percent: self.limits.cpu_percent,
            },
        }
    }
}

fn mib(count: u64) -> u64 {
    count.saturating_mul(1024 * 1024)
}

/// Three quarters of the machine's memory.
fn default_memory() -> u64 {
    let system = rustix::system::sysinfo();
    let unit = u64::from(system.mem_unit.max(1));
    system.totalram.saturating_mul(unit) / 4 * 3
}

/// The absolute paths that exist. A link is kept as it is named: programs use that name.
fn existing(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut all: Vec<_> = paths
        .into_iter()
        .map(|path| path.components().collect::<PathBuf>())
        .filter(|path| path.is_absolute() && path.exists())
        .collect();
    all.sort();
    all.dedup();
    all
}

/// A policy with the paths of this machine. Its hash identifies what confined a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResolvedPolicy {
    /// At its own path.
    pub(crate) workspace: PathBuf,
    /// What commands can do with the workspace. Protected files in it are read-only.
    pub(crate) access: ProjectAccess,
    /// An empty directory inside, with the readable parts of the real one.
    pub(crate) home: Option<PathBuf>,
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    /// Protected paths that commands can write nevertheless, relative to the workspace.
    pub(crate) unprotected: Vec<PathBuf>,
    /// Hash of the network policy, if there is a network.
    pub(crate) network: Option<String>,
    pub(crate) limits: Limits,
}

impl ResolvedPolicy {
    /// Restricts access to the workspace. Without the right to change it, commands change nothing
    /// else either, except their temporary files.
    pub(crate) fn restrict(&mut self, access: ProjectAccess) {
        self.access = access;
        if access != ProjectAccess::Workspace {
            self.read.append(&mut self.write);
            self.read.sort();
        }
    }

    pub(crate) fn hash(&self) -> Hash {
        Hash::digest(serde_json::to_vec(self).unwrap_or_default())
    }
}

/// Limits in bytes and numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) processes: u64,
    pub(crate) memory: u64,
    pub(crate) file_size: u64,
    pub(crate) open_files: u64,
    pub(crate) cpu_percent: Option<u64>,
}
