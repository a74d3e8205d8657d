//! Finds keys and placeholders without a meaning in an item, such as misspelt ones.

use std::collections::BTreeSet;
use std::fmt;

use rye_items::Space;
use rye_items::metadata::{self, Metadata};
use serde_json::Value;

use super::inline_code::EXECUTOR_PLACEHOLDERS;
use super::prepare::merged_config;
use super::template_context::declared_parameters;
use crate::chain::{Chain, RUNTIME, is_executor};
use crate::template;

/// Top-level keys of a YAML item besides the metadata fields.
const OTHER_FIELDS: [&str; 4] = ["author", "created_at", "env_requires", "permissions"];
const ANCHOR: [&str; 7] = [
    "enabled",
    "mode",
    "markers_any",
    "root",
    "lib",
    "cwd",
    "env_paths",
];
const ENV_PATHS: [&str; 3] = ["prepend", "append", "set"];
const VERIFY_DEPS: [&str; 5] = [
    "enabled",
    "scope",
    "recursive",
    "extensions",
    "exclude_dirs",
];
const ENV_CONFIG: [&str; 3] = ["env", "inherit", "interpreter"];
const RESOLVER: [&str; 10] = [
    "type",
    "var",
    "fallback",
    "binary",
    "candidates",
    "search",
    "search_paths",
    "search_roots",
    "resolve_cmd",
    "manager",
];
const CONFIG_RESOLVE: [&str; 2] = ["path", "mode"];
const CHILD_CONSTRAINTS: [&str; 2] = ["min_version", "max_version"];
/// Metadata fields that a Python or JavaScript file can have in its `CONFIG`.
const FIELDS_IN_CONFIG: [&str; 6] = [
    "risk_level",
    "requires_approval",
    "effect",
    "sandbox",
    "requires_env",
    "timeout",
];

/// Placeholders besides [`EXECUTOR_PLACEHOLDERS`].
const CALL_PLACEHOLDERS: [&str; 4] = [
    "params_json",
    "resolved_config",
    "server_config_path",
    "tool_name",
];

/// Keys of `config` whose text may contain braces that are not placeholders.
const FREE_TEXT: [&str; 2] = ["body", "input_data"];

/// A key or placeholder without a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// The key with its parents, or the value that contains the placeholder.
    pub location: String,
    /// The placeholder, or none for a key.
    pub placeholder: Option<String>,
    /// The most similar known name.
    pub nearest: Option<String>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.placeholder {
            Some(name) => write!(f, "unknown placeholder `{{{name}}}` in `{}`", self.location)?,
            None => write!(f, "unknown key `{}`", self.location)?,
        }
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

/// Warnings about the items of a chain outside the system space. `parameters` are those of the
/// call.
pub(super) fn warnings(chain: &Chain, parameters: &Value) -> Vec<String> {
    let links = chain.metadata();
    let given = parameters.as_object().into_iter().flatten();
    let given: Vec<_> = given.map(|(name, _)| name.as_str()).collect();
    let mut warnings = Vec::new();
    for (index, link) in chain.links.iter().enumerate() {
        if link.space() != Space::System {
            let unknown = find(&links, index, &link.item.extension, Some(&given));
            warnings.extend(unknown.iter().map(|name| format!("{}: {name}", link.id())));
        }
    }
    warnings
}

/// A key of an item without an executor that is probably a misspelt `executor_id`.
pub(crate) fn misspelt_executor(item: &Metadata) -> Option<UnknownName> {
    let mut found = Finder::default();
    found.misspelt_executor(item);
    found.unknown.into_iter().next()
}

/// Finds the unknown names of the item at `index` of a chain, the tool first. `given` are the
/// parameters of a call; without a call, a tool without a schema may get any.
pub(super) fn find(
    chain: &[&Metadata],
    index: usize,
    extension: &str,
    given: Option<&[&str]>,
) -> Vec<UnknownName> {
    let Some(item) = chain.get(index) else {
        return Vec::new();
    };
    let mut found = Finder::default();
    if item.executor_id().is_none() {
        found.misspelt_executor(item);
        return found.unknown;
    }
    found.misspelt(item, |_| true);
    if matches!(extension, ".yaml" | ".yml") {
        let known = metadata::field_names().chain(OTHER_FIELDS);
        found.keys("", item.fields.keys(), &known.collect());
    }
    found.structure(item);
    let primitive = chain.last().filter(|last| last.executor_id().is_none());
    let schema = primitive.and_then(|primitive| primitive.config_schema());
    let Some(schema) = schema.filter(|schema| schema["additionalProperties"] != true) else {
        // The executors are missing, or the primitive checks its configuration itself.
        return found.unknown;
    };
    let merged = merged_config(chain);
    let mut used = BTreeSet::new();
    for value in merged.values() {
        template::collect_placeholder_names(value, &mut used);
    }
    let all_env = chain.iter().filter_map(|item| item.value("env_config"));
    all_env.for_each(|env| template::collect_placeholder_names(env, &mut used));
    let declared: Vec<_> = chain[..chain.len() - 1]
        .iter()
        .flat_map(|item| declared_parameters(item))
        .map(|(name, _)| name.as_str())
        .collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let mut known: BTreeSet<&str> = properties.map(|(name, _)| name.as_str()).collect();
    known.extend(FIELDS_IN_CONFIG);
    known.extend(&declared);
    known.extend(used.iter().map(String::as_str));
    if let Some(Value::Object(config)) = item.value("config") {
        found.keys("config", config.keys(), &known);
    }
    let mut names: BTreeSet<&str> = EXECUTOR_PLACEHOLDERS.into_iter().collect();
    names.extend(CALL_PLACEHOLDERS);
    names.extend(&declared);
    names.extend(merged.keys().map(String::as_str));
    names.extend(given.into_iter().flatten());
    let is_complete = given.is_some()
        || chain[0].config_schema().is_some() && chain[0].tool_type() != Some(RUNTIME);
    let runtimes = &chain[(index + 1).min(chain.len() - 1)..chain.len() - 1];
    let scripts: BTreeSet<&str> = runtimes
        .iter()
        .flat_map(|runtime| declared_parameters(runtime))
        .map(|(name, _)| name.as_str())
        .collect();
    found.placeholders(item, &names, |key| {
        is_complete && !scripts.contains(key) && !is_executor_code(item, key)
    });
    found.unknown
}

/// Whether an argument may be the code of an interpreter.
fn is_executor_code(item: &Metadata, key: &str) -> bool {
    let args = item.value("config").and_then(|config| config.get("args"));
    let args = args.and_then(Value::as_array).into_iter().flatten();
    let has_option = args.filter_map(Value::as_str).any(|text| {
        let letters = text.strip_prefix('-').unwrap_or_default();
        !letters.is_empty() && letters.chars().all(char::is_alphabetic)
            || text.starts_with("--eval")
            || text.starts_with("--print")
            || text.starts_with("--command")
    });
    key == "args" && (has_option || is_executor(item))
}

#[derive(Default)]
struct Finder {
    unknown: Vec<UnknownName>,
}

impl Finder {
    fn keys<'k>(
        &mut self,
        parent: &str,
        keys: impl IntoIterator<Item = &'k String>,
        known: &BTreeSet<&str>,
    ) {
        for key in keys {
            if !known.contains(key.as_str()) {
                self.unknown.push(UnknownName {
                    location: join(parent, key),
                    placeholder: None,
                    nearest: nearest(key, known),
                });
            }
        }
    }

    /// Reports the names of a program that are probably misspelt names of fields.
    fn misspelt(&mut self, item: &Metadata, is_wanted: impl Fn(&str) -> bool) {
        let wanted = item.misspelt.iter().filter(|name| is_wanted(&name.field));
        self.unknown.extend(wanted.map(|name| UnknownName {
            location: name.name.clone(),
            placeholder: None,
            nearest: Some(name.nearest.clone()),
        }));
    }

    /// Reports what is probably a misspelt `executor_id`. Other names are those of data or of a
    /// library, because the item is no tool.
    fn misspelt_executor(&mut self, item: &Metadata) {
        const FIELD: &str = "executor_id";
        if item.fields.contains_key(FIELD) {
            return;
        }
        self.misspelt(item, |field| field == FIELD);
        let known = BTreeSet::from([FIELD]);
        let keys = item.fields.keys();
        let similar = keys.filter(|key| nearest(key, &known).is_some());
        self.keys("", similar, &known);
    }

    fn mapping(&mut self, parent: &str, value: Option<&Value>, known: &[&str]) {
        if let Some(Value::Object(fields)) = value {
            self.keys(parent, fields.keys(), &known.iter().copied().collect());
        }
    }

    /// Checks the keys of all declarations but `config`.
    fn structure(&mut self, item: &Metadata) {
        let anchor = item.value("anchor");
        self.mapping("anchor", anchor, &ANCHOR);
        let paths = anchor.and_then(|anchor| anchor.get("env_paths"));
        for (name, change) in paths.and_then(Value::as_object).into_iter().flatten() {
            let parent = format!("anchor.env_paths.{name}");
            self.mapping(&parent, Some(change), &ENV_PATHS);
        }
        self.mapping("verify_deps", item.value("verify_deps"), &VERIFY_DEPS);
        let constraints = item.value("child_constraints");
        self.mapping("child_constraints", constraints, &CHILD_CONSTRAINTS);
        match item.value("config_resolve") {
            Some(Value::Array(all)) => all.iter().for_each(|one| {
                self.mapping("config_resolve", Some(one), &CONFIG_RESOLVE);
            }),
            one => self.mapping("config_resolve", one, &CONFIG_RESOLVE),
        }
        let env_config = item.value("env_config").and_then(Value::as_object);
        for (name, value) in env_config.into_iter().flatten() {
            if matches!(name.as_str(), "env" | "inherit") {
                continue;
            }
            let parent = join("env_config", name);
            if value.get("type").is_some() {
                self.mapping(&parent, Some(value), &RESOLVER);
            } else if let Some(nearest) = nearest(name, &ENV_CONFIG.into_iter().collect()) {
                // Any other name is that of an interpreter, whose declaration is invalid.
                self.unknown.push(UnknownName {
                    location: parent,
                    placeholder: None,
                    nearest: Some(nearest),
                });
            }
        }
    }

    /// Checks the placeholders of an item. `is_strict` decides for a key of `config` whether each
    /// name must be known; elsewhere, only names that are similar to a known one are reported,
    /// because the text may be code or data with braces.
    fn placeholders(
        &mut self,
        item: &Metadata,
        known: &BTreeSet<&str>,
        is_strict: impl Fn(&str) -> bool,
    ) {
        let config = item.value("config").and_then(Value::as_object);
        for (key, value) in config.into_iter().flatten() {
            let is_free = FREE_TEXT.contains(&key.as_str());
            self.names_in(&join("config", key), value, known, is_strict(key), is_free);
        }
        let env_config = item.value("env_config");
        let env = env_config.and_then(|config| config.get("env"));
        let env = env.into_iter().map(|env| ("env_config.env", env));
        let anchor = item.value("anchor");
        let in_anchor = |key: &str| anchor.and_then(|anchor| anchor.get(key));
        let paths = in_anchor("env_paths").map(|paths| ("anchor.env_paths", paths));
        let cwd = in_anchor("cwd").map(|cwd| ("anchor.cwd", cwd));
        for (location, value) in env.chain(paths).chain(cwd) {
            self.names_in(location, value, known, is_strict("env"), false);
        }
    }

    fn names_in(
        &mut self,
        location: &str,
        value: &Value,
        known: &BTreeSet<&str>,
        is_strict: bool,
        is_free: bool,
    ) {
        match value {
            Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| {
                let location = format!("{location}[{index}]");
                self.names_in(&location, item, known, is_strict, is_free);
            }),
            Value::Object(fields) => fields.iter().for_each(|(key, field)| {
                self.names_in(&join(location, key), field, known, is_strict, is_free);
            }),
            Value::String(text) => {
                let mut used = BTreeSet::new();
                template::collect_placeholder_names(value, &mut used);
                used.retain(|name| !known.contains(name.as_str()));
                for name in used {
                    let nearest = nearest(&name, known);
                    let is_whole = *text == format!("{{{name}}}");
                    if nearest.is_some() || is_strict && (is_whole || !is_free) {
                        self.unknown.push(UnknownName {
                            location: location.to_owned(),
                            placeholder: Some(name),
                            nearest,
                        });
                    }
                }
            }
            _ => {}
        }
    }
}

fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() {
        key.to_owned()
    } else {
        format!("{parent}.{key}")
    }
}

/// The known name that differs from `name` by at most two typing errors.
fn nearest(name: &str, known: &BTreeSet<&str>) -> Option<String> {
    const MIN_LENGTH: usize = 3;
    let distances = known.iter().filter(|_| name.len() >= MIN_LENGTH);
    let distances = distances.map(|other| (strsim::osa_distance(name, other), *other));
    let (distance, nearest) = distances.min()?;
    (distance <= 2 && distance < nearest.len() / 2).then(|| nearest.to_owned())
}
