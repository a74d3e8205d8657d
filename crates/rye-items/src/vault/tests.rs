use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use lillux::envelope::OpenError;

use super::*;
use crate::space::SpaceError;

struct Home {
    dir: tempfile::TempDir,
    vault: Vault,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (user, project) = (dir.path().join("u"), dir.path().join("p"));
        fs::create_dir_all(project.join(".ai")).unwrap();
        fs::create_dir(&user).unwrap();
        let vault = Vault::new(&user, Some(&project));
        Self { dir, vault }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    fn set(&self, space: Space, text: &str, value: &str) -> Result<SecretInfo, VaultError> {
        let secret = Secret::new(value.as_bytes().to_vec());
        self.vault.set(space, &name(text), &secret)
    }

    fn get(&self, text: &str) -> Result<String, VaultError> {
        let opened = self.vault.get(None, &name(text))?;
        Ok(String::from_utf8(opened.secret.expose().to_vec()).unwrap())
    }
}

fn name(text: &str) -> SecretName {
    text.parse().unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn secret_is_stored_replaced_listed_and_removed() {
    let home = Home::new();
    home.set(Space::User, "TOKEN", "one").unwrap();
    home.set(Space::User, "TOKEN", "two").unwrap();
    assert_eq!(home.get("TOKEN").unwrap(), "two");
    let listed = home.vault.list(None).unwrap();
    let [Ok(sealed)] = listed.as_slice() else {
        panic!("{listed:?}");
    };
    assert_eq!((sealed.name.as_str(), sealed.space), ("TOKEN", Space::User));
    assert_eq!(mode(&sealed.path), 0o600);
    assert_eq!(mode(&home.path("u/.ai/vault")), 0o700);
    assert_eq!(
        mode(&home.path("u/.ai/config/keys/vault/private_key.pem")),
        0o600
    );
    home.vault.remove(None, &name("TOKEN")).unwrap();
    assert!(matches!(
        home.get("TOKEN"),
        Err(VaultError::NoSecret { .. })
    ));
}

#[test]
fn project_secret_shadows_the_user_secret() {
    let home = Home::new();
    home.set(Space::User, "T", "user's").unwrap();
    home.set(Space::Project, "T", "project's").unwrap();
    assert_eq!(home.get("T").unwrap(), "project's");
    let users = home.vault.get(Some(Space::User), &name("T")).unwrap();
    assert_eq!(users.secret.expose(), b"user's");
    let refused = home.vault.remove(None, &name("T")).unwrap_err();
    assert!(matches!(refused, VaultError::InBothSpaces(_)));
    home.vault.remove(Some(Space::Project), &name("T")).unwrap();
    assert_eq!(home.get("T").unwrap(), "user's");
}

#[test]
fn renamed_or_moved_secret_is_detected() {
    let home = Home::new();
    home.set(Space::User, "A", "a").unwrap();
    home.set(Space::User, "B", "b").unwrap();
    home.set(Space::Project, "C", "c").unwrap();
    fs::copy(
        home.path("u/.ai/vault/A.json"),
        home.path("u/.ai/vault/B.json"),
    )
    .unwrap();
    fs::copy(
        home.path("u/.ai/vault/A.json"),
        home.path("p/.ai/vault/A.json"),
    )
    .unwrap();
    for swapped in ["A", "B"] {
        let error = home.get(swapped).unwrap_err();
        let other = matches!(
            &error,
            VaultError::Open {
                source: OpenError::LabelMismatch { .. },
                ..
            }
        );
        assert!(other && error.is_integrity(), "{error}");
    }
    let listed = home.vault.list(None).unwrap();
    assert_eq!(listed.iter().filter(|one| one.is_err()).count(), 2);
    assert_eq!(listed.iter().filter(|one| one.is_ok()).count(), 2);
}

#[test]
fn damaged_file_is_an_integrity_error_without_the_secret() {
    let home = Home::new();
    let path = home.set(Space::User, "A", "sesame").unwrap().path;
    let whole = fs::read(&path).unwrap();
    for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        let error = home.get("A").unwrap_err();
        assert!(error.is_integrity(), "{cut}: {error}");
    }
    for at in (0..whole.len()).step_by(7) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        let error = home.get("A").unwrap_err();
        let known = error.is_integrity() || matches!(error, VaultError::Envelope { .. });
        assert!(
            known && !format!("{error:?}").contains("sesame"),
            "{at}: {error}"
        );
    }
}

#[test]
fn missing_or_readable_key_is_an_error_and_is_not_replaced() {
    let home = Home::new();
    home.set(Space::User, "A", "a").unwrap();
    let key = home.path("u/.ai/config/keys/vault/private_key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let open = home.get("A").unwrap_err();
    assert_eq!(open.hint().unwrap(), format!("chmod 600 {}", key.display()));
    fs::remove_file(&key).unwrap();
    assert!(matches!(home.get("A"), Err(VaultError::NoKey { .. })));
    let refused = home.set(Space::User, "B", "b").unwrap_err();
    assert!(matches!(refused, VaultError::NoKey { .. }), "{refused}");
    assert!(!key.exists());
}

#[test]
fn secret_for_another_key_cannot_be_opened() {
    let (home, other) = (Home::new(), Home::new());
    home.set(Space::User, "A", "a").unwrap();
    other.set(Space::User, "A", "a").unwrap();
    fs::copy(
        other.path("u/.ai/vault/A.json"),
        home.path("u/.ai/vault/A.json"),
    )
    .unwrap();
    let error = home.get("A").unwrap_err();
    let sealed_to = matches!(
        &error,
        VaultError::Open {
            source: OpenError::NotARecipient { .. },
            ..
        }
    );
    assert!(sealed_to, "{error}");
}

#[test]
fn empty_and_oversized_secrets_are_rejected() {
    let home = Home::new();
    assert!(matches!(
        home.set(Space::User, "A", ""),
        Err(VaultError::Empty(_))
    ));
    let largest = "x".repeat(LARGEST_SECRET);
    home.set(Space::User, "A", &largest).unwrap();
    assert_eq!(home.get("A").unwrap(), largest);
    let larger = largest + "x";
    let refused = home.set(Space::User, "A", &larger);
    assert!(matches!(refused, Err(VaultError::TooLarge(_))));
}

#[test]
fn links_cannot_leave_the_space() {
    let home = Home::new();
    let outside = home.path("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, home.path("p/.ai/vault")).unwrap();
    let leaves =
        |error: &VaultError| matches!(error, VaultError::Space(SpaceError::LeavesSpace(_)));
    let refused = home.set(Space::Project, "A", "a").unwrap_err();
    assert!(leaves(&refused), "{refused}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    fs::write(outside.join("A.json"), "{}").unwrap();
    let refused = home.get("A").unwrap_err();
    assert!(leaves(&refused) && refused.is_integrity(), "{refused}");
    let refused = home.vault.remove(None, &name("A")).unwrap_err();
    assert!(
        leaves(&refused) && outside.join("A.json").exists(),
        "{refused}"
    );

    // A link as the file, in a real directory.
    fs::remove_file(home.path("p/.ai/vault")).unwrap();
    home.set(Space::Project, "B", "b").unwrap();
    symlink(outside.join("A.json"), home.path("p/.ai/vault/C.json")).unwrap();
    assert!(leaves(&home.get("C").unwrap_err()));
    assert!(home.set(Space::Project, "C", "c").is_err());
    assert_eq!(fs::read(outside.join("A.json")).unwrap(), b"{}");
}

#[test]
fn other_files_in_the_vault_are_reported() {
    let home = Home::new();
    home.set(Space::User, "A", "a").unwrap();
    fs::write(home.path("u/.ai/vault/notes.txt"), "x").unwrap();
    fs::create_dir(home.path("u/.ai/vault/D.json")).unwrap();
    fs::write(home.path("u/.ai/vault/D.json/E.json"), "x").unwrap();
    let listed = home.vault.list(None).unwrap();
    let strays = listed
        .iter()
        .filter(|one| matches!(one, Err(VaultError::StrayFile(_))));
    assert_eq!((strays.count(), listed.len()), (2, 3));
    assert!(home.get("D").is_err() && home.set(Space::User, "D", "d").is_err());
}

#[test]
fn missing_project_space_and_system_cannot_store_secrets() {
    let home = Home::new();
    fs::remove_dir(home.path("p/.ai")).unwrap();
    for space in [Space::Project, Space::System] {
        let refused = home.set(space, "A", "a").unwrap_err();
        assert!(
            matches!(refused, VaultError::NoSpace(s) if s == space),
            "{refused}"
        );
    }
    let own = Vault::new(&home.path("u"), Some(&home.path("u")));
    let secret = Secret::new(b"a".to_vec());
    own.set(Space::User, &name("A"), &secret).unwrap();
    assert!(own.set(Space::Project, &name("A"), &secret).is_err());
    assert_eq!(own.list(None).unwrap().len(), 1);
}

#[test]
fn concurrent_writers_share_one_key() {
    let home = Home::new();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let home = &home;
            scope.spawn(move || {
                home.set(Space::User, "SHARED", &format!("by {writer}"))
                    .unwrap();
                home.set(Space::User, &format!("OWN{writer}"), "x").unwrap();
            });
        }
    });
    assert!(home.get("SHARED").unwrap().starts_with("by "));
    for writer in 0..8 {
        assert_eq!(home.get(&format!("OWN{writer}")).unwrap(), "x");
    }
    let listed = home.vault.list(None).unwrap();
    assert!(listed.len() == 9 && listed.iter().all(Result::is_ok));
}

#[test]
fn debug_output_and_files_do_not_contain_the_secret() {
    let home = Home::new();
    home.set(Space::User, "A", "sesame").unwrap();
    let opened = home.vault.get(None, &name("A")).unwrap();
    assert!(!format!("{opened:?} {:?}", home.vault).contains("sesame"));
    let file = fs::read_to_string(opened.info.path).unwrap();
    assert!(!file.contains("sesame"));
}
