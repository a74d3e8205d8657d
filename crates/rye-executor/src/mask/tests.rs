use std::sync::Mutex;

use lillux::process::Stream;
use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn a_secret_is_masked_however_it_is_written() {
    let masks = Masks::new(["pass\"word\n", "pass\"word-2", "abc"]);
    for (text, masked) in [
        ("it is pass\"word!", "it is ***!"),
        ("{\"a\":\"pass\\\"word\"}", "{\"a\":\"***\"}"),
        ("pass\"word-2", "***"),
        ("Basic cGFzcyJ3b3Jk", "Basic ***"),
        ("abc is no secret", "abc is no secret"),
    ] {
        assert_eq!(masks.mask(text), masked);
    }
    let mut value = json!({ "pass\"word": ["pass\"word", 1, null, { "a": "pass\"word" }] });
    masks.mask_value(&mut value);
    assert_eq!(value, json!({ "***": ["***", 1, null, { "a": "***" }] }));
}

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

proptest! {
    #[test]
    fn in_whatever_pieces_it_comes_it_is_masked(
        before in "[a-zä ]{0,9}", after in "[a-zä ]{0,9}", cuts in prop::collection::vec(0..60usize, 0..6)
    ) {
        let text = format!("{before}sesame-öffne-dich{after}sesame{before}");
        let text = text.as_bytes();
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = Listener::new({
            let told = Arc::clone(&told);
            move |_, bytes: &[u8]| told.lock().unwrap().extend_from_slice(bytes)
        });
        let masks = Masks::new(["sesame-öffne-dich", "sesame"]);
        let watched = Watched::new(masks, listener);
        let mut ends: Vec<_> = cuts.into_iter().map(|at| at.min(text.len())).collect();
        ends.push(text.len());
        ends.sort_unstable();
        let mut from = 0;
        for end in ends {
            watched.listener().hear(Stream::Stdout, &text[from..end]);
            from = end;
            let told = String::from_utf8_lossy(&told.lock().unwrap()).into_owned();
            prop_assert!(!told.contains("sesam"), "{}", told);
        }
        watched.finish();
        let told = String::from_utf8(told.lock().unwrap().clone()).unwrap();
        prop_assert_eq!(told, format!("{before}{MASK}{after}{MASK}{before}"));
    }
}
