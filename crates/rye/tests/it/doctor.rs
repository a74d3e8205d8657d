//! `rye doctor`: what is wrong, and the command that puts it right.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{TestEnv, assert_transcript, json};

/// Only programs that are everywhere, so that the outcome is the same everywhere.
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
fn a_fresh_machine_is_told_what_to_do_and_is_well_afterwards() {
    let env = env();
    assert_transcript!(env.transcript(&["doctor", "init --quiet", "doctor", "doctor --json"]));
}

#[test]
fn what_is_wrong_is_told_with_its_fix() {
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
fn an_open_key_and_work_in_progress() {
    let env = env();
    env.run(&["init"]);
    env.write("project/.ai/tools/new.sh", "echo\n");
    let first = env.transcript(&["doctor"]);
    let key = env.path("user/.ai/config/keys/signing/private_key.pem");
    fs::set_permissions(key, fs::Permissions::from_mode(0o644)).ok();
    assert_transcript!(first + &env.transcript(&["doctor"]));
}

#[test]
fn without_a_home_it_still_answers() {
    let mut env = env();
    env.unset("HOME");
    let document = json(&env.run(&["doctor", "--json"]));
    assert_eq!(document["checks"][0]["state"], "fail");
    assert_eq!(document["checks"][0]["check"], "user space");
}
