//! Processes that outlive their caller, and the handles by which they are found again.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs;
use std::process::{Command as StdCommand, Stdio};
use std::time::Duration;

use lillux::process::{Command, Handle, Killed, spawn};
use support::{MARK, assert_all_end, lillux, mark, marked};

fn shell(script: &str, mark: &str) -> Handle {
    spawn(
        Command::new("sh").args(["-c", script]).env(MARK, mark),
        None,
    )
    .unwrap()
}

/// Waits until as many marked processes are there as the script is to have.
fn wait_for(count: usize, mark: &str) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while marked(mark).len() != count {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn a_spawned_process_outlives_the_one_that_spawned_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let output = StdCommand::new(lillux())
        .args(["spawn", "--cmd", "sh", "--arg", "-c", "--arg"])
        .arg("echo started in $(pwd); echo and this >&2; exec sleep 300")
        .args(["--cwd", "/", "--log"])
        .arg(&log)
        .stdin(Stdio::piped())
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["success"], true);
    let handle: Handle = report["handle"].as_str().unwrap().parse().unwrap();
    assert_eq!(report["pid"], handle.pid());
    assert!(handle.is_alive().unwrap());

    let stat = fs::read_to_string(format!("/proc/{}/stat", handle.pid())).unwrap();
    let fields: Vec<_> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let pid = handle.pid().to_string();
    assert_eq!(
        (fields[2], fields[3]),
        (&*pid, &*pid),
        "leads its group and session"
    );
    assert_eq!(fields[4], "0", "has no terminal");

    assert_eq!(
        handle.kill(Duration::from_secs(20)).unwrap(),
        Killed::Terminated
    );
    assert_eq!(fs::read_to_string(log).unwrap(), "started in /\nand this\n");
}

#[test]
fn a_log_is_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for word in ["one", "two"] {
        let handle = spawn(Command::new("echo").arg(word), Some(&log)).unwrap();
        assert!(handle.wait(Some(Duration::from_secs(20))).unwrap());
    }
    assert_eq!(fs::read_to_string(log).unwrap(), "one\ntwo\n");
}

#[test]
fn killing_ends_the_group_the_session_and_those_that_left_both() {
    let mark = mark();
    let handle = shell("sleep 300 & setsid sleep 300 & sleep 300", &mark);
    wait_for(4, &mark);
    assert_eq!(
        handle.kill(Duration::from_secs(20)).unwrap(),
        Killed::Terminated
    );
    assert_eq!(marked(&mark), []);
    assert_eq!(
        handle.kill(Duration::from_secs(20)).unwrap(),
        Killed::AlreadyDead
    );
}

#[test]
fn one_that_ignores_term_is_killed_after_the_grace() {
    let mark = mark();
    let handle = shell("trap '' TERM; while :; do sleep 300; done", &mark);
    wait_for(2, &mark);
    assert_eq!(
        handle.kill(Duration::from_millis(300)).unwrap(),
        Killed::Killed
    );
    assert_eq!(marked(&mark), []);
}

#[test]
fn without_a_grace_it_is_killed_at_once() {
    let mark = mark();
    let handle = shell("trap 'exit 0' TERM; while :; do sleep 300; done", &mark);
    assert_eq!(handle.kill(Duration::ZERO).unwrap(), Killed::Killed);
    assert_eq!(marked(&mark), []);
}

#[test]
fn what_a_dead_leader_left_in_its_session_is_ended_too() {
    let mark = mark();
    let handle = shell("sleep 300 & exit 0", &mark);
    assert!(handle.wait(Some(Duration::from_secs(20))).unwrap());
    assert!(!handle.is_alive().unwrap());
    wait_for(1, &mark);
    assert_eq!(
        handle.kill(Duration::from_secs(20)).unwrap(),
        Killed::Terminated
    );
    assert_all_end(&mark);
}

#[test]
fn a_zombie_is_dead() {
    let mut child = StdCommand::new("sleep").arg("300").spawn().unwrap();
    let handle = Handle::of_running(i32::try_from(child.id()).unwrap()).unwrap();
    child.kill().unwrap();
    assert!(handle.wait(Some(Duration::from_secs(20))).unwrap());
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    assert!(stat.contains(") Z "), "it is not a zombie: {stat}");
    assert!(!handle.is_alive().unwrap());
    assert_eq!(handle.kill(Duration::ZERO).unwrap(), Killed::AlreadyDead);
    child.wait().unwrap();
}

#[test]
fn a_spawn_that_fails_says_why_and_leaves_nothing() {
    let mark = mark();
    for (command, message) in [
        (
            Command::new("/nowhere"),
            "cannot execute \"/nowhere\": No such file or directory (os error 2)",
        ),
        (
            Command::new("true").cwd("/nowhere"),
            "cannot run in the folder /nowhere: No such file or directory (os error 2)",
        ),
        (
            Command::new("true").stdin("text"),
            "a detached process cannot be given its standard input from memory; give it a file",
        ),
    ] {
        let error = spawn(command.env(MARK, &mark), None).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let error = spawn(Command::new("true"), Some("/nowhere/log".as_ref())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot open the log /nowhere/log: No such file or directory (os error 2)"
    );
    assert_eq!(marked(&mark), []);
}

/// In a process namespace of our own the next number can be chosen, so a pid
/// is really used again.
#[test]
fn a_number_that_is_used_again_does_not_fool_a_handle() {
    let script = r#"
        set -e
        field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }
        spawned=$("$LILLUX" spawn --cmd sleep --arg 300)
        handle=$(echo "$spawned" | field handle)
        pid=$(echo "$spawned" | field pid)
        "$LILLUX" status --pid "$handle"
        "$LILLUX" kill --pid "$handle"
        while [ -e /proc/$pid ]; do wait; done
        sleep 1 & wait    # the start time counts in hundredths of a second
        echo $((pid - 1)) > /proc/sys/kernel/ns_last_pid
        sleep 300 &
        test $! = $pid || { echo "got $! instead of $pid"; exit 1; }
        "$LILLUX" status --pid "$handle"
        "$LILLUX" kill --pid "$handle"
        kill -0 $pid && echo the stranger is unharmed
        kill -9 $pid
    "#;
    let output = StdCommand::new("unshare")
        .args([
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ])
        .args(["sh", "-c", script])
        .env("LILLUX", lillux())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].contains(r#""alive":true"#), "{text}");
    assert!(lines[1].contains(r#""method":"terminated""#), "{text}");
    assert!(lines[2].contains(r#""alive":false"#), "{text}");
    assert!(lines[3].contains(r#""method":"already_dead""#), "{text}");
    assert_eq!(lines[4], "the stranger is unharmed");
}
