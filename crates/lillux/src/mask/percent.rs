//! A secret as it is written in addresses and forms.

/// What nobody has to encode.
const PLAIN: &[u8] = b"-._~";
/// What one writer or another leaves as it is: nothing, a path's, a script's, a form's.
const LEFT: [&[u8]; 4] = [b"", b"/", b"!'()*", b"*"];

/// The ways in which bytes are encoded, where that changes them. Each writer leaves other
/// letters as they are.
pub(super) fn forms(bytes: &[u8]) -> Vec<String> {
    if bytes.iter().all(|byte| is_plain(*byte, b"")) {
        return Vec::new();
    }
    let mut forms = Vec::new();
    for left in LEFT {
        let encoded = encode(bytes, left);
        // A form has a plus where a space was.
        forms.push(encoded.replace("%20", "+"));
        forms.push(encoded);
    }
    forms.sort_unstable();
    forms.dedup();
    forms
}

fn is_plain(byte: u8, left: &[u8]) -> bool {
    byte.is_ascii_alphanumeric() || PLAIN.contains(&byte) || left.contains(&byte)
}

fn encode(bytes: &[u8], left: &[u8]) -> String {
    let encoded = bytes.iter().map(|byte| {
        if is_plain(*byte, left) {
            char::from(*byte).to_string()
        } else {
            format!("%{byte:02x}")
        }
    });
    encoded.collect()
}
