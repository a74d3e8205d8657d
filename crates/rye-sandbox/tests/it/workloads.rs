//! Programs that must work in the confined sandbox.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs};

const TIERS: [&str; 2] = ["full", "landlock"];

/// Runs a script in a tier, with the toolchains of this machine.
fn run(tier: &str, workspace: &Path, script: &str) -> Output {
    run_with_path(tier, workspace, script, env::var_os("PATH"))
}

fn run_with_path(tier: &str, workspace: &Path, script: &str, path: Option<OsString>) -> Output {
    let home = env::var("HOME").unwrap_or_default();
    Command::new(env!("CARGO_BIN_EXE_rye-sandbox-launcher"))
        .args(["run", tier])
        .arg(workspace)
        .args(["bash", "-c", script])
        .env("HOME", home)
        .env("PATH", path.unwrap_or_default())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn has(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).exists())
}

/// Checks that a script works in both tiers.
fn check(program: &str, files: &[(&str, &str)], script: &str, expected: &str) {
    for tier in TIERS {
        check_in(tier, program, files, script, expected);
    }
}

fn check_in(tier: &str, program: &str, files: &[(&str, &str)], script: &str, expected: &str) {
    if !has(program) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path: PathBuf = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let output = run(tier, dir.path(), script);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{tier}: {output:?}");
    assert!(stdout.contains(expected), "{tier}: {output:?}");
}

#[test]
fn cargo_builds_a_crate() {
    let manifest =
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    let files = [
        ("Cargo.toml", manifest),
        ("src/main.rs", "fn main() { println!(\"built\") }"),
    ];
    check("cargo", &files, "cargo run --offline", "built");
}

#[test]
fn git_commits_in_a_scratch_clone() {
    let script = "cd $TMPDIR && git init -q origin && cd origin \
        && git -c user.name=a -c user.email=b commit -q --allow-empty -m first \
        && git clone -q . ../clone && cd ../clone && echo x > f && git add f \
        && git -c user.name=a -c user.email=b commit -q -m second && git log --format=%s";
    check("git", &[], script, "second\nfirst");
}

#[test]
fn npm_installs_a_local_package() {
    let files = [
        (
            "library/package.json",
            r#"{"name": "library", "version": "1.0.0"}"#,
        ),
        ("library/index.js", "module.exports = 6 * 7"),
        (
            "app/package.json",
            r#"{"name": "app", "version": "1.0.0", "private": true}"#,
        ),
    ];
    let script = "cd app && export npm_config_cache=$TMPDIR/npm \
        && npm install --offline --no-audit --no-fund --loglevel=error ../library \
        && node -p 'require(\"library\")'";
    check("npm", &files, script, "42");
}

#[test]
fn python_creates_an_environment() {
    let script = "python3 -m venv --without-pip env && env/bin/python -c 'print(6 * 7)'";
    check("python3", &[], script, "42");
}

#[test]
fn program_in_a_directory_that_cannot_be_read_is_not_found() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = other.path().join("uname");
    fs::write(&program, "#!/bin/sh\necho other\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = [other.path(), Path::new("/usr/bin"), Path::new("/bin")];
    for tier in TIERS {
        let path = env::join_paths(path).unwrap();
        let output = run_with_path(tier, dir.path(), "uname", Some(path));
        assert_eq!(output.stdout, b"Linux\n", "{tier}: {output:?}");
    }
}

#[test]
fn make_runs_jobs_in_parallel() {
    let makefile = "all: a b c d\n%:\n\t@echo job $@\n";
    check("make", &[("Makefile", makefile)], "make -j4 all", "job d");
}

#[test]
fn program_gets_a_terminal() {
    let script = "script -qec 'test -t 1 && tty' /dev/null";
    check("script", &[], script, "/dev/pts/");
}

#[test]
fn temporary_files_and_sockets_work() {
    let script = "echo x > /tmp/a && cat /tmp/a && echo $TMPDIR && python3 -c '
import socket
a, b = socket.socketpair()
s = socket.socket(socket.AF_UNIX); s.bind(\"/tmp/s\"); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect(\"/tmp/s\"); print(\"connected\")'";
    // There are no sockets in the tier `landlock`.
    check_in("full", "python3", &[], script, "connected");
}
