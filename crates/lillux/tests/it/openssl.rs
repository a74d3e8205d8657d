//! Our key files and signatures against the real `openssl`, both ways.
#![expect(clippy::expect_used, reason = "tests may panic")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lillux::Hash;
use lillux::envelope::{OpeningKey, SealingKey, Secret, seal};
use lillux::keys::{IfExists, KeyTextError, PublicKey, Signature, SigningKey};
use tempfile::TempDir;

/// A folder to run `openssl` in.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `openssl` with words that hold no spaces, and gives its standard output.
    fn openssl(&self, words: &str) -> String {
        let run = Command::new("openssl")
            .args(words.split(' '))
            .current_dir(self.0.path())
            .output();
        let out = run.expect("these tests need the `openssl` command: apt install openssl");
        assert!(
            out.status.success(),
            "openssl {words}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8(out.stdout).unwrap()
    }
}

fn close(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn openssl_reads_our_pairs_and_writes_the_same_bytes() {
    let place = Place::new();
    let signing = SigningKey::generate().unwrap();
    let opening = OpeningKey::generate().unwrap();
    signing
        .write_pair(&place.at("signing"), IfExists::Fail)
        .unwrap();
    opening
        .write_pair(&place.at("sealing"), IfExists::Fail)
        .unwrap();
    for (folder, private, public, kind) in [
        (
            "signing",
            signing.to_pem(),
            signing.public().to_pem(),
            "ED25519",
        ),
        (
            "sealing",
            opening.to_pem(),
            opening.public().to_pem(),
            "X25519",
        ),
    ] {
        let read = format!("pkey -in {folder}/private_key.pem");
        assert_eq!(place.openssl(&read), *private);
        assert_eq!(place.openssl(&format!("{read} -pubout")), public);
        assert_eq!(
            place.openssl(&format!("pkey -pubin -in {folder}/public_key.pem")),
            public
        );
        let described = place.openssl(&format!("{read} -noout -text"));
        assert!(
            described.starts_with(&format!("{kind} Private-Key")),
            "{described}"
        );
    }
}

#[test]
fn we_read_the_keys_that_openssl_makes() {
    let place = Place::new();
    for kind in ["ed25519", "x25519"] {
        place.openssl(&format!("genpkey -algorithm {kind} -out {kind}.pem"));
        place.openssl(&format!("pkey -in {kind}.pem -pubout -out {kind}.pub"));
        place.openssl(&format!(
            "pkey -in {kind}.pem -pubout -text -out {kind}.text"
        ));
        close(&place.at(&format!("{kind}.pem")));
    }
    let signing = SigningKey::read(&place.at("ed25519.pem")).unwrap();
    let written = fs::read_to_string(place.at("ed25519.pub")).unwrap();
    assert_eq!(signing.public().to_pem(), written);
    assert_eq!(
        *signing.to_pem(),
        fs::read_to_string(place.at("ed25519.pem")).unwrap()
    );
    assert_eq!(
        signing.public().fingerprint().to_string(),
        Hash::digest(&written).to_hex()[..16]
    );
    assert_eq!(
        &PublicKey::read(&place.at("ed25519.text")).unwrap(),
        signing.public()
    );

    let opening = OpeningKey::read(&place.at("x25519.pem")).unwrap();
    let sealing = SealingKey::read(&place.at("x25519.pub")).unwrap();
    assert_eq!(opening.public(), &sealing);
    let envelope = seal(&Secret::new(b"hunter2".to_vec()), &[sealing], "").unwrap();
    assert_eq!(envelope.open(&opening, None).unwrap().expose(), b"hunter2");
}

#[test]
fn signatures_agree_both_ways() {
    let place = Place::new();
    let key = SigningKey::generate().unwrap();
    let files = key.write_pair(&place.at("pair"), IfExists::Fail).unwrap();
    assert_eq!(files.private, place.at("pair/private_key.pem"));
    let hash = Hash::digest(b"what is signed");
    fs::write(place.at("message"), hash.to_hex()).unwrap();

    let ours = key.sign(&hash);
    fs::write(place.at("ours"), ours.as_bytes()).unwrap();
    let said = place.openssl(
        "pkeyutl -verify -rawin -pubin -inkey pair/public_key.pem -in message -sigfile ours",
    );
    assert_eq!(said.trim(), "Signature Verified Successfully");

    place.openssl("pkeyutl -sign -rawin -inkey pair/private_key.pem -in message -out theirs");
    let theirs = Signature::from_bytes(fs::read(place.at("theirs")).unwrap().try_into().unwrap());
    assert_eq!(theirs, ours, "Ed25519 signatures are deterministic");
    key.public().verify(&hash, &theirs).unwrap();
}

#[test]
fn keys_for_other_things_are_refused_by_name() {
    let place = Place::new();
    for (name, how) in [
        (
            "RSA",
            "genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:1024",
        ),
        (
            "RSA-PSS",
            "genpkey -quiet -algorithm RSA-PSS -pkeyopt rsa_keygen_bits:1024",
        ),
        (
            "EC",
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256",
        ),
        ("X25519", "genpkey -algorithm x25519"),
        ("X448", "genpkey -algorithm x448"),
        ("Ed448", "genpkey -algorithm ed448"),
    ] {
        place.openssl(&format!("{how} -out key"));
        place.openssl("pkey -in key -pubout -out public");
        close(&place.at("key"));
        let message = format!("expected a key for Ed25519, found one for {name}");
        for error in [
            SigningKey::read(&place.at("key")).unwrap_err(),
            PublicKey::read(&place.at("public")).unwrap_err(),
        ] {
            assert!(error.to_string().ends_with(&message), "{error}");
        }
    }
    // The older forms, which name their algorithm on the BEGIN line.
    for (name, how) in [
        ("RSA", "genrsa -traditional -out key 1024"),
        ("EC", "ecparam -genkey -noout -name prime256v1 -out key"),
    ] {
        place.openssl(how);
        let text = fs::read_to_string(place.at("key")).unwrap();
        assert!(text.starts_with(&format!("-----BEGIN {name} PRIVATE KEY-----")));
        let error = SigningKey::from_pem(text).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("expected a key for Ed25519, found one for {name}")
        );
    }
}

#[test]
fn an_encrypted_key_is_told_as_such_and_the_hint_decrypts_it() {
    let place = Place::new();
    place.openssl("genpkey -algorithm ed25519 -aes256 -pass pass:swordfish -out encrypted.pem");
    let path = place.at("encrypted.pem");
    close(&path);
    let error = SigningKey::read(&path).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with(&KeyTextError::Encrypted.to_string()),
        "{error}"
    );
    let hint = error.hint().unwrap();
    let words = hint.strip_prefix("openssl ").unwrap();
    place.openssl(&format!("{words} -passin pass:swordfish"));
    close(&place.at("decrypted.pem"));
    SigningKey::read(&place.at("decrypted.pem")).unwrap();
}

#[test]
fn a_certificate_and_a_key_with_its_parameters_are_refused() {
    let place = Place::new();
    place.openssl("req -x509 -newkey ed25519 -nodes -subj /CN=x -keyout key -out certificate");
    let certificate = fs::read(place.at("certificate")).unwrap();
    let key = fs::read(place.at("key")).unwrap();
    assert_eq!(
        PublicKey::from_pem(&certificate),
        Err(KeyTextError::OtherBlock("a certificate"))
    );
    let both = [key, certificate].concat();
    assert_eq!(
        SigningKey::from_pem(both).unwrap_err(),
        KeyTextError::SeveralBlocks(2)
    );
}
