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

mod catalogue;
mod fill;
mod price;
mod read;
mod script;
mod scripted;

pub use catalogue::Catalogue;
pub use price::{Price, Tokens};
pub use read::ScriptError;
pub use script::{Fault, Said, Script, ScriptCall, Step};
pub use scripted::Scripted;
