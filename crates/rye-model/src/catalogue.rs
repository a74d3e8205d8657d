//! Models by name.

mod scripts;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rye_engine::model::{Model, ModelInfo, Models, Retry};

use crate::config::{Config, ModelConfig, ProviderConfig};
use crate::http::HttpModel;
use crate::keys::{self, Environment, Keys};
use crate::price::Price;
use crate::provider::{Key, Provider};
use crate::script::Script;
use scripts::{SCRIPTED, Scripts};

/// How many names are told to whoever mistook one.
const NEAREST: usize = 3;

/// Models by name: `provider/model` of a [`Config`], `scripted:PATH` for a file, and
/// scripts that were given.
///
/// A file is read each time that its model is asked for, and followed from the next
/// answer on if it has changed.
pub struct Catalogue {
    scripts: Scripts,
    config: Config,
    keys: Arc<dyn Keys>,
    default: Option<String>,
    limits: Overrides,
}

/// Limits that go before what is known of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Tokens that are read and written at once.
    pub context_window: Option<u64>,
    /// Tokens that are written at most.
    pub max_output: Option<u64>,
}

/// A model, for those who choose one.
#[derive(Debug, Clone)]
pub struct Listed {
    /// As `provider/model`.
    pub name: String,
    /// How it is spoken to.
    pub api: &'static str,
    /// What is known of it.
    pub info: ModelInfo,
    /// What it costs.
    pub price: Price,
    /// Whether it thinks.
    pub thinks: bool,
    /// Whether it can be asked, or what to do first.
    pub usable: Result<(), String>,
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
    /// One whose paths are relative to a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            scripts: Scripts::new(folder.into()),
            config: Config::default(),
            keys: Arc::new(Environment),
            default: None,
            limits: Overrides::default(),
        }
    }

    /// With the models of a configuration.
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Keys are found there; else in the environment alone.
    #[must_use]
    pub fn keys(mut self, keys: impl Keys) -> Self {
        self.keys = Arc::new(keys);
        self
    }

    /// With other limits than those that are known of the configured models.
    #[must_use]
    pub fn limits(mut self, limits: Overrides) -> Self {
        self.limits = limits;
        self
    }

    /// With a script under a name. The first one is the default unless another is named.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, script: Script) -> Self {
        let name = name.into();
        self.default.get_or_insert_with(|| name.clone());
        self.scripts.give(name, script);
        self
    }

    /// Which model answers where nobody names one.
    #[must_use]
    pub fn default_model(mut self, name: impl Into<String>) -> Self {
        self.default = Some(name.into());
        self
    }

    /// The models of the configuration, in the order of their names.
    pub fn list(&self) -> Vec<Listed> {
        let listed = self.config.names().filter_map(|name| {
            let (provider, model) = self.config.find(&name)?;
            Some(Listed {
                api: provider.api.as_str(),
                info: self.info(model),
                price: model.price,
                thinks: model.thinking.is_some(),
                usable: self.usable(&name),
                name,
            })
        });
        listed.collect()
    }

    /// Whether a model can be asked, or what to do first.
    pub fn usable(&self, name: &str) -> Result<(), String> {
        let Some((provider, _)) = self.config.find(name) else {
            return self.get(name).map(drop);
        };
        self.config.allows(name)?;
        match self.key(name, provider) {
            Key::Missing(what) => Err(what),
            Key::None | Key::Given { .. } => Ok(()),
        }
    }

    fn key(&self, name: &str, provider: &ProviderConfig) -> Key {
        let name = name.split('/').next().unwrap_or(name);
        keys::find(name, provider, &*self.keys)
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
            // A smaller window leaves room for less.
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
            silence: provider.silence,
        };
        HttpModel::new(provider, target, model.price)
    }

    /// Which names may have been meant, as the end of a message.
    fn hint(&self, name: &str) -> String {
        let known = self.scripts.names().map(str::to_owned);
        let all = known
            .chain(self.config.names())
            .chain(self.scripts.beside(name));
        let near = nearest(name, all);
        match near.as_slice() {
            [] if self.config.providers.is_empty() => String::new(),
            [] => "; `rye models list` shows those that there are".to_owned(),
            [one] => format!("; did you mean {one}?"),
            many => format!("; did you mean one of {}?", many.join(", ")),
        }
    }
}

impl Models for Catalogue {
    fn get(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        if let Some(model) = self.scripts.given(name) {
            return Ok(model);
        }
        if let Some(path) = name.strip_prefix(SCRIPTED).filter(|path| !path.is_empty()) {
            let model = self.scripts.load(path);
            return match model {
                Ok(model) => Ok(model),
                Err(why) => Err(why.words(name, || self.hint(name))),
            };
        }
        if name.is_empty() {
            return Err("no model is named, and there is no default".to_owned());
        }
        match self.config.find(name) {
            Some((provider, model)) => {
                self.config.allows(name)?;
                Ok(Arc::new(self.http(name, provider, model)))
            }
            None => Err(format!("there is no model `{name}`{}", self.hint(name))),
        }
    }

    fn default_name(&self) -> String {
        let default = self.default.as_ref().or(self.config.default.as_ref());
        default.cloned().unwrap_or_default()
    }

    fn failover(&self, name: &str) -> Vec<String> {
        let others = self.config.failover.iter().filter(|other| *other != name);
        let usable = others.filter(|other| self.usable(other).is_ok());
        usable.cloned().collect()
    }

    fn retry(&self) -> Retry {
        self.config.retry
    }
}

/// The names that are most like one, if they are like it at all, in quotes. A name may
/// lack its provider, or be a part of it.
fn nearest(name: &str, all: impl Iterator<Item = String>) -> Vec<String> {
    let own = name.strip_prefix(SCRIPTED).unwrap_or(name);
    let far = own.chars().count() / 3 + 1;
    let distance = |other: &str| {
        let last = other.split_once('/').map_or(other, |(_, last)| last);
        let like = [other, last].map(|it| strsim::osa_distance(name, it));
        let part = own.chars().count() >= 3 && other.contains(own);
        if part { 1 } else { like[0].min(like[1]) }
    };
    let mut near: Vec<_> = all
        .map(|other| (distance(&other), other))
        .filter(|(distance, _)| *distance <= far)
        .collect();
    near.sort();
    near.dedup();
    near.truncate(NEAREST);
    near.into_iter()
        .map(|(_, name)| format!("`{name}`"))
        .collect()
}
