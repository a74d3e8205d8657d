//! Filter for the variables of a project's `.env`.
//!
//! A `.env` is unsigned and may come with a cloned repository, and many programs run code that a
//! variable names: `TAR_OPTIONS`, `GIT_SSH_COMMAND`, `PYTEST_ADDOPTS`, a proxy. No denylist is
//! complete, so this is an allowlist: a call gets the names that its signed items declare.

use std::collections::BTreeSet;

use serde_json::Value;

use super::is_basic;
use crate::chain::{Chain, Link};
use crate::template;

/// Names of the variables that the items of a call declare.
#[derive(Debug, Default)]
pub struct DotenvFilter(BTreeSet<String>);

impl DotenvFilter {
    /// Collects the names that a chain declares: in `requires_env`, and as `${NAME}` in
    /// `env_config.env` and `config`. References in the program name are excluded, because the
    /// file would choose the program; so are path variables that an anchor extends.
    pub(crate) fn from_chain(chain: &Chain) -> Self {
        let mut names = BTreeSet::new();
        let links = || chain.links.iter().chain(chain.named.values());
        for (index, link) in links().enumerate() {
            // If a runtime declares the parameter `command`, it is not the program name.
            let runtimes = chain.links.get(index + 1..).unwrap_or_default();
            let is_program = !runtimes.iter().any(|link| has_parameter(link, "command"));
            names.extend(link.metadata.requires_env());
            let env = link
                .metadata
                .value("env_config")
                .and_then(|it| it.get("env"));
            template::collect_variable_names(env.unwrap_or(&Value::Null), &mut names);
            let config = link.metadata.value("config").and_then(Value::as_object);
            let config = config.into_iter().flatten();
            for (_, value) in config.filter(|(key, _)| !(is_program && *key == "command")) {
                template::collect_variable_names(value, &mut names);
            }
        }
        for path in links().flat_map(anchor_variables) {
            names.remove(path);
        }
        Self(names)
    }

    /// Whether a `.env` may set this variable in the call.
    pub fn allows(&self, name: &str) -> bool {
        self.0.contains(name) && !is_reserved(name)
    }
}

/// Whether a runtime declares a parameter. The properties of a primitive are configuration.
fn has_parameter(link: &Link, name: &str) -> bool {
    let schema = link.metadata.config_schema();
    let properties = schema.and_then(|schema| schema.get("properties")?.as_object());
    link.metadata.executor_id().is_some()
        && properties.is_some_and(|properties| properties.contains_key(name))
}

/// Variables that the anchor of an item extends.
fn anchor_variables(link: &Link) -> impl Iterator<Item = &String> {
    let anchor = link.metadata.value("anchor");
    let paths = anchor.and_then(|anchor| anchor.get("env_paths")?.as_object());
    paths.into_iter().flatten().map(|(name, _)| name)
}

/// Whether a `.env` can never set a variable, even if it is declared: basic variables such as
/// `PATH` and `HOME`, variables that the dynamic linker and shells load code from, and Rye's own
/// settings. The bundled runtimes refer to `${PATH}`, so the filter alone would allow it.
pub fn is_reserved(name: &str) -> bool {
    const PREFIXES: [&str; 4] = ["LD_", "DYLD_", "BASH_FUNC_", "RYE_"];
    // Some programs ignore the case of variable names.
    let name = name.to_ascii_uppercase();
    is_basic(&name)
        || matches!(name.as_str(), "ENV" | "BASH_ENV" | "IFS")
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_names_are_allowed_unless_reserved() {
        let names = ["TOKEN", "PATH", "LD_PRELOAD", "BASH_ENV", "RYE_DEV_MODE"];
        let filter = DotenvFilter(names.iter().map(|name| (*name).to_owned()).collect());
        let allowed: Vec<_> = names.iter().filter(|name| filter.allows(name)).collect();
        assert_eq!(allowed, [&"TOKEN"]);
        assert!(!filter.allows("TAR_OPTIONS"));
    }
}
