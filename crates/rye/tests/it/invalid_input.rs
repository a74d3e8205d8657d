//! Invalid input: error messages, locations and hints.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::{TestEnv, assert_transcript, transcript_entry};

const TOOL: &str = "__version__ = \"1.0.0\"\nprint(1)\n";

/// A `TestEnv` after `rye init`, with another signed tool, `a`.
fn env_with_signed_tool() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    env.write("project/.ai/tools/a.py", TOOL);
    assert!(env.run(&["sign", "a"]).status.success());
    env
}

/// Writes files to the project's tools and returns the transcript of signing each.
fn sign_each(files: &[(&str, &[u8])]) -> String {
    let env = env_with_signed_tool();
    let mut transcript = String::new();
    for (name, bytes) in files {
        let path = env.path("project/.ai/tools").join(name);
        fs::write(&path, bytes).unwrap();
        transcript += &env.transcript(&[&format!("sign .ai/tools/{name}")]);
        fs::remove_file(path).unwrap();
    }
    transcript
}

#[test]
fn invalid_signatures() {
    let env = env_with_signed_tool();
    let good = env.read("project/.ai/tools/a.py");
    let (line, rest) = good.split_once('\n').unwrap();
    let mut parts: Vec<_> = line.split(':').map(str::to_owned).collect();
    let signature = parts.len() - 2;
    let other = if parts[signature].starts_with('A') {
        "B"
    } else {
        "A"
    };
    parts[signature].replace_range(..1, other);
    let forged = parts.join(":");

    let mut transcript = String::new();
    for (what, text) in [
        ("unsigned", TOOL.to_owned()),
        (
            "unsigned, with #!",
            format!("#!/usr/bin/env python3\n{TOOL}"),
        ),
        ("changed", good.replace("print(1)", "print(2)")),
        ("bad signature", format!("{forged}\n{rest}")),
        ("malformed", format!("# rye:signed:yesterday\n{rest}")),
        ("two lines", format!("{line}\n{good}")),
        (
            "wrong comment",
            format!("//{}\n{rest}", line.trim_start_matches('#')),
        ),
        ("misplaced", format!("import os\n{good}")),
    ] {
        env.write("project/.ai/tools/a.py", &text);
        let _ = writeln!(transcript, "# {what}");
        transcript += &env.transcript(&["verify a"]);
        // The hinted command fixes it.
        assert!(env.run(&["sign", "a"]).status.success(), "{what}");
        assert!(env.run(&["verify", "a"]).status.success(), "{what}");
    }
    assert_transcript!(transcript);
}

#[test]
fn syntax_errors() {
    assert_transcript!(sign_each(&[
        ("paren.py", b"def f(:\n    pass\n"),
        ("string.py", b"__version__ = \"1.0.0\n"),
        ("string.js", b"export const version = \"1.0;\n"),
        ("bracket.ts", b"export const CONFIG_SCHEMA = {a: [1, 2};\n"),
        ("bracket.yaml", b"version: \"1\"\n  tags: [a, b\nrest: }\n"),
        ("latin1.py", b"__version__ = \"1\xff\"\n"),
        ("latin1.yaml", b"version: \"1\xff\"\n"),
    ]));
}

#[test]
fn computed_and_duplicate_values() {
    assert_transcript!(sign_each(&[
        (
            "computed.py",
            b"import os\n__version__ = os.environ[\"V\"]\n"
        ),
        ("computed.js", b"export const __version__ = 1 + 1;\n"),
        ("computed.ts", b"export const __version__ = `v${n}`;\n"),
        ("twice.py", b"__version__ = \"1\"\n__version__ = \"2\"\n"),
        ("key.py", b"CONFIG_SCHEMA = {\"a\": 1, \"a\": 2}\n"),
        ("key.js", b"export const CONFIG_SCHEMA = {a: 1, a: 2};\n"),
        ("key.yaml", b"version: \"1\"\nversion: \"2\"\n"),
        ("number.sh", b"#!/bin/sh\n# version: 1\n"),
    ]));
}

#[test]
fn files_that_exhaust_a_parser() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (before, name) in "abcdefgh".chars().zip("bcdefghi".chars()) {
        let many = vec![format!("*{before}"); 9].join(", ");
        let _ = writeln!(bomb, "{name}: &{name} [{many}]");
    }
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let large = vec![b'#'; 50 << 20];
    assert_transcript!(sign_each(
        &[
            ("bomb.yaml", bomb.as_bytes()),
            ("deep.yaml", format!("config: {deep}\n").as_bytes()),
            ("deep.py", format!("CONFIG = {deep}\n").as_bytes()),
            (
                "deep.js",
                format!("export const CONFIG = {deep};\n").as_bytes()
            ),
            ("large.py", &large),
        ]
        .map(|(name, bytes): (_, &[u8])| (name, bytes))
    ));
}

#[test]
fn invalid_ids() {
    let env = env_with_signed_tool();
    assert_transcript!(env.transcript(&[
        "load ../../etc/passwd",
        "load text/../../x",
        "load /etc/passwd",
        "load tool:/etc/passwd",
        "verify text//x",
        "sign te*xt:x",
        "load a\\b",
        "load ../x --json",
        "verify a.py",
        "verify none",
    ]));
}

#[test]
fn links_out_of_the_space_and_loops() {
    let env = env_with_signed_tool();
    let tools = env.path("project/.ai/tools");
    env.write("outside.py", TOOL);
    symlink("../../../outside.py", tools.join("out.py")).unwrap();
    symlink(env.path("user"), tools.join("folder")).unwrap();
    symlink("loop.py", tools.join("loop.py")).unwrap();
    symlink("gone.py", tools.join("nowhere.py")).unwrap();
    symlink("a.py", tools.join("inside.py")).unwrap();
    fs::create_dir(tools.join("folder.py")).unwrap();
    assert_transcript!(env.transcript(&[
        "load out",
        "load out --json",
        "verify folder/x",
        "load loop",
        "load inside --content",
        // Only the named file is checked.
        "verify .ai/tools/out.py",
        "verify .ai/tools/loop.py",
        "verify .ai/tools/nowhere.py",
        "verify .ai/tools/a.py",
        "verify --all --space project",
    ]));
}

#[test]
fn spaces_that_are_not_directories() {
    let env = TestEnv::bare();
    env.write("project/.ai", "a file");
    let mut transcript = env.transcript(&["verify --all", "init"]);
    fs::remove_file(env.path("project/.ai")).unwrap();
    symlink("nowhere", env.path("project/.ai")).unwrap();
    transcript += &env.transcript(&["search x"]);
    fs::remove_file(env.path("project/.ai")).unwrap();
    env.write("project/.ai/tools", "a file");
    transcript += &env.transcript(&["verify --all --space project", "init"]);
    assert_transcript!(transcript);
}

#[test]
fn unusable_keys() {
    let env = env_with_signed_tool();
    let key = env.path("user/.ai/config/keys/signing/private_key.pem");
    let text = fs::read(&key).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let mut transcript = env.transcript(&["sign a", "sign a --json"]);
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, "no key").unwrap();
    transcript += &env.transcript(&["sign a"]);
    fs::remove_file(&key).unwrap();
    transcript += &env.transcript(&["sign a", "keys generate", "init"]);
    fs::write(&key, text).unwrap();
    assert_transcript!(transcript);
}

#[test]
fn unreadable_file() {
    let env = env_with_signed_tool();
    let path = env.path("project/.ai/tools/a.py");
    fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
    if File::open(&path).is_ok() {
        // Root can read every file.
        return;
    }
    assert_transcript!(env.transcript(&["load a", "verify a --json", "search a --space project"]));
}

#[test]
fn file_changing_while_it_is_read() {
    let env = env_with_signed_tool();
    let path = env.path("project/.ai/tools/a.py");
    let mut good = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut good).unwrap();
    good.resize(4 << 20, b'\n');
    fs::write(&path, &good).unwrap();
    let done = AtomicBool::new(false);
    let file = File::options().write(true).open(&path).unwrap();
    let size = good.len() as u64;
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                file.set_len(size + 1).unwrap();
                file.set_len(size).unwrap();
            }
        });
        // Some reads succeed.
        let mut outputs = std::iter::repeat_with(|| env.run(&["load", "a"]));
        let output = outputs.find(|output| output.status.code() == Some(1));
        done.store(true, Ordering::Relaxed);
        output.unwrap()
    });
    assert_transcript!(transcript_entry("rye load a", &output));
}
