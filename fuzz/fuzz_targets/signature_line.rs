//! Splits any bytes as a signed file, and checks that signing and stripping round-trip.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use lillux::keys::SigningKey;
use rye_items::{CommentStyle, signature};

static KEY: OnceLock<SigningKey> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let key = KEY.get_or_init(|| SigningKey::generate().unwrap());
    for comment in [
        CommentStyle::HASH,
        CommentStyle::SLASHES,
        CommentStyle::MARKUP,
    ] {
        if let Ok(split) = signature::split(bytes, &comment) {
            assert!(split.before.len() + split.after.len() < bytes.len());
            let text = split.line.to_string();
            assert_eq!(text.parse::<signature::SignatureLine>(), Ok(split.line));
        }
    }
    let signed = signature::sign(
        bytes,
        &CommentStyle::HASH,
        &signature::Binding::item("tools/a.py"),
        key,
        "2026-01-01T00:00:00Z",
        None,
    )
    .unwrap();
    let split = signature::split(&signed, &CommentStyle::HASH).unwrap();
    assert_eq!(split.hash(), split.line.hash);
    assert_eq!(split.covered(), signature::strip_signature(&signed));
});
