//! The variables of a call, and where each comes from.
//!
//! From the bottom up, later wins: what was inherited, the project's `.env`,
//! and for each item from the primitive to the tool its interpreters, its
//! `env`, and the paths of its anchor.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::mask::{Masks, is_secret};
use crate::template::{self, Names, Quoting, Variables};

/// What `inherit: minimal` passes on, beside `LC_*`.
const MINIMAL: [&str; 8] = [
    "PATH", "HOME", "LANG", "TZ", "TMPDIR", "TERM", "USER", "SHELL",
];

/// The variables that every process needs, of these.
pub fn minimal(all: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let all = all
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    all.filter(|(name, _)| is_needed(name))
}

pub(crate) fn is_needed(name: &str) -> bool {
    MINIMAL.contains(&name) || name.starts_with("LC_")
}

/// What belongs to the program and never to a tool: keys of model vendors, the vault's.
pub const OWN_SECRETS: [&str; 9] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENROUTER_API_KEY",
    "VLLM_API_KEY",
    "RYE_RELEASE_KEY",
    "RYE_VAULT_KEY",
    "RYE_TOKEN",
];

/// What our own variables hold that have one of these words in their names.
const OWN_SECRET_WORDS: [&str; 6] = [
    "TOKEN",
    "KEY",
    "SECRET",
    "PASSWORD",
    "PASSPHRASE",
    "CREDENTIAL",
];

/// What else is never given to a tool, in words.
pub const WITHHELD_TOO: &str = "variables that begin with RYE_ and hold a token, key, secret, \
    password, passphrase or credential; and those that models.yaml names as `api_key_env`";

/// Whether a variable belongs to the program and never to a tool.
fn is_own_secret(name: &str) -> bool {
    let own = name.strip_prefix("RYE_").into_iter();
    let mut words = own.flat_map(|name| name.split('_'));
    OWN_SECRETS.contains(&name) || words.any(|word| OWN_SECRET_WORDS.contains(&word))
}

/// Variables by which an interpreter or a loader is told to load more code, as
/// names and as beginnings of names. A `.env` is not signed, so it cannot set
/// them: a cloned project would run code that nobody verified.
const LOADS_CODE: [&str; 20] = [
    "PATH",
    "ENV",
    "IFS",
    "SHELLOPTS",
    "BASHOPTS",
    "BASH_ENV",
    "PS4",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "RUBYOPT",
    "RUBYLIB",
    "LUA_PATH",
    "LUA_CPATH",
    "LUA_INIT",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "PROMPT_COMMAND",
];
const LOADS_CODE_PREFIXES: [&str; 8] = [
    "LD_",
    "DYLD_",
    "PYTHON",
    "GEM_",
    "BUNDLE_",
    "GIT_",
    "BASH_FUNC_",
    "RYE_",
];

/// Whether an unsigned file may set a variable.
pub fn may_be_set_by_a_file(name: &str) -> bool {
    !LOADS_CODE.contains(&name)
        && !LOADS_CODE_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
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
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inherited => f.write_str("inherited"),
            Self::Dotenv => f.write_str(".env"),
            Self::Interpreter(id) => write!(f, "interpreter of {id}"),
            Self::Item(id) => write!(f, "env of {id}"),
            Self::Anchor(id) => write!(f, "anchor of {id}"),
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
    values: Variables,
    /// Of what was not just inherited, which most variables are.
    origins: BTreeMap<String, Origin>,
}

impl Environment {
    /// What a call inherits: without the program's own secrets, and with
    /// `minimal` only what every program needs.
    pub fn inherited(all: impl IntoIterator<Item = (String, String)>, minimal: bool) -> Self {
        let wanted = all.into_iter().filter(|(name, _)| {
            let wanted = !minimal || is_needed(name);
            wanted && !is_own_secret(name)
        });
        Self {
            values: wanted.collect(),
            origins: BTreeMap::new(),
        }
    }

    /// Sets a variable over what it was.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>, origin: Origin) {
        let name = name.into();
        self.values.insert(name.clone(), value.into());
        self.origins.insert(name, origin);
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

    /// What the project's `.env` says under names that hold secrets.
    pub(crate) fn secrets(&self) -> Masks {
        let own = self.origins.iter();
        let own = own.filter(|(_, origin)| **origin == Origin::Dotenv);
        let own = own.filter_map(|(name, _)| Some((name, self.values.get(name)?)));
        let secrets = own.filter(|(name, value)| is_secret(name, value));
        Masks::new(secrets.map(|(_, value)| value.as_str()))
    }

    /// All of them, without where they come from.
    pub fn into_variables(self) -> Variables {
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
            let rendered = template::render(&text, &self.values, Quoting::None, names);
            self.set(name, as_text(&rendered), Origin::Item(id.to_owned()));
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
                let rendered = listed.iter().filter_map(Value::as_str).map(|text| {
                    as_text(&template::render(
                        text,
                        &environment.values,
                        Quoting::None,
                        names,
                    ))
                });
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
    fn an_unsigned_file_cannot_make_an_interpreter_load_code() {
        for name in [
            "PATH",
            "LD_PRELOAD",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "NODE_OPTIONS",
            "BASH_ENV",
            "RYE_DEV_MODE",
        ] {
            assert!(!may_be_set_by_a_file(name), "{name}");
        }
        for name in [
            "DATABASE_URL",
            "API_TOKEN",
            "PATHS",
            "NODE_ENV",
            "MY_LD_FLAG",
        ] {
            assert!(may_be_set_by_a_file(name), "{name}");
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
