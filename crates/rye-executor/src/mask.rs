//! What is a secret, and how it stays one: what was put into a call goes no further than
//! there, whatever the tool gives, prints or says.

mod stream;

use lillux::cas::Cas;
use serde_json::{Map, Value};

pub use lillux::mask::{MASK, Masks};

use crate::primitive::{Done, Listener};
pub(crate) use stream::Watching;

/// What a file calls a secret counts as one from this length on.
const SHORTEST_NAMED: usize = 8;

/// Words in the name of a variable that make its value a secret.
const SECRET: [&str; 9] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "AUTHORIZATION",
    "COOKIE",
];

/// Whether what has this name should not be seen.
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET.iter().any(|word| name.contains(word)) || name.ends_with("PASS")
}

/// Whether a variable that nobody has called a secret is one, by its name and its length.
pub fn is_secret(name: &str, value: &str) -> bool {
    value.len() >= SHORTEST_NAMED && looks_secret(name)
}

/// Somebody who hears what is told whole, piece by piece, without the secrets.
#[must_use]
pub fn listening(masks: &Masks, listener: Listener) -> Listener {
    let masks = masks.clone();
    Listener::new(move |stream, bytes| listener.hear(stream, &masks.mask_bytes(bytes)))
}

/// The headers of a request by which it says who asks are secrets.
pub(crate) fn learn_headers(masks: &Masks, config: &Map<String, Value>) {
    let headers = config.get("headers").and_then(Value::as_object);
    for (name, value) in headers.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        // The scheme before it is none: `Bearer`, for one.
        let secret = value.rsplit(' ').next().unwrap_or_default();
        if is_secret(name, secret) {
            masks.add(secret);
        }
    }
}

/// What came of a call, without the secrets, also where it was too long to be given.
pub(crate) fn mask_done(masks: &Masks, done: &mut Done, store: Option<&Cas>) {
    if masks.is_empty() {
        return;
    }
    if let Some(store) = store {
        stream::mask_kept(&mut done.metadata, store, masks);
    }
    masks.mask_value(&mut done.data);
    for value in done.metadata.values_mut() {
        masks.mask_value(value);
    }
    if let Some(failed) = &mut done.failure {
        masks.mask_in(&mut failed.message);
        if let Some(hint) = &mut failed.hint {
            masks.mask_in(hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_lengths_tell_what_is_a_secret() {
        for name in [
            "API_KEY",
            "gh_token",
            "DB_PASSWORD",
            "DB_PASS",
            "PASSPHRASE",
            "X_CREDENTIALS",
        ] {
            assert!(is_secret(name, "long enough"), "{name}");
            assert!(!is_secret(name, "short"), "{name}");
        }
        for name in ["DATABASE_URL", "MODE", "PATH"] {
            assert!(!is_secret(name, "long enough"), "{name}");
        }
    }
}
