//! Lines that fit, in bytes.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::batches;
use super::search::{Finder, How};
use crate::sandbox::FileInfo;

fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

fn find(pattern: &str, how: How, text: &str) -> String {
    let found = Finder::new(pattern, how)
        .unwrap()
        .search(text.as_bytes(), 100, soon());
    let lines = found.lines.iter().map(|line| {
        let sign = if line.fits { ':' } else { '-' };
        format!("{}{sign}{}", line.number, line.text)
    });
    lines.collect::<Vec<_>>().join("|")
}

#[test]
fn lines_that_fit_are_found() {
    let plain = How {
        context: Some(0),
        ..How::default()
    };
    let one = How {
        context: Some(1),
        ..plain
    };
    let text = "one\ntwo\r\n\nthree\nfour two\nfive";
    for (pattern, how, found) in [
        ("two", plain, "2:two|5:four two"),
        ("^t", plain, "2:two|4:three"),
        ("o$", plain, "2:two|5:four two"),
        ("^$", plain, "3:"),
        (r"\s", plain, "5:four two"),
        (r"two\s+three", plain, ""),
        ("five", plain, "6:five"),
        (
            "t.o",
            How {
                literal: true,
                ..plain
            },
            "",
        ),
        (
            "TWO",
            How {
                ignore_case: true,
                ..plain
            },
            "2:two|5:four two",
        ),
        (
            r"two\s+three",
            How {
                multiline: true,
                ..plain
            },
            "2:two|3:|4:three",
        ),
        ("one", one, "1:one|2-two"),
        ("three|five", one, "3-|4:three|5-four two|6:five"),
        ("two", one, "1-one|2:two|3-|4-three|5:four two|6-five"),
        ("three|two", one, "1-one|2:two|3-|4:three|5:four two|6-five"),
    ] {
        assert_eq!(find(pattern, how, text), found, "{pattern} {how:?}");
    }
    assert_eq!(find("x*", plain, ""), "");
    assert_eq!(
        find(
            "GRÖ",
            How {
                ignore_case: true,
                ..plain
            },
            "größe"
        ),
        "1:größe"
    );
}

#[test]
fn of_a_long_line_what_is_near_is_shown() {
    let line = format!("{}needle{}", "ü".repeat(5000), "x".repeat(5000));
    let how = How {
        context: Some(0),
        ..How::default()
    };
    let found = find("needle", how, &line);
    assert!(found.starts_with("1:… ü") && found.contains("üneedlex") && found.ends_with("x …"));
    assert!(found.len() < 450, "{}", found.len());
}

#[test]
fn a_pattern_that_is_none_says_why() {
    for (pattern, why) in [
        ("a(", "unclosed group"),
        (r"(a)\1", "backreferences are not supported"),
        (r"(\w{1000}){1000}", "exceeds size limit"),
    ] {
        let error = Finder::new(pattern, How::default()).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn no_pattern_takes_for_ever() {
    let begun = Instant::now();
    let text = format!("{}b\n", "a".repeat(30)).repeat(30_000);
    let finder = Finder::new("(a*)*(a*)*(a*)*$", How::default()).unwrap();
    let found = finder.search(text.as_bytes(), 10, begun + Duration::from_secs(5));
    assert!(found.count <= 10 && begun.elapsed() < Duration::from_secs(30));
    let late = finder.search(text.as_bytes(), 10, begun);
    assert!(late.out_of_time && late.count == 0);
}

proptest! {
    #[test]
    fn what_is_found_is_what_each_line_says(
        text in "[ab \r\n]{0,60}",
        pattern in prop::sample::select(vec!["a", "^a", "a$", "b\\s*a", "^$", "a*", "[^a]", "\\Aa", "a\\b"]),
    ) {
        let how = How { context: Some(0), ..How::default() };
        let finder = Finder::new(pattern, how).unwrap();
        let found = finder.search(text.as_bytes(), 1000, soon());
        let found: Vec<_> = found.lines.iter().map(|line| line.number).collect();
        let one = regex::bytes::RegexBuilder::new(pattern).multi_line(true).crlf(true).build().unwrap();
        let lines = text.split_inclusive('\n').enumerate();
        let fitting = lines.filter(|(_, line)| {
            let line = line.strip_suffix('\n').unwrap_or(line);
            one.is_match(line.strip_suffix('\r').unwrap_or(line).as_bytes())
        });
        let fitting: Vec<_> = fitting.map(|(at, _)| at + 1).collect();
        prop_assert!(pattern == "\\Aa" || found == fitting, "{found:?} {fitting:?}");
    }

    #[test]
    fn portions_are_small_and_leave_nothing_out(sizes in prop::collection::vec(0..5_000_000_u64, 0..600)) {
        let files: Vec<_> = sizes.iter().enumerate().map(|(number, size)| FileInfo {
            path: number.to_string(),
            is_dir: false,
            size: *size,
            modified: 0,
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
