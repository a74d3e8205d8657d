//! Whatever bytes come: no panic; and where there is a canonical text, it is
//! the same value, ASCII, and its own canonical text.

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

/// The value as another reader sees it; none where a number is beyond it.
fn read(text: &[u8]) -> Option<Value> {
    let mut value = serde_json::from_slice(text).ok()?;
    unsign_zeros(&mut value);
    Some(value)
}

/// To us `-0` is the integer 0, as to Python; to `serde_json` it is a float.
fn unsign_zeros(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => *value = Value::from(0),
        Value::Array(items) => items.iter_mut().for_each(unsign_zeros),
        Value::Object(members) => members.values_mut().for_each(unsign_zeros),
        _ => {}
    }
}
