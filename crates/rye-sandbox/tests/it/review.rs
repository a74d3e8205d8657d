//! Review mode: what the change set of a session contains, and that a decision takes effect once
//! and as a whole, also if the process is killed at any step of it.

mod widened;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::escape;
use crate::escape::fixture::users;

/// More steps than a decision has.
const MAX_STEPS: u32 = 200;

/// A workspace, and the state of a session in review mode.
struct Fixture(TempDir);

impl Fixture {
    fn new() -> Self {
        let fixture = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(fixture.path("ws/sub/deep")).unwrap();
        for (file, text) in [
            ("kept.txt", "one\n"),
            ("old.txt", "old\n"),
            ("sub/a", "a\n"),
            ("sub/deep/b", "b\n"),
        ] {
            fs::write(fixture.path("ws").join(file), text).unwrap();
        }
        fixture
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rye-sandbox-launcher"));
        command.arg("review");
        command.args([self.path("state"), self.path("ws")]);
        command.args(arguments);
        command
    }

    /// Runs a command on the overlay.
    fn run(&self, command: &str) {
        let output = self.command(&["run", command]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn changes(&self) -> (Vec<Value>, Value) {
        let output = self.command(&["changes"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let changes: Value = serde_json::from_slice(&output.stdout).unwrap();
        let list = changes["set"]["changes"].as_array().unwrap().clone();
        (list, changes)
    }

    fn decide(&self, decision: &str, variable: &str, step: u32) -> Output {
        let mut command = self.command(&[decision]);
        command.env(variable, step.to_string()).output().unwrap()
    }

    /// The files of the workspace, with their modes and contents.
    fn tree(&self) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut tree = BTreeMap::new();
        read_tree(&self.path("ws"), "", &mut tree);
        tree
    }
}

fn read_tree(dir: &Path, prefix: &str, tree: &mut BTreeMap<String, (u32, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let metadata = entry.metadata().unwrap();
        let content = if metadata.is_dir() {
            read_tree(&entry.path(), &format!("{name}/"), tree);
            Vec::new()
        } else if metadata.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            target.as_os_str().as_bytes().to_vec()
        } else {
            fs::read(entry.path()).unwrap()
        };
        tree.insert(name, (metadata.mode(), content));
    }
}

/// Adds, changes, removes and replaces files, directories and links.
const CHANGE: &str = "set -e; echo two >> kept.txt; rm old.txt; mkdir -p new/dir; \
    echo x > new/dir/x; chmod 700 new/dir; ln -s kept.txt link; rm -r sub; echo file > sub; \
    chmod 755 kept.txt";

fn paths(changes: &[Value]) -> Vec<&str> {
    changes
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect()
}

#[test]
fn change_set_is_exact_and_the_workspace_untouched() {
    let fixture = Fixture::new();
    let before = fixture.tree();
    fixture.run(CHANGE);
    let (changes, all) = fixture.changes();
    assert_eq!(
        paths(&changes),
        [
            "kept.txt",
            "link",
            "new/dir/x",
            "old.txt",
            "sub",
            "sub/a",
            "sub/deep",
            "sub/deep/b"
        ]
    );
    assert_eq!(
        (&changes[0]["old"]["mode"], &changes[0]["new"]["mode"]),
        (&json!(0o644), &json!(0o755))
    );
    assert_eq!(changes[1]["new"]["target"], "kept.txt");
    assert_eq!(changes[4]["old"]["kind"], "directory");
    assert_eq!(changes[4]["new"]["kind"], "file");
    assert!(changes[5]["new"].is_null());
    assert!(changes.iter().all(|it| it["conflict"].is_null()), "{all}");
    let diff = all["diff"].as_str().unwrap();
    assert!(
        diff.contains("--- a/kept.txt\n+++ b/kept.txt\n") && diff.contains("\n+two\n"),
        "{diff}"
    );
    assert_eq!(fixture.tree(), before);
}

#[test]
fn files_without_a_difference_are_no_changes() {
    let fixture = Fixture::new();
    fixture.run("touch kept.txt; cp old.txt t; mv t old.txt; mkdir d; rmdir d; echo x > y; rm y");
    assert_eq!(fixture.changes().0, [] as [Value; 0]);
}

#[test]
fn hostile_files_are_escaped_or_left_out() {
    let fixture = Fixture::new();
    fixture.run(
        "set -e; printf x > \"$(printf 'a\\nb')\"; printf x > \"$(printf 'c\\377')\"; mkfifo pipe; \
         cp /bin/true tool; chmod 4755 tool; ln -s /etc/passwd out; mkdir -m 000 closed; \
         printf secret > dark; chmod 000 dark; \
         python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"",
    );
    let (changes, all) = fixture.changes();
    assert_eq!(
        paths(&changes),
        ["a\\nb", "c\\xff", "closed", "dark", "out", "tool"]
    );
    assert_eq!(changes[5]["new"]["mode"], 0o755);
    let omitted = all["set"]["omitted"].as_array().unwrap();
    assert_eq!(
        *omitted,
        ["pipe pipe", "setuid and setgid bits of tool", "socket sock"].map(Value::from)
    );
    let output = fixture.command(&["approve"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        fixture
            .path("ws")
            .join(OsStr::from_bytes(b"c\xff"))
            .exists()
    );
    assert!(fixture.path("ws/a\nb").exists());
    let mode = |name: &str| {
        fs::symlink_metadata(fixture.path("ws").join(name))
            .unwrap()
            .mode()
    };
    assert_eq!(mode("tool") & 0o7777, 0o755);
    assert_eq!(mode("closed") & 0o777, 0);
    assert_eq!(mode("dark") & 0o777, 0);
    assert!(!fixture.path("ws/pipe").exists() && !fixture.path("ws/sock").exists());
}

#[test]
fn directory_that_its_owner_cannot_write_is_applied_with_its_files() {
    for user in users() {
        let fixture = escape::fixture::Fixture::new(user);
        let script = "mkdir -p new/sub && echo x > new/sub/file && chmod 500 new/sub new";
        let output = fixture.run_in_review(script);
        assert!(output.status.success(), "{output:?}");
        let output = fixture.approve_review();
        assert!(output.status.success(), "{output:?}");
        let mode = |name: &str| fs::metadata(fixture.path(name)).unwrap().mode() & 0o777;
        assert_eq!((mode("ws/new"), mode("ws/new/sub")), (0o500, 0o500));
        let content = fs::read_to_string(fixture.path("ws/new/sub/file"));
        assert_eq!(content.unwrap(), "x\n");
    }
}

#[test]
fn file_that_changed_in_the_workspace_too_is_a_conflict() {
    let fixture = Fixture::new();
    fixture.run("echo agent > kept.txt; rm old.txt; echo agent > added; echo agent > sub/a");
    for name in ["kept.txt", "old.txt", "added"] {
        fs::write(fixture.path("ws").join(name), "user\n").unwrap();
    }
    let (changes, _) = fixture.changes();
    assert_eq!(paths(&changes), ["added", "kept.txt", "old.txt", "sub/a"]);
    let conflicts: Vec<_> = changes.iter().map(|it| it["conflict"] == true).collect();
    assert_eq!(conflicts, [true, true, true, false]);
}

/// What the workspace is after a decision.
fn expected(decision: &str) -> BTreeMap<String, (u32, Vec<u8>)> {
    let fixture = Fixture::new();
    fixture.run(CHANGE);
    let output = fixture.command(&[decision]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fixture.changes().0, [] as [Value; 0]);
    fixture.tree()
}

#[test]
fn approval_applies_everything_and_denial_nothing() {
    let applied = expected("approve");
    let content = |name: &str| String::from_utf8_lossy(&applied[name].1).into_owned();
    assert_eq!(content("kept.txt"), "one\ntwo\n");
    assert_eq!(applied["kept.txt"].0 & 0o777, 0o755);
    assert_eq!(applied["new/dir"].0 & 0o777, 0o700);
    assert_eq!(content("sub"), "file\n");
    assert_eq!(content("link"), "kept.txt");
    assert_eq!(applied.len(), 6, "{:?}", applied.keys());
    assert_eq!(expected("deny"), Fixture::new().tree());
}

#[test]
fn decision_takes_effect_once_and_as_a_whole_if_killed_at_any_step() {
    for decision in ["approve", "deny"] {
        let expected = expected(decision);
        let mut killed = 0;
        for step in 0..MAX_STEPS {
            let fixture = Fixture::new();
            fixture.run(CHANGE);
            let first = fixture.decide(decision, "RYE_TEST_KILL_AT", step);
            if first.status.success() {
                break;
            }
            assert_eq!(first.status.signal(), Some(9), "step {step}: {first:?}");
            killed += 1;
            let second = fixture.command(&[decision]).output().unwrap();
            assert!(
                second.status.success(),
                "{decision}, step {step}: {second:?}"
            );
            assert_eq!(fixture.tree(), expected, "{decision}, step {step}");
            assert_eq!(fixture.changes().0, [] as [Value; 0], "step {step}");
            // It is not repeated.
            fixture.run("echo later > later");
            let third = fixture.command(&[decision]).output().unwrap();
            assert!(third.status.success(), "{third:?}");
            assert_eq!(paths(&fixture.changes().0), ["later"]);
        }
        assert!((5..MAX_STEPS).contains(&killed), "{decision}: {killed}");
    }
}

#[test]
fn file_that_is_written_while_changes_are_applied_is_never_lost() {
    let original = Fixture::new().tree();
    let applied = expected("approve");
    let mut undone = 0;
    for step in 0..MAX_STEPS {
        let fixture = Fixture::new();
        fixture.run(CHANGE);
        let output = fixture.decide("approve", "RYE_TEST_WRITE_AT", step);
        let is_undone = output.status.code() == Some(3);
        assert!(
            is_undone || output.status.success(),
            "step {step}: {output:?}"
        );
        undone += u32::from(is_undone);
        let mut tree = fixture.tree();
        let mine = tree.remove("kept.txt").unwrap();
        let mut rest = if is_undone {
            original.clone()
        } else {
            applied.clone()
        };
        let other = rest.remove("kept.txt").unwrap();
        assert_eq!(tree, rest, "step {step}");
        if mine == other {
            // There was no such step.
            break;
        }
        assert_eq!(mine.1, b"mine\n", "step {step}");
    }
    assert!(undone > 0);
}

#[test]
fn state_in_the_workspace_is_refused() {
    let fixture = Fixture::new();
    fs::set_permissions(fixture.path("ws"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rye-sandbox-launcher"));
    command.args([OsStr::new("review"), fixture.path("ws/state").as_os_str()]);
    let output = command
        .arg(fixture.path("ws"))
        .arg("changes")
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
}
