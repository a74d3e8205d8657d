//! Models: Anthropic, `OpenAI`, servers that speak as `OpenAI` does, Gemini, and scripts.
//!
//! A [`Catalogue`] finds them by name. Those of a [`Config`], which is `models.yaml` merged
//! over the spaces, are `provider/model`; what such a model is asked and how its answer is
//! read is in a module for each [`Api`], both as pure functions, and [`HttpModel`] is what
//! stands between them and the network. A [`Script`] of answers is there so that anyone can
//! test an agent without a key; [`Scripted`] gives them.
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
mod config;
mod convert;
mod fault;
mod fill;
mod gemini;
mod halves;
mod http;
mod keys;
mod price;
mod provider;
mod read;
mod responses;
mod script;
mod scripted;
mod sse;

pub use api::{Api, Effort, Target, Thinking};
pub use catalogue::{Catalogue, Listed, Overrides};
pub use config::{Config, ConfigError, ConfigFile, ModelConfig, ProviderConfig};
pub use http::HttpModel;
pub use keys::{Environment, Keys};
pub use price::{Price, Tokens};
pub use provider::{Key, Provider};
pub use read::ScriptError;
pub use script::{Fault, Said, Script, ScriptCall, Step};
pub use scripted::Scripted;
