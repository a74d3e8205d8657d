use super::*;

fn parse(space: Space, text: &str) -> Result<ConfigFile, Box<FileError>> {
    let home = Path::new("/h");
    ConfigFile::parse(space, Path::new("/h/rye.yaml"), text.as_bytes(), Some(home))
}

/// The position of the error in an invalid file.
fn error_position(space: Space, text: &str) -> String {
    let error = parse(space, text).unwrap_err();
    let position = error.excerpt.map(|excerpt| excerpt.position.to_string());
    position.unwrap_or_default()
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
    let (user, project) = (Space::User, Space::Project);
    for (space, text, position) in [
        (user, "a: 1\n", "1:1"),
        (user, "\ncolour: never\n", "2:1"),
        (user, "search:\n  limits: 3\n", "2:3"),
        (user, "search: 3\n", "1:9"),
        (user, "search: {limit: 201}\n", "1:17"),
        (user, "search: {limit: 0}\n", "1:17"),
        (user, "search: {limit: 1.5}\n", "1:17"),
        (user, "color: red\n", "1:8"),
        (user, "color: [auto]\n", "1:8"),
        (user, "debug: maybe\n", "1:8"),
        (user, "cache_dir: c\n", "1:12"),
        (project, "cache_dir: /c\n", "1:12"),
        (project, "signatures: any\n", "1:13"),
        (user, "dev_mode: true\n", "1:1"),
        (user, "- a\n", "1:1"),
        (user, "just a text\n", "1:1"),
        (user, "color: [\n", "1:8"),
        (user, "color: never\ncolor: auto\n", "2:1"),
    ] {
        assert_eq!(error_position(space, text), position, "{text:?}");
    }
}

#[test]
fn invalid_yaml_is_rejected_with_its_position() {
    for text in ["a: b: c\n", "color: never\n\tx: 1\n", "color: *b\n"] {
        assert_ne!(error_position(Space::User, text), "", "{text:?}");
    }
    assert!(ConfigFile::parse(Space::User, Path::new("/r"), b"a: \xff", None).is_err());
}

proptest::proptest! {
    #[test]
    fn any_text_is_parsed_or_rejected(text in "(color|search|limit|: |\n|  |\\[|\\{|&a|\\*a|- |\\PC){0,12}") {
        let _ = parse(Space::User, &text);
    }
}
