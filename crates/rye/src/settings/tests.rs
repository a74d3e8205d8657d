use std::collections::HashMap;

use super::*;

/// Settings from options, variables and files, with `.ai/` in some folders.
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

    fn places(&self) -> Places {
        let is_space = |folder: &Path| self.with_ai.iter().any(|with| Path::new(with) == folder);
        let variable = |name: &str| self.variables.get(name).map(OsString::from);
        Places::find(&self.options, &variable, Path::new(self.current), &is_space)
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
        Settings::resolve(&self.options, &variable, self.places(), &files, Vec::new())
    }
}

fn shown<T: fmt::Debug>(setting: &Setting<T>) -> String {
    format!("{:?} from {}", setting.value, setting.origin)
}

#[test]
fn the_project_is_the_option_then_the_variable_then_the_nearest_space() {
    let mut case = Case::new(&[("HOME", "/h"), ("RYE_PROJECT", "../other")]);
    case.options.project = Some("here".into());
    assert_eq!(
        shown(&case.places().project),
        r#""/w/project/src/deep/here" from option --project"#
    );
    case.options.project = None;
    assert_eq!(
        shown(&case.places().project),
        r#""/w/project/src/deep/../other" from RYE_PROJECT"#
    );
    case.variables.remove("RYE_PROJECT");
    assert_eq!(
        shown(&case.places().project),
        r#""/w/project" from nearest folder with .ai/"#
    );
}

#[test]
fn the_users_own_folder_is_no_project_of_what_is_below_it() {
    let mut case = Case::new(&[("HOME", "/h")]);
    case.current = "/h/notes";
    assert_eq!(shown(&case.places().project), r#""/h/notes" from default"#);
    case.variables.insert("USER_SPACE", "/elsewhere");
    assert_eq!(
        shown(&case.places().project),
        r#""/h" from nearest folder with .ai/"#
    );
}

#[test]
fn the_user_space_is_a_variable_or_the_home_folder_or_missing() {
    let mut case = Case::new(&[("HOME", "/h"), ("USER_SPACE", "/u")]);
    let user = |case: &Case| case.places().user_space.as_ref().map(shown);
    assert_eq!(user(&case).unwrap(), r#""/u" from USER_SPACE"#);
    case.variables.remove("USER_SPACE");
    assert_eq!(user(&case).unwrap(), r#""/h" from HOME"#);
    case.variables.clear();
    let settings = case.settings(&[]).unwrap();
    assert_eq!(
        settings.user_space().unwrap_err().to_string(),
        "there is no user space: neither USER_SPACE nor HOME is set"
    );
    assert!(settings.cache_dir.is_none());
}

#[test]
fn the_system_space_is_a_list() {
    let case = Case::new(&[("RYE_SYSTEM_SPACE", "/a::b")]);
    assert_eq!(
        shown(&case.places().system_space),
        r#"["/a", "/w/project/src/deep/b"] from RYE_SYSTEM_SPACE"#
    );
}

#[test]
fn an_option_goes_before_the_environment_before_files_before_the_default() {
    let mut case = Case::new(&[("HOME", "/h"), ("RYE_COLOR", "always"), ("NO_COLOR", "1")]);
    case.options.color = Some(Color::Auto);
    let files = [
        (Space::Project, "color: never\nsearch: {limit: 3}\n"),
        (
            Space::User,
            "color: always\nsearch: {limit: 4}\ndebug: true\ncache_dir: /c\n",
        ),
    ];
    let color = |case: &Case| shown(&case.settings(&files).unwrap().color);
    assert_eq!(color(&case), "Auto from option --color");
    case.options.color = None;
    assert_eq!(color(&case), "Always from RYE_COLOR");
    case.variables.remove("RYE_COLOR");
    assert_eq!(color(&case), "Never from NO_COLOR");
    case.variables.remove("NO_COLOR");
    assert_eq!(color(&case), "Never from /project.yaml:1");

    let settings = case.settings(&files).unwrap();
    assert_eq!(shown(&settings.search_limit), "3 from /project.yaml:2");
    assert_eq!(shown(&settings.debug), "true from /user.yaml:3");
    assert_eq!(
        shown(&settings.cache_dir.unwrap()),
        r#""/c" from /user.yaml:4"#
    );

    let settings = case.settings(&[]).unwrap();
    assert_eq!(shown(&settings.color), "Auto from default");
    assert_eq!(shown(&settings.search_limit), "20 from default");
    assert_eq!(
        shown(&settings.cache_dir.unwrap()),
        r#""/h/.cache/rye" from default"#
    );
}

#[test]
fn the_cache_is_where_the_variables_say() {
    let mut case = Case::new(&[("RYE_CACHE_DIR", "/r"), ("XDG_CACHE_HOME", "/x")]);
    let cache = |case: &Case| shown(&case.settings(&[]).unwrap().cache_dir.unwrap());
    assert_eq!(cache(&case), r#""/r" from RYE_CACHE_DIR"#);
    case.variables.remove("RYE_CACHE_DIR");
    assert_eq!(cache(&case), r#""/x/rye" from XDG_CACHE_HOME"#);
}

#[test]
fn a_variable_that_means_nothing_is_refused_by_name() {
    for (name, value, message) in [
        (
            "RYE_COLOR",
            "red",
            r#"RYE_COLOR="red" means nothing; it must be one of auto, always, never"#,
        ),
        (
            "RYE_DEV_MODE",
            "yes please",
            r#"RYE_DEV_MODE="yes please" means nothing; it must be 1 or 0"#,
        ),
        (
            "RYE_CACHE_DIR",
            "here",
            r#"RYE_CACHE_DIR="here" means nothing; it must be an absolute path"#,
        ),
        (
            "RYE_DEBUG",
            "2",
            r#"RYE_DEBUG="2" means nothing; it must be 1 or 0"#,
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
