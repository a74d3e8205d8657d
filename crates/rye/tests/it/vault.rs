//! `rye vault`: storing, reading and protecting secrets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{TestEnv, assert_transcript, json, transcript_entry};

/// Stores a secret and returns the transcript.
fn set_secret(env: &TestEnv, name: &str, space: &str, value: &[u8]) -> String {
    let output = env.feed(&["vault", "set", name, "--space", space], value);
    transcript_entry(&format!("rye vault set {name} --space {space}"), &output)
}

#[test]
fn secrets_are_set_listed_read_and_removed() {
    let env = TestEnv::new();
    let mut transcript = env.transcript(&["vault list", "vault get TOKEN"]);
    transcript += &set_secret(&env, "TOKEN", "user", b"hunter2");
    transcript += &set_secret(&env, "TOKEN", "project", b"hunter3\n");
    transcript += &set_secret(&env, "db.password-2", "user", b"x");
    transcript += &env.transcript(&[
        "vault list",
        "vault list --space project --json",
        "vault get TOKEN",
        "vault get TOKEN --space user --json",
        "vault rm TOKEN",
        "vault rm TOKEN --space project",
        "vault get TOKEN",
        "vault rm TOKEN --json",
        "vault rm TOKEN",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn values_are_returned_unchanged() {
    let env = TestEnv::new();
    let all: Vec<u8> = (0..=255).collect();
    for value in [&b"no newline"[..], b"one\n", b"\n\n", &all] {
        env.feed(&["vault", "set", "X"], value);
        assert_eq!(env.run(&["vault", "get", "X"]).stdout, value);
    }
    let document = json(&env.run(&["vault", "get", "X", "--json"]));
    assert!(document.get("value").is_none());
    assert!(
        document["value_base64"]
            .as_str()
            .unwrap()
            .starts_with("AAECAw")
    );
}

#[test]
fn value_has_between_1_byte_and_1_mib() {
    let env = TestEnv::new();
    let mut transcript = set_secret(&env, "A", "user", b"");
    let largest = vec![b'x'; 1 << 20];
    transcript += &set_secret(&env, "A", "user", &largest);
    transcript += &set_secret(&env, "A", "user", &[&largest[..], b"x"].concat());
    assert_eq!(env.run(&["vault", "get", "A"]).stdout, largest);
    assert_transcript!(transcript);
}

#[test]
fn tampered_envelope_is_an_integrity_failure() {
    let env = TestEnv::new();
    for name in ["A", "B", "C", "D"] {
        set_secret(&env, name, "user", b"sesame");
    }
    let file = |name: &str| env.path(&format!("user/.ai/vault/{name}.json"));
    let text = fs::read_to_string(file("A")).unwrap();
    fs::write(file("A"), &text[..text.len() / 2]).unwrap();
    fs::copy(file("C"), file("B")).unwrap();
    let text = fs::read_to_string(file("D")).unwrap();
    let (head, tail) = text.split_at(text.find("ciphertext").unwrap() + 20);
    let flipped = if tail.starts_with('A') { "B" } else { "A" };
    fs::write(file("D"), format!("{head}{flipped}{}", &tail[1..])).unwrap();
    let transcript = env.transcript(&[
        "vault get A",
        "vault get B",
        "vault get B --json",
        "vault get C",
        "vault get D",
        "vault list",
        "vault list --json",
    ]);
    assert_transcript!(transcript.replacen("sesame", "THE VALUE OF C", 1));
    assert_eq!(transcript.matches("sesame").count(), 1);
}

#[test]
fn exposed_or_missing_keys_are_reported_with_a_hint() {
    let env = TestEnv::new();
    set_secret(&env, "A", "user", b"a");
    let key = env.path("user/.ai/config/keys/vault/private_key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let mut transcript = env.transcript(&["vault get A"]);
    transcript += &set_secret(&env, "B", "user", b"b");
    fs::remove_file(&key).unwrap();
    transcript += &env.transcript(&["vault get A"]);
    transcript += &set_secret(&env, "B", "user", b"b");
    assert_transcript!(transcript);
}

#[test]
fn hostile_names_and_links_are_refused() {
    let env = TestEnv::new();
    let mut transcript = String::new();
    for name in ["../A", "/etc/passwd", "a b", ".", "", "--", "ä"] {
        let output = env.feed(&["vault", "set", "--", name], b"x");
        transcript += &transcript_entry(&format!("rye vault set -- '{name}'"), &output);
    }
    fs::create_dir(env.path("outside")).unwrap();
    std::os::unix::fs::symlink(env.path("outside"), env.path("project/.ai/vault")).unwrap();
    transcript += &set_secret(&env, "A", "project", b"x");
    transcript += &env.transcript(&["vault list", "vault get A"]);
    assert_eq!(fs::read_dir(env.path("outside")).unwrap().count(), 0);
    let bare = TestEnv::bare();
    transcript += &set_secret(&bare, "A", "project", b"x");
    assert_transcript!(transcript);
}

#[test]
fn name_of_a_stray_file_is_sanitised() {
    let env = TestEnv::new();
    env.write("project/.ai/vault/\x1b]0;owned\x07\x1b[2J.txt", "");
    let output = env.run(&["vault", "list", "--color", "always"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains(r"\u{1b}]0;owned\u{7}"), "{shown:?}");
    assert!(
        !shown.contains("\x1b]") && !shown.contains("\x1b[2J"),
        "{shown:?}"
    );
}

#[test]
fn secret_passed_as_an_argument_is_not_repeated() {
    let env = TestEnv::new();
    for args in [
        &["vault", "set", "TOKEN", "hunter2"][..],
        &["vault", "set", "hunter2 hunter2"],
        &["vault", "set", "TOKEN", "--value=hunter2", "--json"],
        &["--project", ".", "--json", "vault", "get", "hunter2!"],
    ] {
        let output = env.run(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let reply = [output.stdout, output.stderr].concat();
        let reply = String::from_utf8_lossy(&reply);
        assert!(
            !reply.contains("hunter2") && reply.contains("rye vault set"),
            "{reply}"
        );
    }
}
