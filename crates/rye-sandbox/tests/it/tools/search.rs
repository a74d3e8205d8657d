//! `grep` and `glob`.

use std::sync::Arc;

use rye_engine::sandbox::Sandbox;
use serde_json::{Value, json};

use super::agent::{assert_calls, call, calls, sandboxes};

async fn write_tree(sandbox: &Arc<dyn Sandbox>) {
    let files: [(&str, &[u8]); 12] = [
        ("src/main.rs", b"fn main() {\n    run();\n}\n"),
        ("src/run.rs", b"pub fn run() {\r\n    // TODO: run\r\n}\r\n"),
        ("src/deep/er/x.ts", b"const run = 1;\n"),
        ("README.md", b"# How to run\n\nrun it\n"),
        (".gitignore", b"*.log\n/target/\n!keep.log\n"),
        ("target/out.rs", b"fn run() {}\n"),
        ("a.log", b"run\n"),
        ("keep.log", b"run\n"),
        (".hidden/x.rs", b"run\n"),
        (".git/config", b"run\n"),
        ("data.bin", b"run\0run\n"),
        ("sub/.ignore", b"secret.txt\n"),
    ];
    for (path, bytes) in files {
        sandbox.write(path, bytes).await.unwrap();
    }
    sandbox.write("sub/secret.txt", b"run\n").await.unwrap();
}

#[tokio::test]
async fn grep_searches_files() {
    for (sandbox, _dir) in sandboxes() {
        write_tree(&sandbox).await;
        let all = "README.md\n1: # How to run\n3: run it\n\nkeep.log\n1: run\n\nsrc/deep/er/x.ts\n\
                   1: const run = 1;\n\nsrc/main.rs\n2:     run();\n\nsrc/run.rs\n1: pub fn run() {\n\
                   2:     // TODO: run";
        let files = "README.md\nkeep.log\nsrc/deep/er/x.ts\nsrc/main.rs\nsrc/run.rs";
        let hidden = ".hidden/x.rs\nREADME.md\nkeep.log\nsrc/deep/er/x.ts\nsrc/main.rs\nsrc/run.rs";
        let ignored = "README.md\na.log\nkeep.log\nsrc/deep/er/x.ts\nsrc/main.rs\nsrc/run.rs\n\
                       sub/secret.txt\ntarget/out.rs";
        let grep = |args: Value| {
            let mut args = args;
            args["pattern"] = args.get("pattern").cloned().unwrap_or(json!("run"));
            args
        };
        assert_calls(
            &sandbox,
            &[
                ("grep", grep(json!({})), true, all),
                ("grep", grep(json!({ "show": "files" })), true, files),
                (
                    "grep",
                    grep(json!({ "show": "files", "hidden": true })),
                    true,
                    hidden,
                ),
                (
                    "grep",
                    grep(json!({ "show": "files", "ignored": true })),
                    true,
                    ignored,
                ),
                (
                    "grep",
                    grep(json!({ "show": "counts", "glob": "*.{rs,md}" })),
                    true,
                    "2\tREADME.md\n1\tsrc/main.rs\n2\tsrc/run.rs",
                ),
                (
                    "grep",
                    grep(json!({ "path": "src", "glob": "*.rs", "show": "files" })),
                    true,
                    "src/main.rs\nsrc/run.rs",
                ),
                (
                    "grep",
                    grep(json!({ "path": "./src/", "glob": "deep/**", "show": "files" })),
                    true,
                    "src/deep/er/x.ts",
                ),
                (
                    "grep",
                    grep(json!({ "glob": "!*.rs", "show": "files" })),
                    true,
                    "README.md\nkeep.log\nsrc/deep/er/x.ts",
                ),
                (
                    "grep",
                    grep(json!({ "glob": ".hidden/*", "show": "files" })),
                    true,
                    ".hidden/x.rs",
                ),
                // An explicit path is searched even if it is ignored.
                (
                    "grep",
                    grep(json!({ "path": "target" })),
                    true,
                    "target/out.rs\n1: fn run() {}",
                ),
                (
                    "grep",
                    grep(json!({ "path": "a.log" })),
                    true,
                    "a.log\n1: run",
                ),
                (
                    "grep",
                    grep(json!({ "path": "data.bin" })),
                    true,
                    "[no matches: 0 files searched, 1 binary file skipped]",
                ),
                (
                    "grep",
                    grep(json!({ "pattern": "todo", "ignore_case": true, "context": 1 })),
                    true,
                    "src/run.rs\n1- pub fn run() {\n2:     // TODO: run\n3- }",
                ),
                (
                    "grep",
                    grep(json!({ "pattern": "run()", "literal": true, "show": "files" })),
                    true,
                    "src/main.rs\nsrc/run.rs",
                ),
                (
                    "grep",
                    grep(json!({ "pattern": "\\{\\s+run", "multiline": true })),
                    true,
                    "src/main.rs\n1: fn main() {\n2:     run();",
                ),
                (
                    "grep",
                    grep(json!({ "limit": 3 })),
                    true,
                    "README.md\n1: # How to run\n3: run it\n\nkeep.log\n1: run\n\
              [3 lines shown, there are more: narrow the search, or raise the limit]",
                ),
                (
                    "grep",
                    grep(json!({ "limit": 1, "path": "README.md" })),
                    true,
                    "README.md\n1: # How to run\n\
              [1 line shown, there are more: narrow the search, or raise the limit]",
                ),
                (
                    "grep",
                    grep(json!({ "limit": 2, "path": "README.md" })),
                    true,
                    "README.md\n1: # How to run\n3: run it",
                ),
                (
                    "grep",
                    grep(json!({ "limit": 2, "show": "files" })),
                    true,
                    "README.md\nkeep.log\n\
              [2 files shown, there are more: narrow the search, or raise the limit]",
                ),
                (
                    "grep",
                    grep(json!({ "pattern": "nowhere" })),
                    true,
                    "[no matches: 5 files searched, 1 binary file skipped]",
                ),
            ],
        )
        .await;
        let wrong = [
            json!({ "pattern": "a(" }),
            json!({ "pattern": "a", "path": "sr" }),
        ];
        let wrong = calls(&sandbox, &wrong.map(|args| ("grep", args))).await;
        for (outcome, text) in wrong
            .iter()
            .zip(["unclosed group", "there is no sr; similar: src/"])
        {
            assert!(
                !outcome.is_success && outcome.text.contains(text),
                "{}",
                outcome.text
            );
        }
    }
}

#[tokio::test]
async fn glob_finds_files_by_path() {
    for (sandbox, _dir) in sandboxes() {
        write_tree(&sandbox).await;
        let glob = |pattern: &str| json!({ "pattern": pattern, "sort": "path" });
        let all = "README.md\ndata.bin\nkeep.log\nsrc/deep/er/x.ts\nsrc/main.rs\nsrc/run.rs";
        assert_calls(
            &sandbox,
            &[
                ("glob", glob("*.rs"), true, "src/main.rs\nsrc/run.rs"),
                ("glob", glob("**/*.ts"), true, "src/deep/er/x.ts"),
                ("glob", glob("src/*"), true, "src/main.rs\nsrc/run.rs"),
                ("glob", glob("./*"), true, "README.md\ndata.bin\nkeep.log"),
                (
                    "glob",
                    glob("src/**"),
                    true,
                    "src/deep/er/x.ts\nsrc/main.rs\nsrc/run.rs",
                ),
                ("glob", glob("*"), true, all),
                ("glob", glob("src/main.rs"), true, "src/main.rs"),
                ("glob", glob("target/*.rs"), true, "target/out.rs"),
                ("glob", glob(".hidden/*"), true, ".hidden/x.rs"),
                ("glob", glob("*.py"), true, "[no matching files]"),
                (
                    "glob",
                    json!({ "pattern": "*.rs", "path": "src/deep" }),
                    true,
                    "[no matching files]",
                ),
                (
                    "glob",
                    json!({ "pattern": "*", "sort": "path", "limit": 2 }),
                    true,
                    "README.md\ndata.bin\n[2 of 6: narrow the pattern, or raise the limit]",
                ),
            ],
        )
        .await;
    }
}

#[tokio::test]
async fn glob_lists_the_newest_file_first() {
    for (sandbox, dir) in sandboxes() {
        for (age, path) in ["b", "c", "a"].into_iter().enumerate() {
            sandbox.write(path, b"x").await.unwrap();
            if let Some(dir) = &dir {
                let then = std::time::SystemTime::UNIX_EPOCH;
                let then = then + std::time::Duration::from_secs(1000 + age as u64);
                let file = std::fs::File::options()
                    .write(true)
                    .open(dir.path().join(path));
                file.unwrap().set_modified(then).unwrap();
            }
        }
        assert_eq!(
            call(&sandbox, "glob", json!({ "pattern": "*" })).await,
            "a\nc\nb"
        );
    }
}

#[tokio::test]
async fn local_search_does_not_follow_links_or_block_on_pipes() {
    let [_, (sandbox, dir)] = sandboxes();
    let dir = dir.unwrap();
    sandbox.write("a/x.txt", b"needle").await.unwrap();
    std::os::unix::fs::symlink("..", dir.path().join("a/loop")).unwrap();
    std::os::unix::fs::symlink("x.txt", dir.path().join("a/again")).unwrap();
    let created = std::process::Command::new("mkfifo")
        .arg(dir.path().join("a/pipe"))
        .status();
    assert!(created.unwrap().success());
    let found = call(
        &sandbox,
        "grep",
        json!({ "pattern": "needle", "show": "files" }),
    )
    .await;
    assert_eq!(found, "a/x.txt");
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("y.txt"), "needle").unwrap();
    let path = outside.path().to_str().unwrap();
    let found = call(
        &sandbox,
        "grep",
        json!({ "pattern": "needle", "path": path, "show": "files" }),
    )
    .await;
    assert_eq!(found, format!("{path}/y.txt"));
    let pattern = format!("{path}/*.txt");
    let found = call(&sandbox, "glob", json!({ "pattern": pattern })).await;
    assert_eq!(found, format!("{path}/y.txt"));
}
