//! Waiting for files, processes and recorded runs.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::lillux;
use lillux::watch::{Change, ChangeKind, wait_for_change, wait_for_run, wait_until};
use rusqlite::Connection;

const LONG: Option<Duration> = Some(Duration::from_secs(30));

/// Does something as soon as another thread waits for it: a thread that
/// sleeps in `poll` is shown as such by the kernel.
fn once_waiting<T: Send>(wait: impl FnOnce() -> T + Send, act: impl FnOnce()) -> T {
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let waiting = scope.spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero())
                .unwrap();
            wait()
        });
        let thread = told.recv().unwrap();
        wait_until_it_polls(&format!("/proc/self/task/{thread}"));
        act();
        waiting.join().unwrap()
    })
}

fn wait_until_it_polls(task: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let polls = || {
        let call = fs::read_to_string(format!("{task}/syscall")).unwrap_or_default();
        let number = call.split(' ').next().unwrap_or_default().parse();
        number == Ok(libc::SYS_poll) || number == Ok(libc::SYS_ppoll)
    };
    while !polls() {
        assert!(Instant::now() < deadline, "{task} never waited");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn what_is_looked_for_is_found_whether_it_is_there_or_comes_and_nothing_else_wakes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let watched = [file.clone()];
    let looks = std::cell::Cell::new(0);
    let look = || {
        looks.set(looks.get() + 1);
        fs::read_to_string(&file).ok().filter(|text| text == "good")
    };
    // What happens while it waits: something beside it, something else, and then the thing.
    let acts = async {
        for (name, text) in [("beside", "good"), ("file", "bad"), ("file", "good")] {
            tokio::task::yield_now().await;
            fs::write(folder.path().join(name), text).unwrap();
        }
    };
    let (found, ()) = tokio::join!(wait_until(&watched, LONG, look), acts);
    assert_eq!(found.unwrap().as_deref(), Some("good"));
    // At first, and at most for all that happened to three files: that they came, and texts.
    assert!((2..=8).contains(&looks.get()), "{}", looks.get());
    let again = wait_until(&watched, None, look).await;
    assert_eq!(again.unwrap().as_deref(), Some("good"));
    let never = wait_until(&watched, Some(Duration::from_millis(20)), || None::<()>).await;
    assert_eq!(never.unwrap(), None);
    assert!(wait_until(&[], LONG, || None::<()>).await.is_err());
}

#[test]
fn a_file_that_comes_changes_is_replaced_or_goes_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let other = folder.path().join("other");
    let cases: [(&str, ChangeKind, &dyn Fn()); 4] = [
        ("comes", ChangeKind::Created, &|| {
            fs::write(&file, "1").unwrap();
        }),
        ("changes", ChangeKind::Modified, &|| {
            fs::write(&file, "2").unwrap();
        }),
        ("is replaced", ChangeKind::Created, &|| {
            fs::rename(&other, &file).unwrap();
        }),
        ("goes", ChangeKind::Removed, &|| {
            fs::remove_file(&file).unwrap();
        }),
    ];
    for (name, kind, act) in cases {
        let path = file.clone();
        let change = once_waiting(
            || wait_for_change(&[path], LONG).unwrap(),
            || {
                // Beside what is watched, so it is not told.
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
fn a_link_changes_when_its_target_does() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (link, target) = (folder.path().join("link"), elsewhere.path().join("target"));
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
fn a_folder_tells_which_entry_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let change = once_waiting(
        || wait_for_change(&[path], LONG).unwrap(),
        || fs::write(folder.path().join("new"), "").unwrap(),
    );
    let expected = Change {
        path: folder.path().join("new"),
        kind: ChangeKind::Created,
    };
    assert_eq!(change, Some(expected));
}

#[test]
fn nothing_happening_ends_with_the_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let quiet = [folder.path().join("file"), folder.path().to_owned()];
    let begun = Instant::now();
    assert_eq!(
        wait_for_change(&quiet, Some(Duration::from_millis(200))).unwrap(),
        None
    );
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

#[test]
fn a_path_in_no_folder_is_an_error() {
    let error = wait_for_change(&[PathBuf::from("/nowhere/file")], LONG).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot watch /nowhere: No such file or directory (os error 2)"
    );
}

fn record(folder: &tempfile::TempDir, journal: &str) -> (PathBuf, Connection) {
    let path = folder.path().join("runs.db");
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
fn a_run_that_ends_is_told_whatever_the_journal() {
    for journal in ["DELETE", "WAL"] {
        let folder = tempfile::tempdir().unwrap();
        let (path, connection) = record(&folder, journal);
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
fn a_run_that_does_not_end_ends_with_the_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _connection) = record(&folder, "WAL");
    assert_eq!(
        wait_for_run(&path, "a", Some(Duration::from_millis(100))).unwrap(),
        None
    );
}

#[test]
fn a_record_that_cannot_be_read_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _connection) = record(&folder, "WAL");
    let message = |path: &PathBuf, thread: &str| {
        let error = wait_for_run(path, thread, LONG).unwrap_err().to_string();
        error.replace(folder.path().to_str().unwrap(), "DIR")
    };
    assert_eq!(message(&path, "c"), "no run \"c\" in DIR/runs.db");
    let text = folder.path().join("text");
    fs::write(
        &text,
        "this is no database, but it is long enough to be looked at".repeat(20),
    )
    .unwrap();
    assert_eq!(
        message(&text, "a"),
        "cannot read the database DIR/text: file is not a database"
    );
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    assert!(message(&empty, "a").contains("no such table: threads"));
    let missing = folder.path().join("missing");
    assert!(message(&missing, "a").contains("unable to open database file"));
}

fn start(args: &[&str]) -> Child {
    let child = Command::new(lillux())
        .arg("watch")
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_it_polls(&format!("/proc/{}", child.id()));
    child
}

#[test]
fn the_command_tells_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
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
