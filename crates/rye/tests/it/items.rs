//! `rye init`, `sign`, `verify`, `load`, `system export`: what they print and what they refuse.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{World, assert_transcript, json};

const TOOL: &str = "__version__ = \"1.0.0\"\n\
    __executor_id__ = \"rye/core/runtimes/python/script\"\n\
    __tool_description__ = \"Counts words\"\n\
    print(1)\n";

/// A world in which `rye init` was run.
fn ready() -> World {
    let mut world = World::new();
    world.set("USER", "ada");
    assert!(world.run(&["init"]).status.success());
    world
}

#[test]
fn init_makes_what_is_missing_and_keeps_what_is_there() {
    let mut world = World::bare();
    world.set("USER", "ada");
    let mut transcript = world.transcript(&["init", "init", "init --json", "verify hello"]);
    world.write("project/.ai/tools/hello.py", "mine");
    transcript += &world.transcript(&["init", "init --project ../another --quiet"]);
    assert_eq!(world.read("project/.ai/tools/hello.py"), "mine");
    assert!(world.path("another/.ai/tools/hello.py").exists());
    assert_transcript!(transcript);
}

#[test]
fn many_at_once_make_one_of_each() {
    let world = World::bare();
    let calls: Vec<_> = (0..6)
        .filter_map(|_| world.command().arg("init").spawn().ok())
        .collect();
    for call in calls {
        let output = call.wait_with_output();
        assert!(
            output.as_ref().is_ok_and(|o| o.status.success()),
            "{output:?}"
        );
    }
    let output = world.run(&["verify", "hello"]);
    assert!(output.status.success(), "{output:?}");
    let trusted = fs::read_dir(world.path("user/.ai/config/keys/trusted"));
    assert_eq!(trusted.map(Iterator::count).ok(), Some(1));
}

#[test]
fn init_in_the_home_folder_makes_one_space() {
    let world = World::bare();
    let output = world
        .command()
        .arg("init")
        .current_dir(world.path("user"))
        .output();
    assert!(output.is_ok_and(|output| output.status.success()));
    let output = world.command().args(["load", "hello", "--json"]).output();
    let document = output.map(|output| json(&output));
    assert_eq!(
        document.map(|d| d["space"].clone()).ok(),
        Some("user".into())
    );
}

#[test]
fn init_does_not_write_through_a_link_that_leaves_the_project() {
    let world = World::new();
    let outside = world.path("outside");
    fs::create_dir(&outside).ok();
    symlink(&outside, world.path("project/.ai/tools")).ok();
    let output = world.run(&["init"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(fs::read_dir(outside).map(Iterator::count).ok(), Some(0));
}

#[test]
fn what_verifies_and_what_does_not() {
    let world = ready();
    world.write("project/.ai/tools/text/count.py", TOOL);
    let mut transcript = world.transcript(&[
        "verify text/count",
        "sign text/count",
        "sign text/count",
        "verify text/count --json",
    ]);
    let signed = world.read("project/.ai/tools/text/count.py");
    world.write(
        "project/.ai/tools/text/count.py",
        &signed.replace("print(1)", "print(2)"),
    );
    transcript += &world.transcript(&["verify text/count", "verify text/count --json"]);
    let (_, unsigned) = signed.split_once('\n').unwrap_or_default();
    let malformed = format!("# rye:signed:yesterday\n{unsigned}");
    world.write("project/.ai/tools/text/count.py", &malformed);
    transcript += &world.transcript(&["verify text/count hello", "verify text/count --json"]);
    transcript += &world.transcript(&["verify cuont", "verify ../x", "verify --all text/count"]);
    assert_transcript!(transcript);
}

#[test]
fn a_key_that_nobody_trusts_is_told_with_those_that_are() {
    let (world, stranger) = (ready(), ready());
    stranger.write("project/.ai/tools/gift.py", TOOL);
    stranger.run(&["sign", "gift"]);
    world.write(
        "project/.ai/tools/gift.py",
        &stranger.read("project/.ai/tools/gift.py"),
    );
    assert_transcript!(world.transcript(&["verify gift", "load gift", "load gift --json"]));
}

#[test]
fn items_are_signed_by_glob_by_path_and_all_at_once() {
    let world = ready();
    for name in ["a", "deep/b", "deep/er/c"] {
        world.write(&format!("project/.ai/tools/{name}.py"), TOOL);
    }
    world.write(
        "project/.ai/knowledge/style.md",
        "# Style\n\nPlain words.\n",
    );
    world.write("project/.ai/tools/broken.py", "__version__ = compute()\n");
    world.write("elsewhere.py", TOOL);
    assert_transcript!(world.transcript(&[
        "sign a",
        "sign deep/*",
        "sign none/*",
        "sign .ai/tools/deep/er/c.py",
        "sign ../elsewhere.py",
        "verify ../elsewhere.py",
        "sign broken",
        "sign broken --json",
        "sign --all",
        "verify --all --space project",
        "verify knowledge:* .ai/tools/deep",
        "sign --all --space user",
        "sign rye/core/runtimes/bash/bash",
        "sign",
    ]));
}

#[test]
fn signing_everything_trusts_nobody() {
    let (world, stranger) = (ready(), ready());
    let keys = json(&stranger.run(&["keys", "list", "--json"]));
    let own = keys["keys"]
        .as_array()
        .and_then(|keys| keys.iter().find(|key| key["own"] == true));
    let own = own
        .and_then(|key| key["fingerprint"].as_str())
        .unwrap_or_default();
    let file = format!(".ai/config/keys/trusted/{own}.toml");
    let text = stranger.read(&format!("user/{file}"));
    world.write(&format!("project/{file}"), &text);
    stranger.write("project/.ai/tools/gift.py", TOOL);
    stranger.run(&["sign", "gift"]);
    let gift = stranger.read("project/.ai/tools/gift.py");
    world.write("project/.ai/tools/gift.py", &gift);

    for call in [
        &["sign", "hello"][..],
        &["sign", "config:**"],
        &["sign", ".ai/config"],
    ] {
        world.run(call);
        assert_eq!(world.read(&format!("project/{file}")), text, "{call:?}");
    }
    let transcript = world.transcript(&["verify gift", &format!("sign {file}")]);
    assert_eq!(world.read(&format!("project/{file}")), text);
    world.run(&["sign", "--all"]);
    assert_eq!(world.read(&format!("project/{file}")), text);
    assert_transcript!(transcript);
}

#[test]
fn without_a_key_nothing_is_signed_and_none_is_made() {
    let world = World::new();
    world.write("project/.ai/tools/a.py", TOOL);
    assert_transcript!(world.transcript(&["sign a", "sign a --json"]));
    assert_eq!(world.read("project/.ai/tools/a.py"), TOOL);
    assert!(!world.path("user/.ai").exists());
}

#[test]
fn a_link_named_rye_sign_is_that_command() {
    let world = ready();
    world.write("project/.ai/tools/a.py", TOOL);
    let link = world.path("rye_sign");
    symlink(env!("CARGO_BIN_EXE_rye"), &link).ok();
    let home = world.path("user");
    let output = std::process::Command::new(&link)
        .arg("a")
        .env_clear()
        .env("HOME", home)
        .current_dir(world.path("project"))
        .output();
    assert!(output.is_ok_and(|output| output.status.success()));
    assert!(world.run(&["verify", "a"]).status.success());
    let help = std::process::Command::new(&link).arg("--help").output();
    let help = help.map(|help| String::from_utf8_lossy(&help.stdout).into_owned());
    let usage = help.unwrap_or_default();
    assert!(usage.contains("Usage: rye sign [OPTIONS]"), "{usage}");
}

#[test]
fn a_signature_may_say_whose_it_is_elsewhere() {
    let world = ready();
    let transcript = world.transcript(&[
        "sign hello --provenance github@ada",
        "sign hello",
        "sign hello --provenance gitlab@ada",
        "sign hello --provenance nobody",
        "load hello",
    ]);
    let line = world.read("project/.ai/tools/hello.py");
    let line = line.lines().next().unwrap_or_default();
    assert!(line.ends_with("|gitlab@ada"), "{line}");
    let (shown, _) = transcript.split_once("\"\"\"").unwrap_or_default();
    assert_transcript!(shown);
}

#[test]
fn what_is_not_as_it_was_signed_weighs_more_than_what_cannot_be_read() {
    let world = ready();
    world.write("project/.ai/tools/unsigned.py", TOOL);
    let output = world.run(&["verify", "unsigned", "../x", "nothing"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn an_item_is_shown_with_who_vouches_for_it() {
    let world = ready();
    world.write("user/.ai/tools/hello.py", TOOL);
    let mut transcript = world.transcript(&["load hello", "load hello --json"]);
    transcript += &world.transcript(&[
        "load hullo",
        "load tool:hello --content",
        "load rye/core/runtimes/bash/bash --to project",
        "load rye/core/runtimes/bash/bash --to project",
        "verify rye/core/runtimes/bash/bash",
        "load nothing:x",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn development_mode_is_a_warning_and_never_for_the_system() {
    let mut world = ready();
    world.write("project/.ai/tools/a.py", TOOL);
    world.run(&["system", "export", "../system"]);
    let bash = "system/.ai/tools/rye/core/runtimes/bash/bash.yaml";
    let text = world.read(bash);
    world.write(bash, &(text + "# more\n"));
    world.set("RYE_DEV_MODE", "1");
    world.set("RYE_SYSTEM_SPACE", "../system");
    assert_transcript!(world.transcript(&[
        "load a",
        "verify a",
        "load rye/core/runtimes/bash/bash"
    ]));
}

#[test]
fn the_system_space_is_written_out_and_used_in_place_of_the_one_inside() {
    let mut world = ready();
    let first = world.transcript(&["system export ../system", "system export ../system --json"]);
    world.set("RYE_SYSTEM_SPACE", "../system");
    let document = json(&world.run(&["load", "rye/core/runtimes/bash/bash", "--json"]));
    let path = document["path"].as_str().unwrap_or_default().to_owned();
    assert!(path.contains("/system/.ai/tools/"), "{path}");
    assert!(world.run(&["verify", "--all"]).status.success());
    assert_transcript!(first);
}

#[test]
fn what_is_wrong_with_one_space_is_not_told_of_another() {
    let world = ready();
    symlink("/etc", world.path("project/.ai/tools/out")).unwrap();
    let output = world.run(&["verify", "--all", "--space", "system"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = world.run(&["verify", "--all", "--space", "project"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn what_a_tool_can_load_is_signed_with_it() {
    let world = ready();
    let tool = "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/function\"\n\
        import helper\n\ndef execute(params, project_path):\n    return helper.WORD\n";
    world.write("project/.ai/tools/pack/it.py", tool);
    world.write("project/.ai/tools/pack/__init__.py", "");
    world.write("project/.ai/tools/pack/helper.py", "WORD = 1\n");
    let mut transcript = world.transcript(&[
        "sign pack/it",
        "sign pack/it",
        "verify pack/it",
        "execute pack/it",
    ]);
    world.write("project/.ai/tools/pack/helper.py", "WORD = 2\n");
    world.write("project/.ai/tools/pack/helper", "planted");
    std::fs::remove_file(world.path("project/.ai/tools/pack/__init__.py")).unwrap();
    transcript += &world.transcript(&["verify pack/it", "execute pack/it", "sign pack/it"]);
    assert_transcript!(transcript);
}

#[test]
fn a_directory_is_signed_as_it_is() {
    let world = ready();
    world.write("project/env/bin/python", "");
    world.write(
        "project/.ai/tools/nm/it.sh",
        "# executor_id: rye/core/runtimes/bash/bash\n",
    );
    let mut transcript = world.transcript(&[
        "sign --manifest env",
        "sign --manifest env --json",
        "sign --manifest .ai/tools/nm",
        "sign --manifest .",
        "sign --manifest nowhere",
        "sign --manifest /etc",
    ]);
    std::os::unix::fs::symlink("../..", world.path("project/env/bin/out")).unwrap();
    transcript += &world.transcript(&["sign --manifest env"]);
    assert_transcript!(transcript);
}
