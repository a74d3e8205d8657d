//! The tool `edit` in each sandbox.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use serde_json::json;

use super::agent::{assert_calls, calls, sandboxes};

#[tokio::test]
async fn all_edits_of_a_call_are_applied_or_none() {
    for (sandbox, _dir) in sandboxes() {
        sandbox
            .write("a.txt", b"one\r\ntwo\r\nthree\r\nfour\r\nfive\r\n")
            .await
            .unwrap();
        sandbox.write("b.txt", b"x x x").await.unwrap();
        sandbox.write("c.bin", b"a\0b").await.unwrap();
        let one =
            |path: &str, old: &str, new: &str| json!({ "path": path, "old": old, "new": new });
        let edits = |edits: serde_json::Value| json!({ "path": "a.txt", "edits": edits });
        assert_calls(&sandbox, &[
            ("edit", one("a.txt", "two\nthree", "2\n3\n3.5"), true,
             "a.txt: 1 replacement\n--- a.txt\n+++ a.txt\n@@ -1,5 +1,6 @@\n one\n-two\n-three\n\
              +2\n+3\n+3.5\n four\n five"),
            ("edit", edits(json!([{ "old": "one", "new": "1" }, { "old": "six", "new": "6" }])), false,
             "a.txt: edit 2 of 2: `old` is not in the file, nor anything similar: `read` the file \
              again\nNo edit was applied."),
            ("edit", edits(json!([{ "old": "one", "new": "1" }, { "old": "five", "new": "5" }])), true,
             "a.txt: 2 replacements\n--- a.txt\n+++ a.txt\n@@ -1,6 +1,6 @@\n-one\n+1\n 2\n 3\n \
              3.5\n four\n-five\n+5"),
            ("edit", one("b.txt", "x", "y"), false,
             "b.txt: `old` occurs 3 times, in line 1: add surrounding lines to make it unique, or \
              set `all`"),
            ("edit", json!({ "path": "b.txt", "old": "x", "new": "y", "all": true }), true,
             "b.txt: 3 replacements\n--- b.txt\n+++ b.txt\n@@ -1 +1 @@\n-x x x\n\\ No newline \
              at end of file\n+y y y\n\\ No newline at end of file"),
            ("edit", one("c.bin", "a", "b"), false,
             "c.bin is not UTF-8 text and cannot be edited"),
            ("edit", one("a.tx", "a", "b"), false, "there is no a.tx; similar: a.txt, b.txt, c.bin"),
            ("edit", json!({ "path": "a.txt", "old": "1" }), false,
             "give either `old` and `new`, or `edits`"),
        ]).await;
        let content = sandbox.read("a.txt").await.unwrap();
        assert_eq!(content, b"1\r\n2\r\n3\r\n3.5\r\nfour\r\n5\r\n");
        assert_eq!(sandbox.read("b.txt").await.unwrap(), b"y y y");
    }
}

#[tokio::test]
async fn result_data_contains_the_diff() {
    for (sandbox, _dir) in sandboxes() {
        sandbox.write("a", b"1\n2\n").await.unwrap();
        let args = json!({ "path": "a", "old": "2", "new": "two\nthree" });
        let outcome = calls(&sandbox, &[("edit", args)]).await.remove(0);
        assert_eq!(outcome.data["added"], 2);
        assert_eq!(outcome.data["removed"], 1);
        let diff = outcome.data["diff"].as_str().unwrap();
        assert!(
            diff.ends_with("@@ -1,2 +1,3 @@\n 1\n-2\n+two\n+three\n"),
            "{diff}"
        );
    }
}

#[tokio::test]
async fn concurrent_edits_of_one_file_are_all_applied() {
    for (sandbox, _dir) in sandboxes() {
        let lines = |wrap: fn(usize) -> String| (0..20).map(wrap).collect::<Vec<_>>().join("\n");
        let before = lines(|number| format!("<{number}>"));
        sandbox.write("a", before.as_bytes()).await.unwrap();
        let edit = |number: usize| {
            let (old, new) = (format!("<{number}>"), format!("({number})"));
            json!({ "name": "edit", "args": { "path": "a", "old": old, "new": new } })
        };
        let concurrent: Vec<_> = (0..20).map(edit).collect();
        let script = json!({ "steps": [{ "tool_calls": concurrent }, { "text": "done" }] });
        let engine = super::agent::engine(
            &script.to_string(),
            std::sync::Arc::clone(&sandbox),
            rye_store::MemoryStore::new(),
        );
        let session = engine
            .create_session(rye_engine::NewSession::default())
            .await
            .unwrap();
        super::agent::run_turn(&engine, &session).await;
        let expected = lines(|number| format!("({number})"));
        assert_eq!(sandbox.read("a").await.unwrap(), expected.as_bytes());
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn local_edit_keeps_mode_and_links() {
    let [_, (sandbox, dir)] = sandboxes();
    let dir = dir.unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("tool.sh"), "old").unwrap();
    std::fs::set_permissions(path("tool.sh"), std::fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink("tool.sh", path("link")).unwrap();
    std::fs::write(path("twin"), "old").unwrap();
    std::fs::hard_link(path("twin"), path("other")).unwrap();
    let edit = |name: &str| ("edit", json!({ "path": name, "old": "old", "new": "new" }));
    let outcomes = calls(&sandbox, &[edit("link"), edit("twin")]).await;
    assert!(outcomes.iter().all(|it| it.is_success), "{outcomes:?}");
    assert_eq!(
        std::fs::metadata(path("tool.sh")).unwrap().mode() & 0o777,
        0o750
    );
    assert!(
        std::fs::symlink_metadata(path("link"))
            .unwrap()
            .is_symlink()
    );
    for name in ["tool.sh", "other"] {
        assert_eq!(
            std::fs::read_to_string(path(name)).unwrap(),
            "new",
            "{name}"
        );
    }
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 4, "{names:?}");
}
