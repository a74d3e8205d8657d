//! Walking a tree gives the same result in both sandboxes.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use lillux::process::Supervisor;
use proptest::prelude::*;
use rye_engine::sandbox::{Sandbox, WalkOptions};
use rye_sandbox::{LocalSandbox, VirtualSandbox};

static SUPERVISOR: LazyLock<Supervisor> = LazyLock::new(|| Supervisor::start().unwrap());

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c.log", ".d", "e.txt", ".git"])
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(name(), 1..4).prop_map(|names| names.join("/"))
}

/// An ignore file in some directory.
fn ignore_file() -> impl Strategy<Value = (String, String)> {
    let dir = prop::sample::select(vec!["", "a/"]);
    let kind = prop::sample::select(vec![".gitignore", ".ignore"]);
    let rule = prop::sample::select(vec![
        "*.log", "!*.log", "c.log", "!c.log", "a", "!a", "/a", "b/", "!b/", "a/b", "**/e.txt",
        "!e.txt", "/e.txt", ".d", "!.d", "*", "!*", "!*/", "b/**", "# words", "", "[", "\\!a",
    ]);
    let rules = prop::collection::vec(rule, 1..4);
    (dir, kind, rules)
        .prop_map(|(dir, kind, rules)| (format!("{dir}{kind}"), rules.join("\n") + "\n"))
}

fn walk_files(
    runtime: &tokio::runtime::Runtime,
    sandbox: &dyn Sandbox,
    walk: &WalkOptions,
) -> Result<Vec<(String, u64)>, String> {
    let walked = runtime.block_on(sandbox.walk(walk));
    let walked = walked.map_err(|error| error.to_string())?;
    assert!(walked.is_complete);
    Ok(walked
        .files
        .into_iter()
        .map(|file| (file.path, file.size))
        .collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn both_sandboxes_find_the_same_files(
        paths in prop::collection::vec(path(), 5..25),
        ignore in prop::collection::vec(ignore_file(), 0..5),
        top in prop::sample::select(vec!["", "", "", "a", "a/b", ".d", ".git", "e.txt"]),
        (hidden, ignored) in any::<(bool, bool)>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (dir, memory) = (tempfile::tempdir().unwrap(), VirtualSandbox::new());
        let rules = ignore.into_iter().collect::<BTreeMap<_, _>>();
        let files = paths.iter().map(|path| (path.as_str(), "x"));
        for (path, text) in rules.iter().map(|(path, text)| (path.as_str(), text.as_str())).chain(files) {
            // Fails if a parent of the path is a file.
            if runtime.block_on(memory.write(path, text.as_bytes())).is_ok() {
                let file = dir.path().join(path);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
            }
        }
        let local = LocalSandbox::new(dir.path(), SUPERVISOR.clone()).unwrap();
        let walk = WalkOptions {
            path: top.to_owned(),
            hidden,
            ignored,
            max_files: 1000,
            time_limit: Duration::from_mins(1),
        };
        prop_assert_eq!(walk_files(&runtime, &memory, &walk).ok(), walk_files(&runtime, &local, &walk).ok());
    }
}

#[tokio::test]
async fn walk_over_its_limits_is_incomplete() {
    for (sandbox, _dir) in super::agent::sandboxes() {
        for number in 0..20 {
            sandbox.write(&format!("d{number}/f"), b"x").await.unwrap();
        }
        let walk = |max_files, time_limit| WalkOptions {
            path: String::new(),
            hidden: false,
            ignored: false,
            max_files,
            time_limit,
        };
        let some = sandbox
            .walk(&walk(5, Duration::from_mins(1)))
            .await
            .unwrap();
        assert_eq!(
            (some.files.len(), some.is_complete),
            (5, false),
            "{}",
            sandbox.kind()
        );
        let all = sandbox
            .walk(&walk(20, Duration::from_mins(1)))
            .await
            .unwrap();
        assert_eq!(
            (all.files.len(), all.is_complete),
            (20, true),
            "{}",
            sandbox.kind()
        );
        let none = sandbox.walk(&walk(20, Duration::ZERO)).await.unwrap();
        assert!(!none.is_complete, "{}", sandbox.kind());
    }
}

#[tokio::test]
async fn read_many_returns_a_result_per_file() {
    for (sandbox, _dir) in super::agent::sandboxes() {
        sandbox.write("a", b"1").await.unwrap();
        sandbox.write("d/b", b"12345").await.unwrap();
        let paths = ["a", "missing", "d/b", "d"].map(str::to_owned);
        let read = sandbox.read_many(&paths, 4).await;
        let is_ok: Vec<_> = read.iter().map(Result::is_ok).collect();
        assert_eq!(is_ok, [true, false, false, false], "{}", sandbox.kind());
        assert_eq!(
            sandbox.read_many(&paths[2..3], 5).await,
            [Ok(b"12345".to_vec())]
        );
    }
}
