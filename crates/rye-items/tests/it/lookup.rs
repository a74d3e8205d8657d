//! Lookup of items in the three spaces.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::support::{Home, TOOL, write};
use rye_items::{ItemError, ItemKind, Library, Options, SYSTEM, Space};

#[test]
fn project_shadows_user_and_user_shadows_system() {
    let home = Home::new();
    let id = "rye/core/runtimes/bash/bash";
    let found = |home: &Home| {
        let library = home.open();
        let found = library.find(&id.parse().unwrap()).unwrap();
        let shadowed = library.shadowed(&found);
        let shadowed: Vec<_> = shadowed.iter().map(|s| s.root.space()).collect();
        (found.root.space(), shadowed)
    };
    assert_eq!(found(&home), (Space::System, vec![]));
    write(
        &home.at_user(&format!("tools/{id}.yaml")),
        b"version: \"1\"\n",
    );
    assert_eq!(found(&home), (Space::User, vec![Space::System]));
    write(&home.at(&format!("tools/{id}.sh")), b"");
    assert_eq!(
        found(&home),
        (Space::Project, vec![Space::User, Space::System])
    );
    fs::remove_dir_all(home.at("tools")).unwrap();
    assert_eq!(found(&home).0, Space::User);
}

#[test]
fn two_files_with_one_id_are_an_error() {
    let home = Home::new();
    home.signed("tools/x.py", TOOL);
    write(&home.at("tools/x.sh"), b"");
    let error = home.load("x").unwrap_err();
    assert!(
        error.contains("/tools/x.py and ") && error.contains("/tools/x.sh"),
        "{error}"
    );
}

#[test]
fn bare_name_finds_the_only_tool_with_that_name() {
    let home = Home::new();
    home.signed("tools/deep/down/git.py", TOOL);
    let library = home.open();
    let found = library.find(&"git".parse().unwrap()).unwrap();
    assert_eq!(found.reference.to_string(), "tool:deep/down/git");
    // Also in the system space.
    let found = library.find(&"http_client".parse().unwrap()).unwrap();
    assert_eq!(
        found.reference.id.as_str(),
        "rye/core/primitives/http_client"
    );

    home.signed("tools/other/git.py", TOOL);
    let error = home.load("git").unwrap_err();
    assert_eq!(
        error,
        "`git` is ambiguous: tool:deep/down/git or tool:other/git"
    );
    // An exact id has precedence over a bare name.
    home.signed("tools/git.py", TOOL);
    assert!(home.load("git").is_ok());
}

#[test]
fn not_found_error_lists_similar_ids() {
    let home = Home::new();
    home.signed("tools/text/words.py", TOOL);
    for (wanted, near) in [
        ("text/wrods", "tool:text/words"),
        ("words.py", "tool:text/words"),
        (
            "rye/core/runtimes/python/scrip",
            "tool:rye/core/runtimes/python/script",
        ),
    ] {
        let library = home.open();
        let error = library.find(&wanted.parse().unwrap()).unwrap_err();
        let hint = format!("rye load {near}");
        assert_eq!(error.hint().unwrap(), hint);
    }
    let error = home.open().find(&"zzzzzz".parse().unwrap()).unwrap_err();
    assert_eq!(error.hint().unwrap(), "rye search zzzzzz");
}

#[test]
fn links_to_other_ids_and_out_of_the_space_are_rejected() {
    let home = Home::new();
    home.signed("tools/real.py", TOOL);
    // The signature is bound to `real`.
    symlink("real.py", home.at("tools/inside.py")).unwrap();
    let error = home.open().load(&"inside".parse().unwrap()).unwrap_err();
    let ItemError::Integrity(error) = error else {
        panic!("{error}");
    };
    assert_eq!(error.problem.code(), "signed_for_another_file");

    write(
        &home.path().join("outside/x.py"),
        &fs::read(home.at("tools/real.py")).unwrap(),
    );
    symlink("../../../outside/x.py", home.at("tools/out.py")).unwrap();
    symlink(home.path().join("outside"), home.at("tools/folder")).unwrap();
    symlink("loop.py", home.at("tools/loop.py")).unwrap();
    for (id, message) in [
        ("out", "resolves to a path outside its space"),
        ("folder/x", "resolves to a path outside its space"),
        ("loop", "is a loop of symbolic links"),
    ] {
        let error = home.load(id).unwrap_err();
        assert!(error.ends_with(message), "{id}: {error}");
    }
}

#[test]
fn directory_loop_is_walked_once() {
    let home = Home::new();
    home.signed("tools/a/x.py", TOOL);
    symlink("..", home.at("tools/a/again")).unwrap();
    let library = home.open();
    let (good, bad): (Vec<_>, Vec<_>) = library
        .list(ItemKind::Tool)
        .into_iter()
        .partition(Result::is_ok);
    let own = good
        .iter()
        .flatten()
        .filter(|f| f.root.space() == Space::Project);
    assert_eq!(own.count(), 1);
    assert!(bad.iter().any(|e| {
        e.as_ref()
            .unwrap_err()
            .to_string()
            .contains("loop of symbolic links")
    }));
}

#[test]
fn special_files_are_not_items_and_do_not_block() {
    let home = Home::new();
    fs::create_dir_all(home.at("tools/folder.py")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        home.at("tools/pipe.py"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    for id in ["folder", "pipe"] {
        let error = home.load(id).unwrap_err();
        assert_eq!(error, format!("tool:{id} not found"));
    }
}

#[test]
fn space_that_is_a_file_is_an_error() {
    let home = Home::new();
    fs::remove_dir(home.project().join(".ai")).unwrap();
    fs::write(home.project().join(".ai"), b"").unwrap();
    let error = home.try_open(false).unwrap_err().to_string();
    assert!(error.ends_with("is not a directory"), "{error}");
}

#[test]
fn oversized_files_are_rejected_without_reading_them() {
    let home = Home::new();
    write(&home.at("tools/big.py"), b"");
    let file = fs::File::options()
        .write(true)
        .open(home.at("tools/big.py"))
        .unwrap();
    file.set_len(50 << 20).unwrap();
    let error = home.load("big").unwrap_err();
    assert!(
        error.ends_with("has 52428800 bytes; the limit for an item is 16 MiB"),
        "{error}"
    );
}

#[test]
fn unreadable_file_is_reported_with_its_path() {
    let home = Home::new();
    home.signed("tools/x.py", TOOL);
    fs::set_permissions(home.at("tools/x.py"), fs::Permissions::from_mode(0o000)).unwrap();
    crate::support::drop_permission_bypass();
    let error = home.load("x").unwrap_err();
    assert!(
        error.contains("Permission denied") && error.contains("tools/x.py"),
        "{error}"
    );
}

#[test]
fn project_in_the_user_directory_is_the_user_space() {
    let home = Home::new();
    let library = Library::open(&Options {
        project: Some(&home.user()),
        user: Some(&home.user()),
        ..Options::new(&SYSTEM)
    })
    .unwrap();
    assert_eq!(library.spaces().roots_in(Space::Project).count(), 0);
    assert_eq!(library.spaces().roots_in(Space::User).count(), 1);
}

#[test]
fn bundle_precedes_or_replaces_the_embedded_one() {
    let home = Home::new();
    let more = home.path().join("more");
    write(&more.join(".ai/tools/extra.yaml"), b"version: \"1\"\n");
    let bundles = [more.clone()];
    let options = Options {
        user: Some(&home.user()),
        bundles: &bundles,
        ..Options::new(&SYSTEM)
    };
    let names = |options: &Options<'_>| {
        let library = Library::open(options).unwrap();
        let system = library.spaces().roots_in(Space::System);
        system
            .map(|root| root.bundle().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&options), ["more", "rye"]);
    write(&more.join(".ai/bundle.yaml"), b"name: rye\n");
    assert_eq!(names(&options), ["rye"]);

    fs::remove_dir_all(more.join(".ai")).unwrap();
    let error = Library::open(&options).unwrap_err().to_string();
    assert!(error.contains("is not a bundle"), "{error}");
}
