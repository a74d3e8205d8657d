use super::*;

fn parse(space: Space, text: &str) -> Result<ConfigFile, Box<FileError>> {
    let home = Path::new("/h");
    ConfigFile::parse(space, Path::new("/h/rye.yaml"), text.as_bytes(), Some(home))
}

fn error_message(space: Space, text: &str) -> String {
    let error = parse(space, text).unwrap_err();
    let position = error.excerpt.map(|excerpt| excerpt.position.to_string());
    format!("{} {}", position.unwrap_or_default(), error.message)
}

#[test]
fn settings_are_read_with_their_lines() {
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
fn empty_file_sets_nothing() {
    for text in ["", "\n", "# only a comment\n", "---\n", "{}"] {
        assert!(
            parse(Space::Project, text).unwrap().color.is_none(),
            "{text:?}"
        );
    }
}

#[test]
fn invalid_settings_are_rejected_with_their_position() {
    let cases = [
        (
            Space::User,
            "a: 1\n",
            "1:1 unknown setting `a`; expected one of `cache_dir`, `color`, `debug`, `search.limit`, `signatures`",
        ),
        (
            Space::User,
            "\ncolour: never\n",
            "2:1 unknown setting `colour`; did you mean `color`?",
        ),
        (
            Space::User,
            "search:\n  limits: 3\n",
            "2:3 unknown setting `search.limits`; did you mean `search.limit`?",
        ),
        (
            Space::User,
            "search: 3\n",
            "1:9 invalid `search`: expected a mapping, found `3`",
        ),
        (
            Space::User,
            "search: {limit: 201}\n",
            "1:17 invalid `search.limit`: expected an integer from 1 to 200, found `201`",
        ),
        (
            Space::User,
            "search: {limit: 1.5}\n",
            "1:17 invalid `search.limit`: expected an integer from 1 to 200, found a number with a fraction",
        ),
        (
            Space::User,
            "color: red\n",
            "1:8 invalid `color`: expected auto, always or never, found `red`",
        ),
        (
            Space::User,
            "color: [auto]\n",
            "1:8 invalid `color`: expected auto, always or never, found a list",
        ),
        (
            Space::User,
            "debug: \"true\"\n",
            "1:8 invalid `debug`: expected true or false, found `true`",
        ),
        (
            Space::User,
            "debug:\n",
            "1:6 invalid `debug`: expected true or false, found nothing",
        ),
        (
            Space::User,
            "cache_dir: c\n",
            "1:12 invalid `cache_dir`: expected an absolute path or one that begins with `~/`, found `c`",
        ),
        (
            Space::Project,
            "cache_dir: /c\n",
            "1:1 `cache_dir` is only allowed in your own rye.yaml, not in a project's",
        ),
        (
            Space::User,
            "dev_mode: true\n",
            "1:1 `dev_mode` cannot be set in a file; use RYE_DEV_MODE=1 in the environment",
        ),
        (
            Space::Project,
            "user_space: /x\n",
            "1:1 `user_space` cannot be set in a file; use USER_SPACE in the environment",
        ),
        (
            Space::User,
            "- a\n",
            "1:1 expected a mapping of settings, found a list",
        ),
        (
            Space::User,
            "just a text\n",
            "1:1 expected a mapping of settings, found `just a text`",
        ),
    ];
    for (space, text, expected) in cases {
        assert_eq!(error_message(space, text), expected, "{text:?}");
    }
}

#[test]
fn invalid_yaml_is_rejected_with_its_position() {
    for text in [
        "color: [\n",
        "a: b: c\n",
        "color: never\ncolor: auto\n",
        "color: never\n\tx: 1\n",
        "a: *b\n",
    ] {
        let error = error_message(Space::User, text);
        assert!(error.contains("invalid YAML: "), "{text:?}: {error}");
        assert!(
            error.starts_with(|c: char| c.is_ascii_digit()),
            "{text:?}: {error}"
        );
    }
    let error = ConfigFile::parse(Space::User, Path::new("/r"), b"a: \xff", None).unwrap_err();
    assert_eq!(error.message, "invalid UTF-8");
}

proptest::proptest! {
    #[test]
    fn any_text_is_parsed_or_rejected(text in "(color|search|limit|: |\n|  |\\[|\\{|&a|\\*a|- |\\PC){0,12}") {
        let _ = parse(Space::User, &text);
    }
}
