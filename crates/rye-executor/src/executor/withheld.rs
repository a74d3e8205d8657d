//! The variables whose names somebody chose for keys of models: they are ours, and no tool's.

use rye_items::trust::Trust;
use rye_items::{ItemKind, Library, metadata};
use serde_json::Value;

use super::Executor;
use crate::environment::is_needed;

/// The file that says which models there are, in each space.
const MODELS: &str = "config/agent/models.yaml";

impl Executor {
    /// Variables without those that hold our keys. Which these are is read once.
    pub(super) fn without_own(
        &self,
        mut variables: Vec<(String, String)>,
        library: &Library,
        trust: &Trust<'_>,
    ) -> Vec<(String, String)> {
        let own = self.withheld.get_or_init(|| key_names(library, trust));
        if !own.is_empty() {
            variables.retain(|(name, _)| !own.contains(name));
        }
        variables
    }
}

/// The names that the files about models give. A file that does not count names nothing, and
/// what every program needs is no key, whatever it is said to be.
fn key_names(library: &Library, trust: &Trust<'_>) -> Vec<String> {
    let mut names = Vec::new();
    // Those that the program itself brings are known without looking.
    let roots = library.spaces().roots();
    for root in roots.filter(|root| root.as_folder().is_some()) {
        let Ok(Some(bytes)) = library.config(root, MODELS, trust) else {
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
