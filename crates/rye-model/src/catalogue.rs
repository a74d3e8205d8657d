//! Looks up models by name.

mod scripts;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rye_engine::model::{Model, ModelFamily, ModelInfo, Models, RetryPolicy};
use tokio::task::JoinSet;

use crate::api::Api;
use crate::config::{Config, ModelConfig, ProviderConfig};
use crate::http::HttpModel;
use crate::keys::{self, Environment, Keys};
use crate::price::Price;
use crate::provider::{Key, Provider};
use crate::script::Script;
use scripts::{SCRIPTED, Scripts};

/// Number of suggestions for an unknown name.
const MAX_SUGGESTIONS: usize = 3;

/// Models by name: `provider/model` from a [`Config`], `scripted:PATH` for a script
/// file, and registered scripts.
///
/// A script file is read on every lookup, so changes take effect with the next answer.
pub struct Catalogue {
    scripts: Scripts,
    config: Config,
    keys: Arc<dyn Keys>,
    default: Option<String>,
    limits: Overrides,
}

/// Limits that override the configured ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Context window in tokens.
    pub context_window: Option<u64>,
    /// Maximum output in tokens.
    pub max_output: Option<u64>,
}

/// A configured model, for listings.
#[derive(Debug, Clone)]
pub struct ModelSummary {
    /// Name in the form `provider/model`.
    pub name: String,
    /// Name of the provider's API.
    pub api: &'static str,
    /// Context window, output limit and capabilities.
    pub info: ModelInfo,
    /// Price per token.
    pub price: Price,
    /// Whether it supports reasoning.
    pub supports_thinking: bool,
    /// Whether it can be used; if not, what to do.
    pub usable: Result<(), String>,
    /// Name of the secret with the API key, if it is not set.
    pub missing_key: Option<String>,
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.config.names();
        f.debug_list()
            .entries(self.scripts.names())
            .entries(names)
            .finish()
    }
}

impl Catalogue {
    /// Creates a catalogue that resolves script paths relative to a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            scripts: Scripts::new(dir.into()),
            config: Config::default(),
            keys: Arc::new(Environment),
            default: None,
            limits: Overrides::default(),
        }
    }

    /// Adds the models of a configuration.
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets the source of API keys. Defaults to the environment.
    #[must_use]
    pub fn keys(mut self, keys: impl Keys) -> Self {
        self.keys = Arc::new(keys);
        self
    }

    /// Overrides the limits of the configured models.
    #[must_use]
    pub fn limits(mut self, limits: Overrides) -> Self {
        self.limits = limits;
        self
    }

    /// Registers a script. The first one becomes the default model, unless one is set.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, script: Script) -> Self {
        let name = name.into();
        self.default.get_or_insert_with(|| name.clone());
        self.scripts.register(name, script);
        self
    }

    /// Sets the default model.
    #[must_use]
    pub fn default_model(mut self, name: impl Into<String>) -> Self {
        self.default = Some(name.into());
        self
    }

    /// The configured models, sorted by name. Sends nothing.
    pub fn list(&self) -> Vec<ModelSummary> {
        let summaries = self.config.names().filter_map(|name| {
            let (provider, model) = self.config.find(&name)?;
            Some(ModelSummary {
                api: provider.api.as_str(),
                info: self.info(model),
                price: model.price,
                supports_thinking: model.thinking.is_some(),
                usable: self.usable(&name),
                missing_key: match self.key(&name, provider) {
                    Key::Missing { secret, .. } => Some(secret),
                    _ => None,
                },
                name,
            })
        });
        summaries.collect()
    }

    /// The configured models, sorted by name. A model whose provider needs no key is usable only
    /// if the provider answers a request; providers are asked in parallel, with a timeout of half a
    /// second.
    pub async fn list_reachable(&self) -> Vec<ModelSummary> {
        let mut models = self.list();
        let mut probes = JoinSet::new();
        let mut unreachable = HashMap::new();
        for model in &models {
            let provider_name = provider_name(&model.name);
            if model.usable.is_err() || unreachable.contains_key(provider_name) {
                continue;
            }
            let Some((provider, config)) = self.config.find(&model.name) else {
                continue;
            };
            if matches!(self.key(&model.name, provider), Key::None) {
                let http = self.http(&model.name, provider, config);
                let provider_name = provider_name.to_owned();
                unreachable.insert(provider_name.clone(), None);
                probes.spawn(async move { (provider_name, http.reach().await.err()) });
            }
        }
        while let Some(probed) = probes.join_next().await {
            if let Ok((provider_name, why)) = probed {
                unreachable.insert(provider_name, why);
            }
        }
        for model in &mut models {
            if let Some(Some(why)) = unreachable.get(provider_name(&model.name))
                && model.usable.is_ok()
            {
                model.usable = Err(why.clone());
            }
        }
        models
    }

    /// Whether a model can be used; if not, what to do.
    pub fn usable(&self, name: &str) -> Result<(), String> {
        let Some((provider, _)) = self.config.find(name) else {
            return self.get(name).map(drop);
        };
        self.config.allows(name)?;
        match self.key(name, provider) {
            Key::Missing { hint, .. } => Err(hint),
            Key::Unreadable(message) => Err(message),
            Key::None | Key::Given { .. } => Ok(()),
        }
    }

    fn key(&self, name: &str, provider: &ProviderConfig) -> Key {
        keys::find(provider_name(name), provider, &*self.keys)
    }

    fn info(&self, model: &ModelConfig) -> ModelInfo {
        let Overrides {
            context_window,
            max_output,
        } = self.limits;
        let context_window = context_window.unwrap_or(model.info.context_window);
        let max_output = max_output.unwrap_or(model.info.max_output);
        ModelInfo {
            context_window,
            // A smaller window also limits the output.
            max_output: max_output.min((context_window / 2).max(1)),
            ..model.info
        }
    }

    fn http(&self, name: &str, provider: &ProviderConfig, model: &ModelConfig) -> HttpModel {
        let mut target = model.target(name);
        target.info = self.info(model);
        let provider = Provider {
            api: provider.api,
            base_url: provider.base_url.clone(),
            key: self.key(name, provider),
            headers: provider.headers.clone(),
            idle_timeout: provider.idle_timeout,
        };
        HttpModel::new(provider, target, model.price)
    }

    /// Suggestions for an unknown name, as the end of an error message.
    fn hint(&self, name: &str) -> String {
        let known = self.scripts.names().map(str::to_owned);
        let all = known
            .chain(self.config.names())
            .chain(self.scripts.siblings(name));
        let similar = suggest(name, all);
        match similar.as_slice() {
            [] if self.config.providers.is_empty() => String::new(),
            [] => "; run `rye models list` to see all models".to_owned(),
            [one] => format!("; did you mean {one}?"),
            many => format!("; did you mean one of {}?", many.join(", ")),
        }
    }
}

impl Models for Catalogue {
    fn get(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        if let Some(model) = self.scripts.registered(name) {
            return Ok(model);
        }
        if let Some(path) = name.strip_prefix(SCRIPTED).filter(|path| !path.is_empty()) {
            let model = self.scripts.load(path);
            return match model {
                Ok(model) => Ok(model),
                Err(why) => Err(why.message(name, || self.hint(name))),
            };
        }
        if name.is_empty() {
            return Err("no model is selected, and there is no default".to_owned());
        }
        match self.config.find(name) {
            Some((provider, model)) => {
                self.config.allows(name)?;
                Ok(Arc::new(self.http(name, provider, model)))
            }
            None => Err(format!("unknown model `{name}`{}", self.hint(name))),
        }
    }

    fn default_name(&self) -> String {
        let default = self.default.as_ref().or(self.config.default.as_ref());
        default.cloned().unwrap_or_default()
    }

    fn family(&self, name: &str) -> ModelFamily {
        let api = self.config.find(name).map(|(provider, _)| provider.api);
        match api {
            Some(Api::Anthropic) => ModelFamily::Anthropic,
            Some(Api::OpenAiResponses) => ModelFamily::OpenAi,
            Some(Api::Gemini) => ModelFamily::Gemini,
            // Servers with the Chat Completions API have models of all families.
            Some(Api::OpenAiChat) | None => ModelFamily::Other,
        }
    }

    fn failover(&self, name: &str) -> Vec<String> {
        let others = self.config.failover.iter().filter(|other| *other != name);
        let usable = others.filter(|other| self.usable(other).is_ok());
        usable.cloned().collect()
    }

    fn retry(&self) -> RetryPolicy {
        self.config.retry
    }
}

/// The provider in the name of a model.
fn provider_name(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

/// The most similar names, in backticks. A name also matches without its provider, or
/// as a substring.
fn suggest(name: &str, all: impl Iterator<Item = String>) -> Vec<String> {
    let short_name = name.strip_prefix(SCRIPTED).unwrap_or(name);
    let max_distance = short_name.chars().count() / 3 + 1;
    let distance = |other: &str| {
        let last = other.split_once('/').map_or(other, |(_, last)| last);
        let distances = [other, last].map(|it| strsim::osa_distance(name, it));
        let is_substring = short_name.chars().count() >= 3 && other.contains(short_name);
        if is_substring {
            1
        } else {
            distances[0].min(distances[1])
        }
    };
    let mut similar: Vec<_> = all
        .map(|other| (distance(&other), other))
        .filter(|(distance, _)| *distance <= max_distance)
        .collect();
    similar.sort();
    similar.dedup();
    similar.truncate(MAX_SUGGESTIONS);
    similar
        .into_iter()
        .map(|(_, name)| format!("`{name}`"))
        .collect()
}
