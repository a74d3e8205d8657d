//! The cache: missing, damaged, foreign, shared.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::corpus::{self, ITEMS};
use super::house::{House, Lines, ids, settle};
use crate::search::held::RootKey;
use crate::search::scan::scan;
use crate::search::update::update;
use crate::search::{Answer, Catalogue, Query};

fn query() -> Query {
    Query::new("deploy kubernetes file")
}

/// What a new process says, and how many files it read.
fn ask(house: &House, cache: &Path) -> (Answer, usize) {
    let reader = Lines::default();
    let catalogue = Catalogue::new(Some(cache));
    let answer = catalogue.search(&house.spaces(), &reader, &query());
    (answer, reader.read.load(Ordering::Relaxed))
}

fn segments(house: &House) -> Vec<PathBuf> {
    let entries = fs::read_dir(house.cache().join("index")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn what_did_not_change_is_read_once() {
    let house = corpus::house();
    settle(&house.path("project"));
    let (first, read) = ask(&house, &house.cache());
    assert_eq!(read, ITEMS.len());
    assert_eq!(ask(&house, &house.cache()), (first, 0));
    house.put("tools/new.py", "deploy");
    house.put("tools/git/diff.py", "deploy");
    let (answer, read) = ask(&house, &house.cache());
    assert_eq!(read, 2);
    assert_eq!(answer, house.ask_anew(&query()));
}

#[test]
fn a_file_whose_times_tell_nothing_is_read_each_time() {
    let house = corpus::house();
    let future = SystemTime::now() + Duration::from_hours(1);
    let times = FileTimes::new().set_modified(future);
    let file = File::options()
        .write(true)
        .open(house.item("tools/git/diff.py"));
    file.unwrap().set_times(times).unwrap();
    let (first, _) = ask(&house, &house.cache());
    let unsettled = |(answer, read): (Answer, usize)| {
        assert_eq!(answer, first);
        read
    };
    // The others are read again until the tick in which they were written is over.
    while unsettled(ask(&house, &house.cache())) > 1 {}
    let before: Vec<_> = segments(&house)
        .iter()
        .map(|p| fs::read(p).unwrap())
        .collect();
    assert_eq!(unsettled(ask(&house, &house.cache())), 1);
    let after: Vec<_> = segments(&house)
        .iter()
        .map(|p| fs::read(p).unwrap())
        .collect();
    assert!(before == after);
}

#[test]
fn another_version_of_the_reader_reads_everything_again() {
    let house = corpus::house();
    settle(&house.path("project"));
    ask(&house, &house.cache());
    let reader = Lines {
        version: 2,
        ..Lines::default()
    };
    let catalogue = Catalogue::new(Some(&house.cache()));
    catalogue.search(&house.spaces(), &reader, &query());
    assert_eq!(reader.read.load(Ordering::Relaxed), ITEMS.len());
    assert_eq!(ask(&house, &house.cache()).1, 0, "the other is still there");
}

#[test]
fn a_damaged_cache_is_made_again() {
    let house = corpus::house();
    settle(&house.path("project"));
    let (expected, _) = ask(&house, &house.cache());
    let paths = segments(&house);
    let path = paths.iter().max_by_key(|p| p.metadata().unwrap().len());
    let path = path.unwrap();
    let whole = fs::read(path).unwrap();
    let damaged = |bytes: &[u8]| {
        fs::write(path, bytes).unwrap();
        let (answer, read) = ask(&house, &house.cache());
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
fn the_segment_of_another_folder_is_not_taken() {
    let (one, other) = (corpus::house(), House::new());
    other.put("tools/x.py", "deploy");
    ask(&one, &one.cache());
    ask(&other, &other.cache());
    let [from, to] = [&one, &other].map(|house| {
        let paths = segments(house);
        let path = paths
            .into_iter()
            .max_by_key(|p| p.metadata().unwrap().len());
        path.unwrap()
    });
    fs::copy(from, to).unwrap();
    assert_eq!(ids(&ask(&other, &other.cache()).0), ["x"]);
}

#[test]
fn a_cache_that_others_can_write_to_is_not_believed() {
    let house = corpus::house();
    settle(&house.path("project"));
    ask(&house, &house.cache());
    for path in segments(&house) {
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    }
    assert_eq!(ask(&house, &house.cache()).1, ITEMS.len());
}

#[test]
fn a_cache_that_cannot_be_written_does_no_harm() {
    let house = corpus::house();
    let expected = house.ask_anew(&query());
    house.put_in("file", "x", "");
    for cache in ["/dev/null", "/proc/nowhere", "/proc"] {
        assert_eq!(ask(&house, Path::new(cache)).0, expected);
    }
    let dangling = house.path("dangling");
    std::os::unix::fs::symlink("/proc/nowhere", &dangling).unwrap();
    assert_eq!(ask(&house, &dangling).0, expected);
    // In the place of the segments there are folders, then pipes.
    ask(&house, &house.cache());
    for path in segments(&house) {
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
    }
    assert_eq!(ask(&house, &house.cache()).0, expected);
    for path in segments(&house) {
        fs::remove_dir(&path).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    assert_eq!(ask(&house, &house.cache()).0, expected);
}

#[test]
fn a_segment_that_nobody_uses_is_deleted_and_one_in_use_is_kept() {
    let house = corpus::house();
    settle(&house.path("project"));
    ask(&house, &house.cache());
    let used = segments(&house);
    let unused = house.cache().join("index/unused");
    fs::write(&unused, "x").unwrap();
    let long_ago = SystemTime::now() - Duration::from_hours(31 * 24);
    for path in used.iter().chain([&unused]) {
        let times = FileTimes::new().set_modified(long_ago);
        File::open(path).unwrap().set_times(times).unwrap();
    }
    assert_eq!(ask(&house, &house.cache()).1, 0);
    assert!(unused.exists(), "nothing was written");
    house.put("tools/new.py", "deploy");
    ask(&house, &house.cache());
    assert_eq!(segments(&house), used);
}

#[test]
fn a_segment_depends_on_the_files_alone() {
    let house = corpus::house();
    for n in 0..200 {
        let text = format!("number {n} of many, word{}", n % 7);
        house.put(&format!("tools/many/item{n}.py"), &text);
    }
    settle(&house.path("project"));
    let (spaces, reader) = (house.spaces(), Lines::default());
    let root = spaces.roots().next().unwrap();
    let key = RootKey::of(root, &reader).stored().key().to_owned();
    let (found, _) = scan(root, &reader, &mut ());
    let build = |old, found, threads| update(&key, root, &reader, old, found, threads).0;
    let expected = build(None, &found, 1);
    for threads in [2, 3, 8] {
        assert!(build(None, &found, threads).bytes() == expected.bytes());
    }
    // And not on what was known before.
    let (mut some, _) = scan(root, &reader, &mut ());
    let mut keep = 0;
    some.retain(|_| {
        keep += 1;
        keep % 3 != 0
    });
    let fewer = build(None, &some, 2);
    assert!(build(Some(Arc::clone(&fewer)), &found, 2).bytes() == expected.bytes());
    assert!(build(Some(expected), &some, 2).bytes() == fewer.bytes());
}

#[test]
fn many_at_once_agree() {
    let house = corpus::house();
    let shared = Catalogue::watching(Some(&house.cache()));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (house, shared) = (&house, &shared);
            scope.spawn(move || {
                for round in 0..15 {
                    let name = format!("tools/own{thread}.py");
                    house.put(&name, &format!("deploy round{round} thread{thread}"));
                    let own = Query::new(format!("round{round} thread{thread}"));
                    let id = format!("own{thread}");
                    assert_eq!(ids(&house.ask(shared, &own))[0], id);
                    let other = Catalogue::new(Some(&house.cache()));
                    assert_eq!(ids(&house.ask(&other, &own))[0], id);
                }
            });
        }
    });
    let expected = house.ask_anew(&query());
    assert_eq!(house.ask(&shared, &query()), expected);
    assert_eq!(ask(&house, &house.cache()).0, expected);
}
