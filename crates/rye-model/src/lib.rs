//! Models.
//!
//! For now there is one kind: a [`Script`] of answers, so that anyone can test an agent
//! without a key. [`Scripted`] gives the answers; a [`Catalogue`] finds scripts by name.
//!
//! ```
//! use rye_engine::model::Models as _;
//! use rye_model::{Catalogue, Script};
//!
//! let script: Script = "
//! steps:
//!   - tool_calls: [{ name: bash, args: { command: echo hi } }]
//!   - text: 'It said: ${last_tool_result}'
//! "
//! .parse()?;
//! let models = Catalogue::new(".").with("scripted:demo", script);
//! assert_eq!(models.default_name(), "scripted:demo");
//! assert!(models.get("scripted:dema").err().unwrap().contains("`scripted:demo`"));
//! # Ok::<(), rye_model::ScriptError>(())
//! ```

mod answer;
mod anthropic;
mod api;
mod catalogue;
mod chat;
mod convert;
mod fault;
mod fill;
mod gemini;
mod http;
mod price;
mod read;
mod responses;
mod script;
mod scripted;
mod sse;

pub use api::{Api, Effort, Target, Thinking};
pub use catalogue::Catalogue;
pub use http::{HttpModel, Key, Provider};
pub use price::{Price, Tokens};
pub use read::ScriptError;
pub use script::{Fault, Said, Script, ScriptCall, Step};
pub use scripted::Scripted;
