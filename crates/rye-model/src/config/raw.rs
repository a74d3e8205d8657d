//! The raw structure of `models.yaml`, and merging of files.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{ConfigError, ConfigFile};
use crate::api::{Api, Effort, Thinking};
use crate::yaml_error;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawConfig {
    pub(super) default: Option<String>,
    pub(super) failover: Option<Vec<String>>,
    pub(super) allow: Option<Vec<String>>,
    pub(super) retry: Option<RawRetry>,
    pub(super) providers: BTreeMap<String, RawProvider>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRetry {
    pub(super) max_attempts: Option<u32>,
    pub(super) initial_delay_ms: Option<u64>,
    pub(super) max_delay_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawProvider {
    pub(super) api: Option<Api>,
    pub(super) base_url: Option<String>,
    pub(super) api_key_env: Option<String>,
    /// Read by the executor: further variables that tools do not inherit.
    pub(super) withhold_env: Vec<String>,
    pub(super) vault: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) idle_timeout_s: Option<u64>,
    pub(super) models: BTreeMap<String, RawModel>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawModel {
    pub(super) id: Option<String>,
    pub(super) context_window: Option<u64>,
    pub(super) max_output: Option<u64>,
    pub(super) input: Option<Vec<Input>>,
    pub(super) price: Option<RawPrice>,
    pub(super) thinking: Option<Thinking>,
    pub(super) effort: Option<Effort>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPrice {
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

impl RawConfig {
    pub(super) fn parse(file: &ConfigFile) -> Result<Self, ConfigError> {
        let has_content = |line: &str| !line.trim().is_empty() && !line.starts_with('#');
        if !file.text.lines().any(has_content) {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(&file.text).map_err(|error| ConfigError {
            path: file.path.clone(),
            position: yaml_error::position(&error),
            message: yaml_error::message(&error),
        })
    }

    pub(super) fn overlay(&mut self, over: Self) {
        overlay(&mut self.default, over.default);
        overlay(&mut self.failover, over.failover);
        if let Some(over) = over.retry {
            let retry = self.retry.get_or_insert_default();
            overlay(&mut retry.max_attempts, over.max_attempts);
            overlay(&mut retry.initial_delay_ms, over.initial_delay_ms);
            overlay(&mut retry.max_delay_ms, over.max_delay_ms);
        }
        for (name, over) in over.providers {
            self.providers.entry(name).or_default().overlay(over);
        }
    }
}

impl RawProvider {
    fn overlay(&mut self, over: Self) {
        overlay(&mut self.api, over.api);
        overlay(&mut self.base_url, over.base_url);
        overlay(&mut self.api_key_env, over.api_key_env);
        self.withhold_env.extend(over.withhold_env);
        overlay(&mut self.vault, over.vault);
        overlay(&mut self.idle_timeout_s, over.idle_timeout_s);
        self.headers.extend(over.headers);
        for (name, over) in over.models {
            self.models.entry(name).or_default().overlay(over);
        }
    }
}

impl RawModel {
    fn overlay(&mut self, over: Self) {
        overlay(&mut self.id, over.id);
        overlay(&mut self.context_window, over.context_window);
        overlay(&mut self.max_output, over.max_output);
        overlay(&mut self.input, over.input);
        overlay(&mut self.thinking, over.thinking);
        overlay(&mut self.effort, over.effort);
        if let Some(over) = over.price {
            let price = self.price.get_or_insert_default();
            overlay(&mut price.input, over.input);
            overlay(&mut price.output, over.output);
            overlay(&mut price.cache_read, over.cache_read);
            overlay(&mut price.cache_write, over.cache_write);
        }
    }
}

fn overlay<T>(base: &mut Option<T>, over: Option<T>) {
    if over.is_some() {
        *base = over;
    }
}
