//! What is different in a call from a similar one that was approved.

use lillux::sanitize_line;
use rye_engine::protocol::Gate;
use rye_mcp::{Component, GatedCall};
use serde_json::Value;

/// The most that is shown of a value.
const LONGEST: usize = 200;

/// The differences, one a line.
pub(super) fn between(before: &Gate, call: &GatedCall) -> Vec<String> {
    let components = before
        .context
        .get("components")
        .cloned()
        .unwrap_or_default();
    let components: Vec<Component> = serde_json::from_value(components).unwrap_or_default();
    let parameters = before.context.get("params").unwrap_or(&Value::Null);
    let mut changes = changed_components(&components, &call.components);
    changes.extend(changed_parameters(parameters, &call.parameters));
    changes
}

fn changed_components(before: &[Component], now: &[Component]) -> Vec<String> {
    let short = |hash: &str| hash.get(..16).unwrap_or(hash).to_owned();
    let of = |all: &[Component], name: &str| {
        let component = all.iter().find(|component| component.name == name);
        component.map(|component| short(&component.hash))
    };
    let changed = now.iter().filter_map(|component| {
        let (name, is) = (&component.name, short(&component.hash));
        match of(before, name) {
            None => Some(format!("- {name} was not part of it")),
            Some(was) if was != is => Some(format!("- {name} was {was} and is {is}")),
            Some(_) => None,
        }
    });
    let gone = before
        .iter()
        .filter(|component| of(now, &component.name).is_none());
    let gone = gone.map(|component| format!("- {} is no longer part of it", component.name));
    changed.chain(gone).collect()
}

fn changed_parameters(before: &Value, now: &Value) -> Vec<String> {
    let (Value::Object(before), Value::Object(now)) = (before, now) else {
        return Vec::new();
    };
    let show = |value: Option<&Value>| match value {
        None => "not given".to_owned(),
        Some(value) => {
            let text = value.to_string();
            match text.char_indices().nth(LONGEST) {
                None => sanitize_line(&text).into_owned(),
                Some((at, _)) => format!("{}…", sanitize_line(&text[..at])),
            }
        }
    };
    let names = now
        .keys()
        .chain(before.keys().filter(|it| !now.contains_key(*it)));
    let changed = names.filter(|name| before.get(*name) != now.get(*name));
    let changed = changed.map(|name| {
        let [was, is] = [before, now].map(|all| show(all.get(name)));
        format!(
            "- parameter `{}` was {was} and is {is}",
            sanitize_line(name)
        )
    });
    changed.collect()
}
