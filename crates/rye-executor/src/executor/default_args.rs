//! Default arguments for runtimes that name an interpreter but no arguments.

use rye_items::{ItemKind, ItemRef, Library};
use serde_json::{Map, Value, json};

use super::interpreter_variables;
use crate::chain::{self, Chain};
use crate::primitive::Primitives;

/// Runtimes whose arguments are the default, by the tool's extension. Other tools are run as
/// scripts.
const DEFAULT_RUNTIMES: [(&str, &str); 1] = [(".py", "rye/core/runtimes/python/function")];

/// Fills in arguments and input if the command is an interpreter and the configuration has
/// neither. Otherwise the interpreter would run nothing.
pub(super) fn fill_in(
    config: &mut Map<String, Value>,
    chain: &Chain,
    library: &Library,
    primitives: &Primitives,
) {
    let is_empty = |key: &str| match config.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    let command = config.get("command").and_then(Value::as_str);
    let is_interpreter = command.is_some_and(|command| {
        let runtimes = chain.links.iter().skip(1);
        let mut variables = runtimes.flat_map(interpreter_variables);
        variables.any(|variable| command == format!("${{{variable}}}"))
    });
    if !is_interpreter || !is_empty("args") || !is_empty("input_data") {
        return;
    }
    let defaults = runtime_defaults(chain, library, primitives).unwrap_or_else(|| {
        let mut defaults = Map::new();
        let arguments = json!(["{tool_path}", "--project-path", "{project_path}"]);
        defaults.insert("args".into(), arguments);
        defaults.insert("input_data".into(), json!("{params_json}"));
        defaults
    });
    config.extend(defaults);
}

/// Arguments and input of the default runtime for the tool's language.
fn runtime_defaults(
    chain: &Chain,
    library: &Library,
    primitives: &Primitives,
) -> Option<Map<String, Value>> {
    let extension = &chain.tool().item.extension;
    let (_, id) = DEFAULT_RUNTIMES
        .iter()
        .find(|(known, _)| known == extension)?;
    let reference = ItemRef::new(ItemKind::Tool, id.parse().ok()?);
    let runtime = chain::build(library, &library.trust(), &reference, primitives).ok()?;
    let config = runtime.tool().metadata.value("config")?;
    let keys = ["args", "input_data"].into_iter();
    keys.map(|key| Some((key.to_owned(), config.get(key)?.clone())))
        .collect()
}
