//! The variables of a call, and where each comes from.
//!
//! From the bottom up, later wins: what was inherited, of the project's `.env` the
//! names that the items declare, and for each item from the primitive to the tool its interpreters, its
//! `env`, and the paths of its anchor.

mod declared;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

pub use declared::{Declared, is_reserved};
pub use withheld::{WITHHELD_PATTERNS, WITHHELD_VARIABLES};

use crate::anchor::AnchorError;
use crate::redact::{Redactor, is_secret_variable};
use crate::template::{self, Names, Variables};
use withheld::is_withheld;

/// What `inherit: minimal` passes on, beside `LC_*`.
const MINIMAL: [&str; 8] = [
    "PATH", "HOME", "LANG", "TZ", "TMPDIR", "TERM", "USER", "SHELL",
];

/// The variables that every process needs, of these.
pub fn minimal_variables(all: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let all = all
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    all.filter(|(name, _)| is_needed(name))
}

pub(crate) fn is_needed(name: &str) -> bool {
    MINIMAL.contains(&name) || name.starts_with("LC_")
}

/// Where a variable comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The calling process.
    Inherited,
    /// The project's `.env`.
    Dotenv,
    /// The interpreter of an item.
    Interpreter(String),
    /// The `env` of an item.
    Item(String),
    /// The anchor of an item.
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
            Self::Item(id) => write!(f, "env of {id}"),
            Self::Anchor(id) => write!(f, "anchor of {id}"),
            Self::Executor => f.write_str("executor"),
        }
    }
}

/// Whether an `env_config` asks for the least that a program needs. The error
/// is the key that is wrong, and what is.
pub fn is_minimal(env_config: &Value) -> Result<bool, (&'static str, String)> {
    if !matches!(
        env_config.get("env"),
        None | Some(Value::Null | Value::Object(_))
    ) {
        return Err(("env", "it is not a mapping".to_owned()));
    }
    match env_config.get("inherit") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::String(text)) if text == "minimal" => Ok(true),
        Some(Value::String(text)) if text == "all" => Ok(false),
        Some(other) => Err((
            "inherit",
            format!("there is no `{}`; it is all or minimal", as_text(other)),
        )),
    }
}

/// The variables of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Shared with all calls that inherit the same, until something is set.
    values: Arc<Variables>,
    /// Of what was not just inherited, which most variables are.
    origins: BTreeMap<String, Origin>,
    /// The variables whose values contain text of the caller or of `.env`.
    untrusted: BTreeSet<String>,
    /// What `.env` sets and is not passed.
    dotenv_ignored: BTreeSet<String>,
    /// The values of `.env` under names that hold secrets, passed or not.
    dotenv_secrets: Vec<String>,
}

impl Environment {
    /// What a call inherits: without the program's own secrets, and with
    /// `minimal` only what every program needs.
    pub fn inherited(all: impl IntoIterator<Item = (String, String)>, minimal: bool) -> Self {
        let wanted = all.into_iter().filter(|(name, _)| {
            let wanted = !minimal || is_needed(name);
            wanted && !is_withheld(name)
        });
        Self::from(Arc::new(wanted.collect()))
    }

    /// Sets a variable over what it was.
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

    /// Sets the variables of a project's `.env` that are declared.
    pub fn apply_dotenv(&mut self, variables: Vec<(String, String)>, declared: &Declared) {
        for (name, value) in variables {
            if is_secret_variable(&name, &value) {
                self.dotenv_secrets.push(value.clone());
            }
            if declared.may_set(&name) {
                self.set(name, value, Origin::Dotenv);
            } else {
                self.dotenv_ignored.insert(name);
            }
        }
    }

    /// The variables of `.env` that are not passed.
    pub fn dotenv_ignored(&self) -> &BTreeSet<String> {
        &self.dotenv_ignored
    }

    /// The variables whose values contain text of the caller or of `.env`.
    pub fn untrusted(&self) -> &BTreeSet<String> {
        &self.untrusted
    }

    /// A variable's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// All of them.
    pub fn variables(&self) -> &Variables {
        &self.values
    }

    /// Where each comes from, in the order of the names.
    pub fn origins(&self) -> impl Iterator<Item = (&str, &str, &Origin)> {
        self.values.iter().map(|(name, value)| {
            let origin = self.origins.get(name).unwrap_or(&Origin::Inherited);
            (name.as_str(), value.as_str(), origin)
        })
    }

    /// The secrets of the project's `.env`, passed or not; and for a call that no person made
    /// themselves, every value of a variable whose name looks like a secret's.
    pub(crate) fn secrets(&self, is_for_person: bool) -> Redactor {
        let inherited = self.values.iter();
        let inherited =
            inherited.filter(|(name, value)| !is_for_person && is_secret_variable(name, value));
        let inherited = inherited.map(|(_, value)| value.as_str());
        let own = self.dotenv_secrets.iter().map(String::as_str);
        Redactor::new(own.chain(inherited))
    }

    /// All of them, without where they come from.
    pub fn into_variables(self) -> Arc<Variables> {
        self.values
    }

    /// Sets what the `env` of an item says.
    pub fn apply_env(&mut self, env: &Value, names: &Names, id: &str) {
        for (name, value) in env.as_object().into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Null => continue,
                other => other.to_string(),
            };
            let rendered = template::render(&text, &self.values, names);
            let is_untrusted = template::takes_untrusted(&text, &self.untrusted, names);
            self.set(name, as_text(&rendered), Origin::Item(id.to_owned()));
            if is_untrusted {
                self.untrusted.insert(name.clone());
            }
        }
    }

    /// Sets what the `env_paths` of an anchor say: for each variable what to
    /// `prepend` to it, to `append`, or to `set` it to. What is empty is left out.
    pub fn apply_paths(&mut self, paths: &Value, names: &Names, id: &str) {
        for (name, change) in paths.as_object().into_iter().flatten() {
            let parts = |key: &str, environment: &Self| -> Vec<String> {
                let listed = match change.get(key) {
                    Some(Value::Array(items)) => items.clone(),
                    Some(one @ Value::String(_)) => vec![one.clone()],
                    _ => Vec::new(),
                };
                let rendered = listed
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|text| as_text(&template::render(text, &environment.values, names)));
                rendered.filter(|path| !path.is_empty()).collect()
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
                        .filter(|there| !there.is_empty())
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
    /// These, inherited as they are.
    fn from(values: Arc<Variables>) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }
}

/// Whether what the `env_paths` of an anchor put into a list of folders are single folders.
/// There a colon ends one: a folder with a colon in its name would become two others, which
/// nobody has looked at.
pub fn are_single_folders(paths: &Value, names: &Names) -> Result<(), AnchorError> {
    for (variable, change) in paths.as_object().into_iter().flatten() {
        for key in ["prepend", "append", "set"] {
            // What is set may be one file; what is called a path is a list.
            let listed = key != "set" || variable.ends_with("PATH");
            if let Some(path) = listed.then(|| with_colon(&change[key], names)).flatten() {
                let variable = variable.clone();
                return Err(AnchorError::Colon { path, variable });
            }
        }
    }
    Ok(())
}

/// What a template gives, one or a list, if what is put in has more colons than it.
fn with_colon(templates: &Value, names: &Names) -> Option<String> {
    let colons = |text: &str| text.matches(':').count();
    let all = templates
        .as_array()
        .map_or(std::slice::from_ref(templates), Vec::as_slice);
    all.iter().filter_map(Value::as_str).find_map(|text| {
        let path = as_text(&template::render(text, &Variables::new(), names));
        (colons(&path) > colons(text)).then_some(path)
    })
}

fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
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
    fn the_programs_own_secrets_are_not_inherited_and_minimal_is_little() {
        let all = pairs(&[
            ("PATH", "/bin"),
            ("OPENAI_API_KEY", "s"),
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
    fn a_folder_with_a_colon_does_not_become_two() {
        let mut names = Names::default();
        names.set("anchor_path", "/a:b", NameOrigin::Fact);
        names.set("runtime_lib", "/lib", NameOrigin::Fact);
        for (paths, fits) in [
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
            assert_eq!(are_single_folders(&paths, &names).is_ok(), fits, "{paths}");
        }
    }

    #[test]
    fn env_and_paths_are_rendered_in_their_order_and_know_their_origin() {
        let mut names = Names::default();
        names.set("anchor_path", "/a b", NameOrigin::Fact);
        names.set("runtime_lib", "", NameOrigin::Fact);
        let mut environment = Environment::inherited(pairs(&[("PATH", "/bin")]), false);
        environment.apply_env(
            &json!({"X": "${PATH}:${NONE:-d}", "N": 1, "A": "{anchor_path}", "Z": null}),
            &names,
            "rt",
        );
        environment.apply_paths(
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
