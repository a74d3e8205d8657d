//! A file that is damaged is told of, read as far as it can be, and not made worse.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rye_engine::store::{Claim, SessionFilter, SessionStore, StoreError, UNREADABLE};
use rye_protocol::Batch;
use rye_store::{Integrity, SqliteStore, diagnose};
use rye_store_contract::run;
use rye_store_contract::sample::{append, begin, chain, entry, sid, told, write};
use tempfile::TempDir;

const PAGE: usize = 4096;
const LONG: Duration = Duration::from_mins(1);

/// A file with two sessions, closed.
fn filled(entries: usize) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.db");
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        for session in ["s", "t"] {
            let lease = begin(&store, session).await;
            let ops = chain(session, entries).into_iter().map(append).collect();
            write(&store, &lease, ops).await.unwrap();
        }
    });
    (folder, file)
}

/// What is damage, whoever finds it.
fn is_damage(error: &StoreError) -> bool {
    let told = error.to_string();
    told.contains("is damaged") || told.contains("is no database")
}

/// Reads all there is, and then writes; gives each error.
async fn use_it(file: &Path) -> Vec<StoreError> {
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
            let ops = vec![told(), append(entry("s", "new", Some("e149")))];
            errors.extend(write(&store, &lease, ops).await.err());
        }
        Err(error) => errors.push(error),
    }
    errors
}

/// What is done to a page.
type Damage<'a> = &'a dyn Fn(&mut [u8]);

/// Every kind of damage to every page: what is told of as damage has changed nothing in the
/// file, and what says so has changed nothing beside it either.
#[test]
fn a_damaged_file_stays_as_it_is() {
    let (_folder, file) = filled(150);
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
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("s.db");
            let mut bytes = whole.clone();
            damage(&mut bytes[number * PAGE..][..PAGE]);
            fs::write(&file, &bytes).unwrap();
            let errors = run(use_it(&file));
            if !errors.iter().any(is_damage) {
                continue;
            }
            found += 1;
            let now = fs::read(&file).unwrap();
            assert!(now == bytes, "page {number}, {name}: {errors:?}");
            let log = fs::metadata(folder.path().join("s.db-wal")).map_or(0, |it| it.len());
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
fn half_a_file_stays_as_it_is() {
    let (folder, file) = filled(150);
    let whole = fs::read(&file).unwrap();
    let half = &whole[..whole.len() / 2];
    fs::write(&file, half).unwrap();
    let before = names(folder.path());
    let errors = run(use_it(&file));
    assert!(errors.iter().all(is_damage), "{errors:?}");
    assert!(fs::read(&file).unwrap() == half);
    assert_eq!(names(folder.path()), before);
}

fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// The log of a process that was killed in the middle of its work on a file.
fn log_of_a_killed_process(file: &Path, statement: &str) -> Vec<u8> {
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

/// As when a file is put back from a backup, and the log beside it is not.
#[test]
fn a_log_that_belongs_to_another_file_is_not_put_into_this_one() {
    let (_folder, file) = filled(150);
    let (_other_folder, other) = filled(20);
    let log = log_of_a_killed_process(&other, "UPDATE engine_log SET doc = doc || doc");
    let log_file = file.with_extension("db-wal");
    fs::write(&log_file, &log).unwrap();
    let before = (fs::read(&file).unwrap(), log);
    let errors = run(use_it(&file));
    let now = (fs::read(&file).unwrap(), fs::read(&log_file).unwrap());
    assert!(now == before, "{errors:?}");
    let told = errors.last().unwrap().to_string();
    assert!(
        told.contains("is intact: is that the log of another file?"),
        "{told}"
    );
    // Without it, all is as it was.
    fs::remove_file(log_file).unwrap();
    assert_eq!(run(use_it(&file)), []);
}

/// What a killed process has left is put into the file as before.
#[test]
fn the_log_of_a_process_that_was_killed_is_used() {
    let (_folder, file) = filled(150);
    let log = log_of_a_killed_process(&file, "UPDATE engine_sessions SET user_id = 'ada'");
    fs::write(file.with_extension("db-wal"), log).unwrap();
    assert_eq!(run(use_it(&file)), []);
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

/// SQLite takes damage in a log for its end, and would drop what stands behind it.
#[test]
fn a_log_that_is_damaged_in_its_middle_stays_as_it_is_and_is_told_of() {
    let (_folder, file) = filled(150);
    let names = ["ada", "bob", "eve", "joe", "kim"];
    let updates = names.map(|it| format!("UPDATE engine_sessions SET user_id = '{it}';"));
    let mut log = log_of_a_killed_process(&file, &updates.concat());
    let frame = PAGE + 24;
    log[32 + frame + 500] ^= 1;
    let log_file = file.with_extension("db-wal");
    fs::write(&log_file, &log).unwrap();
    let before = (fs::read(&file).unwrap(), log);
    let errors = run(use_it(&file));
    let now = (fs::read(&file).unwrap(), fs::read(&log_file).unwrap());
    assert!(now == before, "{errors:?}");
    let told = errors.last().unwrap().to_string();
    assert!(told.contains("frame 2 of the log is damaged"), "{told}");
    let found = diagnose(&file, LONG).unwrap_err().to_string();
    assert!(found.contains("frame 2 of the log is damaged"), "{found}");
}

/// As when a disk is not mounted yet, or a file was moved: its log is all that is left here.
#[test]
fn the_log_of_a_file_that_is_not_there_or_empty_is_not_thrown_away() {
    let (_folder, file) = filled(150);
    let log = log_of_a_killed_process(&file, "UPDATE engine_sessions SET user_id = 'ada'");
    let (log_file, away) = (file.with_extension("db-wal"), file.with_extension("away"));
    fs::write(&log_file, &log).unwrap();
    fs::rename(&file, &away).unwrap();
    for what in ["is missing", "is empty"] {
        for told in [
            SqliteStore::open(&file).unwrap_err(),
            SqliteStore::open_or_read_only(&file).unwrap_err(),
            diagnose(&file, LONG).unwrap_err(),
        ] {
            assert!(told.to_string().contains(what), "{told}");
        }
        assert!(fs::read(&log_file).unwrap() == log);
        fs::write(&file, "").unwrap();
    }
    fs::rename(&away, &file).unwrap();
    assert_eq!(run(use_it(&file)), []);
    // Where there is no log either, how it was left says that something was in it.
    fs::write(&file, "").unwrap();
    let told = SqliteStore::open_or_read_only(&file)
        .unwrap_err()
        .to_string();
    assert!(told.contains("is empty, but had content"), "{told}");
    // Whoever wants to begin anew can.
    fs::remove_file(&file).unwrap();
    run(async { drop(begin(&SqliteStore::open(&file).unwrap(), "s").await) });
}

/// What is written to a file that has no name any more would be lost when it is closed.
#[test]
fn nothing_is_acknowledged_that_is_written_to_a_file_that_was_removed() {
    let (_folder, file) = filled(150);
    run(async {
        let store = SqliteStore::open(&file).unwrap();
        let lease = store.claim(&sid("s"), Claim::IfFree).await.unwrap();
        let copy = file.with_extension("copy");
        fs::copy(&file, &copy).unwrap();
        // Elsewhere it is still the same.
        let away = file.with_extension("away");
        fs::rename(&file, &away).unwrap();
        let ops = vec![told()];
        store.commit(&lease, Batch { ops }).await.unwrap();
        fs::rename(&away, &file).unwrap();
        // Another takes its place.
        fs::rename(&copy, &file).unwrap();
        for _ in 0..2 {
            let ops = vec![told()];
            let told = store.commit(&lease, Batch { ops }).await.unwrap_err();
            let told = told.to_string();
            assert!(told.contains("was removed or replaced while"), "{told}");
        }
    });
}

/// A file that was damaged before is not made worse by what a crash left in its log, and can
/// still be read.
#[test]
fn a_damaged_file_with_a_log_is_only_read() {
    let (_folder, file) = filled(150);
    let log = log_of_a_killed_process(&file, "UPDATE engine_sessions SET user_id = 'ada'");
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
        let why = store.read_only_reason().unwrap().to_string();
        assert!(why.contains("is damaged, together with"), "{why}");
        let filter = SessionFilter {
            limit: 9,
            ..SessionFilter::default()
        };
        let sessions = store.sessions(filter).await.unwrap();
        assert_eq!(sessions.len(), 2);
        let refused = store.claim(&sid("s"), Claim::IfFree).await.unwrap_err();
        assert_eq!(refused.to_string(), why);
    });
    let now = (fs::read(&file).unwrap(), fs::read(&log_file).unwrap());
    assert!(now == before);
    let found = diagnose(&file, LONG).unwrap_err().to_string();
    assert!(found.contains("is damaged, together with"), "{found}");
}

#[test]
fn a_sound_file_is_said_to_be_and_left_alone() {
    let (folder, file) = filled(150);
    let before = names(folder.path());
    let found = diagnose(&file, LONG).unwrap().unwrap();
    assert_eq!(found.integrity, Integrity::Intact);
    assert_eq!(found.version, found.newest);
    assert_eq!(found.read_only, None);
    assert_eq!(names(folder.path()), before);
    assert_eq!(diagnose(&folder.path().join("none"), LONG), Ok(None));
}

/// What one session has used up cannot be read; the other is listed all the same.
#[test]
fn a_thread_that_makes_no_sense_hides_no_session() {
    for column in ["usage", "open_prompts"] {
        let (_folder, file) = filled(2);
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
            let told = sessions
                .iter()
                .map(|it| it.metadata.contains_key(UNREADABLE));
            assert_eq!(told.collect::<Vec<_>>(), [false, column == "usage"]);
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
