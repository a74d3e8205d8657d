//! Property test: previous state of the index never changes the results.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::fixture::Fixture;
use crate::search::{Query, SearchIndex};
use crate::space::Space;

const WORDS: [&str; 8] = [
    "alpha", "beta", "gamma", "delta", "alphabet", "betray", "gammon", "delat",
];

/// A random file operation. The numbers select files, names and words.
#[derive(Debug, Clone)]
enum Edit {
    Write(u8, u8),
    SameSize(u8, u8),
    Replace(u8, u8),
    Remove(u8),
    Rename(u8, u8),
    RemoveDir(u8),
    MoveDir(u8, u8),
    MoveAway(u8),
    BringBack(u8),
    Link(u8, u8),
    LinkDir(u8, u8),
    HardLink(u8, u8),
    NewSpace(u8),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        6 => any::<(u8, u8)>().prop_map(|(a, b)| Edit::Write(a, b)),
        3 => any::<(u8, u8)>().prop_map(|(a, b)| Edit::SameSize(a, b)),
        2 => any::<(u8, u8)>().prop_map(|(a, b)| Edit::Replace(a, b)),
        2 => any::<u8>().prop_map(Edit::Remove),
        2 => any::<(u8, u8)>().prop_map(|(a, b)| Edit::Rename(a, b)),
        1 => any::<u8>().prop_map(Edit::RemoveDir),
        1 => any::<(u8, u8)>().prop_map(|(a, b)| Edit::MoveDir(a, b)),
        1 => any::<u8>().prop_map(Edit::MoveAway),
        1 => any::<u8>().prop_map(Edit::BringBack),
        1 => any::<(u8, u8)>().prop_map(|(a, b)| Edit::Link(a, b)),
        1 => any::<(u8, u8)>().prop_map(|(a, b)| Edit::LinkDir(a, b)),
        1 => any::<(u8, u8)>().prop_map(|(a, b)| Edit::HardLink(a, b)),
        1 => any::<u8>().prop_map(Edit::NewSpace),
    ];
    prop::collection::vec(edit, 1..25)
}

/// Selects one of some files in the project or user space.
fn file(number: u8) -> (&'static str, String) {
    let space = ["project", "user"][usize::from(number & 1)];
    let dir = ["tools", "tools/x", "tools/x/y", "knowledge/x"][usize::from(number >> 1 & 3)];
    let extension = if dir.starts_with("tools") { "py" } else { "md" };
    (space, format!("{dir}/f{}.{extension}", number >> 3 & 3))
}

fn dir(number: u8) -> (&'static str, &'static str) {
    let space = ["project", "user"][usize::from(number & 1)];
    let dirs = ["tools", "tools/x", "tools/x/y", "knowledge"];
    (space, dirs[usize::from(number >> 1 & 3)])
}

fn text(number: u8) -> String {
    let word = |shift: u8| WORDS[usize::from(number >> shift & 7)];
    format!(
        "# description: {}\n# tags: {}\n{} {number}",
        word(0),
        word(3),
        word(2)
    )
}

/// Applies an edit, ignoring errors.
fn apply(fixture: &Fixture, edit: &Edit) {
    let at = |(space, path): (&str, String)| fixture.path(space).join(".ai").join(path);
    let dir_path = |n: u8| at((dir(n).0, dir(n).1.to_owned()));
    let _ = match *edit {
        Edit::Write(n, t) => {
            let (space, path) = file(n);
            let full = at(file(n));
            // Not through dangling links, and not over directories.
            if !full.is_dir() && fs::create_dir_all(full.parent().unwrap()).is_ok() {
                let _ = fs::write(fixture.path(space).join(".ai").join(path), text(t));
            }
            Ok(())
        }
        Edit::SameSize(n, t) => fs::read(at(file(n))).and_then(|old| {
            let mut new = text(t).into_bytes();
            new.resize(old.len(), b'.');
            fs::write(at(file(n)), new)
        }),
        Edit::Replace(n, t) => {
            let temporary = fixture.path("temporary");
            fs::write(&temporary, text(t)).and_then(|()| fs::rename(temporary, at(file(n))))
        }
        Edit::Remove(n) => fs::remove_file(at(file(n))),
        Edit::Rename(n, m) => fs::rename(at(file(n)), at(file(m))),
        Edit::RemoveDir(n) => fs::remove_dir_all(dir_path(n)),
        Edit::MoveDir(n, m) => fs::rename(dir_path(n), dir_path(m)),
        Edit::MoveAway(n) => fs::rename(dir_path(n), fixture.path("away")),
        Edit::BringBack(n) => fs::rename(fixture.path("away"), dir_path(n)),
        Edit::Link(n, m) => symlink(at(file(m)).file_name().unwrap(), at(file(n))),
        Edit::LinkDir(n, m) => {
            let name = ["x", "y", "../tools", "../knowledge"][usize::from(m & 3)];
            symlink(name, dir_path(n).join("linked"))
        }
        // Created before the file is first read: inotify does not report writes through
        // a hard link that is created later, outside the directories.
        Edit::HardLink(n, t) => {
            let outside = fixture.path("outside");
            let _ = fs::remove_file(&outside);
            fs::write(&outside, text(t)).and_then(|()| fs::hard_link(&outside, at(file(n))))
        }
        Edit::NewSpace(n) => {
            let space = fixture.path(file(n).0).join(".ai");
            fs::remove_dir_all(space)
        }
    };
    // The hard-linked file changes with every edit.
    if fixture.path("outside").exists() {
        let _ = fs::write(fixture.path("outside"), format!("gamma {edit:?}"));
    }
}

fn queries() -> Vec<Query> {
    let mut queries: Vec<_> = ["alpha", "gamm delta", "alphq", "f1 x", ""]
        .map(Query::new)
        .into();
    let mut lower = Query::new("beta");
    lower.spaces = vec![Space::User];
    queries.push(lower);
    queries
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn previous_state_never_changes_results(edits in edits()) {
        let fixture = Fixture::new();
        fixture.put("tools/f0.py", &text(0));
        let watching = SearchIndex::with_watcher(Some(&fixture.cache()));
        let scanning = SearchIndex::new(None);
        for edit in edits {
            apply(&fixture, &edit);
            let (new, bare) = (SearchIndex::new(Some(&fixture.cache())), SearchIndex::new(None));
            for query in queries() {
                let expected = fixture.search(&bare, &query);
                prop_assert_eq!(&fixture.search(&watching, &query), &expected, "watching, after {:?}", &edit);
                prop_assert_eq!(&fixture.search(&scanning, &query), &expected, "scanning, after {:?}", &edit);
                prop_assert_eq!(&fixture.search(&new, &query), &expected, "new, after {:?}", &edit);
            }
        }
    }
}
