//! From a tool's name to a finished process.
//!
//! A tool is a signed file. It names a runtime, which is a signed file too and
//! names another or a primitive: that is its [`chain`]. Every link is found, read
//! once and verified; neighbours are validated; parameters are checked; and only
//! then the [`primitive`] carries out the call. Each step is a module of pure
//! functions, and [`Executor`] puts them together.
//!
//! ```
//! use std::sync::Arc;
//! use lillux::process::Supervisor;
//! use rye_executor::{Executor, Roots, Request};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (project, cache) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! let supervisor = Supervisor::start()?; // forks: first thing in `main`
//! let executor = Executor::new(Roots::new(project.path(), cache.path()), Arc::new(supervisor));
//! let request = Request::new("rye/core/runtimes/bash/bash".parse()?)
//!     .parameters(serde_json::json!({ "command": "echo hello" }));
//! let envelope = executor.execute(request).await;
//! assert_eq!(envelope.data["stdout"], "hello\n");
//! # Ok(())
//! # }
//! ```

pub mod anchor;
pub mod chain;
pub mod config;
pub mod dotenv;
mod envelope;
pub mod environment;
mod error;
mod executor;
pub mod interpreter;
pub mod parameters;
pub mod primitive;
pub mod redact;
mod shape;
pub mod template;
mod trace;

pub use envelope::{Envelope, ErrorInfo, Status};
pub use error::ExecuteError;
pub use executor::{
    Approval, ApprovalReason, CallAnchor, Executor, Request, Roots, SensitiveWrite, ToolInfo,
    check_before_signing, dependency_scopes,
};
pub use primitive::{OutputListener, RunContext};
pub use trace::{Trace, TraceStep};
