//! What holds for every command: help, wrong usage, colour, JSON, pipes.

use std::process::Stdio;

use crate::support::{World, assert_transcript, json};

#[test]
fn wrong_usage() {
    let world = World::new();
    assert_transcript!(world.transcript(&[
        "",
        "vualt list",
        "vault set",
        "vault set ../x",
        "--color=red config show",
        "config show --json --no-such",
        "config show -- --json",
    ]));
}

#[test]
fn help_names_the_commands_and_options() {
    let world = World::new();
    assert_transcript!(world.transcript(&["--help", "vault --help", "help vault set"]));
}

#[test]
fn a_usage_error_is_one_json_document_too() {
    let output = World::new().run(&["vault", "nothing", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let document = json(&output);
    assert_eq!(document["status"], "error");
    assert_eq!(document["error"]["code"], "usage");
}

#[test]
fn colour_is_for_terminals_unless_asked_for() {
    let mut world = World::new();
    let colored = |world: &World, args: &[&str]| {
        let output = world.run(args);
        let bytes = [output.stdout, output.stderr].concat();
        bytes.contains(&0x1b)
    };
    let call = ["config", "show"];
    let fail = ["vault", "get", "NONE"];
    assert!(!colored(&world, &call) && !colored(&world, &fail));
    world.set("RYE_COLOR", "always");
    assert!(colored(&world, &call) && colored(&world, &fail));
    assert!(colored(&world, &["--no-such"]) && colored(&world, &["--help"]));
    assert!(!colored(&world, &["config", "show", "--color=never"]));
    world.unset("RYE_COLOR");
    world.write("user/.ai/config/rye.yaml", "color: always\n");
    assert!(colored(&world, &call) && colored(&world, &fail));
    world.set("NO_COLOR", "1");
    assert!(!colored(&world, &call) && !colored(&world, &fail));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let world = World::new();
    for call in [
        &["completions", "bash"][..],
        &["--help"],
        &["config", "show"],
    ] {
        let mut child = world.command().args(call).spawn().unwrap();
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
    let output = world
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
fn there_are_completions_for_every_shell() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = world.run(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("vault"), "{shell}");
        let document = json(&world.run(&["completions", shell, "--json"]));
        assert_eq!(document["script"].as_str().unwrap().trim(), script.trim());
    }
}
