//! Inherited environment variables of a call: those of this process without Rye's own secrets
//! and the API keys of models.

use std::sync::Arc;

use rye_items::trust::Trust;
use rye_items::{ItemKind, Library, metadata};
use serde_json::Value;

use crate::environment::{Environment, is_basic};
use crate::template::Variables;

/// Model configuration file of a space.
const MODELS_FILE: &str = "config/agent/models.yaml";

/// Variables that a call inherits: those of `requested`, or else of this process, that tools may
/// see. With `minimal`, only those that every process needs. With `declared`, only those and the
/// ones that it lists.
pub(super) fn inherited_variables(
    requested: Option<Vec<(String, String)>>,
    minimal: bool,
    declared: Option<&[String]>,
    library: &Library,
    trust: &Trust<'_>,
) -> Arc<Variables> {
    let api_key_names = find_api_key_names(library, trust);
    let mut variables = requested.unwrap_or_else(|| process_variables().collect());
    variables.retain(|(name, _)| {
        let is_listed = declared.is_none_or(|all| is_basic(name) || all.contains(name));
        is_listed && !api_key_names.contains(name)
    });
    Environment::inherited(variables, minimal).into_variables()
}

/// Variables of this process that are valid UTF-8.
fn process_variables() -> impl Iterator<Item = (String, String)> {
    let all = std::env::vars_os();
    all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Names of the variables that hold API keys of models: `api_key_env` and `withhold_env` of the
/// model configurations. Unsigned files and basic variables such as `PATH` are ignored.
pub fn find_api_key_names(library: &Library, trust: &Trust<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for root in library.spaces().roots() {
        let Ok(Some(bytes)) = library.read_config(root, MODELS_FILE, trust) else {
            continue;
        };
        let read = metadata::extract(&bytes, ".yaml", ItemKind::Config, library.extractors());
        let providers = read
            .ok()
            .and_then(|mut read| read.fields.remove("providers"));
        let providers = providers.iter().filter_map(|field| field.value.as_object());
        for provider in providers.flat_map(|all| all.values()) {
            let others = provider.get("withhold_env").and_then(Value::as_array);
            let all = provider.get("api_key_env").into_iter();
            let all = all.chain(others.into_iter().flatten());
            let all = all.filter_map(Value::as_str).filter(|name| !is_basic(name));
            names.extend(all.map(str::to_owned));
        }
    }
    names
}
