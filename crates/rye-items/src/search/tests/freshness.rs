//! The next search sees every change, in the same process and in a new one.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering;

use super::corpus;
use super::fixture::{Fixture, Lines, ids};
use crate::search::{Query, SearchIndex};

/// A fixture with indexes that are searched before and after each change.
struct WatchTarget {
    fixture: Fixture,
    watching: SearchIndex,
    scanning: SearchIndex,
}

impl WatchTarget {
    fn new(fixture: Fixture) -> Self {
        let watched = Self {
            watching: SearchIndex::with_watcher(Some(&fixture.cache())),
            scanning: SearchIndex::new(None),
            fixture,
        };
        watched.agree();
        watched
    }

    /// Checks that all indexes agree with a fresh one; returns the ids that contain
    /// `word`.
    fn agree(&self) -> String {
        let mut list = Query::new("");
        list.limit = usize::MAX;
        for query in [Query::new("word"), list.clone()] {
            let expected = self.fixture.search_fresh(&query);
            assert_eq!(self.fixture.search(&self.watching, &query), expected);
            assert_eq!(self.fixture.search(&self.scanning, &query), expected);
            let new = SearchIndex::new(Some(&self.fixture.cache()));
            assert_eq!(self.fixture.search(&new, &query), expected);
        }
        let found = self.fixture.search_fresh(&Query::new("word"));
        ids(&found).join(" ")
    }

    /// Whether the watching index had to walk the directories.
    fn walks(&self) -> bool {
        let reader = Lines::default();
        let spaces = self.fixture.spaces();
        self.watching.search(&spaces, &reader, &Query::new("word"));
        reader.shown.load(Ordering::Relaxed) > 0
    }
}

#[test]
fn immediate_rewrite_of_the_same_size_is_seen() {
    let fixture = Fixture::new();
    fixture.put("tools/a.py", "word 0000");
    let watched = WatchTarget::new(fixture);
    for n in 1..300 {
        let text = format!("{n:04}");
        watched.fixture.put("tools/a.py", &format!("word {text}"));
        let query = Query::new(text);
        let new = SearchIndex::new(Some(&watched.fixture.cache()));
        assert_eq!(ids(&watched.fixture.search(&new, &query)), ["a"]);
        assert_eq!(
            ids(&watched.fixture.search(&watched.watching, &query)),
            ["a"]
        );
    }
}

#[test]
fn created_renamed_and_deleted_files_are_seen() {
    let fixture = Fixture::new();
    fixture.put("tools/a.py", "word");
    let watched = WatchTarget::new(fixture);
    let fixture = &watched.fixture;
    fixture.put("tools/b.py", "word");
    assert_eq!(watched.agree(), "a b");
    fs::rename(fixture.item("tools/b.py"), fixture.item("tools/c.py")).unwrap();
    assert_eq!(watched.agree(), "a c");
    fs::remove_file(fixture.item("tools/a.py")).unwrap();
    assert_eq!(watched.agree(), "c");
    // Replaced by a rename, as editors do.
    fixture.put("elsewhere", "nothing");
    fs::rename(fixture.item("elsewhere"), fixture.item("tools/c.py")).unwrap();
    assert_eq!(watched.agree(), "");
    let mut file = OpenOptions::new()
        .append(true)
        .open(fixture.item("tools/c.py"))
        .unwrap();
    write!(file, " word").unwrap();
    assert_eq!(watched.agree(), "c", "appended to, and still open");
}

#[test]
fn created_moved_and_deleted_directories_are_seen() {
    let fixture = Fixture::new();
    fixture.put("tools/a.py", "word");
    let watched = WatchTarget::new(fixture);
    let fixture = &watched.fixture;
    fixture.put("tools/x/y/z/deep.py", "word");
    assert_eq!(watched.agree(), "a x/y/z/deep");
    fixture.put("tools/x/y/z/deep2.py", "word");
    assert_eq!(watched.agree(), "a x/y/z/deep x/y/z/deep2");
    fs::rename(fixture.item("tools/x"), fixture.path("away")).unwrap();
    assert_eq!(watched.agree(), "a");
    fs::write(fixture.path("away/y/z/deep.py"), "word changed").unwrap();
    assert_eq!(watched.agree(), "a");
    fs::rename(fixture.path("away"), fixture.item("tools/back")).unwrap();
    // The changed file is longer, so the word weighs less in it.
    assert_eq!(watched.agree(), "a back/y/z/deep2 back/y/z/deep");
    fs::remove_dir_all(fixture.item("tools")).unwrap();
    assert_eq!(watched.agree(), "");
    fixture.put("tools/a.py", "word");
    fixture.put("directives/d.md", "word");
    assert_eq!(watched.agree(), "a d");
}

#[test]
fn created_replaced_and_deleted_spaces_are_seen() {
    let watched = WatchTarget::new(Fixture::new());
    let fixture = &watched.fixture;
    fixture.put("tools/a.py", "word");
    assert_eq!(watched.agree(), "a");
    fixture.put_in("user", "knowledge/k.md", "word");
    assert_eq!(watched.agree(), "a k");
    for n in 0..5 {
        fs::rename(
            fixture.path("project/.ai"),
            fixture.path(&format!("old{n}")),
        )
        .unwrap();
        assert_eq!(watched.agree(), "k");
        fixture.put(&format!("tools/new{n}.py"), "word");
        assert_eq!(watched.agree(), format!("new{n} k"));
    }
    // The new directory often reuses the inode of the old one.
    for n in 0..20 {
        fs::remove_dir_all(fixture.path("project/.ai")).unwrap();
        fixture.put(&format!("tools/again{n}.py"), "word");
        assert_eq!(watched.agree(), format!("again{n} k"));
    }
}

#[test]
fn changes_of_a_symlink_target_are_seen() {
    let fixture = Fixture::new();
    fixture.put("shared/one.py", "word");
    fixture.put("shared/two.py", "other");
    fs::create_dir_all(fixture.item("tools")).unwrap();
    symlink("../shared/one.py", fixture.item("tools/a.py")).unwrap();
    let watched = WatchTarget::new(fixture);
    let fixture = &watched.fixture;
    assert_eq!(watched.agree(), "a");
    assert!(
        !watched.walks(),
        "a link to a file is checked without a walk"
    );
    // The target changes in a directory that is not watched.
    fixture.put("shared/one.py", "changed");
    assert_eq!(watched.agree(), "");
    fixture.put("shared/one.py", "word");
    assert_eq!(watched.agree(), "a");
    // It points elsewhere through another link.
    symlink("two.py", fixture.item("shared/way.py")).unwrap();
    fs::remove_file(fixture.item("tools/a.py")).unwrap();
    symlink("../shared/way.py", fixture.item("tools/a.py")).unwrap();
    assert_eq!(watched.agree(), "");
    fs::remove_file(fixture.item("shared/way.py")).unwrap();
    assert_eq!(watched.agree(), "");
    symlink("one.py", fixture.item("shared/way.py")).unwrap();
    assert_eq!(watched.agree(), "a", "the dangling link has a target again");
    fs::remove_file(fixture.item("shared/one.py")).unwrap();
    assert_eq!(watched.agree(), "");
}

#[test]
fn changes_below_a_linked_directory_are_seen() {
    let fixture = Fixture::new();
    fixture.put("shared/x/a.py", "word");
    fs::create_dir_all(fixture.item("tools")).unwrap();
    symlink("../shared", fixture.item("tools/more")).unwrap();
    let watched = WatchTarget::new(fixture);
    let fixture = &watched.fixture;
    assert_eq!(watched.agree(), "more/x/a");
    fixture.put("shared/x/b.py", "word");
    assert_eq!(watched.agree(), "more/x/a more/x/b");
    fixture.put("shared/x/b.py", "nothing");
    assert_eq!(watched.agree(), "more/x/a");
    fs::remove_file(fixture.item("tools/more")).unwrap();
    assert_eq!(watched.agree(), "");
    // The directory of a kind may be a link, too.
    fs::remove_dir_all(fixture.item("tools")).unwrap();
    symlink("shared", fixture.item("tools")).unwrap();
    assert_eq!(watched.agree(), "x/a");
    fixture.put("shared/x/b.py", "word");
    assert_eq!(watched.agree(), "x/a x/b");
}

#[test]
fn changes_through_a_hard_link_are_seen() {
    let fixture = Fixture::new();
    fixture.put("tools/a.py", "word");
    fs::hard_link(fixture.item("tools/a.py"), fixture.path("outside")).unwrap();
    let watched = WatchTarget::new(fixture);
    assert_eq!(watched.agree(), "a");
    for (text, found) in [("nothing", ""), ("word", "a"), ("other", "")] {
        fs::write(watched.fixture.path("outside"), text).unwrap();
        assert_eq!(watched.agree(), found);
    }
}

#[test]
fn link_out_of_the_space_is_reported_and_not_followed() {
    let fixture = Fixture::new();
    fixture.put("tools/a.py", "word");
    fs::write(fixture.path("outside.py"), "word").unwrap();
    symlink("../../../outside.py", fixture.item("tools/out.py")).unwrap();
    let watched = WatchTarget::new(fixture);
    assert_eq!(watched.agree(), "a");
    let errors = watched
        .fixture
        .search(&watched.watching, &Query::new("word"))
        .errors;
    assert_eq!(errors.len(), 1);
    assert!(errors[0].message.contains("out.py"), "{:?}", errors[0]);
}

#[test]
fn oversized_file_is_found_by_its_id() {
    let fixture = Fixture::new();
    fixture.put("tools/small.py", "word");
    let large = File::create(fixture.item("tools/large.py")).unwrap();
    large.set_len(17 << 20).unwrap();
    let watched = WatchTarget::new(fixture);
    watched.agree();
    let answer = watched
        .fixture
        .search(&watched.watching, &Query::new("large"));
    assert!(answer.hits[0].problem.is_some());
    large.set_len(0).unwrap();
    watched.agree();
}

#[test]
fn unchanged_directories_are_not_walked() {
    let watched = WatchTarget::new(corpus::fixture());
    assert!(!watched.walks());
    // Files that are not items.
    let fixture = &watched.fixture;
    fixture.put("threads/1/log", "x");
    fixture.put("note.md", "x");
    fixture.put("tools/git/__pycache__/commit.pyc", "x");
    fixture.put("tools/.commit.py.swp", "x");
    assert!(!watched.walks());
    fixture.put("tools/git/commit.py", "x");
    assert!(watched.walks());
    assert!(!watched.walks());
}

#[test]
fn inotify_queue_overflow_counts_as_a_change() {
    let fixture = Fixture::new();
    fixture.put("tools/a.py", "");
    fixture.put("tools/b.py", "");
    let watched = WatchTarget::new(fixture);
    let fixture = &watched.fixture;
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let mut files =
        ["tools/a.py", "tools/b.py"].map(|path| File::create(fixture.item(path)).unwrap());
    // inotify merges identical consecutive events.
    for n in 0..limit.min(1 << 20) + 10 {
        files[n % 2].write_all(b".").unwrap();
    }
    fixture.put("tools/late.py", "word");
    assert_eq!(watched.agree(), "late");
    fixture.put("tools/late.py", "nothing");
    assert_eq!(watched.agree(), "");
}

#[test]
fn evicted_projects_are_still_searched() {
    let catalogue = SearchIndex::with_watcher(None);
    let fixtures: Vec<_> = (0..80).map(|_| Fixture::new()).collect();
    for round in ["one", "two"] {
        for fixture in &fixtures {
            fixture.put("tools/a.py", round);
        }
        for fixture in &fixtures {
            assert_eq!(ids(&fixture.search(&catalogue, &Query::new(round))), ["a"]);
        }
    }
}
