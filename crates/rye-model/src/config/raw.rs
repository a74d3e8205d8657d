//! The raw structure of `models.yaml`, and merging of files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ConfigError, ConfigFile};
use crate::api::{Api, Effort, Thinking};
use crate::price::Dollars;
use crate::yaml_error;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawConfig {
    pub(super) default: Option<String>,
    pub(super) failover: Option<Vec<String>>,
    pub(super) allow: Option<Vec<String>>,
    pub(super) retry: Option<RawRetry>,
    pub(super) providers: BTreeMap<String, RawProvider>,
}

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRetry {
    pub(super) max_attempts: Option<u32>,
    pub(super) initial_delay_ms: Option<u64>,
    pub(super) max_delay_ms: Option<u64>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
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

#[derive(Debug, Default, Serialize, Deserialize)]
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

#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPrice {
    pub(super) input: Option<Dollars>,
    pub(super) output: Option<Dollars>,
    pub(super) cache_read: Option<Dollars>,
    pub(super) cache_write: Option<Dollars>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

    /// Merges files, given from the least specific to the most specific one.
    pub(super) fn merge(files: Vec<Self>) -> serde_json::Result<Self> {
        let mut merged = Value::Object(Map::new());
        for file in files {
            overlay(&mut merged, serde_json::to_value(file)?);
        }
        serde_json::from_value(merged)
    }
}

/// Replaces what `over` sets, field by field.
fn overlay(base: &mut Value, over: Value) {
    match (base, over) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(over)) => {
            for (key, over) in over {
                overlay(base.entry(key).or_insert(Value::Null), over);
            }
        }
        (base, over) => *base = over,
    }
}
