//! What comes first.

use super::corpus::house;
use super::house::{House, ids};
use crate::search::Query;

#[test]
fn what_a_person_means_comes_first() {
    let house = house();
    for (text, expected) in [
        // Ids and names, however they are written.
        ("rye/bash/bash", "rye/bash/bash"),
        ("tool:git/commit", "git/commit git/status git/diff"),
        ("create issue", "github/create_issue github/list_issues"),
        ("create_issue", "github/create_issue github/list_issues"),
        ("createIssue", "github/create_issue github/list_issues"),
        ("createissue", "github/create_issue"),
        // A name before tags, tags before descriptions, all before bodies.
        ("search", "rye/web/search rye/file-system/grep"),
        ("screenshot", "image/screenshot rye/web/browser"),
        ("release", "release/cut_release deploy/rollback"),
        ("sign", "crypto/sign_item security/signing"),
        ("patch", "git/diff rye/file-system/edit_lines"),
        ("working_dir", "rye/bash/bash"),
        ("table", "data/clean_table text/markdown_to_html"),
        // More of the words before one of them often.
        ("deploy kubernetes", "deploy/kubernetes kubernetes/probes"),
        ("search the web", "rye/web/search"),
        (
            "query database",
            "db/sqlite_query db/postgres_query databases/indexes",
        ),
        ("github issue list", "github/list_issues"),
        ("convert markdown", "text/markdown_to_html"),
        ("regular expression", "rye/file-system/grep"),
        ("how do I send an email", "mail/send"),
        (
            "review a pull request",
            "github/pull_request review/code_review",
        ),
        // Other forms of a word.
        ("reading files", "rye/file-system/read"),
        (
            "issues",
            "github/list_issues github/create_issue bugs/triage",
        ),
        ("signing", "security/signing crypto/sign_item"),
        ("queries", "db/postgres_query db/sqlite_query"),
        // The beginning of a word.
        (
            "kuber",
            "deploy/kubernetes kubernetes/networking kubernetes/probes",
        ),
        ("transl", "text/translate"),
        ("cach", "cache/clear deploy/static_site"), // misspelt
        // A letter or two wrong.
        ("comit", "git/commit"), // misspelt
        (
            "kubrenetes",
            "deploy/kubernetes kubernetes/networking kubernetes/probes",
        ),
        ("databse sql", "db/sqlite_query db/postgres_query"), // misspelt
        ("sumarise", "text/summarize"),                       // misspelt
        // Nothing like it.
        ("zzzzzz", ""),
        ("gti", ""), // misspelt
        ("!!!", ""),
    ] {
        let found = house.ids(text);
        let expected: Vec<_> = expected.split_whitespace().collect();
        let first = &found[..expected.len().min(found.len())];
        assert_eq!(first, expected, "{text}: {found:?}");
        assert!(
            !expected.is_empty() || found.is_empty(),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn an_exact_word_is_not_drowned_by_longer_ones() {
    let house = House::new();
    house.put("tools/exact.py", "# description: about a plan\n");
    for n in 0..20 {
        let words = "planet planner plane plankton planning".repeat(n + 1);
        house.put(&format!("tools/other{n}.py"), &words);
    }
    assert_eq!(house.ids("plan")[0], "exact");
}

#[test]
fn an_item_called_so_comes_before_all_that_mention_it() {
    let house = House::new();
    house.put("tools/a/git.py", "");
    for n in 0..30 {
        let text = "# title: git\n# tags: git\n# description: git git git\n# parameters: git\ngit";
        house.put(&format!("tools/git/other{n:02}.py"), text);
    }
    assert_eq!(house.ids("git")[..2], ["a/git", "git/other00"]);
    assert_eq!(house.ids("tool:a/git")[0], "a/git");
}

#[test]
fn equal_fits_are_ordered_by_kind_and_id() {
    let house = House::new();
    for path in [
        "knowledge/a.md",
        "tools/c.py",
        "tools/b.py",
        "directives/b.md",
    ] {
        house.put(path, "the same text");
    }
    let answer = house.ask_anew(&Query::new("same"));
    let names: Vec<_> = answer
        .hits
        .iter()
        .map(|hit| hit.reference.to_string())
        .collect();
    assert_eq!(names, ["tool:b", "tool:c", "directive:b", "knowledge:a"]);
    let all = house.ask_anew(&Query::new("  \n"));
    assert_eq!(ids(&all), ["b", "c", "b", "a"]);
}

#[test]
fn only_the_beginning_of_a_very_long_body_is_searched() {
    let house = House::new();
    let body = "filler ".repeat(20_000);
    house.put("tools/long.py", &format!("early {body} late"));
    assert_eq!(house.ids("early"), ["long"]);
    assert_eq!(house.ids("late"), Vec::<String>::new());
}

#[test]
fn a_query_of_a_megabyte_is_answered() {
    let house = house();
    let many = "commit ".repeat(150_000);
    assert_eq!(house.ids(&many)[0], "git/commit");
    let one = "x".repeat(1 << 20);
    assert_eq!(house.ids(&one), Vec::<String>::new());
}

#[test]
fn the_limit_cuts_the_list_and_not_the_count() {
    let house = house();
    let mut query = Query::new("file");
    query.limit = usize::MAX;
    let all = house.ask_anew(&query);
    assert_eq!(all.total, all.hits.len());
    for limit in [0, 1, 3] {
        query.limit = limit;
        let some = house.ask_anew(&query);
        assert_eq!(some.total, all.total);
        assert_eq!(some.hits, all.hits[..limit]);
    }
}
