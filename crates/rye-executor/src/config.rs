//! Configuration of a call: merged along the chain, and loaded from files in the spaces.

use serde_json::{Map, Value};

/// Merges configurations; later ones override earlier ones. Mappings are merged key by key,
/// other values are replaced.
pub fn merge<'a>(configs: impl IntoIterator<Item = &'a Value>) -> Map<String, Value> {
    let mut merged = Map::new();
    for config in configs {
        if let Value::Object(fields) = config {
            overlay(&mut merged, fields);
        }
    }
    merged
}

fn overlay(base: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Object(inner)), Value::Object(fields)) => overlay(inner, fields),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// How configuration files of several spaces are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Merge all of them; project overrides user, user overrides system.
    DeepMerge,
    /// Use the first that exists: project, user, system.
    FirstMatch,
}

/// A file below `.ai/config/` that a tool requests with `config_resolve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRequest {
    /// Path relative to `.ai/config/`.
    pub path: String,
    /// How the files of the spaces are combined.
    pub mode: Mode,
}

/// Parses a `config_resolve` declaration: one request or a list.
pub fn parse_requests(declaration: &Value) -> Result<Vec<ConfigRequest>, String> {
    match declaration {
        Value::Null => Ok(Vec::new()),
        Value::Array(all) => all.iter().map(parse_request).collect(),
        single => Ok(vec![parse_request(single)?]),
    }
}

fn parse_request(declaration: &Value) -> Result<ConfigRequest, String> {
    let path = declaration.get("path").and_then(Value::as_str);
    let path = path.ok_or("`config_resolve` needs a `path`")?;
    let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
    if !path.split('/').all(is_name) || path.contains(['\\', '\0']) {
        return Err(format!(
            "`config_resolve`: `{path}` is not a path inside `.ai/config/`"
        ));
    }
    let mode = match declaration.get("mode").and_then(Value::as_str) {
        None | Some("deep_merge") => Mode::DeepMerge,
        Some("first_match") => Mode::FirstMatch,
        Some(other) => {
            return Err(format!(
                "`config_resolve`: unknown mode `{other}`; expected deep_merge or first_match"
            ));
        }
    };
    Ok(ConfigRequest {
        path: path.to_owned(),
        mode,
    })
}

/// Combines the files of the spaces, given in the order project, user, system.
pub fn combine(mode: Mode, files: &[Value]) -> Map<String, Value> {
    match mode {
        Mode::DeepMerge => merge(files.iter().rev()),
        Mode::FirstMatch => merge(files.first()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn later_configs_override_and_mappings_are_merged() {
        let (primitive, runtime, tool) = (
            json!({"timeout": 300, "env": {"A": 1, "B": 2}}),
            json!({"args": ["x"], "env": {"B": 3}}),
            json!({"timeout": 5, "args": []}),
        );
        let merged = merge([&primitive, &runtime, &json!(null), &tool]);
        assert_eq!(
            Value::Object(merged),
            json!({"timeout": 5, "env": {"A": 1, "B": 3}, "args": []})
        );
    }

    #[test]
    fn requested_path_must_stay_inside_config_dir() {
        assert_eq!(parse_requests(&json!(null)), Ok(vec![]));
        let both = parse_requests(
            &json!([{"path": "a/b.yaml"}, {"path": "c.yaml", "mode": "first_match"}]),
        )
        .unwrap();
        assert_eq!(both[0].mode, Mode::DeepMerge);
        assert_eq!(both[1].mode, Mode::FirstMatch);
        for bad in ["../x", "/etc/x", "a//b", "", "a/./b"] {
            assert!(parse_requests(&json!({"path": bad})).is_err(), "{bad}");
        }
        assert!(parse_requests(&json!({"path": "a", "mode": "all"})).is_err());
    }

    #[test]
    fn files_are_combined_according_to_the_mode() {
        let files = [
            json!({"a": 1}),
            json!({"a": 2, "b": {"x": 1}}),
            json!({"b": {"y": 2}}),
        ];
        assert_eq!(
            Value::Object(combine(Mode::DeepMerge, &files)),
            json!({"b": {"y": 2, "x": 1}, "a": 1})
        );
        assert_eq!(
            Value::Object(combine(Mode::FirstMatch, &files)),
            json!({"a": 1})
        );
        assert_eq!(combine(Mode::FirstMatch, &[]), Map::new());
    }
}
