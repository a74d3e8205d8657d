//! Changes are seen at the next search, in a process that stays and in a new one.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering;

use super::corpus;
use super::house::{House, Lines, ids};
use crate::search::{Catalogue, Query};

/// A house, with catalogues that have seen it before each change.
struct Watched {
    house: House,
    stays: Catalogue,
    looks: Catalogue,
}

impl Watched {
    fn new(house: House) -> Self {
        let watched = Self {
            stays: Catalogue::watching(Some(&house.cache())),
            looks: Catalogue::new(None),
            house,
        };
        watched.agree();
        watched
    }

    /// All say the same, whatever they knew; and that is what is there.
    fn agree(&self) -> String {
        let mut list = Query::new("");
        list.limit = usize::MAX;
        for query in [Query::new("word"), list.clone()] {
            let expected = self.house.ask_anew(&query);
            assert_eq!(self.house.ask(&self.stays, &query), expected);
            assert_eq!(self.house.ask(&self.looks, &query), expected);
            let new = Catalogue::new(Some(&self.house.cache()));
            assert_eq!(self.house.ask(&new, &query), expected);
        }
        let found = self.house.ask_anew(&Query::new("word"));
        ids(&found).join(" ")
    }

    /// Whether the one that stays had to walk.
    fn walks(&self) -> bool {
        let reader = Lines::default();
        let spaces = self.house.spaces();
        self.stays.search(&spaces, &reader, &Query::new("word"));
        reader.shown.load(Ordering::Relaxed) > 0
    }
}

#[test]
fn a_rewrite_of_the_same_size_at_once_is_seen() {
    let house = House::new();
    house.put("tools/a.py", "word 0000");
    let watched = Watched::new(house);
    for n in 1..300 {
        let text = format!("{n:04}");
        watched.house.put("tools/a.py", &format!("word {text}"));
        let query = Query::new(text);
        let new = Catalogue::new(Some(&watched.house.cache()));
        assert_eq!(ids(&watched.house.ask(&new, &query)), ["a"]);
        assert_eq!(ids(&watched.house.ask(&watched.stays, &query)), ["a"]);
    }
}

#[test]
fn files_come_and_go() {
    let house = House::new();
    house.put("tools/a.py", "word");
    let watched = Watched::new(house);
    let house = &watched.house;
    house.put("tools/b.py", "word");
    assert_eq!(watched.agree(), "a b");
    fs::rename(house.item("tools/b.py"), house.item("tools/c.py")).unwrap();
    assert_eq!(watched.agree(), "a c");
    fs::remove_file(house.item("tools/a.py")).unwrap();
    assert_eq!(watched.agree(), "c");
    // Replaced by a rename, as editors do.
    house.put("elsewhere", "nothing");
    fs::rename(house.item("elsewhere"), house.item("tools/c.py")).unwrap();
    assert_eq!(watched.agree(), "");
    let mut file = OpenOptions::new()
        .append(true)
        .open(house.item("tools/c.py"))
        .unwrap();
    write!(file, " word").unwrap();
    assert_eq!(watched.agree(), "c", "written to, and still open");
}

#[test]
fn folders_come_and_go_with_all_that_is_in_them() {
    let house = House::new();
    house.put("tools/a.py", "word");
    let watched = Watched::new(house);
    let house = &watched.house;
    house.put("tools/x/y/z/deep.py", "word");
    assert_eq!(watched.agree(), "a x/y/z/deep");
    house.put("tools/x/y/z/deep2.py", "word");
    assert_eq!(watched.agree(), "a x/y/z/deep x/y/z/deep2");
    fs::rename(house.item("tools/x"), house.path("away")).unwrap();
    assert_eq!(watched.agree(), "a");
    fs::write(house.path("away/y/z/deep.py"), "word changed").unwrap();
    assert_eq!(watched.agree(), "a");
    fs::rename(house.path("away"), house.item("tools/back")).unwrap();
    // The changed one is longer, so the word says less in it.
    assert_eq!(watched.agree(), "a back/y/z/deep2 back/y/z/deep");
    fs::remove_dir_all(house.item("tools")).unwrap();
    assert_eq!(watched.agree(), "");
    house.put("tools/a.py", "word");
    house.put("directives/d.md", "word");
    assert_eq!(watched.agree(), "a d");
}

#[test]
fn a_space_that_appears_is_replaced_or_goes_is_seen() {
    let watched = Watched::new(House::new());
    let house = &watched.house;
    house.put("tools/a.py", "word");
    assert_eq!(watched.agree(), "a");
    house.put_in("user", "knowledge/k.md", "word");
    assert_eq!(watched.agree(), "a k");
    for n in 0..5 {
        fs::rename(house.path("project/.ai"), house.path(&format!("old{n}"))).unwrap();
        assert_eq!(watched.agree(), "k");
        house.put(&format!("tools/new{n}.py"), "word");
        assert_eq!(watched.agree(), format!("new{n} k"));
    }
    // The next one often gets the inode of the one before.
    for n in 0..20 {
        fs::remove_dir_all(house.path("project/.ai")).unwrap();
        house.put(&format!("tools/again{n}.py"), "word");
        assert_eq!(watched.agree(), format!("again{n} k"));
    }
}

#[test]
fn a_link_is_as_what_it_leads_to() {
    let house = House::new();
    house.put("shared/one.py", "word");
    house.put("shared/two.py", "other");
    fs::create_dir_all(house.item("tools")).unwrap();
    symlink("../shared/one.py", house.item("tools/a.py")).unwrap();
    let watched = Watched::new(house);
    let house = &watched.house;
    assert_eq!(watched.agree(), "a");
    assert!(!watched.walks(), "a link to a file is looked at");
    // What it leads to changes, where nobody watches.
    house.put("shared/one.py", "changed");
    assert_eq!(watched.agree(), "");
    house.put("shared/one.py", "word");
    assert_eq!(watched.agree(), "a");
    // It leads elsewhere, by a link on the way.
    symlink("two.py", house.item("shared/way.py")).unwrap();
    fs::remove_file(house.item("tools/a.py")).unwrap();
    symlink("../shared/way.py", house.item("tools/a.py")).unwrap();
    assert_eq!(watched.agree(), "");
    fs::remove_file(house.item("shared/way.py")).unwrap();
    assert_eq!(watched.agree(), "");
    symlink("one.py", house.item("shared/way.py")).unwrap();
    assert_eq!(watched.agree(), "a", "it led to nothing, and does no more");
    fs::remove_file(house.item("shared/one.py")).unwrap();
    assert_eq!(watched.agree(), "");
}

#[test]
fn a_linked_folder_is_as_what_it_leads_to() {
    let house = House::new();
    house.put("shared/x/a.py", "word");
    fs::create_dir_all(house.item("tools")).unwrap();
    symlink("../shared", house.item("tools/more")).unwrap();
    let watched = Watched::new(house);
    let house = &watched.house;
    assert_eq!(watched.agree(), "more/x/a");
    house.put("shared/x/b.py", "word");
    assert_eq!(watched.agree(), "more/x/a more/x/b");
    house.put("shared/x/b.py", "nothing");
    assert_eq!(watched.agree(), "more/x/a");
    fs::remove_file(house.item("tools/more")).unwrap();
    assert_eq!(watched.agree(), "");
    // The folder of a kind may be a link, too.
    fs::remove_dir_all(house.item("tools")).unwrap();
    symlink("shared", house.item("tools")).unwrap();
    assert_eq!(watched.agree(), "x/a");
    house.put("shared/x/b.py", "word");
    assert_eq!(watched.agree(), "x/a x/b");
}

#[test]
fn a_file_with_two_names_is_seen_to_change_under_the_other_one() {
    let house = House::new();
    house.put("tools/a.py", "word");
    fs::hard_link(house.item("tools/a.py"), house.path("outside")).unwrap();
    let watched = Watched::new(house);
    assert_eq!(watched.agree(), "a");
    for (text, found) in [("nothing", ""), ("word", "a"), ("other", "")] {
        fs::write(watched.house.path("outside"), text).unwrap();
        assert_eq!(watched.agree(), found);
    }
}

#[test]
fn a_link_that_leaves_the_space_is_said_and_not_followed() {
    let house = House::new();
    house.put("tools/a.py", "word");
    fs::write(house.path("outside.py"), "word").unwrap();
    symlink("../../../outside.py", house.item("tools/out.py")).unwrap();
    let watched = Watched::new(house);
    assert_eq!(watched.agree(), "a");
    let unread = watched
        .house
        .ask(&watched.stays, &Query::new("word"))
        .unread;
    assert_eq!(unread.len(), 1);
    let text = &unread[0].message;
    assert!(text.contains("out.py leads out of its space"), "{text}");
}

#[test]
fn a_file_that_is_too_large_is_found_by_its_id() {
    let house = House::new();
    house.put("tools/small.py", "word");
    let large = File::create(house.item("tools/large.py")).unwrap();
    large.set_len(17 << 20).unwrap();
    let watched = Watched::new(house);
    watched.agree();
    let answer = watched.house.ask(&watched.stays, &Query::new("large"));
    let problem = answer.hits[0].problem.as_ref().unwrap();
    assert!(problem.contains("an item has at most 16 MiB"), "{problem}");
    large.set_len(0).unwrap();
    watched.agree();
}

#[test]
fn without_a_change_nothing_is_looked_at() {
    let watched = Watched::new(corpus::house());
    assert!(!watched.walks());
    // What is no item's business.
    let house = &watched.house;
    house.put("threads/1/log", "x");
    house.put("note.md", "x");
    house.put("tools/git/__pycache__/commit.pyc", "x");
    house.put("tools/.commit.py.swp", "x");
    assert!(!watched.walks());
    house.put("tools/git/commit.py", "x");
    assert!(watched.walks());
    assert!(!watched.walks());
}

#[test]
fn more_changes_than_the_kernel_notes_down_are_changes() {
    let house = House::new();
    house.put("tools/a.py", "");
    house.put("tools/b.py", "");
    let watched = Watched::new(house);
    let house = &watched.house;
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let mut files =
        ["tools/a.py", "tools/b.py"].map(|path| File::create(house.item(path)).unwrap());
    // Two events alike in a row would be told as one.
    for n in 0..limit.min(1 << 20) + 10 {
        files[n % 2].write_all(b".").unwrap();
    }
    house.put("tools/late.py", "word");
    assert_eq!(watched.agree(), "late");
    house.put("tools/late.py", "nothing");
    assert_eq!(watched.agree(), "");
}

#[test]
fn more_projects_than_are_held_are_searched_all_the_same() {
    let catalogue = Catalogue::watching(None);
    let houses: Vec<_> = (0..80).map(|_| House::new()).collect();
    for round in ["one", "two"] {
        for house in &houses {
            house.put("tools/a.py", round);
        }
        for house in &houses {
            assert_eq!(ids(&house.ask(&catalogue, &Query::new(round))), ["a"]);
        }
    }
}
