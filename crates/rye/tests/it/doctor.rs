//! `rye doctor`: what is wrong, and the command that puts it right.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{World, assert_transcript, json};

/// Only programs that are everywhere, so that the outcome is the same everywhere.
fn world() -> World {
    let mut world = World::new();
    world.set("USER", "ada");
    world.write("bin/bash", "");
    world.write("bin/python3", "");
    for name in ["bin/bash", "bin/python3"] {
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o755)).ok();
    }
    world.set("PATH", world.path("bin").to_string_lossy());
    world
}

#[test]
fn a_fresh_machine_is_told_what_to_do_and_is_well_afterwards() {
    let world = world();
    assert_transcript!(world.transcript(&["doctor", "init --quiet", "doctor", "doctor --json"]));
}

#[test]
fn what_is_wrong_is_told_with_its_fix() {
    let mut world = world();
    world.run(&["init"]);
    let tool = world.read("project/.ai/tools/hello.py");
    world.write("project/.ai/tools/hello.py", &(tool + "# more\n"));
    world.write("project/.ai/config/rye.yaml", "color: never\n");
    fs::remove_dir_all(world.path("user/.cache")).unwrap();
    world.write("user/.cache", "a file, where a folder should be");
    world.set("RYE_DEV_MODE", "1");
    assert_transcript!(world.transcript(&["doctor", "doctor --quiet --json"]));
}

#[test]
fn an_open_key_and_work_in_progress() {
    let world = world();
    world.run(&["init"]);
    world.write("project/.ai/tools/new.sh", "echo\n");
    let first = world.transcript(&["doctor"]);
    let key = world.path("user/.ai/config/keys/signing/private_key.pem");
    fs::set_permissions(key, fs::Permissions::from_mode(0o644)).ok();
    assert_transcript!(first + &world.transcript(&["doctor"]));
}

#[test]
fn without_a_home_it_still_answers() {
    let mut world = world();
    world.unset("HOME");
    let document = json(&world.run(&["doctor", "--json"]));
    assert_eq!(document["checks"][0]["state"], "fail");
    assert_eq!(document["checks"][0]["check"], "user space");
}
