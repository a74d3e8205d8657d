use std::fs;
use std::path::Path;

use lillux::keys::{Purpose, SigningKey};
use tempfile::TempDir;

use super::*;
use crate::signature::REVOCATION;
use crate::space::EmbeddedBundle;

/// A project and a user, in real folders.
struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for space in ["project", "user", "bundle"] {
            fs::create_dir_all(folder.path().join(space).join(".ai")).unwrap();
        }
        Self { folder }
    }

    fn path(&self, space: &str, relative: &str) -> PathBuf {
        self.folder.path().join(space).join(".ai").join(relative)
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
        };
        let name = format!("{TRUSTED}/{}.toml", key.public().fingerprint());
        let signed = signed(&file.to_text(), TRUST, &name, signer);
        self.write(space, &name, &signed);
    }

    fn revoke(&self, space: &str, key: &SigningKey, signer: &SigningKey) {
        let fingerprint = key.public().fingerprint();
        let text = Revocation::text(
            fingerprint,
            "2026-05-01T00:00:00Z",
            Some("lost"),
            Some(key.public()),
        );
        let name = format!("{REVOKED}/{fingerprint}.toml");
        let signed = signed(&text, REVOCATION, &name, signer);
        self.write(space, &name, &signed);
    }

    fn standing(&self, key: &SigningKey) -> Result<Space, String> {
        let at = |space: &str| self.folder.path().join(space);
        let spaces = Spaces::open(
            Some(&at("project")),
            Some(&at("user")),
            &[at("bundle")],
            &EmbeddedBundle::EMPTY,
        );
        let spaces = spaces.unwrap();
        let standing = Trust::new(&spaces).key_status(key.public().fingerprint());
        standing
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
fn the_user_and_the_system_may_trust_a_key_by_itself() {
    for (space, expected) in [("user", Space::User), ("bundle", Space::System)] {
        let (home, one) = (Home::new(), key());
        home.trust(space, &one, &one);
        assert_eq!(home.standing(&one), Ok(expected));
        assert_eq!(
            home.standing(&key()),
            Err(String::new()),
            "another key is unknown"
        );
    }
}

#[test]
fn a_project_cannot_trust_itself() {
    let (home, one, friend) = (Home::new(), key(), key());
    home.trust("project", &one, &one);
    let why = home.standing(&one).unwrap_err();
    assert!(
        why.starts_with("a project cannot trust a key on its own"),
        "{why}"
    );
    // Nor through a second key of its own.
    home.trust("project", &friend, &friend);
    home.trust("project", &one, &friend);
    let why = home.standing(&one).unwrap_err();
    assert!(
        why.contains("which neither the user nor the system trusts"),
        "{why}"
    );
}

#[test]
fn a_projects_trust_counts_when_the_user_or_the_system_vouches_for_it() {
    for space in ["user", "bundle"] {
        let (home, one, voucher) = (Home::new(), key(), key());
        home.trust(space, &voucher, &voucher);
        home.trust("project", &one, &voucher);
        assert_eq!(home.standing(&one), Ok(Space::Project));
    }
}

#[test]
fn an_ignored_file_does_not_hide_the_one_that_counts() {
    let (home, one) = (Home::new(), key());
    home.trust("project", &one, &one);
    home.trust("user", &one, &one);
    assert_eq!(home.standing(&one), Ok(Space::User));
}

#[test]
fn what_is_wrong_with_a_trust_file_is_said() {
    let (home, one, other) = (Home::new(), key(), key());
    let file = TrustFile {
        key: one.public().clone(),
        owner: None,
        attestation: None,
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
    for (bytes, why) in [
        (text.clone(), "not signed"),
        (
            good.replace("keys/trusted", "keys/other"),
            "content does not match its signature",
        ),
        (
            String::from_utf8(signed(&wrong_name, &one)).unwrap(),
            "its fingerprint is not that of its key",
        ),
        (as_item, "it was signed as item="),
        (not_its, "it holds another key"),
        (forged, "the signature is not one of key"),
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
            "its owner is not one short line",
        ),
        ("\u{0}".to_owned(), "it cannot be read: "),
        (String::new(), "it cannot be read: "),
        (good.replace("-----BEGIN", "-----END"), "its key: "),
    ] {
        home.write("user", &name, bytes.as_bytes());
        let found = home.standing(&one).unwrap_err();
        assert!(found.starts_with(why), "{found}\n{bytes}");
    }
    home.write("user", &name, good.as_bytes());
    assert_eq!(home.standing(&one), Ok(Space::User));
}

#[test]
fn keys_that_only_vouch_for_each_other_count_for_nothing() {
    let (home, one, two) = (Home::new(), key(), key());
    home.trust("user", &one, &two);
    home.trust("user", &two, &one);
    let why = home.standing(&one).unwrap_err();
    assert!(why.contains("vouches for itself through others"), "{why}");
}

#[test]
fn a_chain_of_vouchers_has_an_end() {
    let home = Home::new();
    let keys: Vec<_> = (0..=LONGEST_CHAIN).map(|_| key()).collect();
    home.trust("user", &keys[0], &keys[0]);
    for pair in keys.windows(2) {
        home.trust("user", &pair[1], &pair[0]);
    }
    assert_eq!(home.standing(&keys[LONGEST_CHAIN - 1]), Ok(Space::User));
    let why = home.standing(&keys[LONGEST_CHAIN]).unwrap_err();
    assert!(
        why.contains("more than 8 keys vouch for each other"),
        "{why}"
    );
}

#[test]
fn a_revoked_key_fails_with_the_date_and_so_does_whom_it_vouched_for() {
    let (home, own, one, friend) = (Home::new(), key(), key(), key());
    home.trust("user", &own, &own);
    home.trust("user", &one, &one);
    home.trust("user", &friend, &one);
    assert_eq!(home.standing(&friend), Ok(Space::User));
    home.revoke("user", &one, &own);
    let why = home.standing(&one).unwrap_err();
    assert!(
        why.ends_with("was revoked on 2026-05-01T00:00:00Z (lost)"),
        "{why}"
    );
    let why = home.standing(&friend).unwrap_err();
    assert!(why.starts_with("signed by a revoked key"), "{why}");
    assert_eq!(home.standing(&own), Ok(Space::User));
}

#[test]
fn a_key_can_revoke_itself_wherever_the_file_lies() {
    for space in ["project", "user", "bundle"] {
        let (home, one) = (Home::new(), key());
        home.trust("user", &one, &one);
        home.revoke(space, &one, &one);
        assert!(
            home.standing(&one).unwrap_err().contains("was revoked on"),
            "{space}"
        );
    }
}

#[test]
fn a_project_cannot_revoke_a_key_of_the_users() {
    let (home, own, stranger) = (Home::new(), key(), key());
    home.trust("user", &own, &own);
    home.revoke("project", &own, &stranger);
    assert_eq!(home.standing(&own), Ok(Space::User));
    home.trust("user", &stranger, &own);
    assert!(
        home.standing(&own).is_err(),
        "unless the user trusts who says so"
    );
}

#[test]
fn a_damaged_revocation_does_not_bring_the_key_back() {
    let (home, own, one) = (Home::new(), key(), key());
    home.trust("user", &own, &own);
    home.trust("user", &one, &one);
    home.write(
        "user",
        &format!("{REVOKED}/{}.toml", one.public().fingerprint()),
        b"garbage",
    );
    let why = home.standing(&one).unwrap_err();
    assert!(why.ends_with("is damaged or cannot be read"), "{why}");
}

#[test]
fn a_trust_file_behind_a_link_out_of_the_space_does_not_count() {
    let (home, one) = (Home::new(), key());
    home.trust("bundle", &one, &one);
    let name = format!("{TRUSTED}/{}.toml", one.public().fingerprint());
    let outside: PathBuf = home.folder.path().join("outside.toml");
    fs::rename(home.path("bundle", &name), &outside).unwrap();
    fs::create_dir_all(home.path("user", TRUSTED)).unwrap();
    std::os::unix::fs::symlink(Path::new(&outside), home.path("user", &name)).unwrap();
    let why = home.standing(&one).unwrap_err();
    assert!(why.contains("leads out of its space"), "{why}");
}

#[test]
fn the_trusted_keys_are_listed_once_for_a_call() {
    let home = Home::new();
    let key = SigningKey::generate().unwrap();
    home.trust("user", &key, &key);
    let user = home.folder.path().join("user");
    let spaces = Spaces::open(None, Some(&user), &[], &EmbeddedBundle::EMPTY).unwrap();
    let trust = Trust::new(&spaces);
    assert_eq!(trust.trusted().len(), 1);
    // Were the folder walked for each of many files, this one would be seen.
    let other = SigningKey::generate().unwrap();
    home.trust("user", &other, &other);
    assert_eq!(trust.trusted().len(), 1);
    assert_eq!(Trust::new(&spaces).trusted().len(), 2);
}
