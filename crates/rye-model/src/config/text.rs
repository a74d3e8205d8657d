//! `models.yaml` as it is written, and one over another.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{ConfigError, ConfigFile};
use crate::api::{Api, Effort, Thinking};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FileText {
    pub(super) default: Option<String>,
    pub(super) failover: Option<Vec<String>>,
    pub(super) allow: Option<Vec<String>>,
    pub(super) retry: Option<RetryText>,
    pub(super) providers: BTreeMap<String, ProviderText>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RetryText {
    pub(super) tries: Option<u32>,
    pub(super) first_ms: Option<u64>,
    pub(super) longest_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProviderText {
    pub(super) api: Option<Api>,
    pub(super) base_url: Option<String>,
    pub(super) api_key_env: Option<String>,
    pub(super) vault: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) silence_s: Option<u64>,
    pub(super) models: BTreeMap<String, ModelText>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ModelText {
    pub(super) id: Option<String>,
    pub(super) context_window: Option<u64>,
    pub(super) max_output: Option<u64>,
    pub(super) input: Option<Vec<Input>>,
    pub(super) price: Option<PriceText>,
    pub(super) thinking: Option<Thinking>,
    pub(super) effort: Option<Effort>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PriceText {
    pub(super) input: Option<f64>,
    pub(super) output: Option<f64>,
    pub(super) cache_read: Option<f64>,
    pub(super) cache_write: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Input {
    Text,
    Image,
}

impl FileText {
    pub(super) fn read(file: &ConfigFile) -> Result<Self, ConfigError> {
        let says_something = |line: &str| !line.trim().is_empty() && !line.starts_with('#');
        if !file.text.lines().any(says_something) {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(&file.text).map_err(|error| {
            let place = error.location();
            let words = error.without_snippet().to_string();
            // It ends in the place, which is told apart.
            let words = words.split(" at line ").next().unwrap_or(&words);
            ConfigError {
                path: file.path.clone(),
                place: place.map(|it| (it.line().max(1), it.column().max(1))),
                what: words.to_owned(),
            }
        })
    }

    pub(super) fn overlay(&mut self, over: Self) {
        put(&mut self.default, over.default);
        put(&mut self.failover, over.failover);
        if let Some(over) = over.retry {
            let retry = self.retry.get_or_insert_default();
            put(&mut retry.tries, over.tries);
            put(&mut retry.first_ms, over.first_ms);
            put(&mut retry.longest_ms, over.longest_ms);
        }
        for (name, over) in over.providers {
            self.providers.entry(name).or_default().overlay(over);
        }
    }
}

impl ProviderText {
    fn overlay(&mut self, over: Self) {
        put(&mut self.api, over.api);
        put(&mut self.base_url, over.base_url);
        put(&mut self.api_key_env, over.api_key_env);
        put(&mut self.vault, over.vault);
        put(&mut self.silence_s, over.silence_s);
        self.headers.extend(over.headers);
        for (name, over) in over.models {
            self.models.entry(name).or_default().overlay(over);
        }
    }
}

impl ModelText {
    fn overlay(&mut self, over: Self) {
        put(&mut self.id, over.id);
        put(&mut self.context_window, over.context_window);
        put(&mut self.max_output, over.max_output);
        put(&mut self.input, over.input);
        put(&mut self.thinking, over.thinking);
        put(&mut self.effort, over.effort);
        if let Some(over) = over.price {
            let price = self.price.get_or_insert_default();
            put(&mut price.input, over.input);
            put(&mut price.output, over.output);
            put(&mut price.cache_read, over.cache_read);
            put(&mut price.cache_write, over.cache_write);
        }
    }
}

fn put<T>(base: &mut Option<T>, over: Option<T>) {
    if over.is_some() {
        *base = over;
    }
}
