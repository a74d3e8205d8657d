//! Attacks by a hostile project.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::support::{Home, TOOL, write};
use lillux::Hash;
use lillux::keys::SigningKey;
use rye_items::search::{Query, SearchIndex};
use rye_items::signature::SignatureLine;
use rye_items::trust::{Revocation, TrustFile};
use rye_items::{Coverage, ItemKind, SignError, SpaceError};

/// A published directive whose signature covers only the element.
fn partial(home: &Home, before: &str, element: &str, after: &str) -> String {
    let hash = Hash::digest(element);
    let line = SignatureLine {
        time: "2026-04-10T03:28:17Z".to_owned(),
        signature: home.key.sign(&hash),
        hash,
        fingerprint: home.key.public().fingerprint(),
        binding: None,
        provenance: None,
    };
    format!("{before}<!-- {line} -->\n{element}{after}")
}

#[test]
fn element_before_the_signature_line_is_not_used() {
    let home = Home::new();
    let good = "<directive name=\"good\" version=\"1.0.0\">good</directive>";
    let evil = "#!<directive name=\"evil\" version=\"6.6.6\">evil</directive>\n";
    let file = partial(&home, evil, good, "\nprose about evil\n");
    write(&home.at("directives/d.md"), file.as_bytes());
    let library = home.open();
    let item = library.load(&"directive:d".parse().unwrap()).unwrap();
    assert_eq!(item.coverage, Coverage::Partial);
    assert_eq!(String::from_utf8_lossy(item.content()), good);
    assert_eq!(item.bytes(), item.content());
    let metadata = library.metadata(&item).unwrap();
    assert_eq!(metadata.version(), Some("1.0.0"));
    let search = |words: &str| {
        let answer = SearchIndex::new(None).search(library.spaces(), &library, &Query::new(words));
        answer
            .hits
            .iter()
            .any(|hit| hit.reference.id.as_str() == "d")
    };
    assert!(search("good") && !search("evil"));
}

#[test]
fn trust_and_revocation_files_are_not_signed_under_any_name() {
    let home = Home::new();
    let stranger = SigningKey::generate().unwrap();
    let fingerprint = stranger.public().fingerprint();
    let trust = TrustFile {
        key: stranger.public().clone(),
        owner: None,
        attestation: None,
        decisions_only: false,
    };
    let trust = trust.to_text();
    let own = home.key.public().fingerprint();
    let revocation = Revocation::to_text(own, "2026-04-10T03:28:17Z", None, None);
    let place = format!("config/keys/trusted/{fingerprint}.toml");
    for (relative, text) in [
        (place.as_str(), &trust),
        ("config/notes.toml", &trust),
        ("knowledge/notes.md", &trust),
        ("tools/run.sh", &trust),
        ("config/other.toml", &revocation),
        ("tools/data.json", &trust),
    ] {
        write(&home.at(relative), text.as_bytes());
    }
    symlink(&place["config/".len()..], home.at("config/link.toml")).unwrap();
    let library = home.open();
    for item in [
        &format!("config:keys/trusted/{fingerprint}"),
        "config:link",
        "config:notes",
        "knowledge:notes",
        "tool:run",
        "config:other",
    ] {
        let found = library.find(&item.parse().unwrap()).unwrap();
        let error = library.sign(&found, &home.key, None).unwrap_err();
        assert!(
            matches!(error, SignError::KeyFile { .. }),
            "{item}: {error}"
        );
    }
    assert!(library.trust().key_status(fingerprint).is_err());
}

#[test]
fn number_of_followed_links_is_limited() {
    let home = Home::new();
    home.signed("tools/zz.py", TOOL);
    for number in 0..40 {
        let dir = home.at(&format!("tools/d{number}"));
        fs::create_dir_all(&dir).unwrap();
        for name in ["a", "b"] {
            symlink(format!("../d{}", number + 1), dir.join(name)).unwrap();
        }
    }
    let library = home.open();
    let (found, errors): (Vec<_>, Vec<_>) = library
        .list(ItemKind::Tool)
        .into_iter()
        .partition(Result::is_ok);
    let errors: Vec<_> = errors.into_iter().filter_map(Result::err).collect();
    assert!(
        matches!(errors.as_slice(), [SpaceError::TooManyLinks(_)]),
        "{errors:?}"
    );
    // Files without links are all listed.
    let mut found = found.into_iter().flatten();
    assert!(found.any(|found| found.relative == "tools/zz.py"));
}

#[test]
fn nesting_depth_is_limited() {
    let home = Home::new();
    fs::create_dir_all(home.at(&format!("tools/{}", "d/".repeat(200)))).unwrap();
    let library = home.open();
    let errors = library
        .list(ItemKind::Tool)
        .into_iter()
        .filter_map(Result::err);
    let errors: Vec<_> = errors.collect();
    assert!(
        matches!(errors.as_slice(), [SpaceError::TooDeep(_)]),
        "{errors:?}"
    );
    assert_eq!(errors[0].hint(), None);
}

#[test]
fn project_space_cannot_be_a_link_to_the_outside() {
    let home = Home::new();
    let outside = home.path().join("outside");
    write(&outside.join("tools/other.py"), TOOL.as_bytes());
    fs::remove_dir_all(home.at("")).unwrap();
    symlink("../outside", home.project().join(".ai")).unwrap();
    let error = home.try_open(false).unwrap_err();
    assert!(error.to_string().contains("outside its space"), "{error}");
    // A link inside the project is allowed.
    fs::remove_file(home.project().join(".ai")).unwrap();
    fs::rename(&outside, home.project().join("inside")).unwrap();
    symlink("inside", home.project().join(".ai")).unwrap();
    assert!(home.open().find(&"other".parse().unwrap()).is_ok());
}

#[test]
fn unreadable_extractor_table_is_ignored_with_a_warning() {
    let home = Home::new();
    home.signed("tools/x.py", TOOL);
    let table = home.at("tools/rye/core/extractors/tool_extractor.yaml");
    fs::create_dir_all(&table).unwrap();
    let library = home.open();
    assert_eq!(library.ignored()[0].path, table);
    assert!(library.load(&"x".parse().unwrap()).is_ok());
}

#[test]
fn concurrent_signers_all_succeed() {
    let home = Home::new();
    for round in 0..20 {
        write(
            &home.at("tools/x.py"),
            format!("{TOOL}# {round}\n").as_bytes(),
        );
        let library = home.open();
        let found = library.find(&"x".parse().unwrap()).unwrap();
        std::thread::scope(|scope| {
            let signers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| library.sign(&found, &home.key, None).map(drop)))
                .collect();
            for signer in signers {
                signer.join().unwrap().unwrap();
            }
        });
        assert!(home.load("x").is_ok());
    }
}

#[test]
fn cache_that_others_can_write_to_is_not_used() {
    let home = Home::new();
    let cache = home.path().join("cache");
    for number in 0..40 {
        home.signed(&format!("tools/t{number}.py"), TOOL);
    }
    let entries = |dir: &Path| fs::read_dir(dir).map_or(0, Iterator::count);
    let use_it = || {
        let library = home.open();
        let items = library.list(ItemKind::Tool).into_iter().flatten().collect();
        library.verify_batch(items, &|_| {});
        SearchIndex::new(Some(&cache)).search(library.spaces(), &library, &Query::new("x"));
        library.load(&"t0".parse().unwrap()).unwrap()
    };
    let _ = fs::remove_dir_all(&cache);
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let item = use_it();
    assert_eq!(entries(&cache), 0);
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o755)).unwrap();
    use_it();
    assert_ne!(entries(&cache), 0);
    let dir = item.materialise(&cache).unwrap();
    let dir = dir.parent().unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    let error = item.materialise(&cache).unwrap_err();
    assert!(
        error.to_string().contains("others can write to it"),
        "{error}"
    );
}
