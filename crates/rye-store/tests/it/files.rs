//! Files that are not as they should be, and disks that do not do as they are told.

use std::env;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use rye_engine::store::{Claim, SessionStore, StoreError};
use rye_store::SqliteStore;
use rye_store_contract::run;
use rye_store_contract::sample::{
    append, begin, chain, eid, entry, put_session, session, sid, told, write,
};
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    (folder, file)
}

/// A file with a session of some length, closed.
fn filled(file: &Path, entries: usize) {
    run(async {
        let store = SqliteStore::open(file).unwrap();
        let lease = begin(&store, "s").await;
        let ops = chain("s", entries).into_iter().map(append).collect();
        write(&store, &lease, ops).await.unwrap();
    });
}

fn unreadable(result: Result<SqliteStore, StoreError>) -> String {
    match result {
        Err(StoreError::Unreadable(why)) => why,
        other => unreachable!("{other:?}"),
    }
}

/// What lies in a folder, by name and content.
fn lies_in(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
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
fn file_of_another_format_is_refused_and_left_alone() {
    let (folder, file) = place();
    filled(&file, 1);
    let db = Connection::open(&file).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let before = lies_in(folder.path());
    let why = unreadable(SqliteStore::open(&file));
    assert!(why.contains("format 99"), "{why}");
    assert_eq!(lies_in(folder.path()), before);
}

#[test]
fn a_file_that_becomes_newer_while_it_is_open_is_not_written_any_more() {
    let (_folder, file) = place();
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let lease = begin(&store, "s").await;
        let db = Connection::open(&file).unwrap();
        db.pragma_update(None, "user_version", 99).unwrap();
        let refused = write(&store, &lease, vec![told()]).await;
        assert!(
            matches!(refused, Err(StoreError::Unreadable(_))),
            "{refused:?}"
        );
        let events: i64 = db
            .query_row("SELECT count(*) FROM engine_events", [], |row| row.get(0))
            .unwrap();
        assert_eq!(events, 0);
    });
}

#[test]
fn what_is_no_database_is_refused_and_left_alone() {
    let (folder, file) = place();
    fs::write(&file, "dear diary\n".repeat(1_000)).unwrap();
    let before = lies_in(folder.path());
    let why = unreadable(SqliteStore::open(&file));
    assert!(why.contains("is not a database"), "{why}");
    assert_eq!(lies_in(folder.path()), before);
}

#[test]
fn the_database_of_another_program_is_refused_and_left_alone() {
    let (folder, file) = place();
    let db = Connection::open(&file).unwrap();
    db.execute_batch("CREATE TABLE songs (title TEXT)").unwrap();
    drop(db);
    let before = lies_in(folder.path());
    let why = unreadable(SqliteStore::open(&file));
    assert!(why.contains("database of another program"), "{why}");
    assert_eq!(lies_in(folder.path()), before);
}

/// A disk that goes wrong below a store that is open.
#[test]
fn damage_is_diagnosed_and_nothing_more_is_written() {
    for writes in [false, true] {
        let (_folder, file) = place();
        filled(&file, 3_000);
        let size = fs::metadata(&file).unwrap().len();
        // Open to the end: to close it would take away the locks of the store.
        let broken = fs::OpenOptions::new().write(true).open(&file).unwrap();
        let before = run(async {
            let store = SqliteStore::open(&file).unwrap();
            let mut lease = None;
            if writes {
                lease = Some(store.claim(&sid("s"), Claim::IfFree).await.unwrap());
            }
            // All but the first pages, which say where the tables are.
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
            let Err(StoreError::Unreadable(why)) = found else {
                unreachable!("{found:?}");
            };
            assert!(why.contains("is damaged"), "{why}");
            assert!(why.contains("A check found"), "{why}");
            assert!(why.contains(".recover"), "{why}");
            let changed = why.contains("no longer writes");
            assert_eq!(changed, writes, "{why}");
            assert_eq!(why.contains("Nothing was changed"), !writes, "{why}");
            // Damage that is known ends all writing.
            let refused = store.claim(&sid("other"), Claim::TakeOver).await;
            assert_eq!(refused, Err(StoreError::Unreadable(why)));
            before
        });
        // What was written before it was found is in the log, and stays there.
        assert!(fs::read(&file).unwrap() == before);
        assert!(unreadable(SqliteStore::open(&file)).contains("Nothing was changed"));
        assert!(fs::read(&file).unwrap() == before);
    }
}

#[test]
fn a_document_that_makes_no_sense_is_named() {
    let (_folder, file) = place();
    filled(&file, 2);
    let db = Connection::open(&file).unwrap();
    db.execute("UPDATE engine_log SET doc = '{\"half' WHERE id = 'e1'", [])
        .unwrap();
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let read = store.path(&sid("s"), &eid("e1")).await;
        let Err(StoreError::Unreadable(why)) = read else {
            unreachable!("{read:?}");
        };
        assert!(why.contains("{\"half"), "{why}");
        // The others are as readable as before.
        assert_eq!(store.path(&sid("s"), &eid("e0")).await.unwrap().len(), 1);
    });
}

#[test]
fn a_place_that_is_not_there_is_unavailable() {
    let (folder, _) = place();
    for path in [folder.path().join("missing/s.db"), folder.path().to_owned()] {
        let refused = SqliteStore::open(path);
        assert!(
            matches!(refused, Err(StoreError::Unavailable(_))),
            "{refused:?}"
        );
    }
}

#[test]
fn the_file_is_for_its_owner_alone() {
    let (folder, file) = place();
    let store = SqliteStore::open(&file).unwrap();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
    drop(store);
}

#[test]
fn what_was_asked_for_is_written_though_nobody_waits_and_leases_end_with_the_store() {
    let (_folder, file) = place();
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let lease = begin(&store, "s").await;
        for _ in 0..20 {
            let batch = rye_protocol::Batch { ops: vec![told()] };
            drop(store.commit(&lease, batch));
        }
        drop(store);
        let store = SqliteStore::open(&file).unwrap();
        let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(record.sequence, 20);
        store.claim(&sid("s"), Claim::IfFree).await.unwrap();
    });
}

#[test]
fn closed_store_leaves_its_database_and_no_log_of_sqlite() {
    let (folder, file) = place();
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        begin(&store, "s").await;
        store.snapshot(&sid("s")).await.unwrap();
        drop(store.subscribe_posts());
    });
    let names: Vec<_> = lies_in(folder.path())
        .into_iter()
        .map(|file| file.0)
        .collect();
    let left = ["s.db", "s.db-lock", "s.db-queue", "s.db-stamp", "s.db-wake"];
    assert_eq!(names, left);
}

#[test]
fn a_turn_takes_the_same_room_however_many_were_before() {
    let size = |turns: usize| {
        let (_folder, file) = place();
        filled(&file, 0);
        run(async {
            let store = SqliteStore::open(&file).unwrap();
            let lease = store.claim(&sid("s"), Claim::TakeOver).await.unwrap();
            let mut written = 0;
            for mut entry in chain("s", turns) {
                let text = "what a tool has to say ".repeat(100);
                written += text.len() as u64;
                entry.kind = rye_protocol::EntryKind::Message(rye_protocol::Message::text(
                    rye_protocol::Role::Tool,
                    text,
                ));
                let mut now = session("s");
                now.updated_at = rye_protocol::Millis(written);
                let told = rye_store_contract::sample::told_of(&entry);
                let ops = vec![append(entry), told, put_session(now)];
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

/// Where a second process finds the file; without it, it has nothing to do.
const FILE: &str = "RYE_STORE_TEST_FILE";

/// This very program in another role, run by a shell that sets the scene first.
fn in_a_scene(scene: &str, role: &str, file: &Path) -> std::process::Output {
    let script = format!("{scene} && exec \"$0\" --exact files::{role} --nocapture");
    Command::new("sh")
        .args(["-c", &script])
        .arg(env::current_exe().unwrap())
        .env(FILE, file)
        .output()
        .unwrap()
}

fn well(output: &std::process::Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let cried = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{cried}");
    assert!(said.contains("1 passed"), "{said}{cried}");
}

#[test]
fn a_disk_that_fills_up_in_mid_commit_leaves_the_record_as_it_was() {
    let (_folder, file) = place();
    filled(&file, 1);
    // No file may grow beyond this, as if the disk were full.
    let scene = "trap '' XFSZ && ulimit -f 2000";
    well(&in_a_scene(scene, "fills_the_disk", &file));
    // There is room again.
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
        let sequence = store.snapshot(&sid("s")).await.unwrap().unwrap().sequence;
        assert!(sequence > 0);
        let next = write(&store, &lease, vec![told()]).await;
        assert_eq!(next, Ok(sequence + 1));
    });
}

/// The second process of the disk that fills up; by itself it has nothing to do.
#[test]
fn fills_the_disk() {
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
            match write(&store, &lease, vec![told(), append(large)]).await {
                Ok(sequence) => {
                    last += 1;
                    assert_eq!(sequence, last);
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        let record = store.snapshot(&sid("s")).await.unwrap().unwrap();
        assert_eq!(record.sequence, last);
        let gone = store.path(&sid("s"), &eid(&format!("large{last}"))).await;
        assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
    });
}

#[test]
fn a_disk_that_is_read_only_is_unavailable_and_stays_as_it_is() {
    let (folder, file) = place();
    filled(&file, 1);
    let before = lies_in(folder.path());
    let place = folder.path().display();
    // Root may write whatever a file's mode says, so its disk must be read-only in earnest.
    let output = if rustix::process::geteuid().is_root() {
        let mount = format!("mount --bind {place} {place} && mount -o remount,ro,bind {place}");
        let own = "exec unshare -m sh -c";
        let script = format!("{own} '{mount} && exec \"$0\" --exact files::finds_no_room' \"$0\"");
        let can = Command::new("unshare").args(["-m", "true"]).status();
        if !can.is_ok_and(|status| status.success()) {
            println!("not tried: this root may not mount");
            return;
        }
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command.arg(env::current_exe().unwrap()).env(FILE, &file);
        command.output().unwrap()
    } else {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        in_a_scene("true", "finds_no_room", &file)
    };
    well(&output);
    assert_eq!(lies_in(folder.path()), before);
}

/// The second process of the disk that is read-only; by itself it has nothing to do.
#[test]
fn finds_no_room() {
    let Ok(file) = env::var(FILE) else { return };
    let refused = SqliteStore::open(file);
    assert!(
        matches!(refused, Err(StoreError::Unavailable(_))),
        "{refused:?}"
    );
}
