//! Keys, signatures and key files with the library.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64ct::{Base64, Encoding};
use lillux::Hash;
use lillux::keys::{
    IfExists, KeyError, KeyPairFiles, KeyTextError, PublicKey, Signature, SigningKey,
};
use proptest::prelude::*;

/// The key of the published signatures.
const PUBLISHED_KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEAUbAHc8d2KetZE2I9eb+VaUpTLkNsDJtFaAsY0nTEm7I=\n\
    -----END PUBLIC KEY-----\n";

/// Hashes and signatures of two published signature lines.
const PUBLISHED: [(&str, &str); 2] = [
    (
        "765c9e4c3631c1e76b0383691005d92a25cd9d598fd4e1aec509899901ea2cdd",
        "UllOnPErqDGGEoj1eiKdg8b2smCCmKsHFebDncF-grTll41zRaGQ5e78eiSLKRy2aEDRXkxdqn21BjRHoDBDDw",
    ),
    (
        "f0ca499123e79e0c3790172b7f7ea62a34be6179639b6deeba457183ca1e6165",
        "Ijf3lSsyV9PMZ0pKThFrLiosA31PP6bTKkEXrWkWODs7YUmX0iSVFcWnAJrxSj8PjUtUVXPv3mNCMJPhlit5DA",
    ),
];

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn published_signatures_and_fingerprint_are_reproduced() {
    let key = PublicKey::from_pem(PUBLISHED_KEY).unwrap();
    assert_eq!(key.fingerprint().to_string(), "6ea18199041a1ea8");
    assert_eq!(key.to_pem(), PUBLISHED_KEY);
    for (hash, signature) in PUBLISHED {
        let (hash, signature): (Hash, Signature) =
            (hash.parse().unwrap(), signature.parse().unwrap());
        key.verify(&hash, &signature).unwrap();
    }
    let [(first, _), (_, second)] = PUBLISHED;
    let swapped = key.verify(&first.parse().unwrap(), &second.parse().unwrap());
    assert_eq!(
        swapped.unwrap_err().to_string(),
        "not a valid signature of key 6ea18199041a1ea8 over this hash"
    );
}

#[test]
fn flipped_bits_of_hash_or_signature_are_detected() {
    let key = PublicKey::from_pem(PUBLISHED_KEY).unwrap();
    let (hash, signature) = PUBLISHED[0];
    let (hash, signature): (Hash, Signature) = (hash.parse().unwrap(), signature.parse().unwrap());
    for bit in 0..512 {
        let mut bytes = *signature.as_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        key.verify(&hash, &Signature::from_bytes(bytes))
            .unwrap_err();
    }
    for bit in 0..256 {
        let mut digits: Vec<_> = hash
            .to_hex()
            .chars()
            .map(|c| c.to_digit(16).unwrap())
            .collect();
        digits[bit / 4] ^= 1 << (bit % 4);
        let hex: String = digits
            .iter()
            .map(|d| char::from_digit(*d, 16).unwrap())
            .collect();
        key.verify(&hex.parse().unwrap(), &signature).unwrap_err();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn only_the_signing_key_verifies_a_signature(content: Vec<u8>, bit in 0..512_usize) {
        let (key, other) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let hash = Hash::digest(&content);
        let signature = key.sign(&hash);
        prop_assert!(key.public().verify(&hash, &signature).is_ok());
        prop_assert!(other.public().verify(&hash, &signature).is_err());
        prop_assert!(key.public().verify(&Hash::digest(hash.to_hex()), &signature).is_err());
        let mut flipped = *signature.as_bytes();
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(key.public().verify(&hash, &Signature::from_bytes(flipped)).is_err());
    }

    #[test]
    fn parsing_a_key_never_panics(text: Vec<u8>, middle in "[A-Za-z0-9+/=\n -]{0,120}") {
        let framed = format!("-----BEGIN PRIVATE KEY-----\n{middle}\n-----END PRIVATE KEY-----\n");
        let _ = (SigningKey::from_pem(&text), PublicKey::from_pem(&text));
        let _ = (SigningKey::from_pem(&framed), PublicKey::from_pem(framed.replace("PRIVATE", "PUBLIC")));
    }
}

/// The same key with other layouts, which common tools produce.
fn layouts(pem: &str) -> [String; 6] {
    let (begin, rest) = pem.split_once('\n').unwrap();
    let (base64, end) = rest.split_once('\n').unwrap();
    let (left, right) = base64.split_at(20);
    [
        pem.replace('\n', "\r\n"),
        pem.trim_end().to_owned(),
        format!("# my key\n\n{pem}"),
        format!("{pem}\n\ntext after it\n"),
        format!("\u{feff}{begin}  \n{left}\n{right}\n{end}"),
        format!("{begin}\n\n  {base64}\t\n\n{end}"),
    ]
}

#[test]
fn fingerprint_does_not_depend_on_the_file_layout() {
    let key = SigningKey::generate().unwrap();
    for text in layouts(&key.public().to_pem()) {
        let read = PublicKey::from_pem(&text).unwrap();
        assert_eq!(
            (&read, read.fingerprint()),
            (key.public(), key.public().fingerprint()),
            "{text:?}"
        );
        assert_eq!(read.to_pem(), key.public().to_pem());
    }
    for text in layouts(&key.to_pem()) {
        assert_eq!(SigningKey::from_pem(&text).unwrap().public(), key.public());
    }
}

#[test]
fn pkcs8_version_1_is_written_and_both_versions_are_read() {
    let key = SigningKey::generate().unwrap();
    let inside = |pem: &str| Base64::decode_vec(pem.lines().nth(1).unwrap()).unwrap();
    let v1 = inside(&key.to_pem());
    assert_eq!(v1.len(), 48);
    assert_eq!(v1[..5], [0x30, 46, 2, 1, 0]);

    // Version 2 (encoded as 1), with the public key as `[1] IMPLICIT BIT STRING`.
    let v2 = |public: &SigningKey| {
        let mut der = v1.clone();
        der.extend([0x81, 33, 0]);
        der.extend(&inside(&public.public().to_pem())[12..]);
        (der[1], der[4]) = (81, 1);
        let base64 = Base64::encode_string(&der);
        let (first, second) = base64.split_at(64);
        format!("-----BEGIN PRIVATE KEY-----\n{first}\n{second}\n-----END PRIVATE KEY-----\n")
    };
    assert_eq!(
        SigningKey::from_pem(v2(&key)).unwrap().public(),
        key.public()
    );
    let other = SigningKey::generate().unwrap();
    assert_eq!(
        SigningKey::from_pem(v2(&other)).unwrap_err(),
        KeyTextError::Mismatch
    );
}

#[test]
fn each_kind_of_invalid_key_text_has_its_own_error() {
    let key = SigningKey::generate().unwrap();
    let (private, public) = (key.to_pem(), key.public().to_pem());
    let cases = [
        (String::new(), KeyTextError::NotPem),
        ("MC4CAQAwBQYDK2VwBCIEIA".to_owned(), KeyTextError::NotPem),
        (public.clone(), KeyTextError::PublicForPrivate),
        (
            format!("{}{}", *private, *private),
            KeyTextError::SeveralBlocks(2),
        ),
        (
            format!("{}{public}", *private),
            KeyTextError::SeveralBlocks(2),
        ),
        (
            private.replace("PRIVATE", "ENCRYPTED PRIVATE"),
            KeyTextError::Encrypted,
        ),
        (private[..60].to_owned(), KeyTextError::NoEnd),
        (
            private.replace("END PRIVATE", "END PUBLIC"),
            KeyTextError::NoEnd,
        ),
        (private.replace('\n', " "), KeyTextError::NoEnd),
        (private.replacen("MC4C", "MC*C", 1), KeyTextError::Base64),
        (private.replacen("MC4C", "MC4", 1), KeyTextError::Base64),
        (private.replacen("MC4C", "", 1), KeyTextError::Structure),
        (private.replacen("MC4C", "MC8C", 1), KeyTextError::Structure),
        (
            private.replace("PRIVATE", "OPENSSH PRIVATE"),
            KeyTextError::OtherBlock("an OpenSSH private key"),
        ),
        (
            private.replace("PRIVATE KEY", "CERTIFICATE"),
            KeyTextError::OtherBlock("a certificate"),
        ),
        (
            private.replace("PRIVATE KEY", "NOTHING"),
            KeyTextError::OtherBlock("another kind of PEM block"),
        ),
    ];
    for (text, error) in cases {
        assert_eq!(SigningKey::from_pem(&text).unwrap_err(), error, "{text}");
    }
    assert_eq!(
        PublicKey::from_pem(&*private).unwrap_err(),
        KeyTextError::PrivateForPublic
    );
}

#[test]
fn unsafe_public_keys_are_rejected() {
    // The neutral element (y = 1), a point of order 4 (y = 0), bytes that are not a point
    // (y = 2), and every non-canonical y.
    let y = |low, rest, high| {
        let mut bytes = [rest; 32];
        (bytes[0], bytes[31]) = (low, high);
        bytes
    };
    let beyond = (0xed..=0xff).map(|low| y(low, 0xff, 0x7f));
    for bytes in (0..=2).map(|low| y(low, 0, 0)).chain(beyond) {
        let head = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 112, 3, 0x21, 0];
        let base64 = Base64::encode_string(&[&head[..], &bytes].concat());
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{base64}\n-----END PUBLIC KEY-----\n");
        let refused = PublicKey::from_pem(pem);
        assert_eq!(refused, Err(KeyTextError::UnsafePoint), "{bytes:x?}");
    }
}

#[test]
fn errors_contain_no_key_bytes() {
    let key = SigningKey::generate().unwrap();
    let pem = key.to_pem();
    let base64 = pem.lines().nth(1).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k");
    let one_line = pem.replace('\n', "");
    for text in [
        one_line.clone(),
        format!("{one_line}{one_line}"),
        pem.replace("MC4C", "MC4*"),
        pem.replace("MC4C", ""),
    ] {
        fs::write(&path, text).unwrap();
        chmod(&path, 0o600);
        let error = SigningKey::read(&path).unwrap_err();
        let shown = format!("{error} {error:?}");
        for start in 4..base64.len() - 6 {
            assert!(!shown.contains(&base64[start..start + 6]), "{shown}");
        }
    }
}

#[test]
fn key_pair_is_written_with_safe_permissions_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let key_dir = dir.path().join("config/keys/signing");
    let key = SigningKey::generate().unwrap();
    let files = key.write_pair(&key_dir, IfExists::Fail).unwrap();
    assert_eq!(files, KeyPairFiles::in_dir(&key_dir));
    assert_eq!((mode(&key_dir), mode(&files.private)), (0o700, 0o600));
    assert_eq!(
        fs::read_to_string(&files.public).unwrap(),
        key.public().to_pem()
    );
    assert_eq!(
        SigningKey::read(&files.private).unwrap().public(),
        key.public()
    );
    assert_eq!(&PublicKey::read(&files.public).unwrap(), key.public());
    assert_eq!(
        fs::read_dir(&key_dir).unwrap().count(),
        2,
        "no temporary file is left"
    );
}

#[test]
fn key_pair_is_replaced_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (
        SigningKey::generate().unwrap(),
        SigningKey::generate().unwrap(),
    );
    let files = first.write_pair(dir.path(), IfExists::Fail).unwrap();
    for removed in [None, Some(&files.private), Some(&files.public)] {
        if let Some(path) = removed {
            fs::remove_file(path).unwrap();
        }
        let before: Vec<_> = [&files.private, &files.public]
            .map(|f| fs::read(f).ok())
            .into();
        let error = second.write_pair(dir.path(), IfExists::Fail).unwrap_err();
        assert!(matches!(error, KeyError::Exists(_)), "{error}");
        assert_eq!(
            before,
            [&files.private, &files.public].map(|f| fs::read(f).ok())
        );
        first.write_pair(dir.path(), IfExists::Replace).unwrap();
    }
    second.write_pair(dir.path(), IfExists::Replace).unwrap();
    assert_eq!(
        SigningKey::read(&files.private).unwrap().public(),
        second.public()
    );
    assert_eq!(&PublicKey::read(&files.public).unwrap(), second.public());
}

#[test]
fn concurrently_written_key_pairs_match() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..20 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let key = SigningKey::generate().unwrap();
                    key.write_pair(dir.path(), IfExists::Replace).unwrap();
                });
            }
        });
        let files = KeyPairFiles::in_dir(dir.path());
        let private = SigningKey::read(&files.private).unwrap();
        assert_eq!(&PublicKey::read(&files.public).unwrap(), private.public());
    }
}

#[test]
fn private_key_accessible_to_others_is_rejected_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    let private = key.write_pair(dir.path(), IfExists::Fail).unwrap().private;
    for open in [0o640, 0o604, 0o620, 0o601, 0o777] {
        chmod(&private, open);
        let error = SigningKey::read(&private).unwrap_err();
        assert!(error.is_permission());
        assert_eq!(
            error.to_string(),
            format!(
                "private key {} is accessible to group or others (mode {open:04o})",
                private.display()
            )
        );
        assert_eq!(
            error.hint().unwrap(),
            format!("chmod 600 {}", private.display())
        );
    }
    for closed in [0o600, 0o400, 0o700] {
        chmod(&private, closed);
        SigningKey::read(&private).unwrap();
    }
}

#[test]
fn public_key_given_as_private_key_is_reported_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    let files = key.write_pair(dir.path(), IfExists::Fail).unwrap();
    let error = SigningKey::read(&files.public).unwrap_err();
    assert!(matches!(
        error,
        KeyError::Unusable {
            source: KeyTextError::PublicForPrivate,
            ..
        }
    ));
}

#[test]
fn directory_writable_by_others_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let key = SigningKey::generate().unwrap();
    for open in [0o770, 0o702, 0o1777] {
        chmod(dir.path(), open);
        let error = key.write_pair(dir.path(), IfExists::Replace).unwrap_err();
        assert!(
            matches!(error, KeyError::InsecureDirectory { mode, .. } if mode == open),
            "{error}"
        );
        assert!(error.is_permission());
    }
    chmod(dir.path(), 0o755);
    key.write_pair(dir.path(), IfExists::Replace).unwrap();
    assert_eq!(
        mode(dir.path()),
        0o755,
        "an existing directory keeps its mode"
    );
}

#[test]
fn files_that_are_not_keys_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("subdir")).unwrap();
    fs::write(at("huge"), vec![b'A'; 64 * 1024 + 1]).unwrap();
    fs::write(at("largest"), vec![b'A'; 64 * 1024]).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    chmod(&at("huge"), 0o600);
    for (name, message) in [
        ("none", "there is no key file none"),
        ("subdir", "subdir is a directory, not a key file"),
        ("pipe", "pipe is not a regular file"),
        ("huge", "huge is not a key file: it is larger than 64 KiB"),
        (
            "largest",
            "cannot use the key largest: not PEM: there is no line `-----BEGIN …-----`",
        ),
    ] {
        let prefix = format!("{}/", dir.path().display());
        let error = PublicKey::read(&at(name)).unwrap_err();
        assert_eq!(error.to_string().replace(&prefix, ""), message);
        assert_eq!(error.hint(), None);
    }
}
