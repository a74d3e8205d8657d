//! Executes signed tools.
//!
//! A tool is a signed file that names a runtime. The runtime is also a signed file and names
//! another runtime or a primitive. Together they form the tool's [`chain`]. [`Executor`] finds
//! each link, reads it once, verifies it, checks that neighbouring links are compatible, checks
//! the parameters, and then lets the [`primitive`] carry out the call. A [`Request`] describes
//! the call, an [`ExecutionResult`] its result.
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
//!     .with_parameters(serde_json::json!({ "command": "echo hello" }));
//! let result = executor.execute(request).await;
//! assert_eq!(result.data["stdout"], "hello\n");
//! # Ok(())
//! # }
//! ```

pub mod anchor;
pub mod chain;
pub mod config;
pub mod confinement;
pub mod dotenv;
pub mod environment;
mod error;
mod execution_result;
mod executor;
pub mod interpreter;
pub mod parameters;
pub mod primitive;
pub mod redact;
pub mod template;
mod trace;
mod value_ext;

pub use error::ExecuteError;
pub use execution_result::{ErrorInfo, ExecutionResult, Status};
pub use executor::{
    Approval, ApprovalReason, CallAnchor, Executor, Request, Roots, SensitiveWrite, ToolInfo,
    UnknownName, check_before_signing, dependency_scopes, find_api_key_names,
};
pub use primitive::{OutputListener, RunContext};
pub use trace::{Trace, TraceDependencies, TraceLink, TraceStep, TraceStepKind, TraceVariable};
