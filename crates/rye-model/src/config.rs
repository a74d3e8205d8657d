//! Which models exist: `models.yaml`, merged over the spaces.

mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_engine::model::{ModelInfo, Retry};

use crate::api::{Api, Effort, Target, Thinking};
use crate::price::Price;
use text::{FileText, Input, ModelText, ProviderText};

/// What a model can read and write where nothing is said of it.
const CONTEXT_WINDOW: u64 = 32_000;
const MAX_OUTPUT: u64 = 4_096;
/// How long a provider may say nothing: some think for minutes before the first word.
const SILENCE: Duration = Duration::from_mins(5);

/// What is wrong with a `models.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", path.display(), place.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// The line and the column, from 1, where it is one place.
    pub place: Option<(u64, u64)>,
    /// What.
    pub what: String,
}

/// A file, as it was read.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// Where it is from, for whoever must put it right.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
}

/// Which models exist, and which of them may be asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// The model that answers where nobody names one.
    pub default: Option<String>,
    /// Who answers in place of one that cannot, in order.
    pub failover: Vec<String>,
    /// How often one is asked before the next.
    pub retry: Retry,
    /// Providers by name.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// Patterns of the models that may be asked, of each file that has some. All must agree.
    allow: Vec<Vec<String>>,
}

/// A provider.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderConfig {
    /// How it is spoken to.
    pub api: Api,
    /// Its address.
    pub base_url: String,
    /// The variable that has its key.
    pub api_key_env: Option<String>,
    /// The secret of the vault that is its key; else that of the variable's name.
    pub vault: Option<String>,
    /// Headers of its own.
    pub headers: Vec<(String, String)>,
    /// How long it may say nothing.
    pub silence: Duration,
    /// Its models by name.
    pub models: BTreeMap<String, ModelConfig>,
}

/// A model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// As the provider calls it, where that is another name.
    pub id: Option<String>,
    /// What is known of it.
    pub info: ModelInfo,
    /// What it costs.
    pub price: Price,
    /// How it is told how much to think, if it does.
    pub thinking: Option<Thinking>,
    /// How much.
    pub effort: Option<Effort>,
}

impl Config {
    /// Merges files, the most specific first: a provider's and a model's fields one by
    /// one, all else as a whole. Only what may be asked can no file widen: each may allow
    /// less than the others.
    pub fn merge(files: &[ConfigFile]) -> Result<Self, ConfigError> {
        let mut merged = FileText::default();
        let mut allow = Vec::new();
        for file in files.iter().rev() {
            let mut text = FileText::read(file)?;
            allow.extend(text.allow.take());
            merged.overlay(text);
        }
        let last = files.first().map(|file| file.path.as_path());
        let wrong = |what: String| ConfigError {
            path: last.unwrap_or(Path::new("models.yaml")).to_owned(),
            place: None,
            what,
        };
        let retry = merged.retry.unwrap_or_default();
        let standard = Retry::default();
        let mut providers = BTreeMap::new();
        for (name, text) in merged.providers {
            let provider = provider(&name, text).map_err(wrong)?;
            providers.insert(name, provider);
        }
        Ok(Self {
            default: merged.default,
            failover: merged.failover.unwrap_or_default(),
            retry: Retry {
                tries: retry.tries.unwrap_or(standard.tries).max(1),
                first: retry.first_ms.map_or(standard.first, Duration::from_millis),
                longest: retry
                    .longest_ms
                    .map_or(standard.longest, Duration::from_millis),
            },
            providers,
            allow,
        })
    }

    /// The models, as `provider/model`.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.providers.iter().flat_map(|(provider, about)| {
            let models = about.models.keys();
            models.map(move |model| format!("{provider}/{model}"))
        })
    }

    /// A model by its name.
    pub fn find(&self, name: &str) -> Option<(&ProviderConfig, &ModelConfig)> {
        let (provider, model) = name.split_once('/')?;
        let provider = self.providers.get(provider)?;
        Some((provider, provider.models.get(model)?))
    }

    /// Whether a model may be asked; else what may.
    pub fn allows(&self, name: &str) -> Result<(), String> {
        let refuses = |all: &&Vec<String>| !all.iter().any(|pattern| fits(pattern, name));
        match self.allow.iter().find(refuses) {
            None => Ok(()),
            Some(all) => Err(format!(
                "the model `{name}` may not be used here: models.yaml allows {}",
                all.join(", ")
            )),
        }
    }
}

impl ModelConfig {
    /// It as the one that a request is for.
    pub(crate) fn target(&self, name: &str) -> Target {
        let own = name.split_once('/').map_or(name, |(_, own)| own);
        Target {
            name: name.to_owned(),
            id: self.id.clone().unwrap_or_else(|| own.to_owned()),
            info: self.info,
            thinking: self.thinking,
            effort: self.effort,
        }
    }
}

/// Whether a name fits a pattern, in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, rest)) => name.strip_prefix(before).is_some_and(|name| {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| fits(rest, &name[at..]))
        }),
    }
}

fn provider(name: &str, text: ProviderText) -> Result<ProviderConfig, String> {
    if name.is_empty() || name.contains(['/', ':']) {
        return Err(format!("`{name}` is no name for a provider"));
    }
    let apis = Api::ALL.map(Api::as_str).join(", ");
    let api = text
        .api
        .ok_or_else(|| format!("the provider `{name}` has no `api`; there are {apis}"))?;
    let base_url = text.base_url.or_else(|| address(api));
    let base_url = base_url.ok_or_else(|| {
        format!("the provider `{name}` has no `base_url`, such as http://127.0.0.1:11434/v1")
    })?;
    if !["http://", "https://"]
        .iter()
        .any(|it| base_url.starts_with(it))
    {
        return Err(format!(
            "the `base_url` of the provider `{name}` begins with neither http:// nor https://"
        ));
    }
    let mut models = BTreeMap::new();
    for (own, text) in text.models {
        let model = model(text).map_err(|why| format!("the model `{name}/{own}`: {why}"))?;
        models.insert(own, model);
    }
    Ok(ProviderConfig {
        api,
        base_url,
        api_key_env: text.api_key_env,
        vault: text.vault,
        headers: text.headers.into_iter().collect(),
        silence: text.silence_s.map_or(SILENCE, Duration::from_secs),
        models,
    })
}

/// Where the provider of an API is, if it is the only one.
fn address(api: Api) -> Option<String> {
    let address = match api {
        Api::Anthropic => "https://api.anthropic.com/v1",
        Api::OpenAiResponses => "https://api.openai.com/v1",
        Api::Gemini => "https://generativelanguage.googleapis.com/v1beta",
        Api::OpenAiChat => return None,
    };
    Some(address.to_owned())
}

fn model(text: ModelText) -> Result<ModelConfig, String> {
    let context_window = text.context_window.unwrap_or(CONTEXT_WINDOW);
    let max_output = text
        .max_output
        .unwrap_or(MAX_OUTPUT.min(context_window / 2));
    if max_output == 0 || max_output >= context_window {
        return Err(format!(
            "`max_output` is {max_output}; it is above 0 and below `context_window`, {context_window}"
        ));
    }
    let price = text.price.unwrap_or_default();
    let prices = [
        price.input,
        price.output,
        price.cache_read,
        price.cache_write,
    ];
    if !prices
        .into_iter()
        .flatten()
        .all(|it| (0.0..1e9).contains(&it))
    {
        return Err("a price is dollars for a million tokens, from 0".to_owned());
    }
    let input = text.input.unwrap_or_else(|| vec![Input::Text]);
    Ok(ModelConfig {
        id: text.id,
        info: ModelInfo {
            context_window,
            max_output,
            images: input.contains(&Input::Image),
        },
        price: Price {
            input: price.input.unwrap_or_default(),
            output: price.output.unwrap_or_default(),
            cache_read: price.cache_read,
            cache_write: price.cache_write,
        },
        thinking: text.thinking,
        effort: text.effort,
    })
}

#[cfg(test)]
mod tests;
