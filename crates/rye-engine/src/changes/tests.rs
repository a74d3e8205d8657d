//! Tests of the selection of changes.

use proptest::prelude::*;

use super::*;

fn content(text: &str) -> FileContent {
    let hash = lillux::Hash::digest(text).to_hex();
    FileContent {
        size: text.len() as u64,
        source: Some(format!("blob:{hash}")),
        hash: Some(hash),
        offset: 0,
        executable: false,
    }
}

/// A change of the file `f`; an empty text means that there is no file.
fn change(turn: usize, before: &str, after: &str) -> RecordedChange {
    let state = |text: &str| (!text.is_empty()).then(|| content(text));
    RecordedChange {
        turn: (turn > 0).then_some(turn),
        call: None,
        changes: vec![FileChange {
            path: "f".to_owned(),
            before: state(before),
            after: state(after),
            created_dir: None,
        }],
    }
}

fn files(records: &[RecordedChange], turn: Option<usize>) -> Vec<ChangedFile> {
    let changes = SessionChanges {
        records: records.to_vec(),
        ..SessionChanges::default()
    };
    changes.files(&Selection { turn, path: None })
}

#[test]
fn changes_of_a_file_are_joined_from_the_first_to_the_last() {
    let records = [change(1, "", "a"), change(2, "a", "b"), change(2, "b", "c")];
    let all = files(&records, None);
    assert_eq!(all.len(), 1);
    assert_eq!(
        (&all[0].before, &all[0].after),
        (&None, &Some(content("c")))
    );
    assert_eq!(all[0].turns, [1, 2]);
    assert!(!all[0].is_interleaved);

    let second = files(&records, Some(2));
    assert_eq!(second[0].before, Some(content("a")));
    assert_eq!(second[0].turns, [2]);
    assert!(files(&records, Some(3)).is_empty());
}

#[test]
fn file_that_was_changed_back_is_omitted() {
    assert!(files(&[change(1, "a", "b"), change(2, "b", "a")], None).is_empty());
    assert!(files(&[change(1, "", "b"), change(1, "b", "")], None).is_empty());
    // A person undid it.
    assert!(files(&[change(1, "a", "b"), change(0, "b", "a")], None).is_empty());
    assert_eq!(
        files(&[change(1, "a", "b"), change(0, "b", "a")], Some(1)).len(),
        1
    );
}

#[test]
fn change_by_something_else_in_between_is_noticed() {
    let table = [
        // Somebody else changed the file between the two.
        (vec![change(1, "a", "b"), change(1, "c", "d")], None, true),
        // Another turn did.
        (
            vec![
                change(1, "a", "b"),
                change(2, "b", "c"),
                change(1, "c", "d"),
            ],
            Some(1),
            true,
        ),
        // Another turn did, before or after.
        (
            vec![
                change(2, "0", "a"),
                change(1, "a", "b"),
                change(2, "b", "c"),
            ],
            Some(1),
            false,
        ),
        // A person undid it, and the agent changed it again.
        (
            vec![
                change(1, "a", "b"),
                change(0, "b", "a"),
                change(1, "a", "d"),
            ],
            Some(1),
            false,
        ),
    ];
    for (records, turn, expected) in table {
        let found = files(&records, turn);
        assert_eq!(found[0].is_interleaved, expected, "{records:?} {turn:?}");
    }
}

#[test]
fn directory_selects_the_files_below() {
    for (selected, path, expected) in [
        ("src", "src/a.rs", true),
        ("src/", "src/a.rs", true),
        ("src", "src", true),
        ("src", "src2/a.rs", false),
        ("a.rs", "src/a.rs", false),
    ] {
        let selection = Selection {
            turn: None,
            path: Some(selected.to_owned()),
        };
        assert_eq!(selection.has_path(path), expected, "{selected} {path}");
    }
}

#[test]
fn path_is_relative_to_the_workspace() {
    for (path, expected) in [
        ("a/./b//c", "a/b/c"),
        ("a/../b", "b"),
        ("../b", "../b"),
        ("/w/a", "a"),
        ("/w/x/../a", "a"),
        ("/other/a", "/other/a"),
        ("/../a", "/a"),
        ("/w2/a", "/w2/a"),
    ] {
        assert_eq!(relative_path(path, Some("/w")), expected, "{path}");
    }
    assert_eq!(relative_path("/w/a", None), "/w/a");
}

proptest! {
    /// Undoing everything that one author did in sequence leads to the first state.
    #[test]
    fn net_change_has_the_first_and_the_last_state(texts in prop::collection::vec("[a-c]?", 2..8)) {
        let steps: Vec<_> = texts.windows(2).map(|pair| change(1, &pair[0], &pair[1])).collect();
        let (first, last) = (&texts[0], &texts[texts.len() - 1]);
        let found = files(&steps, None);
        prop_assert_eq!(found.is_empty(), first == last);
        for file in found {
            prop_assert_eq!(file.before.is_none(), first.is_empty());
            prop_assert_eq!(file.after.is_none(), last.is_empty());
            prop_assert!(!file.is_interleaved);
        }
    }
}
