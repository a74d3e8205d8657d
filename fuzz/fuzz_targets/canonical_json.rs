//! Canonical JSON of arbitrary bytes: never panics; the canonical text is ASCII, has the same
//! value, and is its own canonical form.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lillux::canonical::canonicalize;
use serde_json::Value;

fuzz_target!(|text: &[u8]| {
    let Ok(canonical) = canonicalize(text) else {
        return;
    };
    assert!(canonical.iter().all(|b| matches!(b, b' '..=b'~')));
    let again = canonicalize(&canonical).expect("canonical text has a canonical text");
    assert_eq!(again, canonical, "not idempotent");
    assert_eq!(read(&canonical), read(text), "another value");
});

/// Parses with `serde_json`; none if a number is out of its range.
fn read(text: &[u8]) -> Option<Value> {
    let mut value = serde_json::from_slice(text).ok()?;
    unsign_zeros(&mut value);
    Some(value)
}

/// Replaces `-0` by 0. Canonical JSON treats `-0` as the integer 0, `serde_json` as a float.
fn unsign_zeros(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => *value = Value::from(0),
        Value::Array(items) => items.iter_mut().for_each(unsign_zeros),
        Value::Object(members) => members.values_mut().for_each(unsign_zeros),
        _ => {}
    }
}
