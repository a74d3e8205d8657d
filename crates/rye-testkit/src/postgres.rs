//! A PostgreSQL server for tests: its own, in a temporary directory, on a free port of the loopback
//! interface. It ends with the process that started it, however that ends.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the server may take to start.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// The account that runs the server if the test runs as root, which PostgreSQL refuses.
const ACCOUNT: &str = "postgres";

/// A running server. Dropping it stops the server.
pub struct PostgresServer {
    port: u16,
    dir: PathBuf,
    programs: PathBuf,
    /// The shell that stops the server when this ends.
    guard: Child,
    guard_input: Option<ChildStdin>,
    databases: AtomicU32,
}

impl std::fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut this = f.debug_struct("PostgresServer");
        this.field("port", &self.port).finish_non_exhaustive()
    }
}

/// The server of this test binary. Starts at the first call.
pub fn server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(|| PostgresServer::start(&[]))
}

impl PostgresServer {
    /// Starts a server with additional settings, such as `fsync=on`. By default it does not sync,
    /// because no test ends the machine.
    pub fn start(settings: &[&str]) -> Self {
        let programs = programs();
        let dir = tempfile::Builder::new().prefix("rye-postgres-").tempdir();
        let dir = dir.unwrap().keep();
        if is_root() {
            run(Command::new("chown").arg(ACCOUNT).arg(&dir));
        }
        let initdb = format!(
            "{}/initdb --pgdata={}/data --username=rye --auth=trust --no-sync --encoding=UTF8 --locale=C >{}/initdb.log",
            programs.display(),
            dir.display(),
            dir.display()
        );
        run(as_account(&["sh", "-c", &initdb]).current_dir(&dir));
        let (guard, guard_input) = guard(&dir);
        let mut server = Self {
            port: crate::port::unassigned(),
            dir,
            programs,
            guard,
            guard_input: Some(guard_input),
            databases: AtomicU32::new(0),
        };
        server.configure(settings);
        server.resume();
        server
    }

    fn configure(&self, settings: &[&str]) {
        let mut text = format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\n\
             max_connections = 300\nfsync = off\nshared_buffers = 64MB\n",
            self.port
        );
        for setting in settings {
            let (name, value) = setting.split_once('=').unwrap();
            writeln!(text, "{name} = '{value}'").unwrap();
        }
        let file = self.data().join("postgresql.auto.conf");
        let mut file = fs::OpenOptions::new().append(true).open(file).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Directory of the server's data.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://rye@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates an empty database and returns its URL.
    pub fn create_database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Runs SQL in a database and returns what it prints: a line per row, columns separated by `|`.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--set", "ON_ERROR_STOP=1", "--dbname"])
            .arg(self.url(database))
            .args(["--command", sql]);
        let output = psql.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {errors}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Starts the server again after [`stop`](Self::stop).
    pub fn resume(&mut self) {
        let line = format!(
            "{}/pg_ctl --pgdata={} --log={}/log --no-wait start",
            self.programs.display(),
            self.data().display(),
            self.dir.display()
        );
        run(as_account(&["sh", "-c", &line])
            .current_dir(&self.dir)
            .stdout(Stdio::null()));
        let deadline = Instant::now() + START_TIMEOUT;
        let ready = || {
            let mut command = Command::new(self.programs.join("pg_isready"));
            let command = command
                .args(["--quiet", "--dbname"])
                .arg(self.url("postgres"));
            command.status().unwrap().success()
        };
        while !ready() {
            let log = || fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            assert!(
                Instant::now() < deadline,
                "PostgreSQL did not start: {}",
                log()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the server: in the mode `fast` it ends all connections, in the mode `immediate` it
    /// behaves as after a crash.
    pub fn stop(&mut self, mode: &str) {
        let line = format!(
            "{}/pg_ctl --pgdata={} --mode={mode} stop",
            self.programs.display(),
            self.data().display()
        );
        run(as_account(&["sh", "-c", &line])
            .current_dir(&self.dir)
            .stdout(Stdio::null()));
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.guard_input.take());
        let _ = self.guard.wait();
    }
}

/// Starts a shell that stops the server in a directory, and removes it, when its input ends. The
/// kernel closes the input if this process ends, however that happens.
fn guard(dir: &Path) -> (Child, ChildStdin) {
    let script = "read line; pid=$(head -n 1 data/postmaster.pid 2>/dev/null); \
                  [ -z \"$pid\" ] || kill -QUIT \"$pid\"; \
                  while [ -n \"$pid\" ] && kill -0 \"$pid\" 2>/dev/null; do sleep 0.05; done; \
                  cd / && rm -rf \"$0\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(dir).current_dir(dir);
    // A signal to the test's process group must not end it before the server.
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    let mut guard = shell
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let input = guard.stdin.take().unwrap();
    (guard, input)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command that runs as the account of the server, if this process is root.
fn as_account(command: &[&str]) -> Command {
    if !is_root() {
        let mut own = Command::new(command[0]);
        own.args(&command[1..]);
        return own;
    }
    let mut other = Command::new("setpriv");
    other
        .args([
            "--reuid",
            ACCOUNT,
            "--regid",
            ACCOUNT,
            "--clear-groups",
            "--",
        ])
        .args(command);
    other
}

fn run(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status();
    assert!(status.unwrap().success(), "{command:?}");
}

/// Directory of the server's programs: that of the newest version that Debian's packages have
/// installed, or one on the `PATH`.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut versions: Vec<_> = versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    versions.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).find(|bin| bin.join("initdb").exists());
    let found = versions.pop().or(on_path);
    found.expect("PostgreSQL is not installed; install it with: apt-get install postgresql")
}
