//! What both ends of the RPC send.

use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use rye_engine::protocol::SandboxKind;
use rye_engine::sandbox::{Confinement, Exec, ExecOutput, SandboxError};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Version of the protocol.
pub(super) const PROTOCOL: u32 = 1;
/// What a server prints before it speaks HTTP on its standard streams. A login shell may print
/// something before that.
pub(super) const GREETING: &[u8] = b"\nrye sandbox rpc 1\n";
/// Header with the id of the sandbox, which is the scope of a token and of running commands.
pub(super) const SCOPE_HEADER: &str = "rye-sandbox";
/// Maximum size of a request and of a response.
pub(super) const MAX_BODY: usize = 96 * 1024 * 1024;
/// Maximum captured bytes of each stream of a command.
pub(super) const MAX_OUTPUT: usize = 8 * 1024 * 1024;
/// Maximum duration without a request after which a server ends the commands of a client.
pub(super) const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum length of a secret.
const MIN_SECRET: usize = 32;

/// The secret of a server, from which the token of each sandbox is derived.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret. It must have at least 32 characters.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (text.len() >= MIN_SECRET).then(|| Self(text.to_owned()))
    }

    fn mac(&self, scope: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).ok()?;
        mac.update(b"rye sandbox token\n");
        mac.update(scope.as_bytes());
        Some(mac)
    }

    /// The token of a sandbox.
    pub(super) fn token(&self, scope: &str) -> String {
        let mac = self.mac(scope).map(|mac| mac.finalize().into_bytes());
        mac.map(|bytes| Base64::encode_string(&bytes))
            .unwrap_or_default()
    }

    /// Whether a token is the one of a sandbox. Takes the same time for all wrong tokens.
    pub(super) fn verify(&self, scope: &str, token: &str) -> bool {
        let Some((mac, token)) = self.mac(scope).zip(Base64::decode_vec(token).ok()) else {
            return false;
        };
        mac.verify_slice(&token).is_ok()
    }
}

/// What a server is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Health {
    pub(super) protocol: u32,
    /// Random id of the server process.
    pub(super) instance: String,
    /// See [`CLIENT_TIMEOUT`].
    pub(super) timeout_ms: u64,
    pub(super) kind: SandboxKind,
    pub(super) confinement: Confinement,
    /// The workspace on the server's machine.
    pub(super) workspace: Option<String>,
}

impl Health {
    pub(super) fn timeout(&self) -> Duration {
        // At least a second, so that a wrong server cannot make the client spin.
        Duration::from_millis(self.timeout_ms.clamp(1000, 600_000))
    }
}

/// Starts a command. A second request with the same id does not start it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ExecRequest {
    pub(super) id: String,
    /// The server process that may start it: another one may not know that it ran.
    pub(super) instance: String,
    pub(super) exec: Exec,
}

/// A line of a command's output stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ExecEvent {
    /// A process has started.
    Start(String),
    /// It printed something.
    Output(String),
    /// It ended; the last line.
    End(Result<ExecOutput, SandboxError>),
}

/// Reads many files.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadManyRequest {
    pub(super) paths: Vec<String>,
    pub(super) max_size: u64,
}

/// Restores or removes files in quarantine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SettleRequest {
    pub(super) paths: Vec<String>,
    pub(super) keep: bool,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub(super) enum RpcError {
    /// The sandbox reported it.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The token is missing or wrong.
    #[error("the token is not valid for this sandbox")]
    Unauthorized,
    /// The command is not known, or was ended.
    #[error("the command is unknown")]
    UnknownExec,
    /// The request is for another server process.
    #[error("the server was restarted")]
    OtherInstance,
    /// The request is invalid, or exceeds a limit.
    #[error("invalid request: {0}")]
    Invalid(String),
}

/// Encodes bytes in a JSON document.
pub(super) fn encode(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}

/// The inverse of [`encode`].
pub(super) fn decode(text: &str) -> Result<Vec<u8>, SandboxError> {
    let decoded = Base64::decode_vec(text);
    decoded.map_err(|_| SandboxError::unavailable("the remote sandbox sent invalid data"))
}
