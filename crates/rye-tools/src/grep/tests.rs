//! Tests of the search in one file.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::batches;
use super::search::{SearchOptions, Searcher};
use rye_engine::sandbox::FileInfo;

fn deadline() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

fn find(pattern: &str, options: SearchOptions, text: &str) -> String {
    let found = Searcher::new(pattern, options)
        .unwrap()
        .search(text.as_bytes(), 100, deadline());
    let lines = found.lines.iter().map(|line| {
        let sign = if line.is_match { ':' } else { '-' };
        format!("{}{sign}{}", line.number, line.text)
    });
    lines.collect::<Vec<_>>().join("|")
}

#[test]
fn matching_lines_are_found_with_context() {
    let default = SearchOptions {
        context: Some(0),
        ..SearchOptions::default()
    };
    let context = SearchOptions {
        context: Some(1),
        ..default
    };
    let text = "one\ntwo\r\n\nthree\nfour two\nfive";
    for (pattern, options, found) in [
        ("two", default, "2:two|5:four two"),
        ("^t", default, "2:two|4:three"),
        ("o$", default, "2:two|5:four two"),
        ("^$", default, "3:"),
        (r"\s", default, "5:four two"),
        (r"two\s+three", default, ""),
        ("five", default, "6:five"),
        (
            "t.o",
            SearchOptions {
                literal: true,
                ..default
            },
            "",
        ),
        (
            "TWO",
            SearchOptions {
                ignore_case: true,
                ..default
            },
            "2:two|5:four two",
        ),
        (
            r"two\s+three",
            SearchOptions {
                multiline: true,
                ..default
            },
            "2:two|3:|4:three",
        ),
        ("one", context, "1:one|2-two"),
        ("three|five", context, "3-|4:three|5-four two|6:five"),
        ("two", context, "1-one|2:two|3-|4-three|5:four two|6-five"),
        (
            "three|two",
            context,
            "1-one|2:two|3-|4:three|5:four two|6-five",
        ),
    ] {
        assert_eq!(find(pattern, options, text), found, "{pattern} {options:?}");
    }
    assert_eq!(find("x*", default, ""), "");
    assert_eq!(
        find(
            "GRÖ",
            SearchOptions {
                ignore_case: true,
                ..default
            },
            "größe"
        ),
        "1:größe"
    );
}

#[test]
fn long_line_is_truncated_around_the_match() {
    let line = format!("{}needle{}", "ü".repeat(5000), "x".repeat(5000));
    let options = SearchOptions {
        context: Some(0),
        ..SearchOptions::default()
    };
    let found = find("needle", options, &line);
    assert!(found.starts_with("1:… ü") && found.contains("üneedlex") && found.ends_with("x …"));
    assert!(found.len() < 450, "{}", found.len());
}

#[test]
fn invalid_pattern_is_explained() {
    for (pattern, why) in [
        ("a(", "unclosed group"),
        (r"(a)\1", "backreferences are not supported"),
        (r"(\w{1000}){1000}", "exceeds size limit"),
    ] {
        let error = Searcher::new(pattern, SearchOptions::default()).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn search_stops_at_the_deadline() {
    let start = Instant::now();
    let text = format!("{}b\n", "a".repeat(30)).repeat(30_000);
    let searcher = Searcher::new("(a*)*(a*)*(a*)*$", SearchOptions::default()).unwrap();
    let found = searcher.search(text.as_bytes(), 10, start + Duration::from_secs(5));
    assert!(found.count <= 10 && start.elapsed() < Duration::from_secs(30));
    let expired = searcher.search(text.as_bytes(), 10, start);
    assert!(expired.out_of_time && expired.count == 0);
}

proptest! {
    #[test]
    fn result_matches_a_line_by_line_search(
        text in "[ab \r\n]{0,60}",
        pattern in prop::sample::select(vec!["a", "^a", "a$", "b\\s*a", "^$", "a*", "[^a]", "\\Aa", "a\\b"]),
    ) {
        let options = SearchOptions { context: Some(0), ..SearchOptions::default() };
        let searcher = Searcher::new(pattern, options).unwrap();
        let found = searcher.search(text.as_bytes(), 1000, deadline());
        let found: Vec<_> = found.lines.iter().map(|line| line.number).collect();
        let context = regex::bytes::RegexBuilder::new(pattern).multi_line(true).crlf(true).build().unwrap();
        let lines = text.split_inclusive('\n').enumerate();
        let expected = lines.filter(|(_, line)| {
            let line = line.strip_suffix('\n').unwrap_or(line);
            context.is_match(line.strip_suffix('\r').unwrap_or(line).as_bytes())
        });
        let expected: Vec<_> = expected.map(|(at, _)| at + 1).collect();
        prop_assert!(pattern == "\\Aa" || found == expected, "{found:?} {expected:?}");
    }

    #[test]
    fn batches_are_bounded_and_complete(sizes in prop::collection::vec(0..5_000_000_u64, 0..600)) {
        let files: Vec<_> = sizes.iter().enumerate().map(|(number, size)| FileInfo {
            path: number.to_string(),
            size: *size,
            ..FileInfo::default()
        }).collect();
        let all = batches(&files);
        let names: Vec<_> = all.iter().flatten().cloned().collect();
        prop_assert_eq!(names, files.iter().map(|file| file.path.clone()).collect::<Vec<_>>());
        for batch in all {
            let bytes: u64 = batch.iter().map(|name| sizes[name.parse::<usize>().unwrap()]).sum();
            prop_assert!(batch.len() <= 256 && (batch.len() == 1 || bytes <= 8 * 1024 * 1024));
        }
    }
}
