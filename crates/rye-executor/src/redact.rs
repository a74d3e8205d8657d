//! Redaction: secrets of a call must not appear in its output, results or errors.

mod stream;

use lillux::cas::Cas;
use serde_json::{Map, Value};

pub use lillux::redact::{REDACTED, Redactor};

use crate::primitive::{CallOutcome, OutputListener};
pub(crate) use stream::RedactingOutput;

/// Shorter values of secret variables are not redacted.
const MIN_SECRET_LENGTH: usize = 8;

/// Words in a variable's name that make its value a secret.
const SECRET_WORDS: [&str; 9] = [
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

/// Whether a variable or field with this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word)) || name.ends_with("PASS")
}

/// Whether a variable holds a secret, judged by its name and the length of its value.
pub fn is_secret_variable(name: &str, value: &str) -> bool {
    value.len() >= MIN_SECRET_LENGTH && is_secret_name(name)
}

/// Wraps a listener so that it gets redacted output. Each chunk is redacted on its own, so a
/// secret must not be split across chunks.
#[must_use]
pub fn redacting_listener(redactor: &Redactor, listener: OutputListener) -> OutputListener {
    let redactor = redactor.clone();
    OutputListener::new(move |stream, bytes| {
        listener.on_output(stream, &redactor.redact_bytes(bytes));
    })
}

/// Adds the values of secret request headers, such as `Authorization`.
pub(crate) fn add_header_secrets(redactor: &Redactor, config: &Map<String, Value>) {
    let headers = config.get("headers").and_then(Value::as_object);
    for (name, value) in headers.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        // Without the authentication scheme, such as `Bearer`.
        let secret = value.rsplit(' ').next().unwrap_or_default();
        if is_secret_variable(name, secret) {
            redactor.add(secret);
        }
    }
}

/// Redacts the outcome of a call, including output that was stored because of its length.
pub(crate) fn redact_outcome(redactor: &Redactor, outcome: &mut CallOutcome, store: Option<&Cas>) {
    if redactor.is_empty() {
        return;
    }
    if let Some(store) = store {
        stream::redact_stored_output(&mut outcome.metadata, store, redactor);
    }
    redactor.redact_value(&mut outcome.data);
    for value in outcome.metadata.values_mut() {
        redactor.redact_value(value);
    }
    if let Some(failure) = &mut outcome.failure {
        redactor.redact_in_place(&mut failure.message);
        if let Some(hint) = &mut failure.hint {
            redactor.redact_in_place(hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_recognised_by_name_and_length() {
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
