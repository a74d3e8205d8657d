//! A quick yes to values that fit a plain schema.
//!
//! What is not plain, and whatever does not fit, goes the long way, which alone
//! decides; a test holds the two together.

use serde_json::{Map, Value};

/// Whether a value is sure to fit, and the schema sure to be one. No is no answer.
pub fn surely_fits(schema: &Value, value: &Value) -> bool {
    is_plain(schema) && fits(schema, value)
}

/// Whether a schema says nothing but what [`fits`] understands, and says it rightly.
pub(crate) fn is_plain(schema: &Value) -> bool {
    let Value::Object(schema) = schema else {
        return schema.is_boolean();
    };
    schema
        .iter()
        .all(|(keyword, about)| match keyword.as_str() {
            "type" => match about {
                Value::String(name) => is_type(name),
                Value::Array(names) => {
                    !names.is_empty() && are_unique(names) && names.iter().all(is_type_name)
                }
                _ => false,
            },
            "properties" => {
                let all = about.as_object();
                all.is_some_and(|all| all.values().all(is_plain))
            }
            "required" => {
                let names = about.as_array();
                names.is_some_and(|names| are_unique(names) && names.iter().all(Value::is_string))
            }
            "additionalProperties" | "items" => is_plain(about),
            "enum" => about.as_array().is_some_and(|all| !all.is_empty()),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                exact(about).is_some()
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" => about.is_u64(),
            "title" | "description" | "$comment" => about.is_string(),
            "default" => true,
            "examples" => about.is_array(),
            _ => false,
        })
}

/// Whether a value fits a plain schema.
pub(crate) fn fits(schema: &Value, value: &Value) -> bool {
    let Value::Object(schema) = schema else {
        return *schema == Value::Bool(true);
    };
    schema
        .iter()
        .all(|(keyword, about)| match keyword.as_str() {
            "type" => match about {
                Value::Array(names) => names.iter().any(|name| is_of(value, name)),
                name => is_of(value, name),
            },
            "properties" => value.as_object().is_none_or(|object| {
                let all = about.as_object().into_iter().flatten();
                all.filter_map(|(name, about)| Some((about, object.get(name)?)))
                    .all(|(about, value)| fits(about, value))
            }),
            "required" => value.as_object().is_none_or(|object| {
                let mut names = about.as_array().into_iter().flatten();
                names.all(|name| name.as_str().is_some_and(|name| object.contains_key(name)))
            }),
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let mut others = object.iter().filter(|(name, _)| !declares(schema, name));
                others.all(|(_, value)| fits(about, value))
            }),
            "items" => {
                let items = value.as_array();
                items.is_none_or(|items| items.iter().all(|item| fits(about, item)))
            }
            "enum" => about.as_array().is_some_and(|all| all.contains(value)),
            "minimum" => compared(value, about, |value, limit| value >= limit),
            "maximum" => compared(value, about, |value, limit| value <= limit),
            "exclusiveMinimum" => compared(value, about, |value, limit| value > limit),
            "exclusiveMaximum" => compared(value, about, |value, limit| value < limit),
            "minLength" => limit(length(value), about, |length, limit| length >= limit),
            "maxLength" => limit(length(value), about, |length, limit| length <= limit),
            "minItems" => limit(items(value), about, |items, limit| items >= limit),
            "maxItems" => limit(items(value), about, |items, limit| items <= limit),
            // What only describes.
            _ => true,
        })
}

fn is_of(value: &Value, name: &Value) -> bool {
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

fn is_type(name: &str) -> bool {
    let all = [
        "object", "array", "string", "number", "integer", "boolean", "null",
    ];
    all.contains(&name)
}

fn is_type_name(name: &Value) -> bool {
    name.as_str().is_some_and(is_type)
}

fn are_unique(items: &[Value]) -> bool {
    let mut pairs = items.iter().enumerate();
    pairs.all(|(index, item)| !items[..index].contains(item))
}

fn declares(schema: &Map<String, Value>, name: &str) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|properties| properties.contains_key(name))
}

/// A number that a float holds without loss.
fn exact(value: &Value) -> Option<f64> {
    const MOST: u64 = 1 << 53;
    let number = value.as_number()?;
    let is_exact = number.is_f64() || number.as_i64()?.unsigned_abs() <= MOST;
    number.as_f64().filter(|_| is_exact)
}

/// What is no number has no limit to it.
fn compared(value: &Value, about: &Value, holds: impl Fn(f64, f64) -> bool) -> bool {
    let both = exact(value).zip(exact(about));
    !value.is_number() || both.is_some_and(|(value, limit)| holds(value, limit))
}

fn length(value: &Value) -> Option<u64> {
    let count = value.as_str()?.chars().count();
    u64::try_from(count).ok()
}

fn items(value: &Value) -> Option<u64> {
    u64::try_from(value.as_array()?.len()).ok()
}

/// What has no length has no limit to it.
fn limit(measured: Option<u64>, about: &Value, holds: impl Fn(u64, u64) -> bool) -> bool {
    let limit = about.as_u64();
    measured.is_none_or(|measured| limit.is_some_and(|limit| holds(measured, limit)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_schemas_of_most_tools_go_the_short_way() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Whom", "minLength": 1},
                "count": {"type": "integer", "default": 3, "minimum": 1},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        let given = json!({"name": "Ada", "count": 3, "tags": ["a"]});
        assert!(surely_fits(&schema, &given));
        for wrong in [
            json!({"count": 3}),
            json!({"name": ""}),
            json!({"name": "Ada", "count": 0}),
            json!({"name": "Ada", "tags": [1]}),
            json!({"name": "Ada", "other": 1}),
        ] {
            assert!(!surely_fits(&schema, &wrong), "{wrong}");
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
            .prop_map(|(keyword, about)| json!({ keyword: about }));
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
        fn what_goes_the_short_way_passes_the_long_way_too(schema in schemas(), value in values()) {
            if is_plain(&schema) {
                let validator = jsonschema::validator_for(&schema);
                prop_assert!(validator.is_ok(), "{}", schema);
                if fits(&schema, &value) {
                    prop_assert!(validator.unwrap().is_valid(&value), "{} {}", schema, value);
                }
            }
        }
    }
}
