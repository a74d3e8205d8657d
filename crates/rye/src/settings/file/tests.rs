use super::*;

fn parse(space: Space, text: &str) -> Result<ConfigFile, Box<FileError>> {
    let home = Path::new("/h");
    ConfigFile::parse(space, Path::new("/h/rye.yaml"), text.as_bytes(), Some(home))
}

fn complaint(space: Space, text: &str) -> String {
    let error = parse(space, text).unwrap_err();
    let place = error.excerpt.map(|excerpt| excerpt.position.to_string());
    format!("{} {}", place.unwrap_or_default(), error.what)
}

#[test]
fn every_setting_is_read_with_its_line() {
    let text = "# mine\ncolor: never\nsearch:\n  limit: 5\ndebug: true\ncache_dir: ~/c\n";
    let file = parse(Space::User, text).unwrap();
    let line = |origin: &Origin| match origin {
        Origin::File { line, .. } => *line,
        _ => 0,
    };
    let color = file.color.unwrap();
    assert_eq!((color.value, line(&color.origin)), (Color::Never, 2));
    let limit = file.search_limit.unwrap();
    assert_eq!((limit.value, line(&limit.origin)), (5, 4));
    let debug = file.debug.unwrap();
    assert_eq!((debug.value, line(&debug.origin)), (true, 5));
    let cache = file.cache_dir.unwrap();
    assert_eq!(
        (cache.value.to_str().unwrap(), line(&cache.origin)),
        ("/h/c", 6)
    );
}

#[test]
fn an_empty_file_sets_nothing() {
    for text in ["", "\n", "# only a comment\n", "---\n", "{}"] {
        assert!(
            parse(Space::Project, text).unwrap().color.is_none(),
            "{text:?}"
        );
    }
}

#[test]
fn what_a_file_may_not_say_is_told_with_its_place() {
    let cases = [
        (
            Space::User,
            "a: 1\n",
            "1:1 there is no setting `a`; there are `cache_dir`, `color`, `debug`, `search.limit`, `signatures`",
        ),
        (
            Space::User,
            "\ncolour: never\n",
            "2:1 there is no setting `colour`; did you mean `color`?",
        ),
        (
            Space::User,
            "search:\n  limits: 3\n",
            "2:3 there is no setting `search.limits`; did you mean `search.limit`?",
        ),
        (
            Space::User,
            "search: 3\n",
            "1:9 `search` must be a mapping, not `3`",
        ),
        (
            Space::User,
            "search: {limit: 201}\n",
            "1:17 `search.limit` must be a whole number from 1 to 200, not `201`",
        ),
        (
            Space::User,
            "search: {limit: 1.5}\n",
            "1:17 `search.limit` must be a whole number from 1 to 200, not a number with a fraction",
        ),
        (
            Space::User,
            "color: red\n",
            "1:8 `color` must be one of auto, always, never, not `red`",
        ),
        (
            Space::User,
            "color: [auto]\n",
            "1:8 `color` must be one of auto, always, never, not a list",
        ),
        (
            Space::User,
            "debug: \"true\"\n",
            "1:8 `debug` must be true or false, not `true`",
        ),
        (
            Space::User,
            "debug:\n",
            "1:6 `debug` must be true or false, not nothing",
        ),
        (
            Space::User,
            "cache_dir: c\n",
            "1:12 `cache_dir` must be an absolute path or one that begins with `~/`, not `c`",
        ),
        (
            Space::Project,
            "cache_dir: /c\n",
            "1:1 `cache_dir` is for the user's own rye.yaml, not for a project's",
        ),
        (
            Space::User,
            "dev_mode: true\n",
            "1:1 `dev_mode` is not for a file to set, but for RYE_DEV_MODE=1 in the environment",
        ),
        (
            Space::Project,
            "user_space: /x\n",
            "1:1 `user_space` is not for a file to set, but for USER_SPACE in the environment",
        ),
        (
            Space::User,
            "- a\n",
            "1:1 the file must be a mapping of settings, not a list",
        ),
        (
            Space::User,
            "just a text\n",
            "1:1 the file must be a mapping of settings, not `just a text`",
        ),
    ];
    for (space, text, expected) in cases {
        assert_eq!(complaint(space, text), expected, "{text:?}");
    }
}

#[test]
fn what_is_not_yaml_is_told_with_its_place() {
    for text in [
        "color: [\n",
        "a: b: c\n",
        "color: never\ncolor: auto\n",
        "color: never\n\tx: 1\n",
        "a: *b\n",
    ] {
        let complaint = complaint(Space::User, text);
        assert!(
            complaint.contains("the file is not YAML: "),
            "{text:?}: {complaint}"
        );
        assert!(
            complaint.starts_with(|c: char| c.is_ascii_digit()),
            "{text:?}: {complaint}"
        );
    }
    let error = ConfigFile::parse(Space::User, Path::new("/r"), b"a: \xff", None).unwrap_err();
    assert_eq!(error.what, "the file is not UTF-8");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(color|search|limit|: |\n|  |\\[|\\{|&a|\\*a|- |\\PC){0,12}") {
        let _ = parse(Space::User, &text);
    }
}
