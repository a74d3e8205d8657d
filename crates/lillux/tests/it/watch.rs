//! Waiting for file changes, processes and recorded runs.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::lillux;
use lillux::watch::{Change, ChangeKind, RunError, wait_for_change, wait_for_run, wait_until};
use rusqlite::Connection;

const LONG: Option<Duration> = Some(Duration::from_secs(30));

/// Runs `act` once another thread blocks in `wait`: the kernel shows that the thread is in `poll`.
fn once_waiting<T: Send>(wait: impl FnOnce() -> T + Send, act: impl FnOnce()) -> T {
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiting = scope.spawn(move || {
            sender
                .send(rustix::thread::gettid().as_raw_nonzero())
                .unwrap();
            wait()
        });
        let thread = receiver.recv().unwrap();
        wait_until_polling(&format!("/proc/self/task/{thread}"));
        act();
        waiting.join().unwrap()
    })
}

fn wait_until_polling(task: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let polls = || {
        let call = fs::read_to_string(format!("{task}/syscall")).unwrap_or_default();
        let number = call.split(' ').next().unwrap_or_default().parse();
        number == Ok(libc::SYS_poll) || number == Ok(libc::SYS_ppoll)
    };
    while !polls() {
        assert!(Instant::now() < deadline, "{task} is not polling");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn wait_until_checks_at_first_and_after_changes_only() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let watched = [file.clone()];
    let checks = std::cell::Cell::new(0);
    let check = || {
        checks.set(checks.get() + 1);
        fs::read_to_string(&file).ok().filter(|text| text == "good")
    };
    // While it waits: a change of another file, a wrong content, then the right content.
    let acts = async {
        for (name, text) in [("beside", "good"), ("file", "bad"), ("file", "good")] {
            tokio::task::yield_now().await;
            fs::write(dir.path().join(name), text).unwrap();
        }
    };
    let (found, ()) = tokio::join!(wait_until(&watched, LONG, check), acts);
    assert_eq!(found.unwrap().as_deref(), Some("good"));
    // Once at first, and at most once for each event of the files.
    assert!((2..=8).contains(&checks.get()), "{}", checks.get());
    let again = wait_until(&watched, None, check).await;
    assert_eq!(again.unwrap().as_deref(), Some("good"));
    let never = wait_until(&watched, Some(Duration::from_millis(20)), || None::<()>).await;
    assert_eq!(never.unwrap(), None);
    assert!(wait_until(&[], LONG, || None::<()>).await.is_err());
}

#[test]
fn file_changes_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let other = dir.path().join("other");
    let cases: [(&str, ChangeKind, &dyn Fn()); 4] = [
        ("created", ChangeKind::Created, &|| {
            fs::write(&file, "1").unwrap();
        }),
        ("modified", ChangeKind::Modified, &|| {
            fs::write(&file, "2").unwrap();
        }),
        ("replaced", ChangeKind::Created, &|| {
            fs::rename(&other, &file).unwrap();
        }),
        ("removed", ChangeKind::Removed, &|| {
            fs::remove_file(&file).unwrap();
        }),
    ];
    for (name, kind, act) in cases {
        let path = file.clone();
        let change = once_waiting(
            || wait_for_change(&[path], LONG).unwrap(),
            || {
                // Another file in the same directory is not reported.
                fs::write(&other, "x").unwrap();
                act();
            },
        );
        let expected = Change {
            path: file.clone(),
            kind,
        };
        assert_eq!(change, Some(expected), "{name}");
    }
}

#[test]
fn link_changes_with_its_target() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (link, target) = (dir.path().join("link"), elsewhere.path().join("target"));
    fs::write(&target, "1").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let path = link.clone();
    let change = once_waiting(
        || wait_for_change(&[path], LONG).unwrap(),
        || fs::write(&target, "2").unwrap(),
    );
    let kind = ChangeKind::Modified;
    assert_eq!(change, Some(Change { path: link, kind }));
}

#[test]
fn directory_change_names_the_entry() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let change = once_waiting(
        || wait_for_change(&[path], LONG).unwrap(),
        || fs::write(dir.path().join("new"), "").unwrap(),
    );
    let expected = Change {
        path: dir.path().join("new"),
        kind: ChangeKind::Created,
    };
    assert_eq!(change, Some(expected));
}

#[test]
fn wait_for_change_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let quiet = [dir.path().join("file"), dir.path().to_owned()];
    let start_time = Instant::now();
    assert_eq!(
        wait_for_change(&quiet, Some(Duration::from_millis(200))).unwrap(),
        None
    );
    assert!(start_time.elapsed() >= Duration::from_millis(200));
}

#[test]
fn missing_parent_directory_is_an_error() {
    let error = wait_for_change(&[PathBuf::from("/nowhere/file")], LONG).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot watch /nowhere: No such file or directory (os error 2)"
    );
}

fn database(dir: &tempfile::TempDir, journal: &str) -> (PathBuf, Connection) {
    let path = dir.path().join("runs.db");
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = {journal};
             CREATE TABLE threads (thread_id TEXT PRIMARY KEY, status TEXT NOT NULL);
             INSERT INTO threads VALUES ('a', 'running'), ('b', 'completed');"
        ))
        .unwrap();
    (path, connection)
}

#[test]
fn end_of_a_run_is_detected_in_any_journal_mode() {
    for journal in ["DELETE", "WAL"] {
        let dir = tempfile::tempdir().unwrap();
        let (path, connection) = database(&dir, journal);
        assert_eq!(
            wait_for_run(&path, "b", LONG).unwrap().as_deref(),
            Some("completed")
        );
        let status = once_waiting(
            || wait_for_run(&path, "a", LONG).unwrap(),
            || {
                for status in ["suspended", "running", "error"] {
                    let sql = "UPDATE threads SET status = ?1 WHERE thread_id = 'a'";
                    connection.execute(sql, [status]).unwrap();
                }
            },
        );
        assert_eq!(status.as_deref(), Some("error"), "{journal}");
    }
}

#[test]
fn wait_for_run_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _connection) = database(&dir, "WAL");
    assert_eq!(
        wait_for_run(&path, "a", Some(Duration::from_millis(100))).unwrap(),
        None
    );
}

#[test]
fn unreadable_database_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _connection) = database(&dir, "WAL");
    let message = |path: &PathBuf, thread: &str| {
        let error = wait_for_run(path, thread, LONG).unwrap_err().to_string();
        error.replace(dir.path().to_str().unwrap(), "DIR")
    };
    assert_eq!(message(&path, "c"), "no run \"c\" in DIR/runs.db");
    let text = dir.path().join("text");
    fs::write(
        &text,
        "this is not a database, but it is long enough to be checked".repeat(20),
    )
    .unwrap();
    assert_eq!(
        message(&text, "a"),
        "cannot read the database DIR/text: file is not a database"
    );
    let empty = dir.path().join("empty");
    fs::write(&empty, "").unwrap();
    let missing = dir.path().join("missing");
    for path in [&empty, &missing] {
        let error = wait_for_run(path, "a", LONG).unwrap_err();
        assert!(matches!(error, RunError::Database { .. }), "{error}");
    }
}

fn start(args: &[&str]) -> Child {
    let child = Command::new(lillux())
        .arg("watch")
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_polling(&format!("/proc/{}", child.id()));
    child
}

#[test]
fn watch_command_prints_the_event() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let watch = start(&["--path", file.to_str().unwrap()]);
    fs::write(&file, "").unwrap();
    let output = watch.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!(
            "{{\"success\":true,\"event\":\"created\",\"path\":{file:?},\"timed_out\":false}}\n"
        )
    );

    let mut sleeper = Command::new("sleep").arg("300").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let watch = start(&["--pid", &pid]);
    sleeper.kill().unwrap();
    let output = watch.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{{\"success\":true,\"event\":\"ended\",\"pid\":{pid},\"timed_out\":false}}\n")
    );
    sleeper.wait().unwrap();

    let own = std::process::id().to_string();
    let output = start(&["--pid", &own, "--timeout", "0.1"])
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(124));
    assert_eq!(output.stdout, b"{\"success\":false,\"timed_out\":true}\n");
}
