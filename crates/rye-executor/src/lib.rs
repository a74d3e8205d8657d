//! From a tool's name to a finished process.

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
pub mod template;
mod trace;

pub use envelope::{Envelope, ErrorInfo, Status};
pub use error::ExecuteError;
pub use executor::{CallAnchor, Executor, Places, Request};
pub use primitive::Listener;
pub use trace::{Step, Trace};
