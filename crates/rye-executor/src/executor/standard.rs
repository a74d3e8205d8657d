//! How a tool is handed to a runtime that names an interpreter and says no more.

use rye_items::{ItemKind, ItemRef, Library};
use serde_json::{Map, Value, json};

use super::interpreter_variables;
use crate::chain::{self, Chain};
use crate::primitive::Primitives;

/// The runtimes whose arguments are taken, by the tool's extension. A tool of
/// any other language is run as a script.
const STANDARD: [(&str, &str); 1] = [(".py", "rye/core/runtimes/python/function")];

/// Fills in the arguments and the input of a configuration whose command is an
/// interpreter and which has neither: by itself it would run nothing.
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
    let way = standard(chain, library, primitives).unwrap_or_else(|| {
        let mut way = Map::new();
        let arguments = json!(["{tool_path}", "--project-path", "{project_path}"]);
        way.insert("args".into(), arguments);
        way.insert("input_data".into(), json!("{params_json}"));
        way
    });
    config.extend(way);
}

/// The arguments and the input of the standard runtime of the tool's language.
fn standard(
    chain: &Chain,
    library: &Library,
    primitives: &Primitives,
) -> Option<Map<String, Value>> {
    let extension = &chain.tool().item.extension;
    let (_, id) = STANDARD.iter().find(|(known, _)| known == extension)?;
    let reference = ItemRef::new(ItemKind::Tool, id.parse().ok()?);
    let standard = chain::build(library, &library.trust(), &reference, primitives).ok()?;
    let config = standard.tool().metadata.value("config")?;
    let keys = ["args", "input_data"].into_iter();
    keys.map(|key| Some((key.to_owned(), config.get(key)?.clone())))
        .collect()
}
