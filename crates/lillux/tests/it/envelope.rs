//! Sealing, parsing and opening envelopes with the library.

use lillux::envelope::{
    Damage, Envelope, MAX_LABEL, MAX_PAYLOAD, OpenError, OpeningKey, ParseEnvelopeError, SealError,
    SealingKey, Secret, seal,
};
use lillux::keys::{IfExists, KeyError, KeyTextError, SigningKey};
use proptest::prelude::*;
use serde_json::Value;

fn key() -> OpeningKey {
    OpeningKey::generate().unwrap()
}

fn publics(keys: &[OpeningKey]) -> Vec<SealingKey> {
    keys.iter().map(|key| key.public().clone()).collect()
}

fn sealed(secret: &[u8], keys: &[OpeningKey], label: &str) -> Vec<u8> {
    let secret = Secret::new(secret.to_vec());
    seal(&secret, &publics(keys), label).unwrap().to_bytes()
}

/// Parses and opens an envelope; errors as text.
fn open(bytes: &[u8], key: &OpeningKey) -> Result<Vec<u8>, String> {
    let envelope = Envelope::parse(bytes).map_err(|e| e.to_string())?;
    let secret = envelope.open(key, None).map_err(|e| e.to_string())?;
    Ok(secret.expose().to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn only_recipients_can_open_an_envelope(
        secret: Vec<u8>,
        label in "\\PC{0,60}",
        count in 1..5_usize,
    ) {
        let keys: Vec<_> = (0..count).map(|_| key()).collect();
        let bytes = sealed(&secret, &keys, &label);
        let envelope = Envelope::parse(&bytes).unwrap();
        prop_assert_eq!(envelope.to_bytes(), bytes);
        for key in &keys {
            let opened = envelope.open(key, Some(&label)).unwrap();
            prop_assert_eq!(opened.expose(), &secret);
        }
        let outsider = key();
        let refused = envelope.open(&outsider, None).unwrap_err();
        let is_outsider = matches!(refused, OpenError::NotARecipient { sealed_to, .. } if sealed_to.len() == count);
        prop_assert!(is_outsider);

        let shown = envelope.inspect();
        prop_assert_eq!(shown.payload_bytes, secret.len());
        prop_assert_eq!(shown.label, label);
    }

    #[test]
    fn parsing_never_panics(bytes: Vec<u8>, text in "[{}\\[\\]\":,a-z0-9]{0,200}") {
        let _ = (Envelope::parse(&bytes), Envelope::parse(text.as_bytes()));
    }
}

#[test]
fn flipped_bits_are_detected() {
    let keys = [key(), key()];
    let bytes = sealed(b"hunter2", &keys, "db");
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        for key in &keys {
            assert!(
                open(&flipped, key).is_err(),
                "bit {bit}: {}",
                String::from_utf8_lossy(&flipped)
            );
        }
    }
}

#[test]
fn truncation_and_added_bytes_are_detected() {
    let key = key();
    let bytes = sealed(b"hunter2", std::slice::from_ref(&key), "db");
    for length in 0..bytes.len() {
        assert!(
            Envelope::parse(&bytes[..length]).is_err(),
            "cut to {length}"
        );
    }
    for position in 0..=bytes.len() {
        for added in [b' ', b'\n', b'0', b'=', b'A', 0] {
            let mut longer = bytes.clone();
            longer.insert(position, added);
            assert!(open(&longer, &key).is_err(), "{added} at {position}");
        }
    }
}

#[test]
fn changed_recipients_are_detected() {
    let keys = [key(), key(), key()];
    let bytes = sealed(b"hunter2", &keys, "");
    let document: Value = serde_json::from_slice(&bytes).unwrap();
    let other: Value = serde_json::from_slice(&sealed(b"hunter2", &[key()], "")).unwrap();
    let text = |document: &Value| format!("{document}\n").into_bytes();
    assert_eq!(
        text(&document),
        bytes,
        "the edits below start from the canonical form"
    );

    let edit = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut edited = document.clone();
        change(edited["recipients"].as_array_mut().unwrap());
        text(&edited)
    };
    let edited = [
        edit(&|r| drop(r.remove(2))),
        edit(&|r| r.swap(1, 2)),
        edit(&|r| r.push(other["recipients"][0].clone())),
        edit(&|r| {
            let (wrapped, encapsulated) =
                (r[1]["wrapped_key"].clone(), r[1]["encapsulated"].clone());
            (r[2]["wrapped_key"], r[2]["encapsulated"]) = (wrapped, encapsulated);
        }),
    ];
    for bytes in edited {
        let opened = Envelope::parse(&bytes).unwrap().open(&keys[0], None);
        assert_eq!(opened.unwrap_err(), OpenError::Changed);
    }
    let twice = edit(&|r| r.push(r[0].clone()));
    assert_eq!(
        Envelope::parse(&twice).unwrap_err(),
        ParseEnvelopeError::Damaged(Damage::Recipients)
    );
    let none = edit(&Vec::clear);
    assert_eq!(
        Envelope::parse(&none).unwrap_err(),
        ParseEnvelopeError::Damaged(Damage::Recipients)
    );
}

#[test]
fn parts_of_two_envelopes_cannot_be_combined() {
    let key = key();
    let own = std::slice::from_ref(&key);
    let [one, two] =
        [b"one", b"two"].map(|s| serde_json::from_slice::<Value>(&sealed(s, own, "same")).unwrap());
    for field in ["recipients", "commitment", "ciphertext"] {
        let mut mixed = one.clone();
        mixed[field] = two[field].clone();
        assert!(
            open(format!("{mixed}\n").as_bytes(), &key).is_err(),
            "{field}"
        );
    }
}

#[test]
fn non_canonical_encodings_are_rejected() {
    let key = key();
    let bytes = sealed(b"hunter2", std::slice::from_ref(&key), "db");
    let text = String::from_utf8(bytes).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let ciphertext = document["ciphertext"].as_str().unwrap();
    let damaged = ParseEnvelopeError::Damaged(Damage::Fields);
    for (other, error) in [
        (
            text.trim_end().to_owned(),
            ParseEnvelopeError::NotCanonical(text.len() - 1),
        ),
        (
            format!("{text}\n"),
            ParseEnvelopeError::NotCanonical(text.len()),
        ),
        (
            text.replacen(':', ": ", 1),
            ParseEnvelopeError::NotCanonical(12),
        ),
        (
            text.replace("\"db\"", "\"d\\u0062\""),
            ParseEnvelopeError::NotCanonical(text.find("\"db\"").unwrap() + 2),
        ),
        (
            text.replacen("{\"envelope\":1,", "{", 1)
                .replacen("}\n", ",\"envelope\":1}\n", 1),
            ParseEnvelopeError::NotCanonical(2),
        ),
        (
            serde_json::to_string_pretty(&document).unwrap(),
            ParseEnvelopeError::NotCanonical(1),
        ),
        (
            text.replacen("\"label\"", "\"extra\":1,\"label\"", 1),
            damaged.clone(),
        ),
        (
            text.replacen("\"label\":\"db\"", "\"label\":\"db\",\"label\":\"db\"", 1),
            damaged.clone(),
        ),
        (text.replacen("\"label\":\"db\",", "", 1), damaged.clone()),
        (
            text.replacen("\"label\":\"db\"", "\"label\":null", 1),
            damaged.clone(),
        ),
        (
            text.replacen(ciphertext, &format!("{ciphertext}="), 1),
            damaged.clone(),
        ),
        (
            text.replacen(ciphertext, &format!("{ciphertext}+"), 1),
            damaged,
        ),
    ] {
        let refused = Envelope::parse(other.as_bytes()).unwrap_err();
        assert_eq!(refused, error, "{other}");
    }
}

#[test]
fn parse_errors_are_explained() {
    let written = String::from_utf8(sealed(b"s", &[key()], "")).unwrap();
    let created = written.find("\"created\":\"").unwrap() + 11;
    let mut yesterday = written.clone();
    yesterday.replace_range(created..created + 20, "20260410T032817.0Z  ");
    for (text, message) in [
        (
            String::new(),
            "not an envelope, or truncated: invalid JSON at line 1, column 0",
        ),
        (
            "hunter2".into(),
            "not an envelope, or truncated: invalid JSON at line 1, column 1",
        ),
        (
            written[..90].into(),
            "not an envelope, or truncated: invalid JSON at line 1, column 90",
        ),
        (
            "[]".into(),
            "not an envelope: there is no `envelope` field with a version",
        ),
        (
            "\"hunter2\"".into(),
            "not an envelope: there is no `envelope` field with a version",
        ),
        (
            "{}".into(),
            "not an envelope: there is no `envelope` field with a version",
        ),
        (
            "{\"envelope\":\"1\"}".into(),
            "not an envelope: there is no `envelope` field with a version",
        ),
        (
            "{\"envelope\":2,\"future\":[]}".into(),
            "unsupported envelope version 2; supported: 1",
        ),
        (
            "{\"envelope\":1,\"suite\":\"rot13\"}".into(),
            "unsupported cipher suite",
        ),
        (
            "{\"envelope\":1}".into(),
            "the envelope is damaged: a field is missing, unknown, repeated or of the wrong type",
        ),
        (
            yesterday,
            "the envelope is damaged: `created` is not a UTC time with second precision",
        ),
        (
            written.replace("\"label\":\"\"", "\"label\":\"\\u001b[2J\""),
            "the envelope is damaged: `label` is too long or has control characters",
        ),
        (
            format!(
                "{}\"ciphertext\":\"\"}}\n",
                written.split("\"ciphertext\"").next().unwrap()
            ),
            "the envelope is damaged: `ciphertext` is too short or too long",
        ),
    ] {
        assert_eq!(
            Envelope::parse(text.as_bytes()).unwrap_err().to_string(),
            message,
            "{text}"
        );
    }
}

#[test]
fn seal_errors_are_explained() {
    let small = Secret::new(b"s".to_vec());
    let refused = |secret: &Secret, to: &[SealingKey], label: &str| {
        seal(secret, to, label).unwrap_err().to_string()
    };
    let one = publics(&[key()]);
    let many: Vec<_> = (0..257).map(|_| key()).collect();
    assert_eq!(
        refused(&small, &[], ""),
        "an envelope needs at least one recipient"
    );
    assert_eq!(
        refused(&small, &publics(&many), ""),
        "too many recipients: 257, at most 256 are allowed"
    );
    let twice = [one[0].clone(), many[0].public().clone(), one[0].clone()];
    assert_eq!(
        refused(&small, &twice, ""),
        format!("duplicate recipient: key {}", one[0].fingerprint())
    );
    let huge = Secret::new(vec![0; MAX_PAYLOAD + 1]);
    assert!(matches!(seal(&huge, &one, ""), Err(SealError::TooLarge)));
    for label in [
        "a\nb",
        "\u{1b}[2J",
        "\u{7f}",
        "\u{85}",
        &"x".repeat(MAX_LABEL + 1),
    ] {
        assert_eq!(
            refused(&small, &one, label),
            "invalid label: at most 1024 bytes without control characters are allowed"
        );
    }

    let most = sealed(b"s", &many[..256], &"x".repeat(MAX_LABEL));
    assert_eq!(open(&most, &many[255]).unwrap(), b"s");
}

#[test]
fn large_secret_round_trips() {
    const SIZE: usize = 3_000_000;
    let key = key();
    let bytes = sealed(&vec![7; SIZE], std::slice::from_ref(&key), "");
    let secret = Envelope::parse(&bytes).unwrap().open(&key, None).unwrap();
    assert!(secret.expose().len() == SIZE && secret.expose().iter().all(|b| *b == 7));
}

#[test]
fn open_errors_name_the_recipients_and_the_label() {
    let keys = [key(), key()];
    let envelope = Envelope::parse(&sealed(b"s", &keys, "a")).unwrap();
    let outsider = key();
    assert_eq!(
        envelope.open(&outsider, None).unwrap_err().to_string(),
        format!(
            "the envelope is not sealed to key {}; it is sealed to {}, {}",
            outsider.public().fingerprint(),
            keys[0].public().fingerprint(),
            keys[1].public().fingerprint()
        )
    );
    assert_eq!(
        envelope.open(&keys[0], Some("b")).unwrap_err().to_string(),
        "the envelope is labelled \"a\", not \"b\""
    );
}

#[test]
fn sealing_is_randomised() {
    let keys = [key()];
    let [one, two] =
        [(); 2].map(|()| serde_json::from_slice::<Value>(&sealed(b"same", &keys, "")).unwrap());
    for field in ["commitment", "ciphertext", "recipients"] {
        assert_ne!(one[field], two[field]);
    }
}

#[test]
fn debug_does_not_show_the_secret() {
    let key = key();
    let secret = Secret::new(b"correct horse battery staple".to_vec());
    let envelope = seal(&secret, &[key.public().clone()], "label").unwrap();
    let shown = format!(
        "{secret:?} {secret:#?} {envelope:?} {envelope:#?} {key:?} {:?}",
        envelope.inspect()
    );
    for word in [
        "correct",
        "horse",
        "99, 111",
        "636f72",
        &key.to_pem().lines().nth(1).unwrap()[22..30],
    ] {
        assert!(!shown.contains(word), "{word} in {shown}");
    }
    let bytes = String::from_utf8(envelope.to_bytes()).unwrap();
    assert!(!bytes.contains("horse"));
}

#[test]
fn signing_and_sealing_keys_are_not_interchangeable() {
    let (signing, opening) = (SigningKey::generate().unwrap(), key());
    for error in [
        OpeningKey::from_pem(&*signing.to_pem()).unwrap_err(),
        SealingKey::from_pem(signing.public().to_pem()).unwrap_err(),
    ] {
        assert_eq!(
            error.to_string(),
            "expected a key for X25519, found one for Ed25519"
        );
    }
    let error = SigningKey::from_pem(&*opening.to_pem()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected a key for Ed25519, found one for X25519"
    );
}

#[test]
fn key_files_follow_the_rules_of_signing_keys() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let key = key();
    let files = key
        .write_pair(&dir.path().join("sealing"), IfExists::Fail)
        .unwrap();
    assert_eq!(
        OpeningKey::read(&files.private).unwrap().public(),
        key.public()
    );
    assert_eq!(&SealingKey::read(&files.public).unwrap(), key.public());
    let wrong_half = OpeningKey::from_pem(key.public().to_pem()).unwrap_err();
    assert_eq!(wrong_half, KeyTextError::PublicForPrivate);
    std::fs::set_permissions(&files.private, std::fs::Permissions::from_mode(0o640)).unwrap();
    let open = OpeningKey::read(&files.private).unwrap_err();
    assert!(matches!(open, KeyError::InsecureFile { mode: 0o640, .. }));
}

#[test]
fn secret_file_is_readable_only_by_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    std::fs::write(&path, "older, and open to all").unwrap();
    Secret::new(b"hunter2".to_vec()).write_file(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"hunter2");
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
        0o600
    );
}
