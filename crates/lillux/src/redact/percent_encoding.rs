//! Percent-encoded variants of a secret, as in URLs and HTML forms.

/// RFC 3986 unreserved punctuation, which no encoder escapes.
const UNRESERVED: &[u8] = b"-._~";
/// Further bytes that common encoders leave unescaped: none, `/` in paths, those of
/// JavaScript's `encodeURIComponent`, `*` in HTML forms.
const UNESCAPED: [&[u8]; 4] = [b"", b"/", b"!'()*", b"*"];

/// The distinct encodings of `bytes` by common encoders; empty if no encoder escapes anything.
pub(super) fn variants(bytes: &[u8]) -> Vec<String> {
    if bytes.iter().all(|byte| is_unescaped(*byte, b"")) {
        return Vec::new();
    }
    let mut variants = Vec::new();
    for extra in UNESCAPED {
        let encoded = encode(bytes, extra);
        // HTML forms encode a space as `+`.
        variants.push(encoded.replace("%20", "+"));
        variants.push(encoded);
    }
    variants.sort_unstable();
    variants.dedup();
    variants
}

fn is_unescaped(byte: u8, extra: &[u8]) -> bool {
    byte.is_ascii_alphanumeric() || UNRESERVED.contains(&byte) || extra.contains(&byte)
}

fn encode(bytes: &[u8], extra: &[u8]) -> String {
    let encoded = bytes.iter().map(|byte| {
        if is_unescaped(*byte, extra) {
            char::from(*byte).to_string()
        } else {
            format!("%{byte:02x}")
        }
    });
    encoded.collect()
}
