//! Which variables of a project's `.env` reach a call.
//!
//! A `.env` comes with a clone and nobody signed it, and many programs run code that a variable
//! names: `TAR_OPTIONS`, `GIT_SSH_COMMAND`, `PYTEST_ADDOPTS`, a proxy. No list of such names is
//! complete, so the list is of what is passed: the names that the signed items of the call
//! declare.

use std::collections::BTreeSet;

use serde_json::Value;

use super::is_needed;
use crate::chain::{Chain, Link};
use crate::template;

/// The names that the items of a call declare.
#[derive(Debug, Default)]
pub struct Declared(BTreeSet<String>);

impl Declared {
    /// The names that a chain declares: in `requires_env`, and as `${NAME}` in the values of
    /// `env_config.env` and in `config`. What a program's name refers to does not count, since the
    /// file would choose the program, and neither does a list of folders that an anchor extends.
    pub(crate) fn of(chain: &Chain) -> Self {
        let mut names = BTreeSet::new();
        let links = || chain.links.iter().chain(chain.named.values());
        for (index, link) in links().enumerate() {
            // Under a runtime that declares `command`, it is a parameter of the runtime.
            let above = chain.links.get(index + 1..).unwrap_or_default();
            let is_program = !above.iter().any(|link| is_declared(link, "command"));
            names.extend(link.metadata.requires_env());
            let env = link
                .metadata
                .value("env_config")
                .and_then(|it| it.get("env"));
            template::variable_names(env.unwrap_or(&Value::Null), &mut names);
            let config = link.metadata.value("config").and_then(Value::as_object);
            let config = config.into_iter().flatten();
            for (_, value) in config.filter(|(key, _)| !(is_program && *key == "command")) {
                template::variable_names(value, &mut names);
            }
        }
        for path in links().flat_map(search_paths) {
            names.remove(path);
        }
        Self(names)
    }

    /// Whether a `.env` may set a variable in this call.
    pub fn may_set(&self, name: &str) -> bool {
        self.0.contains(name) && !is_reserved(name)
    }
}

/// Whether a runtime declares a parameter. What a primitive declares is its configuration.
fn is_declared(link: &Link, name: &str) -> bool {
    let schema = link.metadata.config_schema();
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
    link.metadata.executor_id().is_some()
        && properties.is_some_and(|properties| properties.contains_key(name))
}

/// The variables that the anchor of an item extends.
fn search_paths(link: &Link) -> impl Iterator<Item = &String> {
    let anchor = link.metadata.value("anchor");
    let paths = anchor.and_then(|anchor| anchor.get("env_paths")?.as_object());
    paths.into_iter().flatten().map(|(name, _)| name)
}

/// Whether a `.env` can never set a variable, declared or not: where programs, libraries and
/// everybody's settings are, what the dynamic linker and shells load, and Rye's own settings.
/// The shipped runtimes refer to `${PATH}`, so a declaration alone would not protect it.
pub fn is_reserved(name: &str) -> bool {
    const BEGINNINGS: [&str; 4] = ["LD_", "DYLD_", "BASH_FUNC_", "RYE_"];
    // Some programs ignore case.
    let name = name.to_ascii_uppercase();
    is_needed(&name)
        || matches!(name.as_str(), "ENV" | "BASH_ENV" | "IFS")
        || BEGINNINGS.iter().any(|it| name.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_names_pass_unless_they_are_reserved() {
        let names = ["TOKEN", "PATH", "LD_PRELOAD", "BASH_ENV", "RYE_DEV_MODE"];
        let declared = Declared(names.iter().map(|name| (*name).to_owned()).collect());
        let passed: Vec<_> = names.iter().filter(|name| declared.may_set(name)).collect();
        assert_eq!(passed, [&"TOKEN"]);
        assert!(!declared.may_set("TAR_OPTIONS"));
    }
}
