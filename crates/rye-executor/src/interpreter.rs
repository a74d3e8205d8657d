//! Resolution of interpreters.
//!
//! There are three methods: `local_binary` searches directories of the project, `system_binary`
//! searches `PATH`, and `command` runs a program that prints the path. Each can name a
//! `fallback`. `venv_python`, `node_modules`, `version_manager` and `binary` are presets of
//! these methods.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};
use serde::Serialize;
use serde_json::{Map, Value};

/// How to find an interpreter, and the environment variable that receives its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolver {
    /// Name of the environment variable.
    pub var: String,
    /// Search method.
    pub method: SearchMethod,
    /// Program name on `PATH` or path to use if the method finds nothing.
    pub fallback: Option<String>,
}

/// How to search for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchMethod {
    /// Search directories below roots.
    Local {
        /// Program names, in order of preference.
        names: Vec<String>,
        /// Directories, relative to the roots.
        paths: Vec<String>,
        /// Roots in the order of the search; empty for the project directory.
        roots: Vec<SearchRoot>,
    },
    /// Search `PATH`.
    System {
        /// Program names, in order of preference.
        names: Vec<String>,
    },
    /// Run a command that prints the path.
    Command(Vec<String>),
}

/// Where [`SearchMethod::Local`] searches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchRoot<D = String> {
    /// Below a directory, by default given as a template.
    Dir(D),
    /// In the directories of `PATH`.
    Path,
}

/// A candidate of a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Path of the program, or the command that prints it.
    pub name: String,
    /// Result of the check.
    pub result: CandidateResult,
    /// Duration of the check in microseconds.
    pub duration_us: u64,
}

/// Whether a candidate can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateResult {
    /// It is used.
    Found,
    /// There is no such file.
    Missing,
    /// The file cannot be executed.
    NotExecutable,
    /// It is in a project or user directory that is not signed.
    NotSigned,
    /// The command failed or printed nothing.
    Failed,
    /// The command was not run, because this is a dry run.
    NotRun,
}

impl Candidate {
    /// Records a check that began at `start`.
    pub(crate) fn new(name: String, result: CandidateResult, start: Instant) -> Self {
        let micros = Duration::as_micros(&start.elapsed());
        Self {
            name,
            result,
            duration_us: u64::try_from(micros).unwrap_or(u64::MAX),
        }
    }
}

/// Why an interpreter cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterpreterError {
    /// The declaration is invalid.
    #[error("`env_config.{name}`: {reason}")]
    InvalidDeclaration {
        /// Key in `env_config`.
        name: String,
        /// Explanation for the user.
        reason: String,
    },
    /// The search found no executable program.
    #[error("no interpreter found for {var}; tried {}", .tried.join(", "))]
    NotFound {
        /// Name of the environment variable.
        var: String,
        /// Paths and commands that were tried, in order, without repetitions.
        tried: Vec<String>,
        /// The first directory whose programs were skipped because it is not signed.
        unsigned: Option<PathBuf>,
    },
    /// A program in the tool's directory has no hash in the configuration.
    #[error(
        "the program `{0}` in the tool's directory needs a `sha256` in the tool's configuration"
    )]
    MissingHash(String),
    /// The hash of a program differs from the one in the configuration.
    #[error("{path} does not match its `sha256`: expected {expected}, found {found}")]
    HashMismatch {
        /// Path of the program.
        path: String,
        /// Hash in the tool's configuration.
        expected: String,
        /// Hash of the file.
        found: String,
    },
    /// A program cannot be read or copied.
    #[error("{0}")]
    Unusable(String),
}

/// Parses all resolvers of an `env_config`. Every key except `env` and `inherit` is a resolver.
pub fn parse_resolvers(env_config: &Value) -> Result<Vec<Resolver>, InterpreterError> {
    let fields = env_config.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| !matches!(name.as_str(), "env" | "inherit"))
        .map(|(name, declaration)| {
            parse_resolver(declaration).map_err(|reason| InterpreterError::InvalidDeclaration {
                name: name.clone(),
                reason,
            })
        })
        .collect()
}

fn parse_resolver(declaration: &Value) -> Result<Resolver, String> {
    let fields = declaration.as_object().ok_or("not a mapping")?;
    let kind = fields.get("type").and_then(Value::as_str);
    let kind = kind.ok_or("missing `type`, the search method")?;
    let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
    let fallback = text("fallback");
    let var = text("var").ok_or("missing `var`, the environment variable to set")?;
    let binary = || text("binary").ok_or("missing `binary`, the program name".to_owned());
    let names = |first: String| [vec![first], list(fields, "candidates")].concat();
    let method = match kind {
        "local_binary" => SearchMethod::Local {
            names: names(binary()?),
            paths: list(fields, "search_paths"),
            roots: dirs(list(fields, "search_roots")),
        },
        "system_binary" => SearchMethod::System {
            names: names(binary()?),
        },
        "command" => match list(fields, "resolve_cmd") {
            command if command.is_empty() => {
                return Err("missing `resolve_cmd`, the command to run".to_owned());
            }
            command => SearchMethod::Command(command),
        },
        "venv_python" => SearchMethod::Local {
            names: vec!["python".to_owned(), "python3".to_owned()],
            paths: vec![".venv/bin".to_owned(), ".venv/Scripts".to_owned()],
            roots: spaces(fields)?.unwrap_or_default(),
        },
        "node_modules" => SearchMethod::Local {
            names: names(text("binary").unwrap_or_else(|| "node".to_owned())),
            paths: vec!["node_modules/.bin".to_owned()],
            roots: dirs(vec!["{anchor_path}".to_owned()]),
        },
        "version_manager" => {
            let manager = text("manager").ok_or("missing `manager`, the program to run")?;
            SearchMethod::Command(vec![manager, "which".to_owned(), binary()?])
        }
        "binary" => {
            let name = text("binary").or(fallback.clone());
            let names = names(name.ok_or("missing `binary` or `fallback`, the program name")?);
            match spaces(fields)? {
                None => SearchMethod::System { names },
                Some(roots) => SearchMethod::Local {
                    names,
                    paths: LOCAL_PROGRAMS.map(str::to_owned).to_vec(),
                    roots,
                },
            }
        }
        other => {
            return Err(format!(
                "unknown type `{other}`; expected local_binary, system_binary or command"
            ));
        }
    };
    Ok(Resolver {
        var,
        method,
        fallback,
    })
}

/// Where programs of a project or a user are, relative to its directory.
const LOCAL_PROGRAMS: [&str; 3] = [".venv/bin", "node_modules/.bin", "bin"];

/// The roots that `search` lists: the project's directory, the user's `.ai/`, and `PATH` for the
/// system.
fn spaces(fields: &Map<String, Value>) -> Result<Option<Vec<SearchRoot>>, String> {
    if !fields.contains_key("search") {
        return Ok(None);
    }
    let roots = list(fields, "search").into_iter().map(|name| {
        Ok(match name.as_str() {
            "project" => SearchRoot::Dir("{project_path}".to_owned()),
            "user" => SearchRoot::Dir("{user_space}".to_owned()),
            "system" => SearchRoot::Path,
            other => {
                return Err(format!(
                    "`search`: unknown space `{other}`; expected project, user or system"
                ));
            }
        })
    });
    roots.collect::<Result<_, _>>().map(Some)
}

fn dirs(templates: Vec<String>) -> Vec<SearchRoot> {
    templates.into_iter().map(SearchRoot::Dir).collect()
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
    /// Searches for the program and adds each candidate to `tried`. [`SearchMethod::Local`]
    /// searches `roots`; [`SearchMethod::Command`] uses `command_output`. Programs that
    /// `is_allowed` rejects are skipped.
    pub fn find(
        &self,
        roots: &[SearchRoot<PathBuf>],
        search_path: &str,
        command_output: Option<&str>,
        is_allowed: &dyn Fn(&Path) -> bool,
        tried: &mut Vec<Candidate>,
    ) -> Result<PathBuf, InterpreterError> {
        let mut usable = |path: PathBuf| {
            let start = Instant::now();
            let result = if !path.is_file() {
                CandidateResult::Missing
            } else if access(&path, Access::EXEC_OK).is_err() {
                CandidateResult::NotExecutable
            } else if is_allowed(&path) {
                CandidateResult::Found
            } else {
                CandidateResult::NotSigned
            };
            let name = path.display().to_string();
            tried.push(Candidate::new(name, result, start));
            (result == CandidateResult::Found).then_some(path)
        };
        let on_path_of = |names: &[String], usable: &mut dyn FnMut(PathBuf) -> Option<PathBuf>| {
            let mut names = names.iter();
            names.find_map(|name| on_path(name, search_path, usable))
        };
        let found = match &self.method {
            SearchMethod::Local { names, paths, .. } => roots.iter().find_map(|root| match root {
                SearchRoot::Path => on_path_of(names, &mut usable),
                SearchRoot::Dir(root) => {
                    let mut all = paths
                        .iter()
                        .flat_map(|path| names.iter().map(move |name| root.join(path).join(name)));
                    all.find_map(&mut usable)
                }
            }),
            SearchMethod::System { names } => on_path_of(names, &mut usable),
            SearchMethod::Command(_) => command_output.map(PathBuf::from).and_then(&mut usable),
        };
        let found = found.or_else(|| on_path(self.fallback.as_ref()?, search_path, &mut usable));
        found.ok_or_else(|| {
            let mut names: Vec<String> = Vec::new();
            for candidate in tried.iter() {
                let suffix = match candidate.result {
                    CandidateResult::NotSigned => " (not signed)",
                    CandidateResult::NotExecutable => " (not executable)",
                    _ => "",
                };
                let name = format!("{}{suffix}", candidate.name);
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            InterpreterError::NotFound {
                var: self.var.clone(),
                tried: names,
                unsigned: None,
            }
        })
    }
}

/// Resolves a path, or a program name on `PATH`.
fn on_path(
    name: &str,
    search_path: &str,
    usable: &mut dyn FnMut(PathBuf) -> Option<PathBuf>,
) -> Option<PathBuf> {
    if name.contains('/') {
        return usable(PathBuf::from(name));
    }
    let dirs = search_path.split(':').filter(|dir| dir.starts_with('/'));
    dirs.map(|dir| Path::new(dir).join(name)).find_map(usable)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn parse(declaration: &Value) -> Result<Resolver, InterpreterError> {
        parse_resolvers(&json!({ "interpreter": declaration })).map(|mut all| all.remove(0))
    }

    #[test]
    fn presets_are_parsed_as_one_of_the_three_methods() {
        for (declaration, method) in [
            (
                json!({"type": "local_binary", "var": "V", "binary": "python", "candidates": ["python3"], "search_paths": [".venv/bin"]}),
                SearchMethod::Local {
                    names: vec!["python".into(), "python3".into()],
                    paths: vec![".venv/bin".into()],
                    roots: vec![],
                },
            ),
            (
                json!({"type": "system_binary", "var": "V", "binary": "ruby"}),
                SearchMethod::System {
                    names: vec!["ruby".into()],
                },
            ),
            (
                json!({"type": "command", "var": "V", "resolve_cmd": ["a", "b"]}),
                SearchMethod::Command(vec!["a".into(), "b".into()]),
            ),
            (
                json!({"type": "binary", "var": "V", "fallback": "rustc"}),
                SearchMethod::System {
                    names: vec!["rustc".into()],
                },
            ),
            (
                json!({"type": "binary", "var": "V", "search": ["project", "system"], "fallback": "rustc"}),
                SearchMethod::Local {
                    names: vec!["rustc".into()],
                    paths: LOCAL_PROGRAMS.map(str::to_owned).to_vec(),
                    roots: vec![SearchRoot::Dir("{project_path}".into()), SearchRoot::Path],
                },
            ),
            (
                json!({"type": "version_manager", "var": "V", "manager": "pyenv", "binary": "python"}),
                SearchMethod::Command(vec!["pyenv".into(), "which".into(), "python".into()]),
            ),
        ] {
            assert_eq!(parse(&declaration).unwrap().method, method);
        }
        let both = json!({
            "interpreter": {"type": "venv_python", "var": "A"},
            "mcp_runner": {"type": "binary", "var": "B", "fallback": "mcp"},
            "env": {"X": "1"},
        });
        assert_eq!(parse_resolvers(&both).unwrap().len(), 2);
    }

    #[test]
    fn invalid_declaration_names_the_key() {
        for (declaration, key) in [
            (json!({"type": "system_binary", "binary": "x"}), "`var`"),
            (json!({"type": "system_binary", "var": "V"}), "`binary`"),
            (json!({"type": "command", "var": "V"}), "`resolve_cmd`"),
            (json!({"type": "magic", "var": "V"}), "`magic`"),
            (
                json!({"type": "venv_python", "var": "V", "search": ["moon"]}),
                "`moon`",
            ),
        ] {
            let error = parse(&declaration).unwrap_err();
            let InterpreterError::InvalidDeclaration { name, reason } = &error else {
                panic!("{error}");
            };
            assert!(name == "interpreter" && reason.contains(key), "{error}");
        }
    }

    #[test]
    fn program_is_found_or_the_error_lists_all_attempts() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path();
        let roots = [SearchRoot::Dir(project.to_owned())];
        let find = |resolver: &Resolver, path: &str, output: Option<&str>| {
            resolver.find(&roots, path, output, &|_| true, &mut Vec::new())
        };
        let program = |path: &str, mode: u32| {
            let path = project.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        program("path/python3", 0o755);
        program("venv/bin/python", 0o644);
        let path = project.join("path").display().to_string();
        let local = parse(&json!({"type": "local_binary", "var": "V", "binary": "python", "candidates": ["python3"], "search_paths": ["venv/bin"], "fallback": "python3"})).unwrap();
        let found = find(&local, &path, None).unwrap();
        assert_eq!(found, project.join("path/python3"));
        program("venv/bin/python3", 0o755);
        let found = find(&local, &path, None).unwrap();
        assert_eq!(found, project.join("venv/bin/python3"));

        let command =
            parse(&json!({"type": "command", "var": "V", "resolve_cmd": ["which-python", "x"]}))
                .unwrap();
        let python = project.join("path/python3").display().to_string();
        assert!(find(&command, "", Some(&python)).is_ok());
        assert!(find(&command, "", None).is_err());
        let none = parse(&json!({"type": "system_binary", "var": "V", "binary": "none", "fallback": "/no/where"})).unwrap();
        let error = find(&none, "/bin:relative", None).unwrap_err().to_string();
        assert_eq!(
            error,
            "no interpreter found for V; tried /bin/none, /no/where"
        );
    }
}
