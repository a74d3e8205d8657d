//! A program that keeps running keeps the chains of its tools, and sees every change of
//! what they were built from all the same.

use std::fs;

use crate::support::{BASH, World};
use rye_items::UserKeys;
use serde_json::json;

/// Something that happens between two calls.
type Change = fn(&World);

fn script(word: &str) -> String {
    format!("{BASH}echo '{{\"is\": \"{word}\"}}'\n")
}

/// Calls until the chain is kept: what was written a moment ago may change unnoticed
/// within the same tick of the clock, and is not noted before that is over.
async fn warm(world: &World) {
    for _ in 0..8 {
        let envelope = world.run("it", json!({})).await;
        assert_eq!(envelope.data["is"], "first", "{envelope:?}");
    }
}

/// What the tool says then, or why it is refused.
async fn after(change: Change) -> String {
    let world = World::new();
    world.signed_for_user("tools/it.sh", &script("first"));
    warm(&world).await;
    change(&world);
    let envelope = world.run("it", json!({})).await;
    match envelope.error {
        Some(error) => error.code,
        None => envelope.data["is"].to_string(),
    }
}

/// Writes other bytes into a file, of the same length, and sets its time back.
fn tamper(world: &World) {
    let path = world.at_user("tools/it.sh");
    let (text, about) = (
        fs::read_to_string(&path).unwrap(),
        fs::metadata(&path).unwrap(),
    );
    fs::write(&path, text.replace("first", "other")).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(about.modified().unwrap()).unwrap();
}

#[tokio::test]
async fn every_change_is_seen_by_the_next_call() {
    let changes: [(&str, Change, &str); 10] = [
        ("nothing", |_| {}, "\"first\""),
        ("its bytes", tamper, "content_changed"),
        (
            "signed anew",
            |world| world.signed_for_user("tools/it.sh", &script("again")),
            "\"again\"",
        ),
        (
            "shadowed by the project",
            |world| world.signed("tools/it.sh", &script("project")),
            "\"project\"",
        ),
        (
            "a second file of its id",
            |world| world.signed_for_user("tools/it.py", "__version__ = '1.0.0'\n"),
            "ambiguous",
        ),
        (
            "removed",
            |world| fs::remove_file(world.at_user("tools/it.sh")).unwrap(),
            "not_found",
        ),
        (
            "its key no longer trusted",
            |world| fs::remove_dir_all(world.at_user("config/keys/trusted")).unwrap(),
            "untrusted_key",
        ),
        (
            "its key revoked",
            |world| {
                let (keys, key) = (UserKeys::new(&world.user()), world.key());
                let fingerprint = key.public().fingerprint();
                keys.revoke(fingerprint, None, Some(key.public()), key)
                    .unwrap();
            },
            "revoked_key",
        ),
        (
            "its runtime shadowed",
            |world| {
                world.signed_for_user(
                    "tools/rye/core/runtimes/bash/bash.yaml",
                    "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: subprocess\n\
                     config: {command: echo, args: [\"{\\\"is\\\": 1}\"]}\n",
                );
            },
            "1",
        ),
        (
            "another folder in the place of its space",
            |world| {
                let space = world.user().join(".ai");
                let (old, new) = (space.with_extension("old"), space.with_extension("new"));
                let copy = std::process::Command::new("cp")
                    .arg("-a")
                    .args([&space, &new])
                    .status();
                assert!(copy.unwrap().success());
                fs::rename(&space, old).unwrap();
                fs::rename(new, &space).unwrap();
                tamper(world);
            },
            "content_changed",
        ),
    ];
    for (what, change, expected) in changes {
        assert_eq!(after(change).await, expected, "{what}");
    }
}

#[tokio::test]
async fn a_space_that_comes_to_be_is_seen_too() {
    let world = World::new();
    world.signed_for_user("tools/it.sh", &script("first"));
    fs::remove_dir(world.project().join(".ai")).unwrap();
    warm(&world).await;
    world.signed("tools/it.sh", &script("project"));
    assert_eq!(world.run("it", json!({})).await.data["is"], "project");
}

#[tokio::test]
async fn configuration_that_comes_to_be_is_seen_by_the_next_call() {
    let world = World::new();
    let resolve = "# config_resolve: {path: web/site.yaml, mode: deep_merge}\n";
    let show = "cat\n";
    world.signed_for_user("tools/it.sh", &format!("{BASH}{resolve}{show}"));
    for _ in 0..8 {
        let envelope = world.run("it", json!({})).await;
        assert!(envelope.error.is_none(), "{envelope:?}");
        assert_ne!(envelope.data["resolved_config"]["name"], "now");
    }
    world.signed_for_user("config/web/site.yaml", "name: now\n");
    let envelope = world.run("it", json!({})).await;
    assert_eq!(
        envelope.data["resolved_config"]["name"], "now",
        "{envelope:?}"
    );
}
