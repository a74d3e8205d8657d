use std::fs;
use std::path::Path;

use lillux::keys::{Purpose, SigningKey};
use tempfile::TempDir;

use super::*;
use crate::signature::REVOCATION;
use crate::space::EmbeddedBundle;

/// A project and a user, in real directories.
struct Home {
    dir: TempDir,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for space in ["project", "user", "bundle"] {
            fs::create_dir_all(dir.path().join(space).join(".ai")).unwrap();
        }
        Self { dir }
    }

    fn path(&self, space: &str, relative: &str) -> PathBuf {
        self.dir.path().join(space).join(".ai").join(relative)
    }

    fn write(&self, space: &str, relative: &str, bytes: &[u8]) {
        let path = self.path(space, relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A trust file for a key, signed by another.
    fn trust(&self, space: &str, key: &SigningKey, signer: &SigningKey) {
        let file = TrustFile {
            key: key.public().clone(),
            owner: Some("Ada".to_owned()),
            attestation: None,
            decisions_only: false,
        };
        let name = format!("{TRUSTED}/{}.toml", key.public().fingerprint());
        let signed = signed(&file.to_text(), TRUST, &name, signer);
        self.write(space, &name, &signed);
    }

    fn revoke(&self, space: &str, key: &SigningKey, signer: &SigningKey) {
        let fingerprint = key.public().fingerprint();
        let text = Revocation::to_text(
            fingerprint,
            "2026-05-01T00:00:00Z",
            Some("lost"),
            Some(key.public()),
        );
        let name = format!("{REVOKED}/{fingerprint}.toml");
        let signed = signed(&text, REVOCATION, &name, signer);
        self.write(space, &name, &signed);
    }

    fn status(&self, key: &SigningKey) -> Result<Space, String> {
        let at = |space: &str| self.dir.path().join(space);
        let spaces = Spaces::open(
            Some(&at("project")),
            Some(&at("user")),
            &[at("bundle")],
            &EmbeddedBundle::EMPTY,
        );
        let spaces = spaces.unwrap();
        let status = Trust::new(&spaces).key_status(key.public().fingerprint());
        status
            .map(|key| key.space)
            .map_err(|distrust| match distrust {
                DistrustReason::Revoked(revocation) => revocation.to_string(),
                DistrustReason::Unknown { ignored } => ignored
                    .into_iter()
                    .map(|i| i.reason)
                    .collect::<Vec<_>>()
                    .join("; "),
            })
    }
}

fn signed(text: &str, purpose: Purpose, path: &str, signer: &SigningKey) -> Vec<u8> {
    signature::sign(
        text.as_bytes(),
        &CommentStyle::HASH,
        &Binding::new(purpose, path),
        signer,
        "2026-04-10T03:28:17Z",
        None,
    )
    .unwrap()
}

fn key() -> SigningKey {
    SigningKey::generate().unwrap()
}

#[test]
fn user_and_system_accept_self_signed_trust_files() {
    for (space, expected) in [("user", Space::User), ("bundle", Space::System)] {
        let (home, one) = (Home::new(), key());
        home.trust(space, &one, &one);
        assert_eq!(home.status(&one), Ok(expected));
        assert_eq!(
            home.status(&key()),
            Err(String::new()),
            "another key is unknown"
        );
    }
}

#[test]
fn project_cannot_trust_itself() {
    let (home, one, friend) = (Home::new(), key(), key());
    home.trust("project", &one, &one);
    let reason = home.status(&one).unwrap_err();
    assert!(
        reason.starts_with("a project cannot trust a key on its own"),
        "{reason}"
    );
    // Nor through a second key in the project.
    home.trust("project", &friend, &friend);
    home.trust("project", &one, &friend);
    let reason = home.status(&one).unwrap_err();
    assert!(
        reason.contains("which neither the user nor the system trusts"),
        "{reason}"
    );
}

#[test]
fn project_trust_file_needs_a_signer_trusted_by_user_or_system() {
    for space in ["user", "bundle"] {
        let (home, one, voucher) = (Home::new(), key(), key());
        home.trust(space, &voucher, &voucher);
        home.trust("project", &one, &voucher);
        assert_eq!(home.status(&one), Ok(Space::Project));
    }
}

#[test]
fn invalid_trust_file_does_not_hide_a_valid_one() {
    let (home, one) = (Home::new(), key());
    home.trust("project", &one, &one);
    home.trust("user", &one, &one);
    assert_eq!(home.status(&one), Ok(Space::User));
}

#[test]
fn invalid_trust_file_reports_the_cause() {
    let (home, one, other) = (Home::new(), key(), key());
    let file = TrustFile {
        key: one.public().clone(),
        owner: None,
        attestation: None,
        decisions_only: false,
    };
    let name = format!("{TRUSTED}/{}.toml", one.public().fingerprint());
    let text = file.to_text();
    let signed = |text: &str, signer: &SigningKey| signed(text, TRUST, &name, signer);
    let good = String::from_utf8(signed(&text, &one)).unwrap();
    let as_item = signature::sign(
        text.as_bytes(),
        &CommentStyle::HASH,
        &Binding::item(&name),
        &one,
        "2026-04-10T03:28:17Z",
        None,
    );
    let as_item = String::from_utf8(as_item.unwrap()).unwrap();
    let foreign = TrustFile {
        key: other.public().clone(),
        ..file.clone()
    };
    let own = one.public().fingerprint().to_string();
    let wrong_name = text.replace(&own, "0123456789abcdef");
    let not_its = String::from_utf8(signed(&foreign.to_text(), &other)).unwrap();
    let others_line = String::from_utf8(signed(&text, &other)).unwrap();
    let others_line = others_line.lines().next().unwrap();
    let claim = others_line.replace(&other.public().fingerprint().to_string(), &own);
    let forged = good.replace(good.lines().next().unwrap(), &claim);
    for (bytes, reason) in [
        (text.clone(), "not signed"),
        (
            good.replace("keys/trusted", "keys/other"),
            "content does not match its signature",
        ),
        (
            String::from_utf8(signed(&wrong_name, &one)).unwrap(),
            "the fingerprint does not match the key",
        ),
        (as_item, "signed as item="),
        (not_its, "it contains another key"),
        (forged, "not a valid signature of key"),
        (
            String::from_utf8(signed(
                &text.replacen(
                    "version = ",
                    "owner = \"Ada\\nfingerprint 0123\"\nversion = ",
                    1,
                ),
                &one,
            ))
            .unwrap(),
            "the owner must be one short line",
        ),
        ("\u{0}".to_owned(), "invalid TOML: "),
        (String::new(), "invalid TOML: "),
        (good.replace("-----BEGIN", "-----END"), "invalid key: "),
    ] {
        home.write("user", &name, bytes.as_bytes());
        let found = home.status(&one).unwrap_err();
        assert!(found.starts_with(reason), "{found}\n{bytes}");
    }
    home.write("user", &name, good.as_bytes());
    assert_eq!(home.status(&one), Ok(Space::User));
}

#[test]
fn circular_vouching_is_not_trusted() {
    let (home, one, two) = (Home::new(), key(), key());
    home.trust("user", &one, &two);
    home.trust("user", &two, &one);
    let reason = home.status(&one).unwrap_err();
    assert!(
        reason.contains("vouches for itself through others"),
        "{reason}"
    );
}

#[test]
fn chain_of_vouchers_is_limited() {
    let home = Home::new();
    let keys: Vec<_> = (0..=MAX_CHAIN).map(|_| key()).collect();
    home.trust("user", &keys[0], &keys[0]);
    for pair in keys.windows(2) {
        home.trust("user", &pair[1], &pair[0]);
    }
    assert_eq!(home.status(&keys[MAX_CHAIN - 1]), Ok(Space::User));
    let reason = home.status(&keys[MAX_CHAIN]).unwrap_err();
    assert!(
        reason.contains("more than 8 keys vouch for each other"),
        "{reason}"
    );
}

#[test]
fn revoked_key_and_keys_it_vouched_for_are_not_trusted() {
    let (home, own, one, friend) = (Home::new(), key(), key(), key());
    home.trust("user", &own, &own);
    home.trust("user", &one, &one);
    home.trust("user", &friend, &one);
    assert_eq!(home.status(&friend), Ok(Space::User));
    home.revoke("user", &one, &own);
    let reason = home.status(&one).unwrap_err();
    assert!(
        reason.ends_with("was revoked on 2026-05-01T00:00:00Z (lost)"),
        "{reason}"
    );
    let reason = home.status(&friend).unwrap_err();
    assert!(reason.starts_with("signed by a revoked key"), "{reason}");
    assert_eq!(home.status(&own), Ok(Space::User));
}

#[test]
fn key_can_revoke_itself_in_any_space() {
    for space in ["project", "user", "bundle"] {
        let (home, one) = (Home::new(), key());
        home.trust("user", &one, &one);
        home.revoke(space, &one, &one);
        assert!(
            home.status(&one).unwrap_err().contains("was revoked on"),
            "{space}"
        );
    }
}

#[test]
fn project_cannot_revoke_a_user_key() {
    let (home, own, stranger) = (Home::new(), key(), key());
    home.trust("user", &own, &own);
    home.revoke("project", &own, &stranger);
    assert_eq!(home.status(&own), Ok(Space::User));
    home.trust("user", &stranger, &own);
    assert!(
        home.status(&own).is_err(),
        "a key that the user trusts may revoke it"
    );
}

#[test]
fn damaged_revocation_still_revokes() {
    let (home, own, one) = (Home::new(), key(), key());
    home.trust("user", &own, &own);
    home.trust("user", &one, &one);
    home.write(
        "user",
        &format!("{REVOKED}/{}.toml", one.public().fingerprint()),
        b"garbage",
    );
    let reason = home.status(&one).unwrap_err();
    assert!(reason.ends_with("is damaged or unreadable"), "{reason}");
}

#[test]
fn trust_file_linked_from_outside_the_space_is_ignored() {
    let (home, one) = (Home::new(), key());
    home.trust("bundle", &one, &one);
    let name = format!("{TRUSTED}/{}.toml", one.public().fingerprint());
    let outside: PathBuf = home.dir.path().join("outside.toml");
    fs::rename(home.path("bundle", &name), &outside).unwrap();
    fs::create_dir_all(home.path("user", TRUSTED)).unwrap();
    std::os::unix::fs::symlink(Path::new(&outside), home.path("user", &name)).unwrap();
    let reason = home.status(&one).unwrap_err();
    assert!(reason.contains("outside its space"), "{reason}");
}

#[test]
fn trusted_keys_are_listed_once_per_call() {
    let home = Home::new();
    let key = SigningKey::generate().unwrap();
    home.trust("user", &key, &key);
    let user = home.dir.path().join("user");
    let spaces = Spaces::open(None, Some(&user), &[], &EmbeddedBundle::EMPTY).unwrap();
    let trust = Trust::new(&spaces);
    assert_eq!(trust.trusted().len(), 1);
    // A second directory walk would find this key.
    let other = SigningKey::generate().unwrap();
    home.trust("user", &other, &other);
    assert_eq!(trust.trusted().len(), 1);
    assert_eq!(Trust::new(&spaces).trusted().len(), 2);
}

#[test]
fn key_for_decisions_signs_no_items_and_vouches_for_no_key() {
    let (home, own, browser, other) = (Home::new(), key(), key(), key());
    home.trust("user", &own, &own);
    let file = TrustFile {
        key: browser.public().clone(),
        owner: Some("ada in a browser".to_owned()),
        attestation: None,
        decisions_only: true,
    };
    assert_eq!(
        TrustFile::parse(file.to_text().as_bytes()),
        Ok(file.clone())
    );
    let name = format!("{TRUSTED}/{}.toml", browser.public().fingerprint());
    home.write("user", &name, &signed(&file.to_text(), TRUST, &name, &own));
    assert_eq!(home.status(&browser), Ok(Space::User));
    home.trust("user", &other, &browser);
    let reason = home.status(&other).unwrap_err();
    assert!(reason.contains("decisions only"), "{reason}");

    let user = home.dir.path().join("user");
    let spaces = Spaces::open(None, Some(&user), &[], &EmbeddedBundle::EMPTY).unwrap();
    let trust = Trust::new(&spaces);
    assert!(verify::trusted_key(own.public().fingerprint(), &trust).is_ok());
    let refused = verify::trusted_key(browser.public().fingerprint(), &trust);
    assert!(matches!(
        refused,
        Err(crate::IntegrityProblem::Untrusted { .. })
    ));
}
