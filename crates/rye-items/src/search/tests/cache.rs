//! The on-disk cache: missing, damaged, foreign, shared.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::corpus::{self, ITEMS};
use super::fixture::{Fixture, Lines, ids, wait_until_reliable};
use crate::search::scan::scan;
use crate::search::update::update;
use crate::search::{Query, SearchIndex, SearchResults};

fn query() -> Query {
    Query::new("deploy kubernetes file")
}

/// The results of a new process, and how many files it read.
fn search(fixture: &Fixture, cache: &Path) -> (SearchResults, usize) {
    let reader = Lines::default();
    let catalogue = SearchIndex::new(Some(cache));
    let answer = catalogue.search(&fixture.spaces(), &reader, &query());
    (answer, reader.read.load(Ordering::Relaxed))
}

fn segments(fixture: &Fixture) -> Vec<PathBuf> {
    let entries = fs::read_dir(fixture.cache().join("index")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn unchanged_files_are_read_once() {
    let fixture = corpus::fixture();
    wait_until_reliable(&fixture.path("project"));
    let (first, read) = search(&fixture, &fixture.cache());
    assert_eq!(read, ITEMS.len());
    assert_eq!(search(&fixture, &fixture.cache()), (first, 0));
    fixture.put("tools/new.py", "deploy");
    fixture.put("tools/git/diff.py", "deploy");
    let (answer, read) = search(&fixture, &fixture.cache());
    assert_eq!(read, 2);
    assert_eq!(answer, fixture.search_fresh(&query()));
}

#[test]
fn file_with_racy_timestamps_is_read_every_time() {
    let fixture = corpus::fixture();
    let future = SystemTime::now() + Duration::from_hours(1);
    let times = FileTimes::new().set_modified(future);
    let file = File::options()
        .write(true)
        .open(fixture.item("tools/git/diff.py"));
    file.unwrap().set_times(times).unwrap();
    let (first, _) = search(&fixture, &fixture.cache());
    let files_read = |(answer, read): (SearchResults, usize)| {
        assert_eq!(answer, first);
        read
    };
    // The other files are read again until the clock tick in which they were written
    // ends.
    while files_read(search(&fixture, &fixture.cache())) > 1 {}
    let before: Vec<_> = segments(&fixture)
        .iter()
        .map(|p| fs::read(p).unwrap())
        .collect();
    assert_eq!(files_read(search(&fixture, &fixture.cache())), 1);
    let after: Vec<_> = segments(&fixture)
        .iter()
        .map(|p| fs::read(p).unwrap())
        .collect();
    assert!(before == after);
}

#[test]
fn new_reader_version_reads_everything_again() {
    let fixture = corpus::fixture();
    wait_until_reliable(&fixture.path("project"));
    search(&fixture, &fixture.cache());
    let reader = Lines {
        version: 2,
        ..Lines::default()
    };
    let catalogue = SearchIndex::new(Some(&fixture.cache()));
    catalogue.search(&fixture.spaces(), &reader, &query());
    assert_eq!(reader.read.load(Ordering::Relaxed), ITEMS.len());
    assert_eq!(
        search(&fixture, &fixture.cache()).1,
        0,
        "the other is still there"
    );
}

#[test]
fn damaged_cache_is_rebuilt() {
    let fixture = corpus::fixture();
    wait_until_reliable(&fixture.path("project"));
    let (expected, _) = search(&fixture, &fixture.cache());
    let paths = segments(&fixture);
    let path = paths.iter().max_by_key(|p| p.metadata().unwrap().len());
    let path = path.unwrap();
    let whole = fs::read(path).unwrap();
    let damaged = |bytes: &[u8]| {
        fs::write(path, bytes).unwrap();
        let (answer, read) = search(&fixture, &fixture.cache());
        assert_eq!(answer, expected);
        assert_eq!(read, ITEMS.len());
        assert!(fs::read(path).unwrap() == whole, "made again");
    };
    for length in (0..whole.len()).step_by(whole.len() / 40) {
        damaged(&whole[..length]);
    }
    for place in (0..whole.len()).step_by(whole.len() / 60).chain(0..20) {
        let mut flipped = whole.clone();
        flipped[place] ^= 1 << (place % 8);
        damaged(&flipped);
    }
    damaged(&[whole.as_slice(), b"more"].concat());
}

#[test]
fn segment_of_another_directory_is_ignored() {
    let (one, other) = (corpus::fixture(), Fixture::new());
    other.put("tools/x.py", "deploy");
    search(&one, &one.cache());
    search(&other, &other.cache());
    let [from, to] = [&one, &other].map(|fixture| {
        let paths = segments(fixture);
        let path = paths
            .into_iter()
            .max_by_key(|p| p.metadata().unwrap().len());
        path.unwrap()
    });
    fs::copy(from, to).unwrap();
    assert_eq!(ids(&search(&other, &other.cache()).0), ["x"]);
}

#[test]
fn cache_writable_for_others_is_ignored() {
    let fixture = corpus::fixture();
    wait_until_reliable(&fixture.path("project"));
    search(&fixture, &fixture.cache());
    for path in segments(&fixture) {
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    }
    assert_eq!(search(&fixture, &fixture.cache()).1, ITEMS.len());
}

#[test]
fn unusable_cache_directory_does_not_break_search() {
    let fixture = corpus::fixture();
    let expected = fixture.search_fresh(&query());
    fixture.put_in("file", "x", "");
    for cache in ["/dev/null", "/proc/nowhere", "/proc"] {
        assert_eq!(search(&fixture, Path::new(cache)).0, expected);
    }
    let dangling = fixture.path("dangling");
    std::os::unix::fs::symlink("/proc/nowhere", &dangling).unwrap();
    assert_eq!(search(&fixture, &dangling).0, expected);
    // Replace the segments by directories, then by pipes.
    search(&fixture, &fixture.cache());
    for path in segments(&fixture) {
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
    }
    assert_eq!(search(&fixture, &fixture.cache()).0, expected);
    for path in segments(&fixture) {
        fs::remove_dir(&path).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    assert_eq!(search(&fixture, &fixture.cache()).0, expected);
}

#[test]
fn unused_segments_are_deleted_and_used_ones_kept() {
    let fixture = corpus::fixture();
    wait_until_reliable(&fixture.path("project"));
    search(&fixture, &fixture.cache());
    let used = segments(&fixture);
    let unused = fixture.cache().join("index/unused");
    fs::write(&unused, "x").unwrap();
    let long_ago = SystemTime::now() - Duration::from_hours(31 * 24);
    for path in used.iter().chain([&unused]) {
        let times = FileTimes::new().set_modified(long_ago);
        File::open(path).unwrap().set_times(times).unwrap();
    }
    assert_eq!(search(&fixture, &fixture.cache()).1, 0);
    assert!(unused.exists(), "nothing was written");
    fixture.put("tools/new.py", "deploy");
    search(&fixture, &fixture.cache());
    assert_eq!(segments(&fixture), used);
}

#[test]
fn segment_depends_only_on_the_files() {
    let fixture = corpus::fixture();
    for n in 0..200 {
        let text = format!("number {n} of many, word{}", n % 7);
        fixture.put(&format!("tools/many/item{n}.py"), &text);
    }
    wait_until_reliable(&fixture.path("project"));
    let (spaces, reader) = (fixture.spaces(), Lines::default());
    let root = spaces.roots().next().unwrap();
    let key = lillux::Hash::digest("key");
    let (found, _) = scan(root, &reader, &mut ());
    let build = |old, found| update(root, &reader, old, found).0;
    let expected = build(None, &found);
    let bytes = expected.to_bytes(&key);
    assert!(build(None, &found).to_bytes(&key) == bytes);
    // Nor on the previous segment.
    let (mut some, _) = scan(root, &reader, &mut ());
    let mut keep = 0;
    some.retain(|_| {
        keep += 1;
        keep % 3 != 0
    });
    let fewer = build(None, &some);
    assert!(build(Some(Arc::clone(&fewer)), &found).to_bytes(&key) == bytes);
    assert!(build(Some(expected), &some).to_bytes(&key) == fewer.to_bytes(&key));
}

#[test]
fn concurrent_searches_agree() {
    let fixture = corpus::fixture();
    let shared = SearchIndex::with_watcher(Some(&fixture.cache()));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (fixture, shared) = (&fixture, &shared);
            scope.spawn(move || {
                for round in 0..15 {
                    let name = format!("tools/own{thread}.py");
                    fixture.put(&name, &format!("deploy round{round} thread{thread}"));
                    let own = Query::new(format!("round{round} thread{thread}"));
                    let id = format!("own{thread}");
                    assert_eq!(ids(&fixture.search(shared, &own))[0], id);
                    let other = SearchIndex::new(Some(&fixture.cache()));
                    assert_eq!(ids(&fixture.search(&other, &own))[0], id);
                }
            });
        }
    });
    let expected = fixture.search_fresh(&query());
    assert_eq!(fixture.search(&shared, &query()), expected);
    assert_eq!(search(&fixture, &fixture.cache()).0, expected);
}
