//! Ranking: the expected item comes first, and fields have the right weight.

use super::corpus::fixture;
use super::fixture::{Fixture, ids};
use crate::search::Query;

#[test]
fn expected_items_rank_first() {
    let fixture = fixture();
    for (text, expected) in [
        // Ids and names, in any notation.
        ("rye/bash/bash", "rye/bash/bash"),
        ("tool:git/commit", "git/commit git/status git/diff"),
        ("create issue", "github/create_issue github/list_issues"),
        ("create_issue", "github/create_issue github/list_issues"),
        ("createIssue", "github/create_issue github/list_issues"),
        ("createissue", "github/create_issue"),
        // Name before tags before description before body.
        ("search", "rye/web/search rye/file-system/grep"),
        ("screenshot", "image/screenshot rye/web/browser"),
        ("release", "release/cut_release deploy/rollback"),
        ("sign", "crypto/sign_item security/signing"),
        ("patch", "git/diff rye/file-system/edit_lines"),
        ("working_dir", "rye/bash/bash"),
        ("table", "data/clean_table text/markdown_to_html"),
        // Several words once before one word often.
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
        // Inflected forms.
        ("reading files", "rye/file-system/read"),
        (
            "issues",
            "github/list_issues github/create_issue bugs/triage",
        ),
        ("signing", "security/signing crypto/sign_item"),
        ("queries", "db/postgres_query db/sqlite_query"),
        // Prefixes.
        (
            "kuber",
            "deploy/kubernetes kubernetes/networking kubernetes/probes",
        ),
        ("transl", "text/translate"),
        ("cach", "cache/clear deploy/static_site"), // misspelt
        // One or two typos.
        ("comit", "git/commit"), // misspelt
        (
            "kubrenetes",
            "deploy/kubernetes kubernetes/networking kubernetes/probes",
        ),
        ("databse sql", "db/sqlite_query db/postgres_query"), // misspelt
        ("sumarise", "text/summarize"),                       // misspelt
        // No match.
        ("zzzzzz", ""),
        ("gti", ""), // misspelt
        ("!!!", ""),
    ] {
        let found = fixture.ids(text);
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
fn exact_word_outranks_longer_words() {
    let fixture = Fixture::new();
    fixture.put("tools/exact.py", "# description: about a plan\n");
    for n in 0..20 {
        let words = "planet planner plane plankton planning".repeat(n + 1);
        fixture.put(&format!("tools/other{n}.py"), &words);
    }
    assert_eq!(fixture.ids("plan")[0], "exact");
}

#[test]
fn item_with_the_name_outranks_items_that_mention_it() {
    let fixture = Fixture::new();
    fixture.put("tools/a/git.py", "");
    for n in 0..30 {
        let text = "# title: git\n# tags: git\n# description: git git git\n# parameters: git\ngit";
        fixture.put(&format!("tools/git/other{n:02}.py"), text);
    }
    assert_eq!(fixture.ids("git")[..2], ["a/git", "git/other00"]);
    assert_eq!(fixture.ids("tool:a/git")[0], "a/git");
}

#[test]
fn ties_are_ordered_by_kind_and_id() {
    let fixture = Fixture::new();
    for path in [
        "knowledge/a.md",
        "tools/c.py",
        "tools/b.py",
        "directives/b.md",
    ] {
        fixture.put(path, "the same text");
    }
    let answer = fixture.search_fresh(&Query::new("same"));
    let names: Vec<_> = answer
        .hits
        .iter()
        .map(|hit| hit.reference.to_string())
        .collect();
    assert_eq!(names, ["tool:b", "tool:c", "directive:b", "knowledge:a"]);
    let all = fixture.search_fresh(&Query::new("  \n"));
    assert_eq!(ids(&all), ["b", "c", "b", "a"]);
}

#[test]
fn only_the_beginning_of_a_long_body_is_indexed() {
    let fixture = Fixture::new();
    let body = "filler ".repeat(20_000);
    fixture.put("tools/long.py", &format!("early {body} late"));
    assert_eq!(fixture.ids("early"), ["long"]);
    assert_eq!(fixture.ids("late"), Vec::<String>::new());
}

#[test]
fn megabyte_query_is_answered() {
    let fixture = fixture();
    let many = "commit ".repeat(150_000);
    assert_eq!(fixture.ids(&many)[0], "git/commit");
    let one = "x".repeat(1 << 20);
    assert_eq!(fixture.ids(&one), Vec::<String>::new());
}

#[test]
fn limit_truncates_the_hits_but_not_the_total() {
    let fixture = fixture();
    let mut query = Query::new("file");
    query.limit = usize::MAX;
    let all = fixture.search_fresh(&query);
    assert_eq!(all.total, all.hits.len());
    for limit in [0, 1, 3] {
        query.limit = limit;
        let some = fixture.search_fresh(&query);
        assert_eq!(some.total, all.total);
        assert_eq!(some.hits, all.hits[..limit]);
    }
}
