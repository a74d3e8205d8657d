//! Damaged files: the store reports the damage, reads what it can, and changes nothing.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rye_engine::store::{Claim, SessionFilter, SessionStore, StoreError};
use rye_protocol::Batch;
use rye_store::{Integrity, SqliteStore, diagnose};
use rye_testkit::store_contract::run;
use rye_testkit::store_contract::sample::{
    append, chain, create_session, entry, sid, status_event, write,
};
use tempfile::TempDir;

const PAGE: usize = 4096;
const TIMEOUT: Duration = Duration::from_mins(1);

/// A closed database with two sessions.
fn database(entries: usize) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.db");
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        for session in ["s", "t"] {
            let lease = create_session(&store, session).await;
            let ops = chain(session, entries).into_iter().map(append).collect();
            write(&store, &lease, ops).await.unwrap();
        }
    });
    (dir, file)
}

/// Whether the error is about the file as a whole, and not about one of its documents.
fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Damaged(_))
}

/// Reads everything, then writes. Returns all errors.
async fn read_and_write(file: &Path) -> Vec<StoreError> {
    let store = match SqliteStore::open_or_read_only(file) {
        Ok(store) => store,
        Err(error) => return vec![error],
    };
    let mut errors = Vec::new();
    let filter = SessionFilter {
        limit: 9,
        ..SessionFilter::default()
    };
    errors.extend(store.sessions(filter).await.err());
    for session in ["s", "t"] {
        errors.extend(store.archive(&sid(session)).await.err());
    }
    errors.extend(store.pending_gates(None).await.err());
    match store.claim(&sid("s"), Claim::TakeOver).await {
        Ok(lease) => {
            let ops = vec![status_event(), append(entry("s", "new", Some("e149")))];
            errors.extend(write(&store, &lease, ops).await.err());
        }
        Err(error) => errors.push(error),
    }
    errors
}

/// Damages a page.
type Damage<'a> = &'a dyn Fn(&mut [u8]);

/// Tries several kinds of damage on every page. If the store reports damage, the file is
/// unchanged; if it says that nothing was changed, there is no write-ahead log either.
#[test]
fn damaged_file_is_not_changed() {
    let (_dir, file) = database(150);
    let whole = fs::read(&file).unwrap();
    let noise: Vec<u8> = (0..PAGE)
        .map(|at| (at * at / 7 + at * 31).to_le_bytes()[0])
        .collect();
    let damage: [(&str, Damage<'_>); 4] = [
        ("zeroed", &|page| page.fill(0)),
        ("torn", &|page| {
            page[PAGE / 2..].copy_from_slice(&noise[PAGE / 2..]);
        }),
        ("of another type", &|page| page[0] = 0x77),
        ("random", &|page| page.copy_from_slice(&noise)),
    ];
    let mut found = 0;
    for number in 0..whole.len() / PAGE {
        for (name, damage) in damage {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("s.db");
            let mut bytes = whole.clone();
            damage(&mut bytes[number * PAGE..][..PAGE]);
            fs::write(&file, &bytes).unwrap();
            let errors = run(read_and_write(&file));
            if !errors.iter().any(is_damage) {
                continue;
            }
            found += 1;
            let now = fs::read(&file).unwrap();
            assert!(now == bytes, "page {number}, {name}: {errors:?}");
            let log = fs::metadata(dir.path().join("s.db-wal")).map_or(0, |it| it.len());
            let claims = errors
                .iter()
                .any(|it| it.to_string().contains("Nothing was"));
            assert!(
                log == 0 || !claims,
                "page {number}, {name}, is in the log: {errors:?}"
            );
        }
    }
    assert!(found > 40, "only {found} damages were found");
}

#[test]
fn truncated_file_is_not_changed() {
    let (dir, file) = database(150);
    let whole = fs::read(&file).unwrap();
    let half = &whole[..whole.len() / 2];
    fs::write(&file, half).unwrap();
    let before = names(dir.path());
    let errors = run(read_and_write(&file));
    assert!(errors.iter().all(is_damage), "{errors:?}");
    assert!(fs::read(&file).unwrap() == half);
    assert_eq!(names(dir.path()), before);
}

fn names(dir: &Path) -> Vec<String> {
    let files = fs::read_dir(dir).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// The write-ahead log of a process that was killed during a transaction.
fn log_of_killed_process(file: &Path, statement: &str) -> Vec<u8> {
    let copy = file.with_extension("copy");
    fs::copy(file, &copy).unwrap();
    let db = Connection::open(&copy).unwrap();
    db.execute_batch(statement).unwrap();
    let log = fs::read(copy.with_extension("copy-wal")).unwrap();
    drop(db);
    fs::remove_file(copy).unwrap();
    assert!(!log.is_empty());
    log
}

/// For instance after the file was restored from a backup, but not the log.
#[test]
fn log_of_another_file_is_not_applied() {
    let (_dir, file) = database(150);
    let (_other_dir, other) = database(20);
    let log = log_of_killed_process(&other, "UPDATE engine_log SET doc = doc || doc");
    let log_file = file.with_extension("db-wal");
    fs::write(&log_file, &log).unwrap();
    let before = (fs::read(&file).unwrap(), log);
    let errors = run(read_and_write(&file));
    let now = (fs::read(&file).unwrap(), fs::read(&log_file).unwrap());
    assert!(now == before, "{errors:?}");
    let message = errors.last().unwrap().to_string();
    assert!(
        message.contains("the log may belong to another file"),
        "{message}"
    );
    // The file is intact without the log.
    fs::remove_file(log_file).unwrap();
    assert_eq!(run(read_and_write(&file)), []);
}

#[test]
fn log_of_killed_process_is_applied() {
    let (_dir, file) = database(150);
    let log = log_of_killed_process(&file, "UPDATE engine_sessions SET user_id = 'ada'");
    fs::write(file.with_extension("db-wal"), log).unwrap();
    assert_eq!(run(read_and_write(&file)), []);
    let db = Connection::open(&file).unwrap();
    let owners: i64 = db
        .query_row(
            "SELECT count(*) FROM engine_sessions WHERE user_id = 'ada'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(owners, 2);
}

/// SQLite would ignore everything after the damage.
#[test]
fn damaged_log_is_reported_and_not_changed() {
    let (_dir, file) = database(150);
    let names = ["ada", "bob", "eve", "joe", "kim"];
    let updates = names.map(|it| format!("UPDATE engine_sessions SET user_id = '{it}';"));
    let mut log = log_of_killed_process(&file, &updates.concat());
    let frame = PAGE + 24;
    log[32 + frame + 500] ^= 1;
    let log_file = file.with_extension("db-wal");
    fs::write(&log_file, &log).unwrap();
    let before = (fs::read(&file).unwrap(), log);
    let errors = run(read_and_write(&file));
    let now = (fs::read(&file).unwrap(), fs::read(&log_file).unwrap());
    assert!(now == before, "{errors:?}");
    let message = errors.last().unwrap().to_string();
    assert!(
        message.contains("frame 2 of the log is damaged"),
        "{message}"
    );
    let report = diagnose(&file, TIMEOUT).unwrap_err().to_string();
    assert!(report.contains("frame 2 of the log is damaged"), "{report}");
}

/// For instance if a disk is not mounted yet or the file was moved.
#[test]
fn log_of_a_missing_or_empty_file_is_not_deleted() {
    let (_dir, file) = database(150);
    let log = log_of_killed_process(&file, "UPDATE engine_sessions SET user_id = 'ada'");
    let (log_file, away) = (file.with_extension("db-wal"), file.with_extension("away"));
    fs::write(&log_file, &log).unwrap();
    fs::rename(&file, &away).unwrap();
    for state in ["is missing", "is empty"] {
        for error in [
            SqliteStore::open(&file).unwrap_err(),
            SqliteStore::open_or_read_only(&file).unwrap_err(),
            diagnose(&file, TIMEOUT).unwrap_err(),
        ] {
            assert!(error.to_string().contains(state), "{error}");
        }
        assert!(fs::read(&log_file).unwrap() == log);
        fs::write(&file, "").unwrap();
    }
    fs::rename(&away, &file).unwrap();
    assert_eq!(run(read_and_write(&file)), []);
    // Without a log, the stamp says that the file had content.
    fs::write(&file, "").unwrap();
    let message = SqliteStore::open_or_read_only(&file)
        .unwrap_err()
        .to_string();
    assert!(message.contains("is empty, but had content"), "{message}");
    // Removing the file starts with an empty database.
    fs::remove_file(&file).unwrap();
    run(async { drop(create_session(&SqliteStore::open(&file).unwrap(), "s").await) });
}

/// Writes to a deleted file would be lost.
#[test]
fn commits_to_a_removed_file_fail() {
    let (_dir, file) = database(150);
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
        let copy = file.with_extension("copy");
        fs::copy(&file, &copy).unwrap();
        // A renamed file is still the same file.
        let away = file.with_extension("away");
        fs::rename(&file, &away).unwrap();
        let ops = vec![status_event()];
        store.commit(&lease, Batch { ops }).await.unwrap();
        fs::rename(&away, &file).unwrap();
        // Another file replaces it.
        fs::rename(&copy, &file).unwrap();
        for _ in 0..2 {
            let ops = vec![status_event()];
            let message = store.commit(&lease, Batch { ops }).await.unwrap_err();
            let message = message.to_string();
            assert!(
                message.contains("was removed or replaced while"),
                "{message}"
            );
        }
    });
}

/// The store neither applies the log of a crashed process nor writes, but can read.
#[test]
fn damaged_file_with_a_log_is_opened_read_only() {
    let (_dir, file) = database(150);
    let log = log_of_killed_process(&file, "UPDATE engine_sessions SET user_id = 'ada'");
    let log_file = file.with_extension("db-wal");
    fs::write(&log_file, &log).unwrap();
    let root: i64 = Connection::open_with_flags(&file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
        .unwrap()
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'engine_ids'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let offset = u64::try_from(root - 1).unwrap() * PAGE as u64;
    let broken = fs::OpenOptions::new().write(true).open(&file).unwrap();
    broken.write_all_at(&[0x77; PAGE], offset).unwrap();
    let before = (fs::read(&file).unwrap(), log);
    run(async {
        let store = SqliteStore::open_or_read_only(&file).unwrap();
        let reason = store.read_only_reason().unwrap().to_string();
        assert!(reason.contains("is damaged, together with"), "{reason}");
        let filter = SessionFilter {
            limit: 9,
            ..SessionFilter::default()
        };
        let sessions = store.sessions(filter).await.unwrap();
        assert_eq!(sessions.len(), 2);
        let refused = store.claim(&sid("s"), Claim::IfFree).await.unwrap_err();
        assert_eq!(refused.to_string(), reason);
    });
    let now = (fs::read(&file).unwrap(), fs::read(&log_file).unwrap());
    assert!(now == before);
    let report = diagnose(&file, TIMEOUT).unwrap_err().to_string();
    assert!(report.contains("is damaged, together with"), "{report}");
}

#[test]
fn diagnose_reports_an_intact_file_without_changing_it() {
    let (dir, file) = database(150);
    let before = names(dir.path());
    let report = diagnose(&file, TIMEOUT).unwrap().unwrap();
    assert_eq!(report.integrity, Integrity::Intact);
    assert_eq!(report.version, report.newest);
    assert_eq!(report.read_only, None);
    assert_eq!(names(dir.path()), before);
    assert_eq!(diagnose(&dir.path().join("none"), TIMEOUT), Ok(None));
}

/// One session has an invalid row; the other one is still listed and writable.
#[test]
fn unreadable_session_does_not_hide_others() {
    for column in ["usage", "open_prompts"] {
        let (_dir, file) = database(2);
        let db = Connection::open(&file).unwrap();
        let broken = format!(
            "UPDATE engine_threads SET {column} = '{{\"half' WHERE session =
             (SELECT number FROM engine_sessions WHERE id = 's')"
        );
        db.execute(&broken, []).unwrap();
        run(async {
            let store = SqliteStore::open(&file).unwrap();
            let filter = SessionFilter {
                limit: 9,
                ..SessionFilter::default()
            };
            let sessions = store.sessions(filter).await.unwrap();
            let names: Vec<_> = sessions.iter().map(|it| it.id.as_str()).collect();
            assert_eq!(names, ["t", "s"]);
            let unreadable = sessions.iter().map(|it| it.unreadable.is_some());
            assert_eq!(unreadable.collect::<Vec<_>>(), [false, column == "usage"]);
            let lease = store.claim(&sid("s"), Claim::TakeOver).await.unwrap();
            let ops = vec![append(entry("s", "new", None))];
            let refused = write(&store, &lease, ops).await;
            assert!(
                matches!(refused, Err(StoreError::Unreadable(_))),
                "{refused:?}"
            );
            let lease = store.claim(&sid("t"), Claim::TakeOver).await.unwrap();
            let ops = vec![append(entry("t", "new", None))];
            write(&store, &lease, ops).await.unwrap();
        });
    }
}
