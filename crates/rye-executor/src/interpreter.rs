//! Finding an interpreter.
//!
//! Three ways: `local_binary` looks into folders of the project, `system_binary`
//! on `PATH`, `command` asks a program. Each may name a `fallback`. The older
//! spellings `venv_python`, `node_modules`, `version_manager` and `binary` are
//! read as one of the three.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde_json::{Map, Value};

/// How an interpreter is found, and the variable that it is put into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolver {
    /// The variable.
    pub var: String,
    /// The way.
    pub way: Way,
    /// What is taken from `PATH`, or as a path, where the way finds nothing.
    pub fallback: Option<String>,
}

/// A way of finding a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// In folders below roots.
    Local {
        /// Names, in the order in which they are tried.
        names: Vec<String>,
        /// Folders, relative to the roots.
        paths: Vec<String>,
        /// Templates of the roots; none is the project.
        roots: Vec<String>,
    },
    /// On `PATH`.
    System {
        /// Names, in the order in which they are tried.
        names: Vec<String>,
    },
    /// What a command prints.
    Command(Vec<String>),
}

/// An interpreter that is described wrongly, or is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterpreterError {
    /// The description cannot be read.
    #[error("`{name}` of `env_config`: {why}")]
    Description {
        /// Its key in `env_config`.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// It was looked for everywhere.
    #[error("no interpreter for {var} was found; tried {}", .tried.join(", "))]
    NotFound {
        /// The variable it is for.
        var: String,
        /// What was tried, in order.
        tried: Vec<String>,
    },
    /// A program beside the tool for which nothing vouches.
    #[error("the program `{0}` beside the tool needs its `sha256` in the tool's configuration")]
    Unsigned(String),
    /// A program that is not the one whose hash the tool has.
    #[error(
        "{path} is not the program that the tool means: its SHA-256 is {found}, not {expected}"
    )]
    Changed {
        /// The program.
        path: String,
        /// The hash in the tool.
        expected: String,
        /// That of the file.
        found: String,
    },
    /// A program that cannot be read or copied.
    #[error("{0}")]
    Unusable(String),
}

/// All resolvers of an `env_config`: `interpreter`, and others by their names.
/// What is in it beside them is `env` and `inherit`.
pub fn read_all(env_config: &Value) -> Result<Vec<Resolver>, InterpreterError> {
    let fields = env_config.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| !matches!(name.as_str(), "env" | "inherit"))
        .map(|(name, about)| {
            read(about).map_err(|why| InterpreterError::Description {
                name: name.clone(),
                why,
            })
        })
        .collect()
}

fn read(about: &Value) -> Result<Resolver, String> {
    let fields = about.as_object().ok_or("it is not a mapping")?;
    let kind = fields.get("type").and_then(Value::as_str);
    let kind = kind.ok_or("`type` is missing: how the program is found")?;
    let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
    let fallback = text("fallback");
    let var = text("var").ok_or("`var` is missing: the variable for what is found")?;
    let binary = || text("binary").ok_or("`binary` is missing: the name of the program".to_owned());
    let names = |first: String| [vec![first], list(fields, "candidates")].concat();
    let way = match kind {
        "local_binary" => Way::Local {
            names: names(binary()?),
            paths: list(fields, "search_paths"),
            roots: list(fields, "search_roots"),
        },
        "system_binary" => Way::System {
            names: names(binary()?),
        },
        "command" => match list(fields, "resolve_cmd") {
            command if command.is_empty() => {
                return Err("`resolve_cmd` is missing: the command to ask".to_owned());
            }
            command => Way::Command(command),
        },
        "venv_python" => Way::Local {
            names: vec!["python".to_owned(), "python3".to_owned()],
            paths: vec![".venv/bin".to_owned(), ".venv/Scripts".to_owned()],
            roots: Vec::new(),
        },
        "node_modules" => Way::Local {
            names: names(text("binary").unwrap_or_else(|| "node".to_owned())),
            paths: vec!["node_modules/.bin".to_owned()],
            roots: vec!["{anchor_path}".to_owned()],
        },
        "version_manager" => {
            let manager = text("manager").ok_or("`manager` is missing: the program to ask")?;
            Way::Command(vec![manager, "which".to_owned(), binary()?])
        }
        "binary" => Way::System {
            names: names(
                text("binary")
                    .or(fallback.clone())
                    .ok_or("neither `binary` nor `fallback` names a program")?,
            ),
        },
        other => {
            return Err(format!(
                "there is no type `{other}`; the types are local_binary, system_binary, command"
            ));
        }
    };
    Ok(Resolver { var, way, fallback })
}

fn list(fields: &Map<String, Value>, key: &str) -> Vec<String> {
    let items = fields
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

impl Resolver {
    /// Looks for the program: for one of [`Way::Local`] below the roots, and for one of
    /// [`Way::Command`] where `answer` is, which the command printed. A program that is not
    /// admitted is passed over.
    pub fn find(
        &self,
        roots: &[PathBuf],
        search_path: &str,
        answer: Option<&str>,
        admits: &dyn Fn(&Path) -> bool,
    ) -> Result<PathBuf, InterpreterError> {
        let mut tried = Vec::new();
        let mut runs = |path: PathBuf| {
            let good = path.is_file() && access(&path, Access::EXEC_OK).is_ok() && admits(&path);
            if !good {
                tried.push(path.display().to_string());
            }
            good.then_some(path)
        };
        let found = match &self.way {
            Way::Local { names, paths, .. } => {
                let mut all = roots.iter().flat_map(|root| {
                    paths.iter().flat_map(move |path| {
                        names.iter().map(move |name| root.join(path).join(name))
                    })
                });
                all.find_map(&mut runs)
            }
            Way::System { names } => names
                .iter()
                .find_map(|name| on_path(name, search_path, &mut runs)),
            Way::Command(_) => answer.map(PathBuf::from).and_then(&mut runs),
        };
        let found = found.or_else(|| on_path(self.fallback.as_ref()?, search_path, &mut runs));
        found.ok_or_else(|| {
            if let Way::Command(command) = &self.way
                && answer.is_none()
            {
                tried.insert(0, format!("`{}`", command.join(" ")));
            }
            InterpreterError::NotFound {
                var: self.var.clone(),
                tried,
            }
        })
    }
}

/// A program by its path, or by its name on `PATH`.
fn on_path(
    name: &str,
    search_path: &str,
    runs: &mut impl FnMut(PathBuf) -> Option<PathBuf>,
) -> Option<PathBuf> {
    if name.contains('/') {
        return runs(PathBuf::from(name));
    }
    let folders = search_path
        .split(':')
        .filter(|folder| folder.starts_with('/'));
    folders
        .map(|folder| Path::new(folder).join(name))
        .find_map(runs)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn one(about: &Value) -> Result<Resolver, InterpreterError> {
        read_all(&json!({ "interpreter": about })).map(|mut all| all.remove(0))
    }

    #[test]
    fn every_spelling_is_read_as_one_of_the_three_ways() {
        for (about, way) in [
            (
                json!({"type": "local_binary", "var": "V", "binary": "python", "candidates": ["python3"], "search_paths": [".venv/bin"]}),
                Way::Local {
                    names: vec!["python".into(), "python3".into()],
                    paths: vec![".venv/bin".into()],
                    roots: vec![],
                },
            ),
            (
                json!({"type": "system_binary", "var": "V", "binary": "ruby"}),
                Way::System {
                    names: vec!["ruby".into()],
                },
            ),
            (
                json!({"type": "command", "var": "V", "resolve_cmd": ["a", "b"]}),
                Way::Command(vec!["a".into(), "b".into()]),
            ),
            (
                json!({"type": "binary", "var": "V", "search": ["project"], "fallback": "rustc"}),
                Way::System {
                    names: vec!["rustc".into()],
                },
            ),
            (
                json!({"type": "version_manager", "var": "V", "manager": "pyenv", "binary": "python"}),
                Way::Command(vec!["pyenv".into(), "which".into(), "python".into()]),
            ),
        ] {
            assert_eq!(one(&about).unwrap().way, way);
        }
        let both = json!({
            "interpreter": {"type": "venv_python", "var": "A"},
            "mcp_runner": {"type": "binary", "var": "B", "fallback": "mcp"},
            "env": {"X": "1"},
        });
        assert_eq!(read_all(&both).unwrap().len(), 2);
    }

    #[test]
    fn a_wrong_description_says_what_is_missing() {
        for (about, why) in [
            (
                json!({"type": "system_binary", "binary": "x"}),
                "`var` is missing",
            ),
            (
                json!({"type": "system_binary", "var": "V"}),
                "`binary` is missing",
            ),
            (
                json!({"type": "command", "var": "V"}),
                "`resolve_cmd` is missing",
            ),
            (
                json!({"type": "magic", "var": "V"}),
                "there is no type `magic`",
            ),
        ] {
            let error = one(&about).unwrap_err().to_string();
            assert!(
                error.starts_with("`interpreter` of `env_config`: ") && error.contains(why),
                "{error}"
            );
        }
    }

    #[test]
    fn a_program_is_found_where_it_is_or_all_that_was_tried_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path();
        let roots = [project.to_owned()];
        let program = |path: &str, mode: u32| {
            let path = project.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        program("path/python3", 0o755);
        program("venv/bin/python", 0o644);
        let path = project.join("path").display().to_string();
        let local = one(&json!({"type": "local_binary", "var": "V", "binary": "python", "candidates": ["python3"], "search_paths": ["venv/bin"], "fallback": "python3"})).unwrap();
        assert_eq!(
            local.find(&roots, &path, None, &|_| true).unwrap(),
            project.join("path/python3")
        );
        program("venv/bin/python3", 0o755);
        assert_eq!(
            local.find(&roots, &path, None, &|_| true).unwrap(),
            project.join("venv/bin/python3")
        );

        let ask =
            one(&json!({"type": "command", "var": "V", "resolve_cmd": ["which-python", "x"]}))
                .unwrap();
        let there = project.join("path/python3").display().to_string();
        assert!(ask.find(&roots, "", Some(&there), &|_| true).is_ok());
        let error = ask
            .find(&roots, "", None, &|_| true)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "no interpreter for V was found; tried `which-python x`"
        );
        let none = one(&json!({"type": "system_binary", "var": "V", "binary": "none", "fallback": "/no/where"})).unwrap();
        let error = none
            .find(&roots, "/bin:relative", None, &|_| true)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "no interpreter for V was found; tried /bin/none, /no/where"
        );
    }
}
