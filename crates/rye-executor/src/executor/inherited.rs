//! What a call inherits: the variables of this process, without those that are ours and no
//! tool's, among them the ones whose names somebody chose for keys of models.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rye_items::trust::Trust;
use rye_items::{ItemKind, Library, metadata};
use serde_json::Value;

use super::Executor;
use crate::environment::{Environment, is_needed};
use crate::template::Variables;

/// The file that says which models there are, in each space.
const MODELS: &str = "config/agent/models.yaml";

/// What calls inherit that are given no variables. A process keeps the ones that it was
/// started with, so they are looked at once, and all calls share them.
#[derive(Default)]
pub(super) struct Inherited {
    all: OnceLock<Arc<Variables>>,
    minimal: OnceLock<Arc<Variables>>,
    /// The names that models have for our keys.
    withheld: OnceLock<Vec<String>>,
}

impl fmt::Debug for Inherited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inherited")
    }
}

impl Executor {
    /// What a call inherits: of what it is given, or of the variables of this process, all
    /// that may be a tool's, or with `minimal` only what every program needs.
    pub(super) fn inherited(
        &self,
        given: Option<Vec<(String, String)>>,
        minimal: bool,
        library: &Library,
        trust: &Trust<'_>,
    ) -> Arc<Variables> {
        let inherited = &*self.inherited;
        let withheld = || inherited.withheld.get_or_init(|| key_names(library, trust));
        if let Some(given) = given {
            return of_a_tool(given, minimal, withheld());
        }
        let shared = if minimal {
            &inherited.minimal
        } else {
            &inherited.all
        };
        Arc::clone(shared.get_or_init(|| of_a_tool(of_this_process(), minimal, withheld())))
    }
}

fn of_a_tool(
    variables: impl IntoIterator<Item = (String, String)>,
    minimal: bool,
    withheld: &[String],
) -> Arc<Variables> {
    let variables = variables.into_iter();
    let variables = variables.filter(|(name, _)| !withheld.contains(name));
    Environment::inherited(variables, minimal).into_variables()
}

/// The variables of this process that are text.
fn of_this_process() -> impl Iterator<Item = (String, String)> {
    let all = std::env::vars_os();
    all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// The names that the files about models give. A file that does not count names nothing, and
/// what every program needs is no key, whatever it is said to be.
fn key_names(library: &Library, trust: &Trust<'_>) -> Vec<String> {
    let mut names = Vec::new();
    // Those that the program itself brings are known without looking.
    let roots = library.spaces().roots();
    for root in roots.filter(|root| root.as_dir().is_some()) {
        let Ok(Some(bytes)) = library.read_config(root, MODELS, trust) else {
            continue;
        };
        let read = metadata::extract(&bytes, ".yaml", ItemKind::Config, library.extractors());
        let providers = read
            .ok()
            .and_then(|mut read| read.fields.remove("providers"));
        let providers = providers.iter().filter_map(|field| field.value.as_object());
        for provider in providers.flat_map(|all| all.values()) {
            let name = provider.get("api_key_env").and_then(Value::as_str);
            names.extend(name.filter(|name| !is_needed(name)).map(str::to_owned));
        }
    }
    names
}
