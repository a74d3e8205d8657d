//! `rye doctor`: problems and the commands that fix them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{TestEnv, assert_transcript, json};

/// A `TestEnv` with stub interpreters, so that the output is the same on every machine.
fn env() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.write("bin/bash", "");
    env.write("bin/python3", "");
    for name in ["bin/bash", "bin/python3"] {
        fs::set_permissions(env.path(name), fs::Permissions::from_mode(0o755)).ok();
    }
    env.set("PATH", env.path("bin").to_string_lossy());
    env
}

#[test]
fn fresh_machine_is_healthy_after_init() {
    let env = env();
    assert_transcript!(env.transcript(&["doctor", "init --quiet", "doctor", "doctor --json"]));
}

#[test]
fn problems_are_reported_with_their_fix() {
    let mut env = env();
    env.run(&["init"]);
    let tool = env.read("project/.ai/tools/hello.py");
    env.write("project/.ai/tools/hello.py", &(tool + "# more\n"));
    env.write("project/.ai/config/rye.yaml", "color: never\n");
    fs::remove_dir_all(env.path("user/.cache")).unwrap();
    env.write("user/.cache", "a file, where a folder should be");
    env.set("RYE_DEV_MODE", "1");
    assert_transcript!(env.transcript(&["doctor", "doctor --quiet --json"]));
}

#[test]
fn world_readable_key_and_unsigned_tool() {
    let env = env();
    env.run(&["init"]);
    env.write("project/.ai/tools/new.sh", "echo\n");
    let first = env.transcript(&["doctor"]);
    let key = env.path("user/.ai/config/keys/signing/private_key.pem");
    fs::set_permissions(key, fs::Permissions::from_mode(0o644)).ok();
    assert_transcript!(first + &env.transcript(&["doctor"]));
}

#[test]
fn missing_home_is_reported() {
    let mut env = env();
    env.unset("HOME");
    let document = json(&env.run(&["doctor", "--json"]));
    assert_eq!(document["checks"][0]["state"], "fail");
    assert_eq!(document["checks"][0]["check"], "user space");
}
