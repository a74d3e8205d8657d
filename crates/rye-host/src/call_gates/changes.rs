//! Differences between a call and a similar call that was approved.

use lillux::sanitize_line;
use rye_engine::protocol::Gate;
use rye_mcp::{Component, GatedCall};
use serde_json::Value;

/// Maximum length of a displayed value.
const MAX_VALUE_LEN: usize = 200;

/// Lists the differences, one per line.
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
    let find = |all: &[Component], name: &str| {
        let component = all.iter().find(|component| component.name == name);
        component.map(|component| short(&component.hash))
    };
    let changed = now.iter().filter_map(|component| {
        let (name, new) = (&component.name, short(&component.hash));
        match find(before, name) {
            None => Some(format!("- {name} was added")),
            Some(old) if old != new => Some(format!("- {name} changed from {old} to {new}")),
            Some(_) => None,
        }
    });
    let removed = before
        .iter()
        .filter(|component| find(now, &component.name).is_none());
    let removed = removed.map(|component| format!("- {} was removed", component.name));
    changed.chain(removed).collect()
}

fn changed_parameters(before: &Value, now: &Value) -> Vec<String> {
    let (Value::Object(before), Value::Object(now)) = (before, now) else {
        return Vec::new();
    };
    let show = |value: Option<&Value>| match value {
        None => "unset".to_owned(),
        Some(value) => {
            let text = value.to_string();
            match text.char_indices().nth(MAX_VALUE_LEN) {
                None => sanitize_line(&text).into_owned(),
                Some((at, _)) => format!("{}…", sanitize_line(&text[..at])),
            }
        }
    };
    let names = now
        .keys()
        .chain(before.keys().filter(|name| !now.contains_key(*name)));
    let changed = names.filter(|name| before.get(*name) != now.get(*name));
    let changed = changed.map(|name| {
        let [old, new] = [before, now].map(|all| show(all.get(name)));
        format!(
            "- parameter `{}` changed from {old} to {new}",
            sanitize_line(name)
        )
    });
    changed.collect()
}
