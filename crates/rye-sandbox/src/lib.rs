//! Sandboxes: where an agent's tools read, write and run commands.
//!
//! [`VirtualSandbox`] keeps files in memory and interprets a small shell that starts no
//! processes, so it is safe and behaves the same on every machine. [`ConfinedSandbox`] works in a
//! directory of this machine, and the kernel confines its commands to it. [`LocalSandbox`] works
//! there too and **does not isolate anything**: commands run with all permissions of the user.
//! [`RemoteSandbox`] is one of these on another machine or in a [container](DockerOptions), where a
//! [`SandboxServer`] serves it.
//!
//! ```
//! use rye_engine::sandbox::{Exec, Sandbox as _, ExecObserver};
//! use rye_sandbox::VirtualSandbox;
//!
//! struct Discard;
//! impl ExecObserver for Discard {
//!     fn on_start(&self, _: &str) {}
//!     fn on_output(&self, _: &str) {}
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), rye_engine::sandbox::SandboxError> {
//! let sandbox = VirtualSandbox::new();
//! sandbox.write("notes/a.txt", b"one\ntwo\n").await?;
//! let command = "cat notes/*.txt | grep -c o && echo done".to_owned();
//! let exec = Exec { command, ..Exec::default() };
//! let executed = sandbox.exec(exec, &Discard).await?;
//! assert_eq!(executed.stdout, "2\ndone\n");
//! # Ok(())
//! # }
//! ```

mod config;
mod confined;
mod docker;
mod egress;
mod files;
mod head_tail_buffer;
mod local;
mod memory;
mod path;
mod rpc;
mod shell;

pub use config::{DockerConfig, RemoteConfig, ServedKind};
pub use confined::{
    AttachedOutput, Availability, ConfinedError, ConfinedSandbox, ConfinementPolicy, Launcher,
    PROTECTED_NAMES, PreparedCommand, ResourceLimits, ReviewError, Tier, launch, remove_review,
};
pub use docker::DockerOptions;
pub use egress::{
    EgressClient, HostRule, Injection, InvalidHost, NetworkPolicy, Resolver, SecretSource,
    SystemResolver, is_public,
};
pub use files::Limits;
pub use local::LocalSandbox;
pub use memory::VirtualSandbox;
pub use rpc::{
    HttpsTarget, RemoteSandbox, SandboxServer, Secret, ServeError, ServeOptions, SshTarget,
    tls_acceptor,
};
