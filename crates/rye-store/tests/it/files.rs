//! Unusual files and failing disks.

use std::env;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use rye_engine::store::{Claim, SessionStore, StoreError};
use rye_store::SqliteStore;
use rye_testkit::store_contract::run;
use rye_testkit::store_contract::sample::{
    append, chain, create_session, eid, entry, put_session, session, sid, status_event, write,
};
use tempfile::TempDir;

fn temp_database() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    (dir, file)
}

/// Creates a closed database with a session.
fn fill(file: &Path, entries: usize) {
    run(async {
        let store = SqliteStore::open(file).unwrap();
        let lease = create_session(&store, "s").await;
        let ops = chain("s", entries).into_iter().map(append).collect();
        write(&store, &lease, ops).await.unwrap();
    });
}

fn damaged(result: Result<SqliteStore, StoreError>) -> String {
    match result {
        Err(StoreError::Damaged(reason)) => reason,
        other => unreachable!("{other:?}"),
    }
}

/// The files in a directory, with their content.
fn files_in(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn file_of_another_format_is_refused_and_not_changed() {
    let (dir, file) = temp_database();
    fill(&file, 1);
    let db = Connection::open(&file).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let before = files_in(dir.path());
    let reason = damaged(SqliteStore::open(&file));
    assert!(reason.contains("format 99"), "{reason}");
    assert_eq!(files_in(dir.path()), before);
}

#[test]
fn commit_fails_if_the_format_changes_while_the_file_is_open() {
    let (_dir, file) = temp_database();
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let lease = create_session(&store, "s").await;
        let db = Connection::open(&file).unwrap();
        db.pragma_update(None, "user_version", 99).unwrap();
        let refused = write(&store, &lease, vec![status_event()]).await;
        assert!(
            matches!(refused, Err(StoreError::Damaged(_))),
            "{refused:?}"
        );
        let events: i64 = db
            .query_row("SELECT count(*) FROM engine_events", [], |row| row.get(0))
            .unwrap();
        assert_eq!(events, 0);
    });
}

#[test]
fn file_that_is_not_a_database_is_refused_and_not_changed() {
    let (dir, file) = temp_database();
    fs::write(&file, "dear diary\n".repeat(1_000)).unwrap();
    let before = files_in(dir.path());
    let reason = damaged(SqliteStore::open(&file));
    assert!(reason.contains("is not a database"), "{reason}");
    assert_eq!(files_in(dir.path()), before);
}

#[test]
fn database_of_another_program_is_refused_and_not_changed() {
    let (dir, file) = temp_database();
    let db = Connection::open(&file).unwrap();
    db.execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
    drop(db);
    let before = files_in(dir.path());
    let reason = damaged(SqliteStore::open(&file));
    assert!(reason.contains("database of another program"), "{reason}");
    assert_eq!(files_in(dir.path()), before);
}

/// Damages the file while a store has it open.
#[test]
fn store_stops_writing_after_it_finds_damage() {
    for writes in [false, true] {
        let (_dir, file) = temp_database();
        fill(&file, 3_000);
        let size = fs::metadata(&file).unwrap().len();
        // Kept open, because closing it would release the store's locks.
        let broken = fs::OpenOptions::new().write(true).open(&file).unwrap();
        let before = run(async {
            let store = SqliteStore::open(&file).unwrap();
            let mut lease = None;
            if writes {
                lease = Some(store.claim(&sid("s"), Claim::IfFree).await.unwrap());
            }
            // Keeps the first pages, which describe the tables.
            let garbage = vec![0xa5; usize::try_from(size).unwrap() - 40 * 4096];
            broken.write_all_at(&garbage, 40 * 4096).unwrap();
            let before = fs::read(&file).unwrap();
            let found = match &lease {
                None => store.path(&sid("s"), &eid("e2999")).await.map(drop),
                Some(lease) => {
                    let ops = vec![append(entry("s", "new", Some("e2999")))];
                    write(&store, lease, ops).await.map(drop)
                }
            };
            let Err(StoreError::Damaged(reason)) = found else {
                unreachable!("{found:?}");
            };
            assert!(reason.contains("A check found"), "{reason}");
            assert!(reason.contains(".recover"), "{reason}");
            let changed = reason.contains("no longer writes");
            assert_eq!(changed, writes, "{reason}");
            assert_eq!(reason.contains("Nothing was changed"), !writes, "{reason}");
            // All later writes fail.
            let refused = store.claim(&sid("other"), Claim::TakeOver).await;
            assert_eq!(refused, Err(StoreError::Damaged(reason)));
            before
        });
        // Earlier writes stay in the log.
        assert!(fs::read(&file).unwrap() == before);
        assert!(damaged(SqliteStore::open(&file)).contains("Nothing was changed"));
        assert!(fs::read(&file).unwrap() == before);
    }
}

#[test]
fn invalid_document_is_quoted_in_the_error() {
    let (_dir, file) = temp_database();
    fill(&file, 2);
    let db = Connection::open(&file).unwrap();
    db.execute("UPDATE engine_log SET doc = '{\"half' WHERE id = 'e1'", [])
        .unwrap();
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let read = store.path(&sid("s"), &eid("e1")).await;
        let Err(StoreError::Unreadable(reason)) = read else {
            unreachable!("{read:?}");
        };
        assert!(reason.contains("{\"half"), "{reason}");
        // Other documents are still readable.
        assert_eq!(store.path(&sid("s"), &eid("e0")).await.unwrap().len(), 1);
    });
}

#[test]
fn missing_directory_is_unavailable() {
    let (dir, _) = temp_database();
    for path in [dir.path().join("missing/s.db"), dir.path().to_owned()] {
        let refused = SqliteStore::open(path);
        assert!(
            matches!(refused, Err(StoreError::Unavailable(_))),
            "{refused:?}"
        );
    }
}

#[test]
fn only_the_owner_can_read_the_files() {
    let (dir, file) = temp_database();
    let store = SqliteStore::open(&file).unwrap();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
    drop(store);
}

#[test]
fn dropping_the_store_writes_pending_commits_and_releases_leases() {
    let (_dir, file) = temp_database();
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let lease = create_session(&store, "s").await;
        for _ in 0..20 {
            let batch = rye_protocol::Batch {
                ops: vec![status_event()],
            };
            drop(store.commit(&lease, batch));
        }
        drop(store);
        let store = SqliteStore::open(&file).unwrap();
        let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(snapshot.sequence, 20);
        store.claim(&sid("s"), Claim::IfFree).await.unwrap();
    });
}

#[test]
fn closed_store_leaves_no_write_ahead_log() {
    let (dir, file) = temp_database();
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        create_session(&store, "s").await;
        store.snapshot(&sid("s")).await.unwrap();
        drop(store.subscribe_posts());
    });
    let names: Vec<_> = files_in(dir.path())
        .into_iter()
        .map(|file| file.0)
        .collect();
    let left = ["s.db", "s.db-lock", "s.db-queue", "s.db-stamp", "s.db-wake"];
    assert_eq!(names, left);
}

#[test]
fn size_of_a_turn_does_not_depend_on_the_number_of_turns() {
    let size = |turns: usize| {
        let (_dir, file) = temp_database();
        fill(&file, 0);
        run(async {
            let store = SqliteStore::open(&file).unwrap();
            let lease = store.claim(&sid("s"), Claim::TakeOver).await.unwrap();
            let mut written = 0;
            for mut entry in chain("s", turns) {
                let text = "output of a tool ".repeat(100);
                written += text.len() as u64;
                entry.kind = rye_protocol::EntryKind::Message(rye_protocol::Message::text(
                    rye_protocol::Role::Tool,
                    text,
                ));
                let mut now = session("s");
                now.updated_at = rye_protocol::Millis(written);
                let event = rye_testkit::store_contract::sample::message_event(&entry);
                let ops = vec![append(entry), event, put_session(now)];
                drop(store.commit(&lease, rye_protocol::Batch { ops }));
            }
            drop(store);
            (fs::metadata(&file).unwrap().len(), written)
        })
    };
    let (short, _) = size(100);
    let (long, payload) = size(1_000);
    assert!(long <= 11 * short, "{short} bytes became {long}");
    assert!(long <= 2 * payload, "{payload} bytes take {long}");
}

/// The database of a child process.
const FILE: &str = "RYE_STORE_TEST_FILE";

/// Runs a test of this program in a child process, after a shell command.
fn run_child(setup: &str, test: &str, file: &Path) -> std::process::Output {
    let script = format!("{setup} && exec \"$0\" --exact files::{test} --nocapture");
    Command::new("sh")
        .args(["-c", &script])
        .arg(env::current_exe().unwrap())
        .env(FILE, file)
        .output()
        .unwrap()
}

fn check_child(output: &std::process::Output) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("1 passed"), "{stdout}{stderr}");
}

#[test]
fn full_disk_does_not_leave_a_partial_commit() {
    let (_dir, file) = temp_database();
    fill(&file, 1);
    // Limits the size of files to simulate a full disk.
    let setup = "trap '' XFSZ && ulimit -f 2000";
    check_child(&run_child(setup, "child_fills_the_disk", &file));
    // Without the limit.
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
        let sequence = store.snapshot(&sid("s")).await.unwrap().unwrap().sequence;
        assert!(sequence > 0);
        let next = write(&store, &lease, vec![status_event()]).await;
        assert_eq!(next, Ok(sequence + 1));
    });
}

/// Child process of `full_disk_does_not_leave_a_partial_commit`.
#[test]
fn child_fills_the_disk() {
    let Ok(file) = env::var(FILE) else { return };
    run(async {
        let store = SqliteStore::open(file).unwrap();
        let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
        let mut last = 0;
        let error = loop {
            let mut large = entry("s", &format!("large{last}"), None);
            large.kind = rye_protocol::EntryKind::BranchSummary {
                leaf: eid("e0"),
                summary: "x".repeat(100_000),
            };
            match write(&store, &lease, vec![status_event(), append(large)]).await {
                Ok(sequence) => {
                    last += 1;
                    assert_eq!(sequence, last);
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        let snapshot = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(snapshot.sequence, last);
        let missing = store.path(&sid("s"), &eid(&format!("large{last}"))).await;
        assert!(
            matches!(missing, Err(StoreError::NotFound { .. })),
            "{missing:?}"
        );
    });
}

#[test]
fn read_only_disk_is_unavailable_and_not_changed() {
    let (dir, file) = temp_database();
    fill(&file, 1);
    let before = files_in(dir.path());
    let dir_path = dir.path().display();
    // Root ignores file modes, so it needs a read-only mount.
    let output = if rustix::process::geteuid().is_root() {
        let mount =
            format!("mount --bind {dir_path} {dir_path} && mount -o remount,ro,bind {dir_path}");
        let unshare = "exec unshare -m sh -c";
        let script = format!(
            "{unshare} '{mount} && exec \"$0\" --exact files::child_opens_a_read_only_file' \"$0\""
        );
        let can_unshare = Command::new("unshare").args(["-m", "true"]).status();
        if !can_unshare.is_ok_and(|status| status.success()) {
            println!("skipped: cannot mount");
            return;
        }
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command.arg(env::current_exe().unwrap()).env(FILE, &file);
        command.output().unwrap()
    } else {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        run_child("true", "child_opens_a_read_only_file", &file)
    };
    check_child(&output);
    assert_eq!(files_in(dir.path()), before);
}

/// Child process of `read_only_disk_is_unavailable_and_not_changed`.
#[test]
fn child_opens_a_read_only_file() {
    let Ok(file) = env::var(FILE) else { return };
    let refused = SqliteStore::open(file);
    assert!(
        matches!(refused, Err(StoreError::Unavailable(_))),
        "{refused:?}"
    );
}
