//! Behaviour of every command: help, usage errors, colour, JSON, pipes.

use std::process::Stdio;

use crate::support::{TestEnv, assert_transcript, json};

#[test]
fn wrong_usage() {
    let env = TestEnv::new();
    assert_transcript!(env.transcript(&[
        "",
        "vualt list",
        "vault set",
        "vault set ../x",
        "sandbox run",
        "--color=red config show",
        "config show --json --no-such",
        "config show -- --json",
    ]));
}

#[test]
fn help_names_the_commands_and_options() {
    let env = TestEnv::new();
    assert_transcript!(env.transcript(&["--help", "vault --help", "help vault set"]));
}

#[test]
fn usage_error_is_one_json_document() {
    let output = TestEnv::new().run(&["vault", "nothing", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let document = json(&output);
    assert_eq!(document["status"], "error");
    assert_eq!(document["error"]["code"], "usage");
}

#[test]
fn colour_is_used_on_terminals_or_on_request() {
    let mut env = TestEnv::new();
    let colored = |env: &TestEnv, args: &[&str]| {
        let output = env.run(args);
        let bytes = [output.stdout, output.stderr].concat();
        bytes.contains(&0x1b)
    };
    let call = ["config", "show"];
    let fail = ["vault", "get", "NONE"];
    assert!(!colored(&env, &call) && !colored(&env, &fail));
    env.set("RYE_COLOR", "always");
    assert!(colored(&env, &call) && colored(&env, &fail));
    assert!(colored(&env, &["--no-such"]) && colored(&env, &["--help"]));
    assert!(!colored(&env, &["config", "show", "--color=never"]));
    env.unset("RYE_COLOR");
    env.write("user/.ai/config/rye.yaml", "color: always\n");
    assert!(colored(&env, &call) && colored(&env, &fail));
    env.set("NO_COLOR", "1");
    assert!(!colored(&env, &call) && !colored(&env, &fail));
}

#[test]
fn closed_output_pipe_is_not_a_failure() {
    let env = TestEnv::new();
    for call in [
        &["completions", "bash"][..],
        &["--help"],
        &["config", "show"],
    ] {
        let mut child = env.command().args(call).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(0) && words.is_empty(),
            "{words}"
        );
    }
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = env
        .command()
        .args(["config", "show"])
        .stdout(Stdio::from(full))
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("cannot write to standard output"), "{words}");
}

#[test]
fn completions_exist_for_every_shell() {
    let env = TestEnv::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = env.run(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("vault"), "{shell}");
        let document = json(&env.run(&["completions", shell, "--json"]));
        assert_eq!(document["script"].as_str().unwrap().trim(), script.trim());
    }
}
