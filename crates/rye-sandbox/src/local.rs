//! The sandbox that is none: a folder of this machine.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lillux::process::{Command, Environment, Exit, Handle, Stream, Supervisor};
use rustix::fs::OFlags;
use rye_engine::sandbox::{Done, Exec, Executed, FileInfo, Sandbox, SandboxError, Watcher};
use rye_engine::store::Later;
use tokio::task::spawn_blocking;

use crate::files::unusable;
use crate::kept::Kept;

/// How long a tree that is to end has before it is killed: who aborts does not wait.
const GRACE: Duration = Duration::from_millis(100);
/// The longest file that is read.
const LONGEST: u64 = 64 * 1024 * 1024;

/// A folder of this machine. It **confines nothing**: programs run as the user that runs
/// this one, with the network and all files, and paths may be absolute or lead out of the
/// folder. What it does is to end them: a program and all that it started are gone when
/// it ends, when its time is up, when nobody waits for it any more, and when this process
/// dies, of whatever cause.
///
/// Programs see `PATH`, `HOME` and a few more of this process's variables, not its keys.
#[derive(Clone)]
pub struct Local {
    workspace: PathBuf,
    supervisor: Arc<Supervisor>,
    environment: Environment,
    shell: &'static str,
}

impl Local {
    /// A folder that is there, and who runs programs: started first thing in `main`.
    pub fn new(
        workspace: impl AsRef<Path>,
        supervisor: impl Into<Arc<Supervisor>>,
    ) -> io::Result<Self> {
        let workspace = fs::canonicalize(workspace)?;
        if !workspace.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let shells = ["/bin/bash", "/usr/bin/bash"];
        let shell = shells.into_iter().find(|path| Path::new(path).exists());
        Ok(Self {
            workspace,
            supervisor: supervisor.into(),
            environment: Environment::Minimal,
            shell: shell.unwrap_or("/bin/sh"),
        })
    }

    /// Which of this process's variables programs see.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    fn place(&self, path: &str) -> Place {
        Place {
            shown: path.to_owned(),
            path: self.workspace.join(path),
        }
    }

    async fn run(&self, exec: Exec, watcher: &dyn Watcher) -> Result<Executed, SandboxError> {
        let cwd = self.place(exec.cwd.as_deref().unwrap_or_default());
        let mut out = Kept::new(exec.max_output);
        let mut err = Kept::new(exec.max_output);
        let output = {
            let mut command = Command::new(self.shell)
                .args(["-c", &exec.command])
                .cwd(&cwd.path)
                .environment(self.environment)
                .stdin(exec.stdin)
                .grace(GRACE)
                // What is kept is kept here, with its end.
                .output_limit(0)
                .on_start(|handle| watcher.started(&handle.to_string()))
                .on_output(|stream, bytes| match stream {
                    Stream::Stdout => out.take(bytes, watcher),
                    Stream::Stderr => err.take(bytes, watcher),
                });
            for (name, value) in &exec.env {
                command = command.env(name, value);
            }
            if let Some(timeout) = exec.timeout {
                command = command.timeout(timeout);
            }
            let output = self.supervisor.exec(command).await;
            output.map_err(|error| SandboxError::Exec(error.to_string()))?
        };
        let (stdout, out_cut) = out.finish();
        let (mut stderr, err_cut) = err.finish();
        if output.survivors > 0 {
            let note = format!("\n{} processes could not be ended\n", output.survivors);
            stderr.push_str(&note);
        }
        Ok(Executed {
            stdout,
            stderr,
            exit_code: match output.exit {
                Exit::Code(code) => Some(code),
                Exit::Signal(_) | Exit::Unknown => None,
            },
            timed_out: output.timed_out,
            truncated: out_cut || err_cut,
        })
    }
}

impl Sandbox for Local {
    fn kind(&self) -> &'static str {
        "local"
    }

    fn read<'a>(&'a self, path: &'a str) -> Done<'a, Vec<u8>> {
        let place = self.place(path);
        blocking(move || place.read())
    }

    fn write<'a>(&'a self, path: &'a str, bytes: &'a [u8]) -> Done<'a, ()> {
        let (place, bytes) = (self.place(path), bytes.to_vec());
        blocking(move || place.write(&bytes))
    }

    fn list<'a>(&'a self, path: &'a str) -> Done<'a, Vec<FileInfo>> {
        let place = self.place(path);
        blocking(move || place.list())
    }

    fn stat<'a>(&'a self, path: &'a str) -> Done<'a, FileInfo> {
        let place = self.place(path);
        blocking(move || place.info())
    }

    fn mkdir<'a>(&'a self, path: &'a str) -> Done<'a, ()> {
        let place = self.place(path);
        blocking(move || {
            let made = fs::create_dir_all(&place.path);
            made.map_err(|error| place.wrong(&error))
        })
    }

    fn rm<'a>(&'a self, path: &'a str) -> Done<'a, ()> {
        let (place, workspace) = (self.place(path), self.workspace.clone());
        blocking(move || place.remove(&workspace))
    }

    fn end<'a>(&'a self, process: &'a str) -> Later<'a, ()> {
        let handle = process.parse::<Handle>();
        Box::pin(async move {
            if let Ok(handle) = handle {
                // One that cannot be ended is not ours any more.
                let _ = spawn_blocking(move || handle.kill(GRACE)).await;
            }
        })
    }

    fn exec<'a>(&'a self, exec: Exec, watcher: &'a dyn Watcher) -> Done<'a, Executed> {
        Box::pin(self.run(exec, watcher))
    }
}

/// Does what may wait for a disk where nobody else waits.
fn blocking<'a, T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> Done<'a, T> {
    Box::pin(async move {
        let done = spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(unusable("the disk", &error.to_string())))
    })
}

/// A path, and as it was called.
struct Place {
    shown: String,
    path: PathBuf,
}

impl Place {
    fn read(&self) -> Result<Vec<u8>, SandboxError> {
        let file = self.open(OpenOptions::new().read(true))?;
        let mut bytes = Vec::new();
        file.take(LONGEST + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| self.wrong(&error))?;
        if bytes.len() as u64 > LONGEST {
            return Err(unusable(&self.shown, "it is too long to be read at once"));
        }
        Ok(bytes)
    }

    fn write(&self, bytes: &[u8]) -> Result<(), SandboxError> {
        if let Some(above) = self.path.parent() {
            fs::create_dir_all(above).map_err(|error| self.wrong(&error))?;
        }
        let mut file = self.open(OpenOptions::new().write(true).create(true))?;
        let written = file.set_len(0).and_then(|()| file.write_all(bytes));
        written.map_err(|error| self.wrong(&error))
    }

    /// Opens a regular file: a pipe or a device could keep one waiting for ever.
    fn open(&self, options: &mut OpenOptions) -> Result<File, SandboxError> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = options.custom_flags(flags).open(&self.path);
        let file = file.map_err(|error| self.wrong(&error))?;
        let about = file.metadata().map_err(|error| self.wrong(&error))?;
        match (about.is_file(), about.is_dir()) {
            (true, _) => Ok(file),
            (_, true) => Err(unusable(&self.shown, "it is a folder")),
            _ => Err(unusable(&self.shown, "it is not a file")),
        }
    }

    fn info(&self) -> Result<FileInfo, SandboxError> {
        // A link that leads nowhere is there all the same.
        let about = fs::metadata(&self.path).or_else(|_| fs::symlink_metadata(&self.path));
        let about = about.map_err(|error| self.wrong(&error))?;
        let is_folder = about.is_dir();
        let detours = |path: &&str| !matches!(*path, "" | ".");
        let names: Vec<_> = self.shown.split('/').filter(detours).collect();
        let start = if self.shown.starts_with('/') { "/" } else { "" };
        Ok(FileInfo {
            path: format!("{start}{}", names.join("/")),
            is_folder,
            size: if is_folder { 0 } else { about.len() },
        })
    }

    fn list(&self) -> Result<Vec<FileInfo>, SandboxError> {
        let files = fs::read_dir(&self.path).map_err(|error| self.wrong(&error))?;
        let mut all = Vec::new();
        for file in files {
            let file = file.map_err(|error| self.wrong(&error))?;
            let name = file.file_name().to_string_lossy().into_owned();
            let shown = match self.shown.as_str() {
                "" => name,
                above => format!("{}/{name}", above.trim_end_matches('/')),
            };
            let path = file.path();
            // One that is gone meanwhile is not there.
            all.extend(Self { shown, path }.info().ok());
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    }

    fn remove(&self, workspace: &Path) -> Result<(), SandboxError> {
        let about = fs::symlink_metadata(&self.path).map_err(|error| self.wrong(&error))?;
        let removed = if about.is_dir() {
            let real = fs::canonicalize(&self.path).map_err(|error| self.wrong(&error))?;
            if workspace.starts_with(real) {
                return Err(unusable("the workspace", "it is not removed"));
            }
            fs::remove_dir_all(&self.path)
        } else {
            fs::remove_file(&self.path)
        };
        removed.map_err(|error| self.wrong(&error))
    }

    fn wrong(&self, error: &io::Error) -> SandboxError {
        match error.kind() {
            io::ErrorKind::NotFound => SandboxError::NotFound(self.shown.clone()),
            io::ErrorKind::IsADirectory => unusable(&self.shown, "it is a folder"),
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                unusable(&self.shown, "it is not a folder, or is in what is none")
            }
            _ => unusable(&self.shown, &error.to_string()),
        }
    }
}
