//! Where the sandboxes that are not on this machine run, from the policy file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Containers of the `docker` sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DockerConfig {
    /// Image of the containers [default: `debian:12`].
    pub image: Option<String>,
    /// Network of the containers [default: `none`].
    pub network: Option<String>,
    /// Socket of the API [default: that of Docker or Podman, if there is one].
    pub socket: Option<PathBuf>,
}

/// The machine of the `remote` sandbox: `ssh` and `workspace`, or `url` and `token`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RemoteConfig {
    /// Destination for `ssh`.
    pub ssh: Option<String>,
    /// Directory on the machine, with `ssh`.
    pub workspace: Option<String>,
    /// The program on the machine, with `ssh` [default: `rye`].
    pub command: Option<String>,
    /// The sandbox on the machine, with `ssh` [default: `confined`].
    pub sandbox: Option<ServedKind>,
    /// Configuration file for `ssh` [default: the user's].
    pub ssh_config: Option<PathBuf>,
    /// `https://HOST:PORT` of a server.
    pub url: Option<String>,
    /// The secret of the server, as `vault:NAME`.
    pub token: Option<String>,
    /// PEM file with the only accepted authorities of the server's certificate.
    pub ca: Option<PathBuf>,
}

/// A kind of sandbox that can be served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServedKind {
    /// The kernel confines commands to the workspace.
    #[default]
    Confined,
    /// Commands are not confined.
    Local,
}

impl ServedKind {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Confined => "confined",
            Self::Local => "local",
        }
    }
}
