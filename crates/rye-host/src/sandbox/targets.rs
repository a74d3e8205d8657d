//! Containers and other machines, as the policy file names them.

use std::path::{Path, PathBuf};

use rye_engine::protocol::SandboxId;
use rye_engine::sandbox::{Sandbox as _, SandboxError};
use rye_items::vault::Vault;
use rye_sandbox::{
    ConfinementPolicy, DockerConfig, DockerOptions, HttpsTarget, RemoteConfig, RemoteSandbox,
    Secret, SshTarget,
};

use serde::Serialize;

use super::SANDBOX_FILE;
use crate::models::vault_secret;

const IMAGE: &str = "debian:12";
const NETWORK: &str = "none";
const MEMORY_MIB: u64 = 4096;
const PROCESSES: u64 = 4096;
const OPEN_FILES: u64 = 16 * 1024;
/// How the policy file names a secret.
const VAULT_PREFIX: &str = "vault:";

/// The container for a workspace.
pub(crate) fn docker(
    policy: &ConfinementPolicy,
    workspace: &Path,
) -> Result<DockerOptions, SandboxError> {
    let unusable = |what: &Path, error: std::io::Error| {
        SandboxError::unavailable(format_args!("cannot use {}: {error}", what.display()))
    };
    let workspace = std::fs::canonicalize(workspace).map_err(|error| unusable(workspace, error))?;
    let program = std::env::current_exe().map_err(|error| unusable(Path::new("rye"), error))?;
    let (config, limits) = (&policy.docker, &policy.limits);
    let open_files = limits.open_files.unwrap_or(OPEN_FILES);
    Ok(DockerOptions {
        socket: docker_socket(policy)?,
        image: config.image.clone().unwrap_or_else(|| IMAGE.to_owned()),
        network: config.network.clone().unwrap_or_else(|| NETWORK.to_owned()),
        memory_mib: limits.memory_mib.unwrap_or(MEMORY_MIB),
        processes: limits.processes.unwrap_or(PROCESSES),
        open_files: open_files.min(max_open_files()),
        policy: policy.clone(),
        workspace,
        program,
    })
}

/// The engine may not be allowed to raise this limit.
fn max_open_files() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.maximum.unwrap_or(OPEN_FILES)
}

fn docker_socket(policy: &ConfinementPolicy) -> Result<PathBuf, SandboxError> {
    if let Some(socket) = &policy.docker.socket {
        return Ok(socket.clone());
    }
    let mut sockets = DockerOptions::sockets().into_iter();
    let found = sockets.find(|socket| socket.exists());
    found.ok_or_else(|| SandboxError::Unavailable {
        reason: "there is no socket of Docker or Podman".to_owned(),
        hint: Some("systemctl --user start podman.socket".to_owned()),
    })
}

/// Connects to the machine of the policy file.
pub(crate) async fn remote(
    config: Option<&RemoteConfig>,
    vault: Option<&Vault>,
    id: &SandboxId,
) -> Result<RemoteSandbox, SandboxError> {
    let invalid = |reason: &str| SandboxError::Unavailable {
        reason: format!("{SANDBOX_FILE}: {reason}"),
        hint: Some("rye help sandbox".to_owned()),
    };
    let Some(config) = config else {
        return Err(invalid("`remote` is missing"));
    };
    match (&config.ssh, &config.url) {
        (Some(host), None) => {
            let workspace = config.workspace.clone();
            let workspace = workspace.filter(|it| it.starts_with('/'));
            let target = SshTarget {
                host: host.clone(),
                workspace: workspace
                    .ok_or_else(|| invalid("`remote.workspace` must be an absolute path"))?,
                command: config.command.clone().unwrap_or_else(|| "rye".to_owned()),
                sandbox: config.sandbox.unwrap_or_default(),
                config: config.ssh_config.clone(),
                ssh: PathBuf::from("ssh"),
            };
            RemoteSandbox::ssh(target, id).await
        }
        (None, Some(url)) => {
            let name = config.token.as_deref();
            let name = name.and_then(|token| token.strip_prefix(VAULT_PREFIX));
            let name = name.ok_or_else(|| invalid("`remote.token` must be `vault:NAME`"))?;
            let missing = |reason: String| SandboxError::Unavailable {
                reason,
                hint: Some(format!("rye vault set {name}")),
            };
            let secret = vault_secret(vault, name).map_err(missing)?;
            let secret =
                secret.ok_or_else(|| missing(format!("the vault has no secret {name}")))?;
            let secret = Secret::new(&secret).ok_or_else(|| {
                missing(format!("the secret {name} has fewer than 32 characters"))
            })?;
            let target = HttpsTarget::new(url, secret, config.ca.clone())?;
            RemoteSandbox::https(target, id).await
        }
        _ => Err(invalid("`remote` needs either `ssh` or `url`")),
    }
}

/// Whether a place outside of this program can be used.
#[derive(Debug, Clone, Serialize)]
pub struct TargetCheck {
    /// The kind of sandbox.
    pub kind: &'static str,
    /// What was found, or why it cannot be used.
    pub detail: String,
    /// Whether it can be used.
    pub works: bool,
    /// A command that may help.
    pub fix: Option<String>,
}

impl TargetCheck {
    fn new(kind: &'static str, found: Result<String, SandboxError>) -> Self {
        let works = found.is_ok();
        let (detail, fix) = match found {
            Ok(detail) => (detail, None),
            Err(SandboxError::Unavailable { reason, hint }) => (reason, hint),
            Err(error) => (error.to_string(), None),
        };
        Self {
            kind,
            detail,
            works,
            fix,
        }
    }
}

/// Checks the engine of containers, if there is one, and the other machine, if one is configured.
pub async fn check_targets(policy: &ConfinementPolicy, vault: Option<&Vault>) -> Vec<TargetCheck> {
    let mut checks = Vec::new();
    if policy.docker != DockerConfig::default() || docker_socket(policy).is_ok() {
        let found = match docker(policy, Path::new("/")) {
            Ok(options) => options.version().await,
            Err(error) => Err(error),
        };
        checks.push(TargetCheck::new("docker", found));
    }
    if policy.remote.is_some() {
        let opened = remote(policy.remote.as_ref(), vault, &SandboxId::new()).await;
        let found = opened.map(|sandbox| {
            let confined = if sandbox.confinement().confines_commands() {
                "commands are confined"
            } else {
                "commands are not confined"
            };
            let location = sandbox.location().unwrap_or_default();
            format!("{}: {confined}", lillux::sanitize_line(&location))
        });
        checks.push(TargetCheck::new("remote", found));
    }
    checks
}
