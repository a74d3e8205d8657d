//! Model providers: Anthropic, `OpenAI`, `OpenAI`-compatible servers, Gemini, and
//! scripts.
//!
//! A [`Catalogue`] looks models up by name. Models configured in `models.yaml`
//! ([`Config`]) are named `provider/model`. Each [`Api`] has a module with pure
//! functions that build requests and decode responses; [`HttpModel`] connects them to
//! the network. A [`Script`] of answers, played by [`ScriptedModel`], tests an agent without
//! an API key.
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
mod gemini;
mod http;
mod keys;
mod placeholder;
mod price;
mod provider;
mod provider_error;
mod responses;
mod script;
mod scripted_model;
mod sse;
mod surrogates;
pub mod yaml_error;

pub use api::{Api, Effort, Target, Thinking};
pub use catalogue::{Catalogue, ModelSummary, Overrides};
pub use config::{Config, ConfigError, ConfigFile, ModelConfig, ProviderConfig};
pub use http::HttpModel;
pub use keys::{Environment, Keys};
pub use price::{Price, Tokens};
pub use provider::{Key, Provider};
pub use script::{Fault, Script, ScriptCall, ScriptError, ScriptedAnswer, Step};
pub use scripted_model::ScriptedModel;
