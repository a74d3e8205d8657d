use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn a_secret_is_masked_however_it_is_written() {
    let masks = Masks::new(["pass\"word\n", "pass\"word-2", "abc"]);
    for (text, masked) in [
        ("it is pass\"word!", "it is [masked]!"),
        ("{\"a\":\"pass\\\"word\"}", "{\"a\":\"[masked]\"}"),
        ("pass\"word-2", "[masked]"),
        ("Basic cGFzcyJ3b3Jk", "Basic [masked]"),
        ("abc is no secret", "abc is no secret"),
    ] {
        assert_eq!(masks.mask(text), masked);
        assert_eq!(*masks.mask_bytes(text.as_bytes()), *masked.as_bytes());
    }
    let mut value = json!({ "pass\"word": ["pass\"word", 1, null, { "a": "pass\"word" }] });
    masks.mask_value(&mut value);
    assert_eq!(
        value,
        json!({ "[masked]": ["[masked]", 1, null, { "a": "[masked]" }] })
    );
}

#[test]
fn a_secret_among_others_in_base64_is_masked() {
    let secret = "correct-horse-staple";
    let masks = Masks::new([secret]);
    for name in ["", "a", "ad", "ada", "ada:", "ada:x"] {
        for after in ["", "!", "!!"] {
            let text = format!("{name}{secret}{after}");
            let told = masks
                .mask(&Base64Unpadded::encode_string(text.as_bytes()))
                .into_owned();
            // No more is left than what its neighbours take, and a letter on each side.
            let most = (name.len() + after.len()) * 4 / 3 + 3 + MASK.len();
            assert!(told.contains(MASK) && told.len() <= most, "{text}: {told}");
        }
    }
}

#[test]
fn a_secret_in_an_address_or_a_form_is_masked() {
    let masks = Masks::new(["sk/+ä (1)*x", "plain-secret"]);
    for text in [
        "sk%2F%2B%C3%A4%20%281%29%2Ax",
        "sk%2f%2b%c3%a4%20%281%29%2ax",
        "sk/%2B%C3%A4%20%281%29%2Ax",
        "sk%2F%2B%C3%A4%20(1)*x",
        "sk%2F%2B%C3%A4+%281%29*x",
    ] {
        let address = format!("https://host/?key={text}&x=1");
        assert_eq!(masks.mask(&address), "https://host/?key=[masked]&x=1");
    }
    // What is the same either way is not kept twice.
    assert_eq!(percent::forms(b"plain-secret"), Vec::<String>::new());
}

fn hex(text: &str) -> String {
    let digits: Vec<_> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// A text cut into lines.
fn wrapped(text: &str, column: usize, line_break: &str) -> String {
    let lines: Vec<_> = text.as_bytes().chunks(column).collect();
    let lines: Vec<_> = lines.iter().map(|it| String::from_utf8_lossy(it)).collect();
    lines.join(line_break)
}

#[test]
fn a_secret_is_masked_in_either_case_and_in_hexadecimal() {
    let masks = Masks::new(["Pass-Wörd 1"]);
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
        let masked = masks.mask(&format!("<{text}>")).into_owned();
        assert!(masked.ends_with("[masked]>"), "{text}: {masked}");
        assert!(masked.len() <= "<\\x[masked]>".len(), "{text}: {masked}");
    }
    assert_eq!(masks.mask("pass-word 1"), "pass-word 1");
}

#[test]
fn a_line_is_told_when_it_ends() {
    let masks = Masks::new(["correct-horse"]);
    let mut stream = Stream::default();
    // `Y` begins the secret in base64, and `6` in hexadecimal.
    for line in ["listening on 8006\n", "ready? Y\n"] {
        assert_eq!(stream.push(&masks, line.as_bytes()), line.as_bytes());
    }
    assert_eq!(stream.rest(&masks), b"");
}

#[test]
fn what_one_learns_all_know_who_share_it() {
    let masks = Masks::default();
    let shared = masks.clone();
    assert!(shared.is_empty());
    masks.add("sesame");
    assert_eq!(shared.mask("sesame"), MASK);
}

proptest! {
    #[test]
    fn in_whatever_pieces_it_comes_it_is_masked(
        before in "[a-zä ]{0,9}", after in "[a-zä ]{0,9}", cuts in prop::collection::vec(0..60usize, 0..6)
    ) {
        let masks = Masks::new(["sesame-öffne-dich", "sesame"]);
        let text = format!("{before}sesame-öffne-dich{after}sesame{before}");
        let text = text.as_bytes();
        let mut ends: Vec<_> = cuts.into_iter().map(|at| at.min(text.len())).collect();
        ends.push(text.len());
        ends.sort_unstable();
        let (mut stream, mut told, mut from) = (Stream::default(), Vec::new(), 0);
        for end in ends {
            told.extend(stream.push(&masks, &text[from..end]));
            from = end;
            let told = String::from_utf8_lossy(&told);
            prop_assert!(!told.contains("sesam"), "{}", told);
        }
        told.extend(stream.rest(&masks));
        let told = String::from_utf8(told).unwrap();
        prop_assert_eq!(told, format!("{before}{MASK}{after}{MASK}{before}"));
    }

    #[test]
    fn of_whole_letters_whole_letters_are_told(pieces in prop::collection::vec("[öäu§s]{0,4}", 0..9)) {
        let masks = Masks::new(["öffne-dich", "§ösäu"]);
        let mut stream = Stream::default();
        for piece in pieces {
            prop_assert!(String::from_utf8(stream.push(&masks, piece.as_bytes())).is_ok());
        }
        prop_assert!(String::from_utf8(stream.rest(&masks)).is_ok());
    }

    #[test]
    fn an_encoded_secret_is_masked_wherever_lines_break(
        before in "[a-z:]{0,4}",
        after in "[a-z:]{0,4}",
        column in 1..80usize,
        line_break in prop::sample::select(vec!["\n", "\r\n", "\\n", "\\r\\n", "\n    ", "\\\\n"]),
        encoding in 0..4usize,
        cuts in prop::collection::vec(0..120usize, 0..6),
    ) {
        let secret = "correct-horse?>~battery";
        let masks = Masks::new([secret]);
        let whole = format!("{before}{secret}{after}");
        let encoded = match encoding {
            0 => Base64Unpadded::encode_string(whole.as_bytes()),
            1 => Base64UrlUnpadded::encode_string(whole.as_bytes()),
            2 => hex(&whole),
            _ => hex(&whole).to_uppercase(),
        };
        let text = wrapped(&encoded, column, line_break);
        // What the neighbours of the secret share with it may remain, and no more.
        let remains = |told: &[u8]| {
            let told = String::from_utf8_lossy(told).replace(MASK, "");
            let letters = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).count();
            letters(&told.replace(line_break, ""))
        };
        let most = (before.len() + after.len()) * 2 + 4;
        prop_assert!(masks.mask(&text).contains(MASK));
        prop_assert!(remains(masks.mask(&text).as_bytes()) <= most, "{}", masks.mask(&text));

        let text = text.as_bytes();
        let mut ends: Vec<_> = cuts.into_iter().map(|at| at.min(text.len())).collect();
        ends.push(text.len());
        ends.sort_unstable();
        let (mut stream, mut told, mut from) = (Stream::default(), Vec::new(), 0);
        for end in ends {
            told.extend(stream.push(&masks, &text[from..end]));
            from = end;
        }
        told.extend(stream.rest(&masks));
        // Fewer than four letters may be told where a piece ends with a line.
        prop_assert!(remains(&told) <= most + 3, "{}", String::from_utf8_lossy(&told));
    }
}
