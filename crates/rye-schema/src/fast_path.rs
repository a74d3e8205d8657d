//! Fast path: accepts valid values of simple schemas without a validator.
//!
//! The validator decides on everything else. A property test checks that the fast path never
//! accepts a value that the validator rejects.

use serde_json::{Map, Value};

/// Whether the schema is surely valid and the value surely matches it. False means unknown.
pub fn is_surely_valid(schema: &Value, value: &Value) -> bool {
    is_simple(schema) && is_valid(schema, value)
}

/// Whether a schema is valid and uses only keywords that [`is_valid`] supports.
pub(crate) fn is_simple(schema: &Value) -> bool {
    let Value::Object(schema) = schema else {
        return schema.is_boolean();
    };
    schema
        .iter()
        .all(|(keyword, argument)| match keyword.as_str() {
            "type" => match argument {
                Value::String(name) => is_known_type(name),
                Value::Array(names) => {
                    !names.is_empty() && are_unique(names) && names.iter().all(is_type_name)
                }
                _ => false,
            },
            "properties" => {
                let all = argument.as_object();
                all.is_some_and(|all| all.values().all(is_simple))
            }
            "required" => {
                let names = argument.as_array();
                names.is_some_and(|names| are_unique(names) && names.iter().all(Value::is_string))
            }
            "additionalProperties" | "items" => is_simple(argument),
            "enum" => argument.as_array().is_some_and(|all| !all.is_empty()),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                exact(argument).is_some()
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" => argument.is_u64(),
            "title" | "description" | "$comment" => argument.is_string(),
            "default" => true,
            "examples" => argument.is_array(),
            _ => false,
        })
}

/// Whether a value matches a simple schema.
pub(crate) fn is_valid(schema: &Value, value: &Value) -> bool {
    let Value::Object(schema) = schema else {
        return *schema == Value::Bool(true);
    };
    schema
        .iter()
        .all(|(keyword, argument)| match keyword.as_str() {
            "type" => match argument {
                Value::Array(names) => names.iter().any(|name| has_type(value, name)),
                name => has_type(value, name),
            },
            "properties" => value.as_object().is_none_or(|object| {
                let all = argument.as_object().into_iter().flatten();
                all.filter_map(|(name, argument)| Some((argument, object.get(name)?)))
                    .all(|(argument, value)| is_valid(argument, value))
            }),
            "required" => value.as_object().is_none_or(|object| {
                let mut names = argument.as_array().into_iter().flatten();
                names.all(|name| name.as_str().is_some_and(|name| object.contains_key(name)))
            }),
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let mut others = object.iter().filter(|(name, _)| !declares(schema, name));
                others.all(|(_, value)| is_valid(argument, value))
            }),
            "items" => {
                let items = value.as_array();
                items.is_none_or(|items| items.iter().all(|item| is_valid(argument, item)))
            }
            "enum" => argument.as_array().is_some_and(|all| all.contains(value)),
            "minimum" => within_limit(value, argument, |value, limit| value >= limit),
            "maximum" => within_limit(value, argument, |value, limit| value <= limit),
            "exclusiveMinimum" => within_limit(value, argument, |value, limit| value > limit),
            "exclusiveMaximum" => within_limit(value, argument, |value, limit| value < limit),
            "minLength" => within_length(length(value), argument, |length, limit| length >= limit),
            "maxLength" => within_length(length(value), argument, |length, limit| length <= limit),
            "minItems" => within_length(items(value), argument, |items, limit| items >= limit),
            "maxItems" => within_length(items(value), argument, |items, limit| items <= limit),
            // Annotations.
            _ => true,
        })
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    }
}

fn is_known_type(name: &str) -> bool {
    let all = [
        "object", "array", "string", "number", "integer", "boolean", "null",
    ];
    all.contains(&name)
}

fn is_type_name(name: &Value) -> bool {
    name.as_str().is_some_and(is_known_type)
}

fn are_unique(items: &[Value]) -> bool {
    let mut pairs = items.iter().enumerate();
    pairs.all(|(index, item)| !items[..index].contains(item))
}

fn declares(schema: &Map<String, Value>, name: &str) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|properties| properties.contains_key(name))
}

/// A number that an `f64` represents exactly.
fn exact(value: &Value) -> Option<f64> {
    const MAX_EXACT: u64 = 1 << 53;
    let number = value.as_number()?;
    let is_exact = number.is_f64() || number.as_i64()?.unsigned_abs() <= MAX_EXACT;
    number.as_f64().filter(|_| is_exact)
}

/// Checks a numeric limit, which values of other types always satisfy.
fn within_limit(value: &Value, argument: &Value, holds: impl Fn(f64, f64) -> bool) -> bool {
    let both = exact(value).zip(exact(argument));
    !value.is_number() || both.is_some_and(|(value, limit)| holds(value, limit))
}

fn length(value: &Value) -> Option<u64> {
    let count = value.as_str()?.chars().count();
    u64::try_from(count).ok()
}

fn items(value: &Value) -> Option<u64> {
    u64::try_from(value.as_array()?.len()).ok()
}

/// Checks a length limit, which values without a length always satisfy.
fn within_length(
    measured: Option<u64>,
    argument: &Value,
    holds: impl Fn(u64, u64) -> bool,
) -> bool {
    let limit = argument.as_u64();
    measured.is_none_or(|measured| limit.is_some_and(|limit| holds(measured, limit)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn typical_tool_schema_takes_the_fast_path() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Name to greet", "minLength": 1},
                "count": {"type": "integer", "default": 3, "minimum": 1},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        let valid = json!({"name": "Ada", "count": 3, "tags": ["a"]});
        assert!(is_surely_valid(&schema, &valid));
        for invalid in [
            json!({"count": 3}),
            json!({"name": ""}),
            json!({"name": "Ada", "count": 0}),
            json!({"name": "Ada", "tags": [1]}),
            json!({"name": "Ada", "other": 1}),
        ] {
            assert!(!is_surely_valid(&schema, &invalid), "{invalid}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3_i64..4).prop_map(Value::from),
            prop::sample::select(vec![json!(1.0), json!(0.5), json!(u64::MAX), json!(1e300)]),
            "[abä]{0,3}".prop_map(Value::from),
            prop::sample::select(vec!["string", "integer", "number", "object", "nonsense"])
                .prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec(("[abc]", inner), 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn schemas() -> impl Strategy<Value = Value> {
        let keywords = vec![
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "enum",
            "required",
            "type",
            "title",
            "default",
            "examples",
            "pattern",
            "$comment",
        ];
        let kinds = vec![
            "object", "array", "string", "number", "integer", "boolean", "null",
        ];
        let of_type = prop::sample::select(kinds).prop_map(|kind| json!({ "type": kind }));
        let of_keyword = (prop::sample::select(keywords), values())
            .prop_map(|(keyword, argument)| json!({ keyword: argument }));
        let leaf = prop_oneof![
            4 => of_type,
            2 => of_keyword,
            1 => any::<bool>().prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            let properties = prop::collection::vec(("[abc]", inner.clone()), 0..3)
                .prop_map(|all| Value::Object(all.into_iter().collect()));
            (properties, inner.clone(), prop::option::of(inner)).prop_map(
                |(properties, other, items)| {
                    let mut schema = json!({
                        "properties": properties,
                        "additionalProperties": other,
                        "required": properties.as_object().and_then(|all| all.keys().next()).into_iter().collect::<Vec<_>>(),
                    });
                    if let Some(items) = items {
                        schema["items"] = items;
                    }
                    schema
                },
            )
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn fast_path_accepts_only_what_the_validator_accepts(schema in schemas(), value in values()) {
            if is_simple(&schema) {
                let validator = jsonschema::validator_for(&schema);
                prop_assert!(validator.is_ok(), "{}", schema);
                if is_valid(&schema, &value) {
                    prop_assert!(validator.unwrap().is_valid(&value), "{} {}", schema, value);
                }
            }
        }
    }
}
