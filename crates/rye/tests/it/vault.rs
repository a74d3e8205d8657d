//! `rye vault`: what it prints, where, and what it never prints.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{TestEnv, assert_transcript, json, told};

/// Keeps a secret and tells how that went.
fn set(env: &TestEnv, name: &str, space: &str, value: &[u8]) -> String {
    let output = env.feed(&["vault", "set", name, "--space", space], value);
    told(&format!("rye vault set {name} --space {space}"), &output)
}

#[test]
fn secrets_come_and_go() {
    let env = TestEnv::new();
    let mut transcript = env.transcript(&["vault list", "vault get TOKEN"]);
    transcript += &set(&env, "TOKEN", "user", b"hunter2");
    transcript += &set(&env, "TOKEN", "project", b"hunter3\n");
    transcript += &set(&env, "db.password-2", "user", b"x");
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
fn bytes_come_back_as_they_were_given() {
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
fn a_secret_may_have_one_mebibyte_and_not_be_empty() {
    let env = TestEnv::new();
    let mut transcript = set(&env, "A", "user", b"");
    let largest = vec![b'x'; 1 << 20];
    transcript += &set(&env, "A", "user", &largest);
    transcript += &set(&env, "A", "user", &[&largest[..], b"x"].concat());
    assert_eq!(env.run(&["vault", "get", "A"]).stdout, largest);
    assert_transcript!(transcript);
}

#[test]
fn what_was_tampered_with_is_an_integrity_failure() {
    let env = TestEnv::new();
    for name in ["A", "B", "C", "D"] {
        set(&env, name, "user", b"sesame");
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
fn keys_that_are_open_or_lost_are_told_with_the_next_command() {
    let env = TestEnv::new();
    set(&env, "A", "user", b"a");
    let key = env.path("user/.ai/config/keys/vault/private_key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let mut transcript = env.transcript(&["vault get A"]);
    transcript += &set(&env, "B", "user", b"b");
    fs::remove_file(&key).unwrap();
    transcript += &env.transcript(&["vault get A"]);
    transcript += &set(&env, "B", "user", b"b");
    assert_transcript!(transcript);
}

#[test]
fn hostile_names_and_places_are_refused() {
    let env = TestEnv::new();
    let mut transcript = String::new();
    for name in ["../A", "/etc/passwd", "a b", ".", "", "--", "ä"] {
        let output = env.feed(&["vault", "set", "--", name], b"x");
        transcript += &told(&format!("rye vault set -- '{name}'"), &output);
    }
    fs::create_dir(env.path("outside")).unwrap();
    std::os::unix::fs::symlink(env.path("outside"), env.path("project/.ai/vault")).unwrap();
    transcript += &set(&env, "A", "project", b"x");
    transcript += &env.transcript(&["vault list", "vault get A"]);
    assert_eq!(fs::read_dir(env.path("outside")).unwrap().count(), 0);
    let bare = TestEnv::bare();
    transcript += &set(&bare, "A", "project", b"x");
    assert_transcript!(transcript);
}

#[test]
fn the_name_of_a_stray_file_cannot_steer_the_terminal() {
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
fn a_secret_typed_as_an_argument_by_mistake_is_not_repeated() {
    let env = TestEnv::new();
    for args in [
        &["vault", "set", "TOKEN", "hunter2"][..],
        &["vault", "set", "hunter2 hunter2"],
        &["vault", "set", "TOKEN", "--value=hunter2", "--json"],
        &["--project", ".", "--json", "vault", "get", "hunter2!"],
    ] {
        let output = env.run(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(
            !said.contains("hunter2") && said.contains("rye vault set"),
            "{said}"
        );
    }
}
