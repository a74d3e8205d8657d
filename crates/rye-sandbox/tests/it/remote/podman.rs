//! A real Podman for tests, with its containers, images and sockets in a temporary directory.
//!
//! It needs root and a kernel that allows containers. Where it doesn't run, the tests use the
//! [`engine`](super::engine) instead.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rye_engine::protocol::SandboxId;
use rye_engine::sandbox::Sandbox as _;

use super::docker_options;
use crate::contract::{Recorder, script};

/// Image of the containers.
const IMAGE: &str = "localhost/test";
/// Programs of the image. Those of the tests need the same libraries.
const PROGRAMS: [&str; 13] = [
    "sh", "bash", "cat", "echo", "env", "id", "ls", "mkdir", "mkfifo", "seq", "sleep", "sort",
    "true",
];
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Serves the API until standard input is closed, and then removes everything.
const SERVICE: &str = "\"$@\" system service --time 0 \"unix://$DIR/socket\" & read -r line; \
    kill $!; wait; \"$@\" rm --all --force; rm -rf -- \"$DIR\"";

static PODMAN: LazyLock<Option<Podman>> = LazyLock::new(start_or_explain);

struct Podman {
    dir: PathBuf,
    /// A shell that stops Podman and removes `dir` when its standard input is closed, as it is
    /// when the tests end.
    _service: Child,
}

/// The socket of Podman; `None` if it doesn't run on this machine.
pub(crate) fn socket() -> Option<PathBuf> {
    PODMAN.as_ref().map(|podman| podman.dir.join("socket"))
}

/// Runs `podman` on the containers of these tests. Returns its output.
pub(crate) fn podman(arguments: &[&str]) -> String {
    let podman = PODMAN.as_ref().unwrap();
    let mut command = command(&podman.dir);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
fn start_or_explain() -> Option<Podman> {
    let podman = Podman::start();
    podman
        .map_err(|reason| eprintln!("skipped: Podman doesn't run here: {reason}"))
        .ok()
}

impl Podman {
    fn start() -> Result<Self, String> {
        let dir = tempfile::Builder::new().prefix("podman").tempdir();
        let dir = dir.map_err(|error| error.to_string())?;
        configure(dir.path()).map_err(|error| error.to_string())?;
        import_image(dir.path())?;
        let arguments = ["run", "--rm", "--network", "none", IMAGE, "true"];
        check(command(dir.path()).args(arguments).output())?;
        let dir = dir.keep();
        let socket = dir.join("socket");
        let podman = command(&dir);
        let mut shell = Command::new("sh");
        shell.args(["-c", SERVICE, "sh", "podman"]);
        shell.args(podman.get_args());
        for (name, value) in podman.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        let service = shell
            .env("DIR", &dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let end = Instant::now() + START_TIMEOUT;
        while UnixStream::connect(&socket).is_err() {
            if Instant::now() > end {
                return Err("the service doesn't listen".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self {
            dir,
            _service: service,
        })
    }
}

/// `podman` with its state in a directory.
fn command(dir: &Path) -> Command {
    let mut command = Command::new("podman");
    command
        .arg("--root")
        .arg(dir.join("storage"))
        .arg("--runroot")
        .arg(dir.join("run"))
        .args(["--storage-driver", "vfs"])
        .env("CONTAINERS_CONF", dir.join("containers.conf"))
        .env("TMPDIR", dir);
    command
}

/// Limits that are set even where root can't raise limits, and the runtime that also supports
/// version 1 of cgroups.
fn configure(dir: &Path) -> std::io::Result<()> {
    fs::write(
        dir.join("containers.conf"),
        "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n\
         [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nruntime = \"runc\"\n",
    )
}

/// Makes an image of programs of this machine.
fn import_image(dir: &Path) -> Result<(), String> {
    let root = dir.join("image");
    let mut files = Vec::new();
    for program in PROGRAMS {
        let path = format!("/bin/{program}");
        files.extend(libraries(Path::new(&path))?);
        files.push(path.into());
    }
    let launcher = Path::new(env!("CARGO_BIN_EXE_rye-sandbox-launcher"));
    files.extend(libraries(launcher)?);
    for file in files {
        let target = root.join(file.strip_prefix("/").unwrap_or(&file));
        let copy = || {
            fs::create_dir_all(target.parent().unwrap_or(&root))?;
            fs::copy(&file, &target)
        };
        copy().map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let archive = dir.join("image.tar");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".");
    check(tar.output())?;
    check(command(dir).arg("import").arg(&archive).arg(IMAGE).output())?;
    Ok(())
}

/// The libraries that a program loads.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let output = check(Command::new("ldd").arg(program).output())?;
    let words = output.split_whitespace();
    Ok(words
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect())
}

/// The output of a program that succeeded.
fn check(output: std::io::Result<Output>) -> Result<String, String> {
    match output {
        Ok(output) if output.status.success() => Ok(text(&output.stdout)),
        Ok(output) => Err(text(&output.stderr)),
        Err(error) => Err(error.to_string()),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[tokio::test]
async fn container_has_no_network_no_capabilities_and_no_other_files() {
    let Some(socket) = socket() else {
        return;
    };
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(outside.path().join("secret"), "s3cret").unwrap();
    let id = SandboxId::new();
    let sandbox = docker_options(&dir, socket).open(&id).await.unwrap();
    let command = format!(
        "ls {}/secret; ls /sys/class/net; cat /proc/self/status; echo in > made",
        outside.path().display()
    );
    let output = sandbox.exec(script(&command), &Recorder::default()).await;
    let output = output.unwrap();
    let output = output.stdout + &output.stderr;
    assert!(!output.contains("s3cret"), "{output}");
    for line in [
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "lo",
    ] {
        assert!(output.lines().any(|it| it == line), "{line}: {output}");
    }
    assert!(!output.lines().any(|it| it.starts_with("eth")), "{output}");
    assert_eq!(fs::read_to_string(dir.path().join("made")).unwrap(), "in\n");
    let label = format!("label=rye.sandbox={id}");
    assert_eq!(
        podman(&["ps", "--quiet", "--filter", &label])
            .lines()
            .count(),
        1
    );
}

#[tokio::test]
async fn container_ends_with_its_client() {
    let Some(socket) = socket() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let id = SandboxId::new();
    let sandbox = docker_options(&dir, socket).open(&id).await.unwrap();
    sandbox.write("a", b"x").await.unwrap();
    drop(sandbox);
    let label = format!("label=rye.sandbox={id}");
    let end = Instant::now() + START_TIMEOUT;
    while !podman(&["ps", "--all", "--quiet", "--filter", &label]).is_empty() {
        assert!(Instant::now() < end, "the container is still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
