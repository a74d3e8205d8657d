use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn secrets_are_redacted_in_text_json_and_base64() {
    let redactor = Redactor::new(["pass\"word\n", "pass\"word-2", "abc"]);
    for (text, redacted) in [
        ("it is pass\"word!", "it is [redacted]!"),
        ("{\"a\":\"pass\\\"word\"}", "{\"a\":\"[redacted]\"}"),
        ("pass\"word-2", "[redacted]"),
        ("Basic cGFzcyJ3b3Jk", "Basic [redacted]"),
        ("abc is no secret", "abc is no secret"),
    ] {
        assert_eq!(redactor.redact(text), redacted);
        assert_eq!(
            *redactor.redact_bytes(text.as_bytes()),
            *redacted.as_bytes()
        );
    }
    let mut value = json!({ "pass\"word": ["pass\"word", 1, null, { "a": "pass\"word" }] });
    redactor.redact_value(&mut value);
    assert_eq!(
        value,
        json!({ "[redacted]": ["[redacted]", 1, null, { "a": "[redacted]" }] })
    );
}

#[test]
fn secrets_inside_longer_base64_are_redacted() {
    let secret = "correct-horse-staple";
    let redactor = Redactor::new([secret]);
    for name in ["", "a", "ad", "ada", "ada:", "ada:x"] {
        for after in ["", "!", "!!"] {
            let text = format!("{name}{secret}{after}");
            let output = redactor
                .redact(&Base64Unpadded::encode_string(text.as_bytes()))
                .into_owned();
            // Only the neighbours' characters and one shared character on each side remain.
            let max = (name.len() + after.len()) * 4 / 3 + 3 + REDACTED.len();
            assert!(
                output.contains(REDACTED) && output.len() <= max,
                "{text}: {output}"
            );
        }
    }
}

#[test]
fn percent_encoded_secrets_are_redacted() {
    let redactor = Redactor::new(["sk/+ä (1)*x", "plain-secret"]);
    for text in [
        "sk%2F%2B%C3%A4%20%281%29%2Ax",
        "sk%2f%2b%c3%a4%20%281%29%2ax",
        "sk/%2B%C3%A4%20%281%29%2Ax",
        "sk%2F%2B%C3%A4%20(1)*x",
        "sk%2F%2B%C3%A4+%281%29*x",
    ] {
        let address = format!("https://host/?key={text}&x=1");
        assert_eq!(
            redactor.redact(&address),
            "https://host/?key=[redacted]&x=1"
        );
    }
    // No variants for a secret that percent-encoding does not change.
    assert_eq!(percent_encoded("plain-secret").next(), None);
}

fn hex(text: &str) -> String {
    let digits: Vec<_> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// Breaks a text into lines of `column` bytes.
fn wrapped(text: &str, column: usize, line_break: &str) -> String {
    let lines: Vec<_> = text.as_bytes().chunks(column).collect();
    let lines: Vec<_> = lines.iter().map(|it| String::from_utf8_lossy(it)).collect();
    lines.join(line_break)
}

#[test]
fn secrets_are_redacted_in_any_case_and_in_hexadecimal() {
    let redactor = Redactor::new(["Pass-Wörd 1"]);
    for text in [
        "pass-wörd 1",
        "PASS-WÖRD 1",
        "pASS-wörd 1",
        "pass-w%c3%B6rd%201",
        "506173732d57c3b672642031",
        "506173732D57C3B672642031",
        "50:61:73:73:2d:57:c3:b6:72:64:20:31",
        "50 61 73 73 2D 57 C3 B6 72 64 20 31",
        "50617373\n2d57c3b6\n72642031",
        "\\x50\\x61\\x73\\x73\\x2d\\x57\\xc3\\xb6\\x72\\x64\\x20\\x31",
        "0x50, 0x61, 0x73, 0x73, 0x2d, 0x57, 0xc3, 0xb6, 0x72, 0x64, 0x20, 0x31",
    ] {
        let redacted = redactor.redact(&format!("<{text}>")).into_owned();
        assert!(redacted.ends_with("[redacted]>"), "{text}: {redacted}");
        assert!(
            redacted.len() <= "<\\x[redacted]>".len(),
            "{text}: {redacted}"
        );
    }
    assert_eq!(redactor.redact("pass-word 1"), "pass-word 1");
}

#[test]
fn complete_lines_are_emitted_at_once() {
    let redactor = Redactor::new(["correct-horse"]);
    let mut stream = RedactStream::default();
    // `Y` begins the secret in base64, and `6` in hexadecimal.
    for line in ["listening on 8006\n", "ready? Y\n"] {
        assert_eq!(stream.push(&redactor, line.as_bytes()), line.as_bytes());
    }
    assert_eq!(stream.finish(&redactor), b"");
}

#[test]
fn clones_share_added_secrets() {
    let redactor = Redactor::default();
    let shared = redactor.clone();
    assert!(shared.is_empty());
    redactor.add("sesame");
    assert_eq!(shared.redact("sesame"), REDACTED);
}

proptest! {
    #[test]
    fn streamed_secrets_are_redacted_in_any_pieces(
        before in "[a-zä ]{0,9}", after in "[a-zä ]{0,9}", cuts in prop::collection::vec(0..60usize, 0..6)
    ) {
        let redactor = Redactor::new(["sesame-öffne-dich", "sesame"]);
        let text = format!("{before}sesame-öffne-dich{after}sesame{before}");
        let text = text.as_bytes();
        let mut ends: Vec<_> = cuts.into_iter().map(|at| at.min(text.len())).collect();
        ends.push(text.len());
        ends.sort_unstable();
        let (mut stream, mut output, mut from) = (RedactStream::default(), Vec::new(), 0);
        for end in ends {
            output.extend(stream.push(&redactor, &text[from..end]));
            from = end;
            let output = String::from_utf8_lossy(&output);
            prop_assert!(!output.contains("sesam"), "{}", output);
        }
        output.extend(stream.finish(&redactor));
        let output = String::from_utf8(output).unwrap();
        prop_assert_eq!(output, format!("{before}{REDACTED}{after}{REDACTED}{before}"));
    }

    #[test]
    fn whole_characters_in_give_whole_characters_out(pieces in prop::collection::vec("[öäu§s]{0,4}", 0..9)) {
        let redactor = Redactor::new(["öffne-dich", "§ösäu"]);
        let mut stream = RedactStream::default();
        for piece in pieces {
            prop_assert!(String::from_utf8(stream.push(&redactor, piece.as_bytes())).is_ok());
        }
        prop_assert!(String::from_utf8(stream.finish(&redactor)).is_ok());
    }

    #[test]
    fn encoded_secrets_are_redacted_across_line_breaks(
        before in "[a-z:]{0,4}",
        after in "[a-z:]{0,4}",
        column in 1..80usize,
        line_break in prop::sample::select(vec!["\n", "\r\n", "\\n", "\\r\\n", "\n    ", "\\\\n"]),
        encoding in 0..4usize,
        cuts in prop::collection::vec(0..120usize, 0..6),
    ) {
        let secret = "correct-horse?>~battery";
        let redactor = Redactor::new([secret]);
        let whole = format!("{before}{secret}{after}");
        let encoded = match encoding {
            0 => Base64Unpadded::encode_string(whole.as_bytes()),
            1 => Base64UrlUnpadded::encode_string(whole.as_bytes()),
            2 => hex(&whole),
            _ => hex(&whole).to_uppercase(),
        };
        let text = wrapped(&encoded, column, line_break);
        // Counts the remaining characters: only those shared with neighbours may remain.
        let remains = |output: &[u8]| {
            let output = String::from_utf8_lossy(output).replace(REDACTED, "");
            let letters = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).count();
            letters(&output.replace(line_break, ""))
        };
        let max = (before.len() + after.len()) * 2 + 4;
        prop_assert!(redactor.redact(&text).contains(REDACTED));
        prop_assert!(remains(redactor.redact(&text).as_bytes()) <= max, "{}", redactor.redact(&text));

        let text = text.as_bytes();
        let mut ends: Vec<_> = cuts.into_iter().map(|at| at.min(text.len())).collect();
        ends.push(text.len());
        ends.sort_unstable();
        let (mut stream, mut output, mut from) = (RedactStream::default(), Vec::new(), 0);
        for end in ends {
            output.extend(stream.push(&redactor, &text[from..end]));
            from = end;
        }
        output.extend(stream.finish(&redactor));
        // Up to three characters may be emitted where a piece ends with a line break.
        prop_assert!(remains(&output) <= max + 3, "{}", String::from_utf8_lossy(&output));
    }
}
