//! Environment variables of a call and their origins: what each source may set.
//!
//! `executor/prepare.rs` applies the sources in order; later ones override earlier ones: inherited
//! variables, declared variables of the project's `.env`, and then, for each item from the
//! primitive to the tool, its interpreters, its `env` and the `env_paths` of its anchor.

mod dotenv_filter;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

pub use dotenv_filter::{DotenvFilter, is_reserved};

use crate::anchor::AnchorError;
use crate::redact::{Redactor, is_secret_name, is_secret_variable};
use crate::template::{self, Placeholders, Variables};
use crate::value_ext::as_text;

/// Variables that `inherit: minimal` passes on, besides `LC_*`.
const BASIC_VARIABLES: [&str; 8] = [
    "PATH", "HOME", "LANG", "TZ", "TMPDIR", "TERM", "USER", "SHELL",
];

/// Secrets of Rye that are never passed to tools.
pub const WITHHELD_VARIABLES: [&str; 3] = ["RYE_RELEASE_KEY", "RYE_VAULT_KEY", "RYE_TOKEN"];

/// Describes further variables that are never passed to tools.
pub const WITHHELD_PATTERNS: &str = "variables that begin with RYE_ and hold a token, key, secret, \
    password, passphrase or credential; and those that models.yaml names as `api_key_env` or \
    `withhold_env`";

/// Whether a variable holds a secret of Rye.
fn is_withheld(name: &str) -> bool {
    // RYE_MAX_TOKENS is a limit, not a secret.
    let setting = name.strip_prefix("RYE_").filter(|it| *it != "MAX_TOKENS");
    WITHHELD_VARIABLES.contains(&name) || setting.is_some_and(is_secret_name)
}

/// Filters the variables that every process needs.
pub fn minimal_variables(all: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let all = all
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    all.filter(|(name, _)| is_basic(name))
}

/// Whether every process needs this variable.
pub(crate) fn is_basic(name: &str) -> bool {
    BASIC_VARIABLES.contains(&name) || name.starts_with("LC_")
}

/// Source of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "id", rename_all = "snake_case")]
pub enum Origin {
    /// The calling process.
    Inherited,
    /// The project's `.env`.
    Dotenv,
    /// An interpreter that the item declares.
    Interpreter(String),
    /// The command of an item that prints the path of its interpreter. A dry run does not run it
    /// and uses its program instead.
    InterpreterCommand(String),
    /// `env_config.env` of the item.
    Item(String),
    /// `env_paths` of the item's anchor.
    Anchor(String),
    /// The executor itself.
    Executor,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inherited => f.write_str("inherited"),
            Self::Dotenv => f.write_str(".env"),
            Self::Interpreter(id) => write!(f, "interpreter of {id}"),
            Self::InterpreterCommand(id) => {
                write!(f, "command that finds the interpreter of {id}, not run")
            }
            Self::Item(id) => write!(f, "env of {id}"),
            Self::Anchor(id) => write!(f, "anchor of {id}"),
            Self::Executor => f.write_str("executor"),
        }
    }
}

/// Whether an `env_config` has `inherit: minimal`. The error contains the invalid key and the
/// reason.
pub fn is_minimal(env_config: &Value) -> Result<bool, (&'static str, String)> {
    if !matches!(
        env_config.get("env"),
        None | Some(Value::Null | Value::Object(_))
    ) {
        return Err(("env", "not a mapping".to_owned()));
    }
    match env_config.get("inherit") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::String(text)) if text == "minimal" => Ok(true),
        Some(Value::String(text)) if text == "all" => Ok(false),
        Some(other) => Err((
            "inherit",
            format!(
                "unknown value `{}`; expected all or minimal",
                as_text(other)
            ),
        )),
    }
}

/// Environment variables of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Shared by all calls that inherit the same variables; copied on write.
    values: Arc<Variables>,
    /// Origins of the variables that are not inherited.
    origins: BTreeMap<String, Origin>,
    /// Variables whose values contain text from the caller or from `.env`.
    untrusted: BTreeSet<String>,
    /// Variables that `.env` sets but the items do not declare.
    dotenv_ignored: BTreeSet<String>,
    /// Values of secret variables in `.env`, passed on or not.
    dotenv_secrets: Vec<String>,
}

impl Environment {
    /// Creates the environment that a call inherits: all variables without Rye's own secrets, or
    /// with `minimal` only those that every process needs.
    pub fn inherited(all: impl IntoIterator<Item = (String, String)>, minimal: bool) -> Self {
        let passed = all.into_iter().filter(|(name, _)| {
            let is_requested = !minimal || is_basic(name);
            is_requested && !is_withheld(name)
        });
        Self::from(Arc::new(passed.collect()))
    }

    /// Sets a variable, replacing its value.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>, origin: Origin) {
        let name = name.into();
        Arc::make_mut(&mut self.values).insert(name.clone(), value.into());
        if origin == Origin::Dotenv {
            self.untrusted.insert(name.clone());
        } else {
            self.untrusted.remove(&name);
        }
        self.origins.insert(name, origin);
    }

    /// Sets the variables of a project's `.env` that pass the filter.
    pub fn apply_dotenv(&mut self, variables: Vec<(String, String)>, filter: &DotenvFilter) {
        for (name, value) in variables {
            if is_secret_variable(&name, &value) {
                self.dotenv_secrets.push(value.clone());
            }
            if filter.allows(&name) {
                self.set(name, value, Origin::Dotenv);
            } else {
                self.dotenv_ignored.insert(name);
            }
        }
    }

    /// Variables of `.env` that are not passed on.
    pub fn dotenv_ignored(&self) -> &BTreeSet<String> {
        &self.dotenv_ignored
    }

    /// Variables whose values contain text from the caller or from `.env`.
    pub fn untrusted(&self) -> &BTreeSet<String> {
        &self.untrusted
    }

    /// Value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// All variables.
    pub fn variables(&self) -> &Variables {
        &self.values
    }

    /// Name, value and origin of each variable, ordered by name.
    pub fn origins(&self) -> impl Iterator<Item = (&str, &str, &Origin)> {
        self.values.iter().map(|(name, value)| {
            let origin = self.origins.get(name).unwrap_or(&Origin::Inherited);
            (name.as_str(), value.as_str(), origin)
        })
    }

    /// Secrets to redact: those of the project's `.env`, and, unless a user makes the call
    /// directly, the values of all variables with secret names.
    pub(crate) fn secrets(&self, is_by_user: bool) -> Redactor {
        let inherited = self.values.iter();
        let inherited =
            inherited.filter(|(name, value)| !is_by_user && is_secret_variable(name, value));
        let inherited = inherited.map(|(_, value)| value.as_str());
        let dotenv = self.dotenv_secrets.iter().map(String::as_str);
        Redactor::new(dotenv.chain(inherited))
    }

    /// All variables, without their origins.
    pub fn into_variables(self) -> Arc<Variables> {
        self.values
    }

    /// Applies the `env` of an item.
    pub fn apply_env(&mut self, env: &Value, names: &Placeholders, id: &str) {
        for (name, value) in env.as_object().into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Null => continue,
                other => other.to_string(),
            };
            let rendered = template::render(&text, &self.values, names);
            let is_untrusted = template::contains_untrusted(&text, &self.untrusted, names);
            self.set(name, as_text(&rendered), Origin::Item(id.to_owned()));
            if is_untrusted {
                self.untrusted.insert(name.clone());
            }
        }
    }

    /// Applies the `env_paths` of an anchor: for each variable, directories to `prepend` or
    /// `append`, or a value to `set`. `{runtime_lib}` stands for the `lib` of the anchor and for
    /// that of the runtime. Empty entries are dropped.
    pub fn apply_env_paths(&mut self, paths: &Value, names: &Placeholders, id: &str) {
        for (name, change) in paths.as_object().into_iter().flatten() {
            let parts = |key: &str, environment: &Self| -> Vec<String> {
                let listed = match change.get(key) {
                    Some(Value::Array(items)) => items.clone(),
                    Some(one @ Value::String(_)) => vec![one.clone()],
                    _ => Vec::new(),
                };
                let entries = listed.iter().filter_map(Value::as_str);
                let mut rendered = Vec::new();
                for path in entries.flat_map(|text| entry(text, &environment.values, names)) {
                    if !path.is_empty() && !rendered.contains(&path) {
                        rendered.push(path);
                    }
                }
                rendered
            };
            let (set, before, after) = (
                parts("set", self),
                parts("prepend", self),
                parts("append", self),
            );
            let mut all = before;
            if change.get("set").is_some() {
                all.extend(set);
            } else {
                all.extend(
                    self.get(name)
                        .filter(|value| !value.is_empty())
                        .map(str::to_owned),
                );
            }
            all.extend(after);
            if !all.is_empty() {
                self.set(name, all.join(":"), Origin::Anchor(id.to_owned()));
            }
        }
    }
}

impl From<Arc<Variables>> for Environment {
    /// Creates an environment of inherited variables.
    fn from(values: Arc<Variables>) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }
}

/// Checks that the placeholders in `env_paths` add no colons. In a path variable, a directory
/// with a colon in its name would become two other, unverified directories.
pub fn check_single_dirs(paths: &Value, names: &Placeholders) -> Result<(), AnchorError> {
    for (variable, change) in paths.as_object().into_iter().flatten() {
        for key in ["prepend", "append", "set"] {
            // `set` may name a single file, unless the variable is a path list.
            let is_list = key != "set" || variable.ends_with("PATH");
            if let Some(path) = is_list.then(|| with_colon(&change[key], names)).flatten() {
                let variable = variable.clone();
                return Err(AnchorError::ColonInPath { path, variable });
            }
        }
    }
    Ok(())
}

/// The directories that an entry of `env_paths` stands for.
fn entry(text: &str, variables: &Variables, names: &Placeholders) -> Vec<String> {
    let anchor_lib = names.get("anchor_lib").filter(|_| text == "{runtime_lib}");
    let rendered = template::render(text, variables, names);
    let paths = anchor_lib.into_iter().chain([&rendered]);
    paths.map(as_text).collect()
}

/// The first rendered template that contains more colons than the template itself.
fn with_colon(templates: &Value, names: &Placeholders) -> Option<String> {
    let colons = |text: &str| text.matches(':').count();
    let all = templates
        .as_array()
        .map_or(std::slice::from_ref(templates), Vec::as_slice);
    all.iter().filter_map(Value::as_str).find_map(|text| {
        let mut paths = entry(text, &Variables::new(), names).into_iter();
        paths.find(|path| colons(path) > colons(text))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::template::Origin as NameOrigin;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn withheld_secrets_are_not_inherited() {
        let all = pairs(&[
            ("PATH", "/bin"),
            ("RYE_TOKEN", "s"),
            ("MINE", "1"),
            ("LC_ALL", "C"),
        ]);
        let full = Environment::inherited(all.clone(), false);
        assert_eq!(
            full.variables().keys().collect::<Vec<_>>(),
            ["LC_ALL", "MINE", "PATH"]
        );
        let minimal = Environment::inherited(all, true);
        assert_eq!(
            minimal.variables().keys().collect::<Vec<_>>(),
            ["LC_ALL", "PATH"]
        );
    }

    #[test]
    fn dir_with_a_colon_is_rejected_in_path_variables() {
        let mut names = Placeholders::default();
        names.set("anchor_path", "/a:b", NameOrigin::Fact);
        names.set("runtime_lib", "/lib", NameOrigin::Fact);
        for (paths, is_ok) in [
            (
                json!({"PYTHONPATH": {"prepend": ["{runtime_lib}", "{anchor_path}/x"]}}),
                false,
            ),
            (json!({"PYTHONPATH": {"append": "{anchor_path}"}}), false),
            (
                json!({"NODE_PATH": {"set": "{anchor_path}/node_modules"}}),
                false,
            ),
            (json!({"FILE": {"set": "{anchor_path}/Gemfile"}}), true),
            (
                json!({"PYTHONPATH": {"prepend": ["/x:/y:{runtime_lib}"]}}),
                true,
            ),
        ] {
            assert_eq!(check_single_dirs(&paths, &names).is_ok(), is_ok, "{paths}");
        }
    }

    #[test]
    fn env_and_env_paths_are_rendered_in_order_and_record_origins() {
        let mut names = Placeholders::default();
        names.set("anchor_path", "/a b", NameOrigin::Fact);
        names.set("runtime_lib", "", NameOrigin::Fact);
        let mut environment = Environment::inherited(pairs(&[("PATH", "/bin")]), false);
        environment.apply_env(
            &json!({"X": "${PATH}:${NONE:-d}", "N": 1, "A": "{anchor_path}", "Z": null}),
            &names,
            "rt",
        );
        environment.apply_env_paths(
            &json!({
                "PATH": {"prepend": ["{anchor_path}/bin"], "append": "/usr/bin"},
                "LIB": {"prepend": ["{anchor_path}", "{runtime_lib}"]},
                "FILE": {"set": "{anchor_path}/Gemfile"},
                "NOTHING": {"prepend": ["{runtime_lib}"]},
            }),
            &names,
            "rt",
        );
        for (name, value) in [
            ("X", "/bin:d"),
            ("N", "1"),
            ("A", "/a b"),
            ("PATH", "/a b/bin:/bin:/usr/bin"),
            ("LIB", "/a b"),
            ("FILE", "/a b/Gemfile"),
        ] {
            assert_eq!(environment.get(name), Some(value), "{name}");
        }
        assert_eq!(environment.get("NOTHING"), None);
        let origin = environment
            .origins()
            .find(|(name, ..)| *name == "PATH")
            .unwrap()
            .2;
        assert_eq!(origin.to_string(), "anchor of rt");
    }
}
