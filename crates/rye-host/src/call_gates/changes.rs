//! What is different in a call from a similar one that was approved.

use lillux::visible_line;
use rye_engine::protocol::Gate;
use rye_mcp::{Gated, Piece};
use serde_json::Value;

/// The most that is shown of a value.
const LONGEST: usize = 200;

/// The differences, one a line.
pub(super) fn between(before: &Gate, call: &Gated) -> Vec<String> {
    let pieces = before.context.get("pieces").cloned().unwrap_or_default();
    let pieces: Vec<Piece> = serde_json::from_value(pieces).unwrap_or_default();
    let parameters = before.context.get("params").unwrap_or(&Value::Null);
    let mut changes = changed_pieces(&pieces, &call.pieces);
    changes.extend(changed_parameters(parameters, &call.parameters));
    changes
}

fn changed_pieces(before: &[Piece], now: &[Piece]) -> Vec<String> {
    let short = |hash: &str| hash.get(..16).unwrap_or(hash).to_owned();
    let of = |all: &[Piece], name: &str| {
        let piece = all.iter().find(|piece| piece.name == name);
        piece.map(|piece| short(&piece.hash))
    };
    let changed = now.iter().filter_map(|piece| {
        let (name, is) = (&piece.name, short(&piece.hash));
        match of(before, name) {
            None => Some(format!("- {name} was not part of it")),
            Some(was) if was != is => Some(format!("- {name} was {was} and is {is}")),
            Some(_) => None,
        }
    });
    let gone = before.iter().filter(|piece| of(now, &piece.name).is_none());
    let gone = gone.map(|piece| format!("- {} is no longer part of it", piece.name));
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
                None => visible_line(&text).into_owned(),
                Some((at, _)) => format!("{}…", visible_line(&text[..at])),
            }
        }
    };
    let names = now
        .keys()
        .chain(before.keys().filter(|it| !now.contains_key(*it)));
    let changed = names.filter(|name| before.get(*name) != now.get(*name));
    let changed = changed.map(|name| {
        let [was, is] = [before, now].map(|all| show(all.get(name)));
        format!("- parameter `{}` was {was} and is {is}", visible_line(name))
    });
    changed.collect()
}
