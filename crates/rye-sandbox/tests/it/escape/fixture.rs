//! The machine that the attempts attack: a workspace, a home, files outside of both, sockets of
//! other programs, and a process.

use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

pub(crate) const NOBODY: u32 = 65534;
pub(crate) const TIERS: [&str; 2] = ["full", "landlock"];

/// A directory with a workspace, a home, files outside of both, and a process to attack.
pub(crate) struct Fixture {
    base: TempDir,
    pub(crate) user: u32,
    pub(crate) victim: Child,
    tcp: u16,
    tcp6: Option<u16>,
    abstract_name: String,
    _log: UnixDatagram,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// The users to test as.
pub(crate) fn users() -> Vec<u32> {
    let own = rustix::process::getuid().as_raw();
    if is_root() {
        vec![own, NOBODY]
    } else {
        vec![own]
    }
}

/// Answers every connection until the process ends.
fn serve<T, S: std::io::Write>(
    listener: T,
    accept: impl Fn(&T) -> std::io::Result<S> + Send + 'static,
) where
    T: Send + 'static,
{
    std::thread::spawn(move || {
        while let Ok(mut stream) = accept(&listener) {
            let _ = stream.write_all(b"hello");
        }
    });
}

impl Fixture {
    pub(crate) fn new(user: u32) -> Self {
        let base = tempfile::tempdir().unwrap();
        let path = base.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        for dir in [
            "bin",
            "ws/src",
            "ws/.git/hooks",
            "ws/a/b/.git/hooks",
            "ws/wt",
            "ws/hooks",
        ] {
            fs::create_dir_all(path.join(dir)).unwrap();
        }
        for dir in [
            "outside/tmux-0",
            "user/.ssh",
            "user/.ai/vault",
            "user/.local/state/rye",
            "other",
            "ws/.ai",
            "ws/private",
        ] {
            fs::create_dir_all(path.join(dir)).unwrap();
        }
        for (file, text) in [
            ("outside/secret", "secret"),
            ("user/.ssh/id", "key"),
            ("user/.bashrc", "original"),
            ("user/.ai/vault/token", "secret"),
            ("user/.local/state/rye/sessions.db", "secret"),
            ("other/.profile", "secret"),
            ("ws/private/key", "secret"),
            ("ws/file", "text"),
            ("ws/.git/config", "[core]\n\thooksPath = hooks\n"),
            ("ws/wt/.git", "gitdir: ../.git/worktrees/wt\n"),
            ("ws/.envrc", "original"),
        ] {
            fs::write(path.join(file), text).unwrap();
        }
        symlink(path.join("outside"), path.join("ws/planted")).unwrap();
        for program in [
            env!("CARGO_BIN_EXE_rye-sandbox-launcher"),
            env!("CARGO_BIN_EXE_rye-sandbox-attempt"),
        ] {
            let name = Path::new(program).file_name().unwrap();
            fs::copy(program, path.join("bin").join(name)).unwrap();
        }
        let attempt = path.join("ws/attempt");
        fs::copy(path.join("bin/rye-sandbox-attempt"), attempt).unwrap();
        let socket = |name: &str| UnixListener::bind(path.join(name)).unwrap();
        for name in [
            "ws/docker.sock",
            "ws/src/nested.sock",
            "outside/agent.sock",
            "outside/bus",
            "outside/tmux-0/default",
        ] {
            serve(socket(name), |it| it.accept().map(|it| it.0));
        }
        let log = UnixDatagram::bind(path.join("outside/log")).unwrap();
        let abstract_name = format!("rye-test-{}", path.display());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        serve(listener, |it| it.accept().map(|it| it.0));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = listener.local_addr().unwrap().port();
        serve(listener, |it| it.accept().map(|it| it.0));
        let listener6 = TcpListener::bind("[::1]:0").ok();
        let tcp6 = listener6.map(|listener| {
            let port = listener.local_addr().unwrap().port();
            serve(listener, |it| it.accept().map(|it| it.0));
            port
        });
        own_all(path, user);
        let mut victim = as_user(user, "sleep");
        victim.arg("1000").env("SECRET", "value").current_dir(path);
        let victim = victim.spawn().unwrap();
        Self {
            base,
            user,
            victim,
            tcp,
            tcp6,
            abstract_name,
            _log: log,
        }
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.base.path().join(relative)
    }

    /// Runs a script of bash in the workspace: outside, or in a tier.
    pub(crate) fn run(&self, tier: Option<&str>, script: &str) -> Output {
        let workspace = self.path("ws");
        let mut command = match tier {
            Some(tier) => {
                let launcher = self.path("bin/rye-sandbox-launcher");
                let mut command = as_user(self.user, launcher.to_str().unwrap());
                command.args(["run", tier]).arg(&workspace).arg("bash");
                command
            }
            None => as_user(self.user, "bash"),
        };
        command.args(["-c", script]);
        self.output(command)
    }

    /// Runs a script of bash in review mode, in the tier `full`. The changes of all scripts
    /// accumulate in the directory `state`.
    pub(crate) fn run_in_review(&self, script: &str) -> Output {
        let launcher = self.path("bin/rye-sandbox-launcher");
        let mut command = as_user(self.user, launcher.to_str().unwrap());
        command.arg("review").arg(self.path("state"));
        command.arg(self.path("ws")).args(["run", script]);
        self.output(command)
    }

    /// Applies the changes of all scripts.
    pub(crate) fn approve_review(&self) -> Output {
        let launcher = self.path("bin/rye-sandbox-launcher");
        let mut command = as_user(self.user, launcher.to_str().unwrap());
        command.arg("review").arg(self.path("state"));
        command.arg(self.path("ws")).arg("approve");
        self.output(command)
    }

    fn output(&self, mut command: Command) -> Output {
        command
            .current_dir(self.path("ws"))
            .env("HOME", self.path("user"))
            .env("SECRET_API_KEY", "value")
            .stdin(Stdio::null());
        command.output().unwrap()
    }

    /// An address in the memory of the victim.
    fn victim_address(&self) -> String {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.victim.id()));
        let maps = maps.unwrap_or_default();
        let start = maps.split('-').next().unwrap_or_default();
        usize::from_str_radix(start, 16).unwrap_or(0).to_string()
    }

    /// Replaces the placeholders of a script.
    pub(crate) fn fill(&self, script: &str) -> String {
        script
            .replace("BASE", &self.base.path().to_string_lossy())
            .replace("VICTIM", &self.victim.id().to_string())
            .replace("ADDRESS", &self.victim_address())
            .replace("ABSTRACT", &self.abstract_name)
            .replace("TCP6", &self.tcp6.unwrap_or(1).to_string())
            .replace("TCP", &self.tcp.to_string())
    }
}

/// A command as a user.
pub(crate) fn as_user(user: u32, program: &str) -> Command {
    if rustix::process::getuid().as_raw() == user {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let user = user.to_string();
    command.args([
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
        program,
    ]);
    command
}

fn own_all(path: &Path, user: u32) {
    if is_root() {
        let status = Command::new("chown")
            .args(["-hR", &format!("{user}:{user}")])
            .arg(path)
            .status()
            .unwrap();
        assert!(status.success());
        chown(path, Some(user), Some(user)).unwrap();
    }
}
