//! The chain cache of a long-running executor detects every change.

use std::fs;

use crate::support::{BASH, TestEnv};
use rye_items::UserKeys;
use serde_json::json;

/// A change between two calls.
type Change = fn(&TestEnv);

fn script(word: &str) -> String {
    format!("{BASH}echo '{{\"is\": \"{word}\"}}'\n")
}

/// Calls the tool until its chain is cached. Recently written files are not cached, because a
/// change within the clock's resolution could go undetected.
async fn warm(env: &TestEnv) {
    for _ in 0..8 {
        let result = env.run("it", json!({})).await;
        assert_eq!(result.data["is"], "first", "{result:?}");
    }
}

/// Output of the tool after the change, or its error code.
async fn after(change: Change) -> String {
    let env = TestEnv::new();
    env.signed_for_user("tools/it.sh", &script("first"));
    warm(&env).await;
    change(&env);
    let result = env.run("it", json!({})).await;
    match result.error {
        Some(error) => error.code,
        None => result.data["is"].to_string(),
    }
}

/// Replaces a file by different bytes of the same length and restores its modification time.
fn tamper(env: &TestEnv) {
    let path = env.user_path("tools/it.sh");
    let (text, about) = (
        fs::read_to_string(&path).unwrap(),
        fs::metadata(&path).unwrap(),
    );
    fs::write(&path, text.replace("first", "other")).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(about.modified().unwrap()).unwrap();
}

#[tokio::test]
async fn every_change_is_detected_by_the_next_call() {
    let changes: [(&str, Change, &str); 10] = [
        ("nothing", |_| {}, "\"first\""),
        ("its bytes", tamper, "content_changed"),
        (
            "signed anew",
            |env| env.signed_for_user("tools/it.sh", &script("again")),
            "\"again\"",
        ),
        (
            "shadowed by the project",
            |env| env.signed("tools/it.sh", &script("project")),
            "\"project\"",
        ),
        (
            "a second file of its id",
            |env| env.signed_for_user("tools/it.py", "__version__ = '1.0.0'\n"),
            "ambiguous",
        ),
        (
            "removed",
            |env| fs::remove_file(env.user_path("tools/it.sh")).unwrap(),
            "not_found",
        ),
        (
            "its key no longer trusted",
            |env| fs::remove_dir_all(env.user_path("config/keys/trusted")).unwrap(),
            "untrusted_key",
        ),
        (
            "its key revoked",
            |env| {
                let (keys, key) = (UserKeys::new(&env.user()), env.key());
                let fingerprint = key.public().fingerprint();
                keys.revoke(fingerprint, None, Some(key.public()), key)
                    .unwrap();
            },
            "revoked_key",
        ),
        (
            "its runtime shadowed",
            |env| {
                env.signed_for_user(
                    "tools/rye/core/runtimes/bash/bash.yaml",
                    "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
                     config: {command: echo, args: [\"{\\\"is\\\": 1}\"]}\n",
                );
            },
            "1",
        ),
        (
            "another folder in the place of its space",
            |env| {
                let space = env.user().join(".ai");
                let (old, new) = (space.with_extension("old"), space.with_extension("new"));
                let copy = std::process::Command::new("cp")
                    .arg("-a")
                    .args([&space, &new])
                    .status();
                assert!(copy.unwrap().success());
                fs::rename(&space, old).unwrap();
                fs::rename(new, &space).unwrap();
                tamper(env);
            },
            "content_changed",
        ),
    ];
    for (what, change, expected) in changes {
        assert_eq!(after(change).await, expected, "{what}");
    }
}

#[tokio::test]
async fn new_space_is_detected() {
    let env = TestEnv::new();
    env.signed_for_user("tools/it.sh", &script("first"));
    fs::remove_dir(env.project().join(".ai")).unwrap();
    warm(&env).await;
    env.signed("tools/it.sh", &script("project"));
    assert_eq!(env.run("it", json!({})).await.data["is"], "project");
}

#[tokio::test]
async fn new_configuration_is_detected() {
    let env = TestEnv::new();
    let resolve = "# config_resolve: {path: web/site.yaml, mode: deep_merge}\n";
    let show = "cat\n";
    env.signed_for_user("tools/it.sh", &format!("{BASH}{resolve}{show}"));
    for _ in 0..8 {
        let result = env.run("it", json!({})).await;
        assert!(result.error.is_none(), "{result:?}");
        assert_ne!(result.data["resolved_config"]["name"], "now");
    }
    env.signed_for_user("config/web/site.yaml", "name: now\n");
    let result = env.run("it", json!({})).await;
    assert_eq!(result.data["resolved_config"]["name"], "now", "{result:?}");
}
