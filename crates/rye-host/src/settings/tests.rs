use std::collections::HashMap;

use super::*;

/// A test case: settings from options, variables and files, with `.ai/` in some directories.
struct Case {
    options: Options,
    variables: HashMap<&'static str, &'static str>,
    current: &'static str,
    with_ai: &'static [&'static str],
}

impl Case {
    fn new(variables: &[(&'static str, &'static str)]) -> Self {
        Self {
            options: Options::default(),
            variables: variables.iter().copied().collect(),
            current: "/w/project/src/deep",
            with_ai: &["/w/project", "/h"],
        }
    }

    fn dirs(&self) -> Directories {
        let is_space = |dir: &Path| self.with_ai.iter().any(|with| Path::new(with) == dir);
        let variable = |name: &str| self.variables.get(name).map(OsString::from);
        Directories::locate(&self.options, &variable, Path::new(self.current), &is_space)
    }

    fn settings(&self, files: &[(Space, &str)]) -> Result<Settings, SettingsError> {
        let files: Vec<_> = files
            .iter()
            .map(|(space, text)| {
                let path = format!("/{space}.yaml");
                ConfigFile::parse(*space, Path::new(&path), text.as_bytes(), None).unwrap()
            })
            .collect();
        let variable = |name: &str| self.variables.get(name).map(OsString::from);
        Settings::resolve(&self.options, &variable, self.dirs(), &files, Vec::new())
    }
}

fn describe<T: fmt::Debug>(setting: &Setting<T>) -> String {
    format!("{:?} from {}", setting.value, setting.origin)
}

#[test]
fn project_is_the_option_then_the_variable_then_the_nearest_space() {
    let mut case = Case::new(&[("HOME", "/h"), ("RYE_PROJECT", "../other")]);
    case.options.project = Some("here".into());
    assert_eq!(
        describe(&case.dirs().project),
        r#""/w/project/src/deep/here" from option --project"#
    );
    case.options.project = None;
    assert_eq!(
        describe(&case.dirs().project),
        r#""/w/project/src/deep/../other" from RYE_PROJECT"#
    );
    case.variables.remove("RYE_PROJECT");
    assert_eq!(
        describe(&case.dirs().project),
        r#""/w/project" from nearest directory with .ai/"#
    );
}

#[test]
fn user_space_is_not_the_project_of_directories_below_it() {
    let mut case = Case::new(&[("HOME", "/h")]);
    case.current = "/h/notes";
    assert_eq!(describe(&case.dirs().project), r#""/h/notes" from default"#);
    case.variables.insert("USER_SPACE", "/elsewhere");
    assert_eq!(
        describe(&case.dirs().project),
        r#""/h" from nearest directory with .ai/"#
    );
}

#[test]
fn user_space_is_a_variable_or_home_or_missing() {
    let mut case = Case::new(&[("HOME", "/h"), ("USER_SPACE", "/u")]);
    let user = |case: &Case| case.dirs().user_space.as_ref().map(describe);
    assert_eq!(user(&case).unwrap(), r#""/u" from USER_SPACE"#);
    case.variables.remove("USER_SPACE");
    assert_eq!(user(&case).unwrap(), r#""/h" from HOME"#);
    case.variables.clear();
    let settings = case.settings(&[]).unwrap();
    assert_eq!(
        settings.user_space().unwrap_err().to_string(),
        "no user space: neither USER_SPACE nor HOME is set"
    );
    assert!(settings.cache_dir.is_none());
}

#[test]
fn system_space_is_a_path_list() {
    let case = Case::new(&[("RYE_SYSTEM_SPACE", "/a::b")]);
    assert_eq!(
        describe(&case.dirs().system_space),
        r#"["/a", "/w/project/src/deep/b"] from RYE_SYSTEM_SPACE"#
    );
}

#[test]
fn options_override_environment_override_files_override_defaults() {
    let mut case = Case::new(&[("HOME", "/h"), ("RYE_COLOR", "always"), ("NO_COLOR", "1")]);
    case.options.color = Some(Color::Auto);
    let files = [
        (Space::Project, "color: never\nsearch: {limit: 3}\n"),
        (
            Space::User,
            "color: always\nsearch: {limit: 4}\ndebug: true\ncache_dir: /c\n",
        ),
    ];
    let color = |case: &Case| describe(&case.settings(&files).unwrap().color);
    assert_eq!(color(&case), "Auto from option --color");
    case.options.color = None;
    assert_eq!(color(&case), "Always from RYE_COLOR");
    case.variables.remove("RYE_COLOR");
    assert_eq!(color(&case), "Never from NO_COLOR");
    case.variables.remove("NO_COLOR");
    assert_eq!(color(&case), "Never from /project.yaml:1");

    let settings = case.settings(&files).unwrap();
    assert_eq!(describe(&settings.search_limit), "3 from /project.yaml:2");
    assert_eq!(describe(&settings.debug), "true from /user.yaml:3");
    assert_eq!(
        describe(&settings.cache_dir.unwrap()),
        r#""/c" from /user.yaml:4"#
    );

    let settings = case.settings(&[]).unwrap();
    assert_eq!(describe(&settings.color), "Auto from default");
    assert_eq!(describe(&settings.search_limit), "20 from default");
    assert_eq!(
        describe(&settings.cache_dir.unwrap()),
        r#""/h/.cache/rye" from default"#
    );
}

#[test]
fn cache_directory_comes_from_the_variables() {
    let mut case = Case::new(&[("RYE_CACHE_DIR", "/r"), ("XDG_CACHE_HOME", "/x")]);
    let cache = |case: &Case| describe(&case.settings(&[]).unwrap().cache_dir.unwrap());
    assert_eq!(cache(&case), r#""/r" from RYE_CACHE_DIR"#);
    case.variables.remove("RYE_CACHE_DIR");
    assert_eq!(cache(&case), r#""/x/rye" from XDG_CACHE_HOME"#);
}

#[test]
fn invalid_variables_are_rejected_by_name() {
    for (name, value, message) in [
        (
            "RYE_COLOR",
            "red",
            r#"invalid RYE_COLOR="red": expected auto, always or never"#,
        ),
        (
            "RYE_DEV_MODE",
            "yes please",
            r#"invalid RYE_DEV_MODE="yes please": expected 1 or 0"#,
        ),
        (
            "RYE_CACHE_DIR",
            "here",
            r#"invalid RYE_CACHE_DIR="here": expected an absolute path"#,
        ),
        (
            "RYE_DEBUG",
            "2",
            r#"invalid RYE_DEBUG="2": expected 1 or 0"#,
        ),
    ] {
        let error = Case::new(&[(name, value)]).settings(&[]).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let settings = Case::new(&[("RYE_DEV_MODE", "1"), ("RYE_DEBUG", "0")])
        .settings(&[])
        .unwrap();
    assert!(settings.dev_mode.value && !settings.debug.value);
}
