//! `models.yaml`, merged over the spaces.

mod raw;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_engine::model::{ModelInfo, RetryPolicy};
use rye_protocol::policy::matches_pattern;

use crate::api::{Api, Effort, Target, Thinking};
use crate::price::Price;
use raw::{Input, RawConfig, RawModel, RawProvider};

/// Defaults for models without limits.
const DEFAULT_CONTEXT_WINDOW: u64 = 32_000;
const DEFAULT_MAX_OUTPUT: u64 = 4_096;
/// Default timeout without data: some models reason for minutes before the first token.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// An invalid `models.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {message}", path.display(), position.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default())]
pub struct ConfigError {
    /// Path of the file.
    pub path: PathBuf,
    /// Line and column, from 1, if known.
    pub position: Option<(u64, u64)>,
    /// Description of the problem.
    pub message: String,
}

/// The text of a configuration file.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// The path, for error messages.
    pub path: PathBuf,
    /// Content of the file.
    pub text: String,
}

/// The merged configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// The default model.
    pub default: Option<String>,
    /// Models to fail over to, in order.
    pub failover: Vec<String>,
    /// How often a model is retried before failover.
    pub retry: RetryPolicy,
    /// Providers by name.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// The `allow` patterns of each file that has some. A model must match all lists.
    allow: Vec<Vec<String>>,
}

/// Configuration of a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderConfig {
    /// Protocol of the provider.
    pub api: Api,
    /// The base URL.
    pub base_url: String,
    /// The environment variable with the API key.
    pub api_key_env: Option<String>,
    /// The vault secret with the API key; defaults to the variable's name.
    pub vault: Option<String>,
    /// Additional headers of every request.
    pub headers: Vec<(String, String)>,
    /// Timeout without data.
    pub idle_timeout: Duration,
    /// Models by name.
    pub models: BTreeMap<String, ModelConfig>,
}

/// Configuration of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Name at the provider, if it differs.
    pub id: Option<String>,
    /// Context window, output limit and capabilities.
    pub info: ModelInfo,
    /// Price per token.
    pub price: Price,
    /// How reasoning is requested, if the model supports it.
    pub thinking: Option<Thinking>,
    /// Amount of reasoning.
    pub effort: Option<Effort>,
}

impl Config {
    /// Merges files, most specific first. Providers and models are merged field by
    /// field, other keys are replaced. `allow` lists can only restrict further.
    pub fn merge(files: &[ConfigFile]) -> Result<Self, ConfigError> {
        let (mut all, mut allow) = (Vec::new(), Vec::new());
        for file in files.iter().rev() {
            let mut raw = RawConfig::parse(file)?;
            allow.extend(raw.allow.take());
            all.push(raw);
        }
        let last = files.first().map(|file| file.path.as_path());
        let invalid = |message: String| ConfigError {
            path: last.unwrap_or(Path::new("models.yaml")).to_owned(),
            position: None,
            message,
        };
        let merged = RawConfig::merge(all).map_err(|error| invalid(error.to_string()))?;
        let retry = merged.retry.unwrap_or_default();
        let default = RetryPolicy::default();
        let mut providers = BTreeMap::new();
        for (name, text) in merged.providers {
            let provider = provider(&name, text).map_err(invalid)?;
            providers.insert(name, provider);
        }
        Ok(Self {
            default: merged.default,
            failover: merged.failover.unwrap_or_default(),
            retry: RetryPolicy {
                max_attempts: retry.max_attempts.unwrap_or(default.max_attempts).max(1),
                initial_delay: retry
                    .initial_delay_ms
                    .map_or(default.initial_delay, Duration::from_millis),
                max_delay: retry
                    .max_delay_ms
                    .map_or(default.max_delay, Duration::from_millis),
            },
            providers,
            allow,
        })
    }

    /// The names of all models: `provider/model`.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.providers.iter().flat_map(|(provider, config)| {
            let models = config.models.keys();
            models.map(move |model| format!("{provider}/{model}"))
        })
    }

    /// Looks a model up by name.
    pub fn find(&self, name: &str) -> Option<(&ProviderConfig, &ModelConfig)> {
        let (provider, model) = name.split_once('/')?;
        let provider = self.providers.get(provider)?;
        Some((provider, provider.models.get(model)?))
    }

    /// Checks the `allow` lists. The error names the list that excludes the model.
    pub fn allows(&self, name: &str) -> Result<(), String> {
        let excludes =
            |all: &&Vec<String>| !all.iter().any(|pattern| matches_pattern(pattern, name));
        match self.allow.iter().find(excludes) {
            None => Ok(()),
            Some(all) => Err(format!(
                "model `{name}` is not allowed: models.yaml allows {}",
                all.join(", ")
            )),
        }
    }
}

impl ModelConfig {
    /// The request target for this model.
    pub(crate) fn target(&self, name: &str) -> Target {
        let model_name = name
            .split_once('/')
            .map_or(name, |(_, model_name)| model_name);
        Target {
            name: name.to_owned(),
            id: self.id.clone().unwrap_or_else(|| model_name.to_owned()),
            info: self.info,
            thinking: self.thinking,
            effort: self.effort,
        }
    }
}

fn provider(name: &str, text: RawProvider) -> Result<ProviderConfig, String> {
    if name.is_empty() || name.contains(['/', ':']) {
        return Err(format!(
            "invalid provider name `{name}`: must not be empty or contain `/` or `:`"
        ));
    }
    let apis = Api::ALL.map(Api::as_str).join(", ");
    let api = text
        .api
        .ok_or_else(|| format!("provider `{name}`: missing `api`; one of {apis}"))?;
    let base_url = text.base_url.or_else(|| default_base_url(api));
    let base_url = base_url.ok_or_else(|| {
        format!("provider `{name}`: missing `base_url`, such as http://127.0.0.1:11434/v1")
    })?;
    if !["http://", "https://"]
        .iter()
        .any(|value| base_url.starts_with(value))
    {
        return Err(format!(
            "provider `{name}`: `base_url` must start with http:// or https://"
        ));
    }
    let mut models = BTreeMap::new();
    for (model_name, text) in text.models {
        let model = model(text).map_err(|why| format!("model `{name}/{model_name}`: {why}"))?;
        models.insert(model_name, model);
    }
    Ok(ProviderConfig {
        api,
        base_url,
        api_key_env: text.api_key_env,
        vault: text.vault,
        headers: text.headers.into_iter().collect(),
        idle_timeout: text
            .idle_timeout_s
            .map_or(DEFAULT_IDLE_TIMEOUT, Duration::from_secs),
        models,
    })
}

/// The base URL of an API with a single public provider.
fn default_base_url(api: Api) -> Option<String> {
    let url = match api {
        Api::Anthropic => "https://api.anthropic.com/v1",
        Api::OpenAiResponses => "https://api.openai.com/v1",
        Api::Gemini => "https://generativelanguage.googleapis.com/v1beta",
        Api::OpenAiChat => return None,
    };
    Some(url.to_owned())
}

fn model(text: RawModel) -> Result<ModelConfig, String> {
    let context_window = text.context_window.unwrap_or(DEFAULT_CONTEXT_WINDOW);
    let max_output = text
        .max_output
        .unwrap_or(DEFAULT_MAX_OUTPUT.min(context_window / 2));
    if max_output == 0 || max_output >= context_window {
        return Err(format!(
            "`max_output` is {max_output}, but must be above 0 and below `context_window` ({context_window})"
        ));
    }
    let price = text.price.unwrap_or_default();
    let input = text.input.unwrap_or_else(|| vec![Input::Text]);
    Ok(ModelConfig {
        id: text.id,
        info: ModelInfo {
            context_window,
            max_output,
            images: input.contains(&Input::Image),
        },
        price: Price {
            input: price.input.unwrap_or_default().0,
            output: price.output.unwrap_or_default().0,
            cache_read: price.cache_read.map(|dollars| dollars.0),
            cache_write: price.cache_write.map(|dollars| dollars.0),
        },
        thinking: text.thinking,
        effort: text.effort,
    })
}

#[cfg(test)]
mod tests;
