//! A project with tools, a user with a key, and an executor over both.

pub(crate) mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use lillux::durable::IfExists;
use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_executor::{Envelope, ErrorInfo, Executor, Request, Roots, Status, dependency_scopes};
use rye_items::{EXCLUDED_DIRS, Library, Options, PathItem, SYSTEM, Scope, Space, UserKeys};
use serde_json::Value;
use tempfile::TempDir;

/// What makes a script a tool.
pub(crate) const BASH: &str = "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\n";
/// A script that shows that it ran.
pub(crate) const MARK: &str = "touch \"$1/ran\"\n";

pub(crate) struct World {
    folder: TempDir,
    project: PathBuf,
    key: SigningKey,
    pub(crate) executor: Executor,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_project_called("project")
    }

    pub(crate) fn with_project_called(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join(name);
        let user = folder.path().join("user");
        fs::create_dir_all(project.join(".ai")).unwrap();
        let key = UserKeys::new(&user)
            .generate("Ada", IfExists::Fail)
            .unwrap();
        let roots = Roots {
            user: Some(user),
            ..Roots::new(&project, folder.path().join("cache"))
        };
        let executor = Executor::new(roots, Arc::new(Supervisor::start().unwrap()));
        Self {
            folder,
            project,
            key,
            executor,
        }
    }

    pub(crate) fn project(&self) -> &Path {
        &self.project
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    pub(crate) fn at(&self, relative: &str) -> PathBuf {
        self.project.join(".ai").join(relative)
    }

    pub(crate) fn at_user(&self, relative: &str) -> PathBuf {
        self.folder.path().join("user/.ai").join(relative)
    }

    pub(crate) fn write(&self, relative: &str, text: &str) {
        write(&self.at(relative), text);
    }

    /// Writes a file and signs it.
    pub(crate) fn signed(&self, relative: &str, text: &str) {
        self.write(relative, text);
        self.sign(&self.at(relative));
    }

    pub(crate) fn signed_for_user(&self, relative: &str, text: &str) {
        write(&self.at_user(relative), text);
        self.sign(&self.at_user(relative));
    }

    pub(crate) fn sign(&self, path: &Path) {
        let user = self.folder.path().join("user");
        let library = Library::open(&Options {
            project: Some(&self.project),
            user: Some(&user),
            ..Options::new(&SYSTEM)
        })
        .unwrap();
        match library.items_at_path(path).unwrap().0 {
            PathItem::Items(items) => {
                for (_, found) in items {
                    library.sign(&found, &self.key, None).unwrap();
                }
            }
            PathItem::External(path) => panic!("{} is in no space", path.display()),
        }
    }

    fn library(&self) -> Library {
        self.executor.library().unwrap()
    }

    /// Signs what a tool can load, as `rye sign` does.
    pub(crate) fn sign_dependencies(&self, tool: &str) {
        let library = self.library();
        let tool = tool.parse().unwrap();
        let found = library.find(&tool).unwrap();
        let scopes = dependency_scopes(&library, &found, &self.project).unwrap();
        assert!(!scopes.is_empty(), "{tool} loads nothing");
        for scope in scopes {
            library
                .sign_manifest(found.root, &scope, &self.key, None)
                .unwrap();
        }
    }

    /// Signs a directory of the project's tools, as `rye sign --manifest` does.
    pub(crate) fn sign_directory(&self, relative: &str) {
        let library = self.library();
        let root = library.spaces().roots_in(Space::Project).next().unwrap();
        let scope = Scope {
            dir: relative.to_owned(),
            recursive: true,
            exclude_dirs: EXCLUDED_DIRS.map(str::to_owned).to_vec(),
        };
        library
            .sign_manifest(root, &scope, &self.key, None)
            .unwrap();
    }

    /// Signs an environment of an interpreter, as `rye sign --manifest` does.
    pub(crate) fn sign_environment(&self, path: &Path) {
        self.library().sign_environment(path, &self.key).unwrap();
    }

    /// The same project and user in development mode.
    pub(crate) fn in_dev_mode(mut self) -> Self {
        let roots = Roots {
            user: Some(self.user()),
            dev_mode: true,
            ..Roots::new(&self.project, self.cache())
        };
        self.executor = Executor::new(roots, Arc::new(Supervisor::start().unwrap()));
        self
    }

    pub(crate) async fn run(&self, tool: &str, parameters: Value) -> Envelope {
        let mut request = Request::new(tool.parse().unwrap()).with_parameters(parameters);
        request.environment = Some(environment());
        self.executor.execute(request).await
    }

    /// Runs a tool without parameters and with more variables.
    pub(crate) async fn run_with(&self, tool: &str, more: &[(&str, &str)]) -> Envelope {
        let mut request = Request::new(tool.parse().unwrap());
        let mut all = environment();
        all.extend(
            more.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        request.environment = Some(all);
        self.executor.execute(request).await
    }

    /// Writes a tool that is a script of bash, and signs it.
    pub(crate) fn script(&self, id: &str, script: &str) {
        self.signed(&format!("tools/{id}.sh"), &format!("{BASH}{script}"));
    }

    pub(crate) fn user(&self) -> PathBuf {
        self.folder.path().join("user")
    }

    /// The folder around the project and the user.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn key(&self) -> &SigningKey {
        &self.key
    }

    /// The processes that are in the project's folder: tools, and what they started.
    pub(crate) fn processes(&self) -> Vec<String> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let inside = all.filter(|process| {
            let cwd = fs::read_link(process.path().join("cwd"));
            cwd.is_ok_and(|cwd| cwd.starts_with(&self.project))
        });
        inside
            .map(|process| {
                let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).replace('\0', " ")
            })
            .collect()
    }

    /// Whether a tool ran that leaves a [`MARK`].
    pub(crate) fn ran(&self) -> bool {
        self.project.join("ran").exists()
    }

    /// Why a call is refused, which is also why its dry run is. Nothing runs.
    pub(crate) async fn refused(&self, tool: &str, parameters: Value) -> ErrorInfo {
        let mut request = Request::new(tool.parse().unwrap()).with_parameters(parameters.clone());
        request.dry_run = true;
        let dry = self.executor.execute(request).await;
        let error = self.refused_at_last(tool, parameters).await;
        assert_eq!(dry.error.as_ref(), Some(&error), "{dry:?}");
        error
    }

    /// Why a call is refused whose chain is good. Nothing runs.
    pub(crate) async fn refused_at_last(&self, tool: &str, parameters: Value) -> ErrorInfo {
        let envelope = self.run(tool, parameters).await;
        assert_eq!(envelope.status, Status::Error, "{envelope:?}");
        assert!(!self.ran(), "{envelope:?}");
        assert!(
            !envelope.metadata.contains_key("exit_code"),
            "it was started: {envelope:?}"
        );
        envelope.error.unwrap()
    }

    /// The code of the error with which a call is refused or fails.
    pub(crate) async fn fails(&self, tool: &str, parameters: Value) -> String {
        let envelope = self.run(tool, parameters).await;
        let error = envelope
            .error
            .unwrap_or_else(|| panic!("it succeeded: {}", envelope.data));
        format!("{}: {}", error.code, error.message)
    }
}

/// The variables of this process, with Python itself first on `PATH`: what is there
/// may be a script that looks for one, which takes longer than all else that is tested.
fn environment() -> Vec<(String, String)> {
    static FOLDER: LazyLock<Option<String>> = LazyLock::new(|| {
        let asked = Command::new("python3")
            .args([
                "-c",
                "import os, sys; print(os.path.dirname(sys.executable))",
            ])
            .output();
        let folder = String::from_utf8(asked.ok()?.stdout).ok()?;
        Some(folder.trim().to_owned()).filter(|folder| !folder.is_empty())
    });
    let mut all: Vec<_> = std::env::vars().collect();
    if let (Some(folder), Some((_, path))) =
        (&*FOLDER, all.iter_mut().find(|(name, _)| name == "PATH"))
    {
        *path = format!("{folder}:{path}");
    }
    all
}

/// The warnings on a result.
pub(crate) fn warnings(envelope: &Envelope) -> Vec<String> {
    let warnings = envelope.metadata.get("warnings").cloned();
    serde_json::from_value(warnings.unwrap_or(Value::Array(Vec::new()))).unwrap()
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A program that `cargo xtask test` keeps for tests: the newest `target/tools/NAME…/bin/PROGRAM`.
pub(crate) fn kept(name: &str, program: &str) -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let folders = fs::read_dir(&tools).into_iter().flatten().flatten();
    let programs = folders
        .filter(|folder| folder.file_name().to_string_lossy().starts_with(name))
        .map(|folder| folder.path().join("bin").join(program))
        .filter(|program| program.is_file());
    programs
        .max()
        .unwrap_or_else(|| panic!("no {name} in target/tools; `cargo xtask test` puts it there"))
}
