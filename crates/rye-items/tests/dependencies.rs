//! The files that a tool brings with it.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::fs;

use rye_items::{ItemError, Library, Scope, Space};
use support::{Home, TOOL, write};

fn scope(recursive: bool) -> Scope {
    Scope {
        folder: "tools/pack".to_owned(),
        recursive,
        extensions: vec![".py".to_owned(), ".json".to_owned()],
        exclude_dirs: vec!["build".to_owned()],
    }
}

fn verify(library: &Library, recursive: bool) -> Result<usize, String> {
    let root = library.spaces().of(Space::Project).next().unwrap();
    match library.verify_dependencies(root, &scope(recursive), &library.trust()) {
        Ok(good) => Ok(good.files),
        Err(ItemError::Integrity(error)) => Err(error.problem.code().to_owned()),
        Err(other) => Err(other.to_string()),
    }
}

#[test]
fn every_listed_file_must_verify_and_no_other_counts() {
    let home = Home::new();
    home.signed("tools/pack/main.py", TOOL);
    home.signed("tools/pack/deep/lib.py", "X = 1\n");
    write(&home.at("tools/pack/README.txt"), b"unsigned, not listed");
    write(&home.at("tools/pack/build/out.py"), b"unsigned, excluded");
    write(&home.at("tools/packing/other.py"), b"unsigned, elsewhere");
    assert_eq!(verify(&home.open(), true), Ok(2));
    assert_eq!(verify(&home.open(), false), Ok(1));

    write(&home.at("tools/pack/deep/lib.py"), b"X = 2\n");
    assert_eq!(verify(&home.open(), true), Err("unsigned".to_owned()));
    assert_eq!(verify(&home.open(), false), Ok(1));
    write(&home.at("tools/pack/.hidden.py"), b"X = 1\n");
    assert_eq!(verify(&home.open(), false), Err("unsigned".to_owned()));
    fs::remove_file(home.at("tools/pack/.hidden.py")).unwrap();
    write(&home.at("tools/pack/a name.py"), b"");
    assert_eq!(verify(&home.open(), false), Err("unsigned".to_owned()));
}

#[test]
fn a_file_without_comments_is_signed_beside_it() {
    let home = Home::new();
    home.signed("tools/pack/main.py", TOOL);
    write(&home.at("tools/pack/package.json"), b"{}\n");
    assert_eq!(verify(&home.open(), true), Err("unsigned".to_owned()));
    let library = home.open();
    let root = library.spaces().of(Space::Project).next().unwrap();
    assert!(library.is_signed_beside("tools/pack/package.json"));
    library
        .sign_beside(root, "tools/pack/package.json", &home.key)
        .unwrap();
    assert_eq!(verify(&library, true), Ok(2));
    assert_eq!(
        fs::read(home.at("tools/pack/package.json")).unwrap(),
        b"{}\n"
    );

    write(&home.at("tools/pack/package.json"), b"{ }\n");
    assert_eq!(verify(&library, true), Err("content_changed".to_owned()));
    write(
        &home.at("tools/pack/package.json.sig"),
        b"rye:signed:garbage\n",
    );
    assert_eq!(
        verify(&library, true),
        Err("malformed_signature".to_owned())
    );
}

#[test]
fn a_link_that_leaves_the_scope_is_refused() {
    let home = Home::new();
    home.signed("tools/pack/main.py", TOOL);
    home.signed("tools/other/lib.py", "X = 1\n");
    std::os::unix::fs::symlink("main.py", home.at("tools/pack/same.py")).unwrap();
    assert_eq!(verify(&home.open(), true), Ok(2));
    std::os::unix::fs::symlink("../other/lib.py", home.at("tools/pack/lib.py")).unwrap();
    let error = verify(&home.open(), true).unwrap_err();
    assert!(error.contains("leads out of its space"), "{error}");
}

#[test]
fn folders_that_do_not_count_are_not_looked_into_and_all_others_are() {
    let home = Home::new();
    home.signed("tools/pack/main.py", TOOL);
    std::os::unix::fs::symlink("/", home.at("tools/pack/build")).unwrap();
    assert_eq!(verify(&home.open(), true), Ok(1));
    for folder in ["node_modules", "__pycache__", ".deps"] {
        write(&home.at(&format!("tools/pack/{folder}/x.py")), b"X = 1\n");
        assert_eq!(verify(&home.open(), false), Ok(1), "{folder}");
        let outcome = verify(&home.open(), true);
        assert_eq!(outcome, Err("unsigned".to_owned()), "{folder}");
        fs::remove_dir_all(home.at(&format!("tools/pack/{folder}"))).unwrap();
    }
}
