//! Manifests of dependencies and interpreter environments.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{Home, TOOL, write};
use rye_items::{IntegrityProblem, ItemError, Library, Owner, Scope, SignOutcome, Snapshot, Space};

fn scope(recursive: bool) -> Scope {
    Scope {
        dir: "tools/pack".to_owned(),
        recursive,
        exclude_dirs: vec!["build".to_owned()],
    }
}

fn snapshot(library: &Library, scope: &Scope) -> Result<Snapshot, ItemError> {
    let root = library.spaces().roots_in(Space::Project).next().unwrap();
    let owner = Owner {
        item: "pack/main",
        sign_argument: "pack/main",
        file: None,
    };
    library.verify_dependencies(root, scope, owner, &library.trust())
}

fn verify(home: &Home, recursive: bool) -> Result<usize, String> {
    match snapshot(&home.open(), &scope(recursive)) {
        Ok(good) => Ok(good.dependencies().files),
        Err(ItemError::Integrity(error)) => Err(match &error.problem {
            IntegrityProblem::Files(files) => {
                let files = files.iter();
                let files = files.map(|(path, why)| format!("{} {path}", why.as_str()));
                files.collect::<Vec<_>>().join(", ")
            }
            problem => problem.code().to_owned(),
        }),
        Err(other) => Err(other.to_string()),
    }
}

fn sign(home: &Home, scope: &Scope) -> SignOutcome {
    let library = home.open();
    let root = library.spaces().roots_in(Space::Project).next().unwrap();
    library.sign_manifest(root, scope, &home.key, None).unwrap()
}

fn package() -> Home {
    let home = Home::new();
    home.signed("tools/pack/main.py", TOOL);
    write(&home.at("tools/pack/deep/lib.py"), b"X = 1\n");
    write(&home.at("tools/pack/package.json"), b"{}\n");
    write(&home.at("tools/pack/build/out.py"), b"not covered");
    home
}

#[test]
fn any_change_in_a_signed_scope_is_detected() {
    let home = package();
    assert_eq!(verify(&home, true), Err("unsigned".to_owned()));
    assert_eq!(sign(&home, &scope(true)), SignOutcome::Signed);
    assert_eq!(sign(&home, &scope(true)), SignOutcome::Unchanged);
    assert_eq!(verify(&home, true), Ok(3));
    // A non-recursive scope uses a subset of the same manifest.
    assert_eq!(verify(&home, false), Ok(2));

    write(&home.at("tools/pack/deep/lib.py"), b"X = 2\n");
    write(&home.at("tools/pack/deep/more"), b"");
    fs::remove_file(home.at("tools/pack/package.json")).unwrap();
    let all = "changed deep/lib.py, added deep/more, missing package.json";
    assert_eq!(verify(&home, true), Err(all.to_owned()));
    assert_eq!(verify(&home, false), Err("missing package.json".to_owned()));
    write(&home.at("tools/pack/build/out.py"), b"changed");
    sign(&home, &scope(true));
    assert_eq!(verify(&home, true), Ok(3));
}

#[test]
fn manifest_keeps_entries_of_other_runtimes() {
    let home = package();
    let other = Scope {
        exclude_dirs: vec!["deep".to_owned()],
        ..scope(true)
    };
    sign(&home, &scope(true));
    sign(&home, &other);
    assert_eq!(verify(&home, true), Ok(3));
    sign(&home, &scope(false));
    assert_eq!(verify(&home, true), Ok(3));
}

#[test]
fn links_are_listed_by_target_and_cannot_leave_the_directory() {
    let home = package();
    symlink("main.py", home.at("tools/pack/same.py")).unwrap();
    symlink("deep", home.at("tools/pack/also")).unwrap();
    sign(&home, &scope(true));
    assert_eq!(verify(&home, true), Ok(5));
    fs::remove_file(home.at("tools/pack/same.py")).unwrap();
    symlink("deep/lib.py", home.at("tools/pack/same.py")).unwrap();
    assert_eq!(verify(&home, true), Err("changed same.py".to_owned()));
    fs::remove_file(home.at("tools/pack/same.py")).unwrap();
    symlink("../../tools/pack/main.py", home.at("tools/pack/same.py")).unwrap();
    let error = "link out of the directory: same.py";
    assert_eq!(verify(&home, true), Err(error.to_owned()));
    let library = home.open();
    let root = library.spaces().roots_in(Space::Project).next().unwrap();
    let refused = library.sign_manifest(root, &scope(true), &home.key, None);
    assert!(refused.is_err());
}

#[test]
fn copy_contains_exactly_the_verified_files() {
    let home = package();
    symlink("deep/lib.py", home.at("tools/pack/link.py")).unwrap();
    sign(&home, &scope(true));
    let (library, cache) = (home.open(), home.path().join("cache"));
    let snapshot = snapshot(&library, &scope(true)).unwrap();
    // A change between the check and the copy is detected.
    write(&home.at("tools/pack/deep/lib.py"), b"X = 2\n");
    assert!(snapshot.materialise(&cache, "pack").is_err());
    write(&home.at("tools/pack/deep/lib.py"), b"X = 1\n");
    let copy = snapshot.materialise(&cache, "pack").unwrap();
    assert_eq!(fs::read(copy.join("deep/lib.py")).unwrap(), b"X = 1\n");
    assert_eq!(fs::read(copy.join("link.py")).unwrap(), b"X = 1\n");
    for not_copied in ["build", "rye.manifest"] {
        assert!(!copy.join(not_copied).exists(), "{not_copied}");
    }
    // An existing copy does not depend on the source directory.
    write(&home.at("tools/pack/deep/lib.py"), b"X = 2\n");
    assert_eq!(snapshot.materialise(&cache, "pack").unwrap(), copy);
    assert_eq!(fs::read(copy.join("deep/lib.py")).unwrap(), b"X = 1\n");
}

#[test]
fn only_the_approved_payload_is_signed() {
    let home = package();
    let library = home.open();
    let root = library.spaces().roots_in(Space::Project).next().unwrap();
    let unsigned = library.pending_manifest(root, &scope(true), &home.key);
    let (_, shown) = unsigned.unwrap().unwrap();
    let hash = Some(lillux::Hash::digest(&shown));
    write(&home.at("tools/pack/deep/lib.py"), b"X = 2\n");
    let refused = library.sign_manifest(root, &scope(true), &home.key, hash);
    assert!(matches!(
        refused,
        Err(rye_items::SignError::ChangedSinceApproval(_))
    ));
    write(&home.at("tools/pack/deep/lib.py"), b"X = 1\n");
    library
        .sign_manifest(root, &scope(true), &home.key, hash)
        .unwrap();
    let unsigned = library.pending_manifest(root, &scope(true), &home.key);
    assert!(unsigned.unwrap().is_none());
}

fn locked(home: &Home, path: &Path) -> Result<bool, String> {
    let library = home.open();
    let found = library.verify_environment(path, &library.trust());
    found
        .map(|found| found.is_some())
        .map_err(|e| e.to_string())
}

#[test]
fn environment_is_verified_from_any_subdirectory() {
    let home = Home::new();
    let environment = home.project().join("env");
    write(&environment.join("bin/tool"), b"a");
    // Large enough to be cached by file state.
    write(&environment.join("lib/large"), &vec![7; 5 << 20]);
    symlink("/bin/sh", environment.join("bin/sh")).unwrap();
    assert_eq!(locked(&home, &environment.join("bin")), Ok(false));
    let library = home.open();
    let (manifest, _) = library.sign_environment(&environment, &home.key).unwrap();
    assert_eq!(manifest, environment.join("rye.manifest"));
    for _ in 0..3 {
        assert_eq!(locked(&home, &environment.join("bin")), Ok(true));
    }
    // Neither under another name, nor for a sibling directory.
    assert_eq!(locked(&home, &home.project().join("other")), Ok(false));
    fs::rename(&environment, home.project().join("moved")).unwrap();
    assert!(locked(&home, &home.project().join("moved/bin")).is_err());
    fs::rename(home.project().join("moved"), &environment).unwrap();

    let mut bytes = vec![7; 5 << 20];
    bytes[1 << 20] = 8;
    write(&environment.join("lib/large"), &bytes);
    let error = locked(&home, &environment).unwrap_err();
    assert!(error.contains("changed lib/large"), "{error}");
    bytes[1 << 20] = 7;
    write(&environment.join("lib/large"), &bytes);
    assert_eq!(locked(&home, &environment), Ok(true));
    fs::remove_file(environment.join("bin/sh")).unwrap();
    symlink("/bin/cat", environment.join("bin/sh")).unwrap();
    assert!(locked(&home, &environment).is_err());
}

#[test]
fn project_and_space_cannot_be_environments() {
    let home = Home::new();
    let library = home.open();
    for path in [home.project(), home.at(""), home.path().to_owned()] {
        assert!(library.sign_environment(&path, &home.key).is_err());
    }
}

/// Another process that has the first byte of a file mapped shared and writable, and wrote to
/// it once, so that the page is dirty.
struct Mapping {
    process: std::process::Child,
    answers: std::io::BufReader<std::process::ChildStdout>,
}

impl Mapping {
    fn new(path: &Path, byte: u8) -> Self {
        let script = "import mmap, sys\n\
            file = open(sys.argv[1], 'r+b')\nmapping = mmap.mmap(file.fileno(), 0)\nfile.close()\n\
            for line in sys.stdin:\n    mapping[0] = int(line)\n    print('written', flush=True)\n";
        let mut process = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let answers = std::io::BufReader::new(process.stdout.take().unwrap());
        let mut mapping = Self { process, answers };
        mapping.write(byte);
        mapping
    }

    fn write(&mut self, byte: u8) {
        use std::io::{BufRead as _, Write as _};
        let input = self.process.stdin.as_mut().unwrap();
        writeln!(input, "{byte}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer, "written\n");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn write_through_a_mapping_of_an_environment_is_detected() {
    let home = Home::new();
    let environment = home.project().join("env");
    let large = environment.join("large");
    write(&large, &vec![7; 5 << 20]);
    let mut mapping = Mapping::new(&large, 8);
    let library = home.open();
    library.sign_environment(&environment, &home.key).unwrap();
    // Often enough that the file system clock advances, so that the state could be cached.
    for _ in 0..20 {
        assert_eq!(locked(&home, &environment), Ok(true));
    }
    let state = || fs::metadata(&large).unwrap().modified().unwrap();
    let before = state();
    mapping.write(9);
    assert_eq!(state(), before);
    let error = locked(&home, &environment).unwrap_err();
    assert!(error.contains("changed large"), "{error}");
}

#[test]
fn write_through_a_mapping_of_an_item_is_detected() {
    let home = Home::new();
    for number in 0..40 {
        home.signed(&format!("tools/t{number}.py"), TOOL);
    }
    let verify = || {
        let library = home.open();
        let items = library.list_within(rye_items::ItemKind::Tool, |space| space == Space::Project);
        let items = items.into_iter().map(Result::unwrap).collect();
        let checked = library.verify_batch(items, &|_| ());
        checked
            .iter()
            .filter(|(_, outcome)| outcome.is_ok())
            .count()
    };
    let path = home.at("tools/t7.py");
    let first = fs::read(&path).unwrap()[0];
    let mut mapping = Mapping::new(&path, first);
    for _ in 0..20 {
        assert_eq!(verify(), 40);
    }
    mapping.write(b'!');
    assert_eq!(verify(), 39);
}
