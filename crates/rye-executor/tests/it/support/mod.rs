//! Test environment: a project with tools, a user with a signing key, and an executor.

pub(crate) mod confiner;
pub(crate) mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use lillux::durable::IfExists;
use lillux::keys::SigningKey;
use lillux::process::Supervisor;
use rye_executor::{
    ErrorInfo, ExecuteError, ExecutionResult, Executor, Request, Roots, Status, dependency_scopes,
};
use rye_items::{
    EXCLUDED_DIRS, ItemKind, Library, Options, PathItem, SYSTEM, Scope, Space, UserKeys,
};
use serde_json::Value;
use tempfile::TempDir;

use confiner::RecordingConfiner;

/// Header that makes a shell script a tool.
pub(crate) const BASH: &str = "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\n";
/// Script that creates the file `ran` in the project.
pub(crate) const CREATE_MARKER: &str = "touch \"$1/ran\"\n";

/// A temporary directory with a project, a user directory and a cache.
pub(crate) struct TestEnv {
    dir: TempDir,
    project: PathBuf,
    key: SigningKey,
    pub(crate) executor: Executor,
}

impl TestEnv {
    pub(crate) fn new() -> Self {
        Self::with_project_named("project")
    }

    pub(crate) fn with_project_named(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join(name);
        let user = dir.path().join("user");
        fs::create_dir_all(project.join(".ai")).unwrap();
        let key = UserKeys::new(&user)
            .generate("Ada", IfExists::Fail)
            .unwrap();
        let roots = Roots {
            user: Some(user),
            ..Roots::new(&project, dir.path().join("cache"))
        };
        let executor = Executor::new(roots, Arc::new(Supervisor::start().unwrap()));
        let executor = executor.with_confiner(Arc::new(RecordingConfiner::default()));
        Self {
            dir,
            project,
            key,
            executor,
        }
    }

    pub(crate) fn project(&self) -> &Path {
        &self.project
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    pub(crate) fn project_path(&self, relative: &str) -> PathBuf {
        self.project.join(".ai").join(relative)
    }

    pub(crate) fn user_path(&self, relative: &str) -> PathBuf {
        self.dir.path().join("user/.ai").join(relative)
    }

    pub(crate) fn write(&self, relative: &str, text: &str) {
        write(&self.project_path(relative), text);
    }

    /// Writes a file and signs it.
    pub(crate) fn signed(&self, relative: &str, text: &str) {
        self.write(relative, text);
        self.sign(&self.project_path(relative));
    }

    pub(crate) fn signed_for_user(&self, relative: &str, text: &str) {
        write(&self.user_path(relative), text);
        self.sign(&self.user_path(relative));
    }

    pub(crate) fn sign(&self, path: &Path) {
        let user = self.dir.path().join("user");
        let library = Library::open(&Options {
            project: Some(&self.project),
            user: Some(&user),
            ..Options::new(&SYSTEM)
        })
        .unwrap();
        match library.items_at_path(path).unwrap().0 {
            PathItem::Items(items) => {
                for found in items {
                    library.sign(&found, &self.key, None).unwrap();
                }
            }
            PathItem::External(path) => panic!("{} is in no space", path.display()),
        }
    }

    /// Checks a tool like `rye sign`, without signing it.
    pub(crate) fn check_before_signing(&self, tool: &str) -> Result<(), ExecuteError> {
        let library = self.library();
        let found = library.find(&tool.parse().unwrap()).unwrap();
        let content = found.root.read(&found.relative).unwrap().unwrap().bytes;
        rye_executor::check_before_signing(&library, &found, &content)
    }

    /// Ids of the tools that ship.
    pub(crate) fn system_tools(&self) -> Vec<String> {
        let library = self.library();
        let tools = library.list(ItemKind::Tool);
        let tools = tools.into_iter().filter_map(Result::ok);
        tools.map(|found| found.reference.id.to_string()).collect()
    }

    fn library(&self) -> Library {
        self.executor.library().unwrap()
    }

    /// Signs the dependencies of a tool, like `rye sign`.
    pub(crate) fn sign_dependencies(&self, tool: &str) {
        let library = self.library();
        let tool = tool.parse().unwrap();
        let found = library.find(&tool).unwrap();
        let scopes = dependency_scopes(&library, &found, &self.project).unwrap();
        assert!(!scopes.is_empty(), "{tool} has no dependencies");
        for scope in scopes {
            library
                .sign_manifest(found.root, &scope, &self.key, None)
                .unwrap();
        }
    }

    /// Signs a directory of the project's tools, like `rye sign --manifest`.
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

    /// Signs an interpreter environment, like `rye sign --manifest`.
    pub(crate) fn sign_environment(&self, path: &Path) {
        self.library().sign_environment(path, &self.key).unwrap();
    }

    /// Enables development mode.
    pub(crate) fn in_dev_mode(mut self) -> Self {
        let roots = Roots {
            user: Some(self.user()),
            dev_mode: true,
            ..Roots::new(&self.project, self.cache())
        };
        self.executor = Executor::new(roots, Arc::new(Supervisor::start().unwrap()));
        self
    }

    pub(crate) async fn run(&self, tool: &str, parameters: Value) -> ExecutionResult {
        let mut request = Request::new(tool.parse().unwrap()).with_parameters(parameters);
        request.environment = Some(environment());
        self.executor.execute(request).await
    }

    /// Runs a tool without parameters and with additional variables.
    pub(crate) async fn run_with(&self, tool: &str, variables: &[(&str, &str)]) -> ExecutionResult {
        let mut request = Request::new(tool.parse().unwrap());
        let mut all = environment();
        all.extend(
            variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        );
        request.environment = Some(all);
        self.executor.execute(request).await
    }

    /// Writes and signs a bash tool.
    pub(crate) fn script(&self, id: &str, script: &str) {
        self.signed(&format!("tools/{id}.sh"), &format!("{BASH}{script}"));
    }

    pub(crate) fn user(&self) -> PathBuf {
        self.dir.path().join("user")
    }

    /// Directory that contains the project and the user directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn key(&self) -> &SigningKey {
        &self.key
    }

    /// Command lines of the processes whose working directory is inside the project.
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

    /// Whether a tool with [`CREATE_MARKER`] ran.
    pub(crate) fn ran(&self) -> bool {
        self.project.join("ran").exists()
    }

    /// The error with which both the dry run and the call are refused.
    pub(crate) async fn refused(&self, tool: &str, parameters: Value) -> ErrorInfo {
        let mut request = Request::new(tool.parse().unwrap()).with_parameters(parameters.clone());
        request.dry_run = true;
        let dry = self.executor.execute(request).await;
        let error = self.refused_by_call(tool, parameters).await;
        assert_eq!(dry.error.as_ref(), Some(&error), "{dry:?}");
        error
    }

    /// The error with which a call is refused; its dry run may succeed.
    pub(crate) async fn refused_by_call(&self, tool: &str, parameters: Value) -> ErrorInfo {
        let result = self.run(tool, parameters).await;
        assert_eq!(result.status, Status::Error, "{result:?}");
        assert!(!self.ran(), "{result:?}");
        assert!(
            !result.metadata.contains_key("exit_code"),
            "the tool was started: {result:?}"
        );
        result.error.unwrap()
    }

    /// Code and message of the error of a call.
    pub(crate) async fn fails(&self, tool: &str, parameters: Value) -> String {
        let result = self.run(tool, parameters).await;
        let error = result
            .error
            .unwrap_or_else(|| panic!("the call succeeded: {}", result.data));
        format!("{}: {}", error.code, error.message)
    }
}

/// The variables of this process, with the directory of the real Python first on `PATH`, because
/// version manager shims are slow.
fn environment() -> Vec<(String, String)> {
    static PYTHON_DIR: LazyLock<Option<String>> = LazyLock::new(|| {
        let output = Command::new("python3")
            .args([
                "-c",
                "import os, sys; print(os.path.dirname(sys.executable))",
            ])
            .output();
        let dir = String::from_utf8(output.ok()?.stdout).ok()?;
        Some(dir.trim().to_owned()).filter(|dir| !dir.is_empty())
    });
    let mut all: Vec<_> = std::env::vars().collect();
    if let (Some(dir), Some((_, path))) = (
        &*PYTHON_DIR,
        all.iter_mut().find(|(name, _)| name == "PATH"),
    ) {
        *path = format!("{dir}:{path}");
    }
    all
}

/// Warnings of a result.
pub(crate) fn warnings(result: &ExecutionResult) -> Vec<String> {
    let warnings = result.metadata.get("warnings").cloned();
    serde_json::from_value(warnings.unwrap_or(Value::Array(Vec::new()))).unwrap()
}

/// The command of a hint, without its comment.
pub(crate) fn hint_command(error: &ErrorInfo) -> &str {
    let hint = error.hint.as_deref().unwrap();
    hint.split_once(" # ").map_or(hint, |(command, _)| command)
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A program that `cargo xtask test` installs: the newest `target/tools/NAME…/bin/PROGRAM`.
pub(crate) fn installed_tool(name: &str, program: &str) -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let dirs = fs::read_dir(&tools).into_iter().flatten().flatten();
    let programs = dirs
        .filter(|dir| dir.file_name().to_string_lossy().starts_with(name))
        .map(|dir| dir.path().join("bin").join(program))
        .filter(|program| program.is_file());
    programs.max().unwrap_or_else(|| {
        panic!("no {name} in target/tools; run `cargo xtask test` to install it")
    })
}
