//! Detached processes and process handles.

use std::fs;
use std::process::{Command as StdCommand, Stdio};
use std::time::Duration;

use crate::support::{MARK, assert_all_end, lillux, mark, marked};
use lillux::process::{Command, Handle, KillOutcome, spawn};

fn shell(script: &str, mark: &str) -> Handle {
    spawn(
        Command::new("sh").args(["-c", script]).env(MARK, mark),
        None,
    )
    .unwrap()
}

/// Waits until there are `count` marked processes.
fn wait_for(count: usize, mark: &str) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while marked(mark).len() != count {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
}

#[test]
fn spawned_process_outlives_its_caller() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
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

    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while fs::read_to_string(&log).unwrap() != "started in /\nand this\n" {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }

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
        KillOutcome::Terminated
    );
}

#[test]
fn output_is_appended_to_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    for word in ["one", "two"] {
        let handle = spawn(Command::new("echo").arg(word), Some(&log)).unwrap();
        assert!(handle.wait(Some(Duration::from_secs(20))).unwrap());
    }
    assert_eq!(fs::read_to_string(log).unwrap(), "one\ntwo\n");
}

#[test]
fn kill_ends_group_session_and_descendants() {
    let mark = mark();
    let handle = shell("sleep 300 & setsid sleep 300 & sleep 300", &mark);
    wait_for(4, &mark);
    assert_eq!(
        handle.kill(Duration::from_secs(20)).unwrap(),
        KillOutcome::Terminated
    );
    assert_eq!(marked(&mark), []);
    assert_eq!(
        handle.kill(Duration::from_secs(20)).unwrap(),
        KillOutcome::AlreadyDead
    );
}

#[test]
fn process_that_ignores_term_is_killed_after_the_grace_time() {
    let mark = mark();
    let handle = shell("trap '' TERM; while :; do sleep 300; done", &mark);
    wait_for(2, &mark);
    assert_eq!(
        handle.kill(Duration::from_millis(300)).unwrap(),
        KillOutcome::Killed
    );
    assert_eq!(marked(&mark), []);
}

#[test]
fn zero_grace_kills_at_once() {
    let mark = mark();
    let handle = shell("trap 'exit 0' TERM; while :; do sleep 300; done", &mark);
    assert_eq!(handle.kill(Duration::ZERO).unwrap(), KillOutcome::Killed);
    assert_eq!(marked(&mark), []);
}

#[test]
fn session_of_a_dead_leader_is_ended() {
    let mark = mark();
    let handle = shell("sleep 300 & exit 0", &mark);
    assert!(handle.wait(Some(Duration::from_secs(20))).unwrap());
    assert!(!handle.is_alive().unwrap());
    wait_for(1, &mark);
    assert_eq!(
        handle.kill(Duration::from_secs(20)).unwrap(),
        KillOutcome::Terminated
    );
    assert_all_end(&mark);
}

#[test]
fn stubborn_descendant_in_another_session_is_killed() {
    let mark = mark();
    let stubborn = "setsid sh -c 'trap \"\" TERM; while :; do sleep 300; done' & sleep 300";
    let handle = shell(stubborn, &mark);
    wait_for(4, &mark);
    assert_eq!(
        handle.kill(Duration::from_millis(300)).unwrap(),
        KillOutcome::Killed
    );
    assert_eq!(marked(&mark), []);
}

#[test]
fn process_without_its_main_thread_is_alive() {
    let mark = mark();
    let script = "import ctypes, threading, time\n\
                  threading.Thread(target=time.sleep, args=(300,)).start()\n\
                  ctypes.CDLL(None).pthread_exit(None)";
    let command = Command::new("python3").args(["-c", script]);
    let handle = spawn(command.env(MARK, &mark), None).unwrap();
    let looks_dead = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", handle.pid())).unwrap();
        stat.contains(") Z ")
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !looks_dead() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    assert!(handle.is_alive().unwrap());
    assert!(!handle.wait(Some(Duration::from_millis(50))).unwrap());
    assert_ne!(
        handle.kill(Duration::ZERO).unwrap(),
        KillOutcome::AlreadyDead
    );
    assert!(!handle.is_alive().unwrap());
}

#[test]
fn spawned_process_inherits_no_descriptors() {
    // The process stops itself after its loader, which opens libraries for a moment, is done.
    let script =
        "exec 9> lock; \"$LILLUX\" spawn --cmd sh --arg=-c --arg 'kill -STOP $$; sleep 300'";
    let dir = tempfile::tempdir().unwrap();
    let output = StdCommand::new("sh")
        .args(["-c", script])
        .current_dir(dir.path())
        .env("LILLUX", lillux())
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let handle: Handle = report["handle"].as_str().unwrap().parse().unwrap();
    let stopped = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", handle.pid())).unwrap();
        stat.contains(") T ")
    };
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !stopped() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    let open = fs::read_dir(format!("/proc/{}/fd", handle.pid())).unwrap();
    assert_eq!(open.count(), 3);
    handle.kill(Duration::ZERO).unwrap();
}

#[test]
fn durations_beyond_the_clock_do_not_panic() {
    let mark = mark();
    let handle = shell("sleep 300", &mark);
    assert_eq!(handle.kill(Duration::MAX).unwrap(), KillOutcome::Terminated);
    assert!(handle.wait(Some(Duration::MAX)).unwrap());
}

#[test]
fn zombie_is_not_alive() {
    let mut child = StdCommand::new("sleep").arg("300").spawn().unwrap();
    let handle = Handle::from_pid(i32::try_from(child.id()).unwrap()).unwrap();
    child.kill().unwrap();
    assert!(handle.wait(Some(Duration::from_secs(20))).unwrap());
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    assert!(stat.contains(") Z "), "it is not a zombie: {stat}");
    assert!(!handle.is_alive().unwrap());
    assert_eq!(
        handle.kill(Duration::ZERO).unwrap(),
        KillOutcome::AlreadyDead
    );
    child.wait().unwrap();
}

#[test]
fn failed_spawn_is_explained_and_leaves_no_process() {
    let mark = mark();
    for (command, message) in [
        (
            Command::new("/nowhere"),
            "cannot execute \"/nowhere\": No such file or directory (os error 2)",
        ),
        (
            Command::new("true").cwd("/nowhere"),
            "cannot enter the working directory /nowhere: No such file or directory (os error 2)",
        ),
        (
            Command::new("true").stdin("text"),
            "a detached process cannot read its standard input from memory; pass a file",
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

/// In a new pid namespace the next pid can be chosen, so the test really reuses one.
#[test]
fn handle_does_not_match_a_reused_pid() {
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
        kill -0 $pid && echo the other process is alive
        kill -9 $pid
    "#;
    let text = in_new_pid_namespace(script);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].contains(r#""alive":true"#), "{text}");
    assert!(lines[1].contains(r#""method":"terminated""#), "{text}");
    assert!(lines[2].contains(r#""alive":false"#), "{text}");
    assert!(lines[3].contains(r#""method":"already_dead""#), "{text}");
    assert_eq!(lines[4], "the other process is alive");
}

/// The pid is reused during the kill: the leader ends at once, a descendant lasts until the end
/// of the grace time, and meanwhile another process gets the leader's pid.
#[test]
fn kill_does_not_signal_a_pid_reused_during_the_grace_time() {
    let script = r#"
        set -e
        field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }
        spawned=$("$LILLUX" spawn --cmd sh --arg -c --arg 'setsid sh -c "trap \"\" TERM; echo > stubborn; while :; do sleep 300; done" & sleep 300')
        handle=$(echo "$spawned" | field handle)
        pid=$(echo "$spawned" | field pid)
        while ! [ -e stubborn ]; do :; done
        # Processes that start in the same clock tick have the same start time.
        began() { sed 's/.*) //' "/proc/$1/stat" | cut -d' ' -f20; }
        first=$(began "$pid")
        while [ "$(sh -c 'sed "s/.*) //" /proc/$$/stat | cut -d" " -f20')" = "$first" ]; do :; done
        "$LILLUX" kill --pid "$handle" --grace 4 > result &
        other=0
        while [ $other != $pid ]; do    # until all processes with the pid are reaped
            (:)
            echo $((pid - 1)) > /proc/sys/kernel/ns_last_pid
            test $other = 0 || kill -9 $other
            sleep 300 &
            other=$!
            test -s result && { echo "the grace time is over"; exit 1; }
        done
        while ! [ -s result ]; do :; done
        cat result
        kill -0 $other && echo the other process is alive
        kill -9 $other
    "#;
    let text = in_new_pid_namespace(script);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].contains(r#""method":"killed""#), "{text}");
    assert_eq!(lines[1], "the other process is alive");
}

/// Runs a script as the init process of a new pid namespace, in a temporary directory.
fn in_new_pid_namespace(script: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = StdCommand::new("unshare")
        .args(["--map-root-user", "--pid", "--fork"])
        .args(["--mount-proc", "--kill-child"])
        .args(["sh", "-c", script])
        .current_dir(dir.path())
        .env("LILLUX", lillux())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}
