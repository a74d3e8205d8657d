//! Configuration: merged along the chain, and read from the spaces.

use serde_json::{Map, Value};

/// Merges configurations, the later over the earlier: mappings key by key, all
/// else as a whole.
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

/// How configuration of the spaces is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// All of them, the project's over the user's over the system's.
    DeepMerge,
    /// The first that is there: project, user, system.
    FirstMatch,
}

/// A file under `.ai/config/` that a tool asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Relative to `.ai/config/`.
    pub path: String,
    /// How the spaces' files are put together.
    pub mode: Mode,
}

/// Reads a `CONFIG_RESOLVE`: one, or a list. The error is a sentence.
pub fn wanted(about: &Value) -> Result<Vec<Wanted>, String> {
    match about {
        Value::Null => Ok(Vec::new()),
        Value::Array(all) => all.iter().map(one).collect(),
        single => Ok(vec![one(single)?]),
    }
}

fn one(about: &Value) -> Result<Wanted, String> {
    let path = about.get("path").and_then(Value::as_str);
    let path = path.ok_or("`config_resolve` needs a `path`")?;
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    if !path.split('/').all(plain) || path.contains(['\\', '\0']) {
        return Err(format!(
            "`{path}` in `config_resolve` does not stay in `.ai/config/`"
        ));
    }
    let mode = match about.get("mode").and_then(Value::as_str) {
        None | Some("deep_merge") => Mode::DeepMerge,
        Some("first_match") => Mode::FirstMatch,
        Some(other) => {
            return Err(format!(
                "there is no mode `{other}`; the modes are deep_merge, first_match"
            ));
        }
    };
    Ok(Wanted {
        path: path.to_owned(),
        mode,
    })
}

/// Puts the files of the spaces together, given in the order project, user, system.
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
    fn later_wins_mappings_are_merged_and_lists_are_replaced() {
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
    fn what_is_wanted_stays_in_its_folder() {
        assert_eq!(wanted(&json!(null)), Ok(vec![]));
        let both =
            wanted(&json!([{"path": "a/b.yaml"}, {"path": "c.yaml", "mode": "first_match"}]))
                .unwrap();
        assert_eq!(both[0].mode, Mode::DeepMerge);
        assert_eq!(both[1].mode, Mode::FirstMatch);
        for bad in ["../x", "/etc/x", "a//b", "", "a/./b"] {
            assert!(wanted(&json!({"path": bad})).is_err(), "{bad}");
        }
        assert!(wanted(&json!({"path": "a", "mode": "all"})).is_err());
    }

    #[test]
    fn the_spaces_are_combined_as_asked() {
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
