//! What is a secret, and how it stays one: what was put into a call goes no further than
//! there, whatever the tool gives, prints or says.

mod stream;

use lillux::cas::Cas;
use serde_json::{Map, Value};

pub use lillux::redact::{REDACTED, Redactor};

use crate::primitive::{CallOutcome, OutputListener};
pub(crate) use stream::RedactingOutput;

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
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET.iter().any(|word| name.contains(word)) || name.ends_with("PASS")
}

/// Whether a variable that nobody has called a secret is one, by its name and its length.
pub fn is_secret_variable(name: &str, value: &str) -> bool {
    value.len() >= SHORTEST_NAMED && is_secret_name(name)
}

/// Somebody who hears what is told whole, piece by piece, without the secrets.
#[must_use]
pub fn redacting_listener(redactor: &Redactor, listener: OutputListener) -> OutputListener {
    let redactor = redactor.clone();
    OutputListener::new(move |stream, bytes| {
        listener.on_output(stream, &redactor.redact_bytes(bytes))
    })
}

/// The headers of a request by which it says who asks are secrets.
pub(crate) fn add_header_secrets(redactor: &Redactor, config: &Map<String, Value>) {
    let headers = config.get("headers").and_then(Value::as_object);
    for (name, value) in headers.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        // The scheme before it is none: `Bearer`, for one.
        let secret = value.rsplit(' ').next().unwrap_or_default();
        if is_secret_variable(name, secret) {
            redactor.add(secret);
        }
    }
}

/// What came of a call, without the secrets, also where it was too long to be given.
pub(crate) fn redact_outcome(redactor: &Redactor, done: &mut CallOutcome, store: Option<&Cas>) {
    if redactor.is_empty() {
        return;
    }
    if let Some(store) = store {
        stream::redact_spilled(&mut done.metadata, store, redactor);
    }
    redactor.redact_value(&mut done.data);
    for value in done.metadata.values_mut() {
        redactor.redact_value(value);
    }
    if let Some(failed) = &mut done.failure {
        redactor.redact_in_place(&mut failed.message);
        if let Some(hint) = &mut failed.hint {
            redactor.redact_in_place(hint);
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
            assert!(is_secret_variable(name, "long enough"), "{name}");
            assert!(!is_secret_variable(name, "short"), "{name}");
        }
        for name in ["DATABASE_URL", "MODE", "PATH"] {
            assert!(!is_secret_variable(name, "long enough"), "{name}");
        }
    }
}
