//! Direct calls of runtimes and primitives, without a tool.
//!
//! The parameters of a primitive are its configuration. The parameters of a runtime are the ones
//! that it declares. The caller writes them in place of a tool's author, so they may be code, and
//! such a call requires approval unless a user makes it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::template_context::declared_parameters;
use crate::chain::Chain;
use crate::error::ExecuteError;
use crate::primitive::Primitive;
use crate::template;

/// Placeholders of the tool's file.
const FILE_PLACEHOLDERS: [&str; 2] = ["tool_path", "tool_source"];

/// Checks that the runtime or primitive does not need a tool's file. `given` are the names of the
/// parameters that the caller passes.
pub(super) fn check(
    chain: &Chain,
    config: &Map<String, Value>,
    primitive: &dyn Primitive,
    given: &[String],
) -> Result<(), ExecuteError> {
    let mut used = BTreeSet::new();
    for value in config.values() {
        template::collect_placeholder_names(value, &mut used);
    }
    let runs_file = FILE_PLACEHOLDERS.iter().any(|name| used.contains(*name));
    let has_code = given.iter().any(|name| used.contains(name));
    if !primitive.needs_tool() && (!runs_file || has_code) {
        return Ok(());
    }
    let parameters = declared_parameters(&chain.tool().metadata).map(|(name, _)| name);
    Err(ExecuteError::NeedsTool {
        id: chain.tool().id().to_string(),
        parameter: parameters
            .into_iter()
            .find(|name| used.contains(*name))
            .cloned(),
    })
}

/// Configuration of a direct call. The parameters of a primitive are its configuration. A
/// parameter of a runtime that is also a key of the primitive is passed on, unless the runtime
/// sets that key.
pub(super) fn config(
    chain: &Chain,
    mut config: Map<String, Value>,
    parameters: &Value,
) -> Map<String, Value> {
    if is_primitive(chain) {
        return parameters.as_object().cloned().unwrap_or_default();
    }
    let keys: Vec<_> = declared_parameters(&chain.primitive().metadata)
        .map(|(name, _)| name)
        .collect();
    for (name, _) in declared_parameters(&chain.tool().metadata) {
        if keys.contains(&name) && parameters.get(name).is_some() && !config.contains_key(name) {
            config.insert(name.clone(), Value::String(format!("{{{name}}}")));
        }
    }
    config
}

/// The parameters that the runtime or primitive does not declare itself.
pub(super) fn undeclared(chain: &Chain, parameters: &Value) -> Value {
    let mut parameters = parameters.clone();
    if let Value::Object(fields) = &mut parameters {
        for (name, _) in declared_parameters(&chain.tool().metadata) {
            fields.remove(name);
        }
    }
    parameters
}

/// Whether the call is made to a runtime or primitive.
pub(super) fn is_direct(chain: &Chain) -> bool {
    is_primitive(chain) || chain.tool().is_executor()
}

/// Whether the call is made to a primitive, whose configuration contains no templates.
pub(super) fn is_primitive(chain: &Chain) -> bool {
    chain.links.len() == 1
}
