//! `rye keys`: generating, trusting and revoking keys.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{TestEnv, assert_transcript, json};

/// A `TestEnv` with a key of this owner.
fn env_with_key_of(owner: &str) -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", owner);
    assert!(env.run(&["keys", "generate"]).status.success());
    env
}

fn fingerprint(env: &TestEnv) -> String {
    let document = json(&env.run(&["keys", "show", "--json"]));
    document["fingerprint"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Writes the public key of one environment into another.
fn copy_public_key(from: &TestEnv, to: &TestEnv, file: &str) {
    let document = json(&from.run(&["keys", "show", "--json"]));
    to.write(file, document["public_key"].as_str().unwrap_or_default());
}

#[test]
fn key_is_generated_once_and_shown() {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    let transcript = env.transcript(&[
        "keys show",
        "keys generate --owner Ada",
        "keys generate",
        "keys generate --force --json",
        "keys show",
    ]);
    let mode = fs::metadata(env.path("user/.ai/config/keys/signing/private_key.pem"));
    assert_eq!(
        mode.map(|m| m.permissions().mode() & 0o777).ok(),
        Some(0o600)
    );
    assert_transcript!(without_keys(&transcript));
}

/// Replaces public keys, which differ between runs.
fn without_keys(text: &str) -> String {
    let mut out = String::new();
    for piece in text.split_inclusive("MCowBQYDK2VwAyEA") {
        let inside = out.ends_with("MCowBQYDK2VwAyEA");
        out.push_str(if inside { &piece[44..] } else { piece });
    }
    out
}

#[test]
fn trusting_a_key_needs_confirmation_or_yes() {
    let (env, other) = (env_with_key_of("ada"), env_with_key_of("grace"));
    copy_public_key(&other, &env, "project/grace.pem");
    other.write("project/.ai/tools/gift.sh", "# executor_id: x\necho\n");
    other.run(&["sign", "gift"]);
    env.write(
        "project/.ai/tools/gift.sh",
        &other.read("project/.ai/tools/gift.sh"),
    );
    let mut transcript = env.transcript(&[
        "keys trust grace.pem",
        "keys trust grace.pem --json",
        "keys list",
        "verify gift",
        "keys trust grace.pem --owner Grace --yes",
        "keys trust grace.pem --owner Grace --yes --json",
        "verify gift",
    ]);
    let grace = fingerprint(&other);
    transcript += &env.transcript(&[
        &format!("keys revoke {grace} --reason lost"),
        "verify gift",
        "keys trust grace.pem --yes",
        "keys revoke nothing",
        "keys trust nothing.pem",
        "keys trust .",
        "keys trust .ai/tools/gift.sh",
    ]);
    assert_transcript!(sorted_list(&transcript));
}

#[test]
fn list_shows_which_keys_count() {
    let (env, other) = (env_with_key_of("ada"), env_with_key_of("grace"));
    let grace = fingerprint(&other);
    let file = format!(".ai/config/keys/trusted/{grace}.toml");
    env.write(
        &format!("project/{file}"),
        &other.read(&format!("user/{file}")),
    );
    let listed = json(&env.run(&["keys", "list", "--json"]));
    let keys = listed["keys"].as_array().cloned().unwrap_or_default();
    let state = |wanted: &str| {
        let key = keys
            .iter()
            .find(|key| key["fingerprint"] == wanted)
            .cloned();
        key.unwrap_or_default()
    };
    assert_eq!(state(&fingerprint(&env))["state"], "trusted");
    assert_eq!(state(&fingerprint(&env))["own"], true);
    let ignored = state(&grace);
    assert_eq!(ignored["state"], "ignored");
    let why = ignored["reason"].as_str().unwrap_or_default();
    assert!(
        why.starts_with("a project cannot trust a key on its own"),
        "{why}"
    );
}

#[test]
fn revoking_the_own_key_needs_confirmation() {
    let env = env_with_key_of("ada");
    let own = fingerprint(&env);
    assert_transcript!(env.transcript(&[
        &format!("keys revoke {own}"),
        &format!("keys revoke {own} --yes --json"),
    ]));
    let document = json(&env.run(&["doctor", "--json"]));
    assert_eq!(document["status"], "error");
    assert_eq!(document["error"]["code"], "unhealthy");
}

/// Sorts the list of keys, whose order depends on their fingerprints.
fn sorted_list(transcript: &str) -> String {
    let mut lines: Vec<_> = transcript.lines().map(str::to_owned).collect();
    let header = lines
        .iter()
        .position(|line| line.starts_with("FINGERPRINT "));
    if let Some(header) = header {
        let end = lines[header..]
            .iter()
            .position(|line| line.starts_with("---"));
        let end = header + end.unwrap_or_default();
        lines[header + 1..end].sort_by_key(|line| line.get(16..).map(str::to_owned));
    }
    lines.join("\n")
}

#[test]
fn output_of_show_can_be_trusted() {
    let (ada, bob) = (env_with_key_of("ada"), env_with_key_of("bob"));
    let shown = bob.run(&["keys", "show"]).stdout;
    ada.write("project/bob.txt", &String::from_utf8_lossy(&shown));
    let output = ada.run(&["keys", "trust", "bob.txt", "--yes", "--json"]);
    assert_eq!(json(&output)["fingerprint"], fingerprint(&bob));
}

#[test]
fn key_is_revoked_once() {
    let (ada, bob) = (env_with_key_of("ada"), env_with_key_of("bob"));
    let revoke = format!("keys revoke {}", fingerprint(&bob));
    let transcript = ada.transcript(&[&format!("{revoke} --reason lost"), &revoke]);
    assert_transcript!(transcript);
}

#[test]
fn unbound_signatures_can_be_refused() {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    // A signature line in the published format covers only the hash.
    let private = env.path("user/.ai/config/keys/signing/private_key.pem");
    let key = lillux::keys::SigningKey::read(&private).unwrap();
    let signed = env.read("project/.ai/tools/hello.py");
    let content = signed.split_once('\n').unwrap().1;
    let hash = lillux::Hash::digest(content);
    let (signature, fingerprint) = (key.sign(&hash), key.public().fingerprint());
    let line = format!("# rye:signed:2026-04-10T03:28:17Z:{hash}:{signature}:{fingerprint}");
    env.write("project/.ai/tools/hello.py", &format!("{line}\n{content}"));
    let verify = |env: &TestEnv| env.run(&["verify", "hello", "--json"]);
    let refusal = |env: &TestEnv| {
        let output = verify(env);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        json(&output)["items"][0]["error"]["code"].clone()
    };
    assert!(verify(&env).status.success());

    env.set("RYE_REQUIRE_BOUND_SIGNATURES", "1");
    assert_eq!(refusal(&env), "unbound_signature");
    env.set("RYE_REQUIRE_BOUND_SIGNATURES", "0");
    env.write("user/.ai/config/rye.yaml", "signatures: bound\n");
    assert_eq!(refusal(&env), "unbound_signature");
    assert!(env.run(&["sign", "hello"]).status.success());
    assert!(verify(&env).status.success());
}
