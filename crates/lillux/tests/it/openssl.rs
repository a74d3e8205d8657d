//! Key files and signatures are compatible with the `openssl` command.
#![expect(clippy::expect_used, reason = "tests may panic")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lillux::Hash;
use lillux::envelope::{OpeningKey, SealingKey, Secret, seal};
use lillux::keys::{Algorithm, IfExists, KeyError, KeyTextError, PublicKey, Signature, SigningKey};
use tempfile::TempDir;

/// A working directory for `openssl`.
struct WorkDir(TempDir);

impl WorkDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `openssl` with arguments without spaces and returns its standard output.
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

fn restrict_access(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn openssl_reads_key_pairs_and_writes_the_same_bytes() {
    let work_dir = WorkDir::new();
    let signing = SigningKey::generate().unwrap();
    let opening = OpeningKey::generate().unwrap();
    signing
        .write_pair(&work_dir.path("signing"), IfExists::Fail)
        .unwrap();
    opening
        .write_pair(&work_dir.path("sealing"), IfExists::Fail)
        .unwrap();
    for (dir, private, public, kind) in [
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
        let read = format!("pkey -in {dir}/private_key.pem");
        assert_eq!(work_dir.openssl(&read), *private);
        assert_eq!(work_dir.openssl(&format!("{read} -pubout")), public);
        assert_eq!(
            work_dir.openssl(&format!("pkey -pubin -in {dir}/public_key.pem")),
            public
        );
        let described = work_dir.openssl(&format!("{read} -noout -text"));
        assert!(
            described.starts_with(&format!("{kind} Private-Key")),
            "{described}"
        );
    }
}

#[test]
fn keys_created_by_openssl_are_read() {
    let work_dir = WorkDir::new();
    for kind in ["ed25519", "x25519"] {
        work_dir.openssl(&format!("genpkey -algorithm {kind} -out {kind}.pem"));
        work_dir.openssl(&format!("pkey -in {kind}.pem -pubout -out {kind}.pub"));
        work_dir.openssl(&format!(
            "pkey -in {kind}.pem -pubout -text -out {kind}.text"
        ));
        restrict_access(&work_dir.path(&format!("{kind}.pem")));
    }
    let signing = SigningKey::read(&work_dir.path("ed25519.pem")).unwrap();
    let written = fs::read_to_string(work_dir.path("ed25519.pub")).unwrap();
    assert_eq!(signing.public().to_pem(), written);
    assert_eq!(
        *signing.to_pem(),
        fs::read_to_string(work_dir.path("ed25519.pem")).unwrap()
    );
    assert_eq!(
        signing.public().fingerprint().to_string(),
        Hash::digest(&written).to_hex()[..16]
    );
    assert_eq!(
        &PublicKey::read(&work_dir.path("ed25519.text")).unwrap(),
        signing.public()
    );

    let opening = OpeningKey::read(&work_dir.path("x25519.pem")).unwrap();
    let sealing = SealingKey::read(&work_dir.path("x25519.pub")).unwrap();
    assert_eq!(opening.public(), &sealing);
    let envelope = seal(&Secret::new(b"hunter2".to_vec()), &[sealing], "").unwrap();
    assert_eq!(envelope.open(&opening, None).unwrap().expose(), b"hunter2");
}

#[test]
fn signatures_agree_in_both_directions() {
    let work_dir = WorkDir::new();
    let key = SigningKey::generate().unwrap();
    let files = key
        .write_pair(&work_dir.path("pair"), IfExists::Fail)
        .unwrap();
    assert_eq!(files.private, work_dir.path("pair/private_key.pem"));
    let hash = Hash::digest(b"message");
    fs::write(work_dir.path("message"), hash.to_hex()).unwrap();

    let ours = key.sign(&hash);
    fs::write(work_dir.path("ours"), ours.as_bytes()).unwrap();
    let output = work_dir.openssl(
        "pkeyutl -verify -rawin -pubin -inkey pair/public_key.pem -in message -sigfile ours",
    );
    assert_eq!(output.trim(), "Signature Verified Successfully");

    work_dir.openssl("pkeyutl -sign -rawin -inkey pair/private_key.pem -in message -out theirs");
    let theirs = Signature::from_bytes(
        fs::read(work_dir.path("theirs"))
            .unwrap()
            .try_into()
            .unwrap(),
    );
    assert_eq!(theirs, ours, "Ed25519 signatures are deterministic");
    key.public().verify(&hash, &theirs).unwrap();
}

#[test]
fn keys_of_other_algorithms_are_rejected_by_name() {
    let work_dir = WorkDir::new();
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
        work_dir.openssl(&format!("{how} -out key"));
        work_dir.openssl("pkey -in key -pubout -out public");
        restrict_access(&work_dir.path("key"));
        for error in [
            SigningKey::read(&work_dir.path("key")).unwrap_err(),
            PublicKey::read(&work_dir.path("public")).unwrap_err(),
        ] {
            let KeyError::Unusable { source, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(source, other_algorithm(name));
        }
    }
    // Older formats, which name the algorithm on the BEGIN line.
    for (name, how) in [
        ("RSA", "genrsa -traditional -out key 1024"),
        ("EC", "ecparam -genkey -noout -name prime256v1 -out key"),
    ] {
        work_dir.openssl(how);
        let text = fs::read_to_string(work_dir.path("key")).unwrap();
        assert!(text.starts_with(&format!("-----BEGIN {name} PRIVATE KEY-----")));
        let error = SigningKey::from_pem(text).unwrap_err();
        assert_eq!(error, other_algorithm(name));
    }
}

fn other_algorithm(found: &'static str) -> KeyTextError {
    let needed = Algorithm::Ed25519;
    KeyTextError::OtherAlgorithm { found, needed }
}

#[test]
fn encrypted_key_is_rejected_and_the_hint_decrypts_it() {
    let work_dir = WorkDir::new();
    work_dir.openssl("genpkey -algorithm ed25519 -aes256 -pass pass:swordfish -out encrypted.pem");
    let path = work_dir.path("encrypted.pem");
    restrict_access(&path);
    let error = SigningKey::read(&path).unwrap_err();
    assert!(
        matches!(
            error,
            KeyError::Unusable {
                source: KeyTextError::Encrypted,
                ..
            }
        ),
        "{error}"
    );
    let hint = error.hint().unwrap();
    let words = hint.strip_prefix("openssl ").unwrap();
    work_dir.openssl(&format!("{words} -passin pass:swordfish"));
    restrict_access(&work_dir.path("decrypted.pem"));
    SigningKey::read(&work_dir.path("decrypted.pem")).unwrap();
}

#[test]
fn certificate_and_key_with_certificate_are_rejected() {
    let work_dir = WorkDir::new();
    work_dir.openssl("req -x509 -newkey ed25519 -nodes -subj /CN=x -keyout key -out certificate");
    let certificate = fs::read(work_dir.path("certificate")).unwrap();
    let key = fs::read(work_dir.path("key")).unwrap();
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
