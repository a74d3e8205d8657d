//! The escape suite: attempts to leave the confined sandbox, in both tiers, as the current user
//! and, if that is root, as an ordinary one. Each attempt first succeeds outside.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

const NOBODY: u32 = 65534;
const TIERS: [&str; 2] = ["full", "landlock"];

/// A directory with a workspace, a home, files outside of both, and a process to attack.
struct Fixture {
    base: TempDir,
    user: u32,
    victim: Child,
    tcp: u16,
    tcp6: Option<u16>,
    abstract_name: String,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// The users to test as.
fn users() -> Vec<u32> {
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
    fn new(user: u32) -> Self {
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
        for dir in ["outside", "user/.ssh", "ws/.ai"] {
            fs::create_dir_all(path.join(dir)).unwrap();
        }
        for (file, text) in [
            ("outside/secret", "secret"),
            ("user/.ssh/id", "key"),
            ("user/.bashrc", "original"),
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
        for name in ["ws/docker.sock", "outside/agent.sock"] {
            serve(socket(name), |it| it.accept().map(|it| it.0));
        }
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
        let victim = victim.arg("1000").env("SECRET", "value").spawn().unwrap();
        Self {
            base,
            user,
            victim,
            tcp,
            tcp6,
            abstract_name,
        }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.base.path().join(relative)
    }

    /// Runs a script of bash in the workspace: outside, or in a tier.
    fn run(&self, tier: Option<&str>, script: &str) -> Output {
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
        command
            .args(["-c", script])
            .current_dir(&workspace)
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
    fn fill(&self, script: &str) -> String {
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
fn as_user(user: u32, program: &str) -> Command {
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

/// Attempts that succeed if their exit code is 0.
const ATTEMPTS: [(&str, &str); 51] = [
    ("write through ..", "echo x > ../outside/f"),
    ("write to an absolute path", "echo x > BASE/outside/f"),
    ("read a file outside", "cat BASE/outside/secret"),
    ("list a directory outside", "ls BASE/outside"),
    (
        "write through a new link",
        "ln -sfn BASE/outside link && echo x > link/f",
    ),
    ("write through a planted link", "echo x > planted/f"),
    ("read through a planted link", "cat planted/secret"),
    (
        "hard link",
        "rm -f hard; ln BASE/outside/secret hard && cat hard",
    ),
    (
        "rename out of the workspace",
        "echo x > moving && mv moving BASE/outside/moved",
    ),
    (
        "root of another process",
        "cat /proc/VICTIM/rootBASE/outside/secret",
    ),
    (
        "root of process 1's root",
        "cat /proc/self/rootBASE/outside/secret",
    ),
    (
        "environment of another process",
        "grep -q SECRET /proc/VICTIM/environ",
    ),
    ("memory of another process", "head -c0 /proc/VICTIM/mem"),
    ("descriptors of another process", "ls /proc/VICTIM/fd/0"),
    ("hook of the repository", "echo x > .git/hooks/pre-commit"),
    (
        "hook of a nested repository",
        "echo x > a/b/.git/hooks/pre-commit",
    ),
    ("configuration of the repository", "echo x >> .git/config"),
    ("file of a git worktree", "echo x >> wt/.git"),
    ("hook below core.hooksPath", "echo x > hooks/pre-commit"),
    ("replace .git", "mv .git moved-git && mv moved-git .git"),
    (
        "truncate .envrc",
        "cp .envrc e && : > .envrc && cp e .envrc",
    ),
    ("items of the project", "echo x > .ai/tool"),
    ("keys in the home directory", "cat BASE/user/.ssh/id"),
    ("planted docker.sock", "./attempt unix BASE/ws/docker.sock"),
    ("ssh-agent socket", "./attempt unix BASE/outside/agent.sock"),
    ("abstract socket", "./attempt abstract ABSTRACT"),
    ("TCP to the host's loopback", "./attempt tcp 127.0.0.1:TCP"),
    ("UDP", "./attempt udp 127.0.0.1:9"),
    ("netlink", "./attempt socket 16 3 0"),
    ("internet socket", "./attempt socket 2 1 0"),
    ("IPv6 socket", "./attempt socket 10 1 0"),
    ("signal to another process", "./attempt kill VICTIM"),
    (
        "pidfd of another process",
        "./attempt pidfd VICTIM && ./attempt kill VICTIM",
    ),
    (
        "descriptor of another process",
        "./attempt pidfd_getfd VICTIM",
    ),
    ("ptrace", "./attempt ptrace VICTIM"),
    ("user namespace by unshare", "./attempt unshare"),
    ("user namespace by clone", "./attempt clone"),
    ("keyctl", "./attempt keyctl"),
    ("io_uring", "./attempt io_uring"),
    ("32-bit system call", "./attempt foreign"),
    ("keys in the environment", "test -n \"$SECRET_API_KEY\""),
    (
        "tool outside of the system",
        "BASE/bin/rye-sandbox-attempt kill $$",
    ),
    (
        "write through a directory outside",
        "echo x > BASE/outside/../outside/g",
    ),
    (
        "memory by process_vm_readv",
        "./attempt read_memory VICTIM ADDRESS",
    ),
    ("TCP over IPv6", "./attempt tcp [::1]:TCP6"),
    ("vsock", "./attempt socket 40 1 0"),
    ("userfaultfd", "./attempt userfaultfd"),
    ("perf", "./attempt perf"),
    ("x32 system call", "./attempt x32"),
    (
        "D-Bus of the system",
        "./attempt socket 1 1 0 && test -e /run",
    ),
    ("variable files of the system", "ls /var"),
];

/// Attempts that need root outside.
const ROOT_ATTEMPTS: [(&str, &str); 9] = [
    ("mount", "./attempt mount BASE/ws/src && umount BASE/ws/src"),
    ("chroot", "./attempt chroot"),
    ("raw socket", "./attempt socket 2 3 1"),
    ("packet socket", "./attempt socket 17 3 768"),
    ("open by handle", "./attempt handle BASE/ws/file"),
    ("bpf", "./attempt bpf"),
    ("join a namespace", "./attempt setns $$"),
    (
        "change a kernel setting",
        "cat /proc/sys/kernel/panic > v; cat v > /proc/sys/kernel/panic",
    ),
    ("read the shadow file", "cat /etc/shadow"),
];

/// Attempts that fail outside on some machines, because a setting of the kernel refuses them.
const OPTIONAL: [&str; 11] = [
    "TCP over IPv6",
    "vsock",
    "userfaultfd",
    "perf",
    "x32 system call",
    "memory by process_vm_readv",
    "io_uring",
    "bpf",
    "32-bit system call",
    "ptrace",
    "open by handle",
];

fn check_attempts(attempts: &[(&str, &str)], user: u32) {
    let fixture = Fixture::new(user);
    let mut escapes = Vec::new();
    for tier in TIERS {
        let control = fixture.run(
            Some(tier),
            "cat file && echo x > src/new && ./attempt kill $$",
        );
        assert!(control.status.success(), "{tier}: {control:?}");
    }
    for (name, script) in attempts {
        let script = fixture.fill(script);
        let outside = fixture.run(None, &script);
        if !outside.status.success() {
            assert!(OPTIONAL.contains(name), "{name} fails outside: {outside:?}");
        }
        let _ = fs::remove_file(fixture.path("outside/f"));
        for tier in TIERS {
            let inside = fixture.run(Some(tier), &script);
            if inside.status.success() {
                escapes.push(format!("{name} (tier {tier}, user {user})"));
            }
        }
    }
    assert_eq!(escapes, [] as [String; 0]);
}

#[test]
fn attempts_that_work_outside_fail_inside() {
    for user in users() {
        check_attempts(&ATTEMPTS, user);
    }
}

#[test]
fn attempts_of_root_fail_inside() {
    if is_root() {
        check_attempts(&ROOT_ATTEMPTS, 0);
    }
}

#[test]
fn writes_to_the_home_directory_do_not_reach_it() {
    for user in users() {
        for tier in TIERS {
            let fixture = Fixture::new(user);
            let script = "echo x > ~/.bashrc; mkdir -p ~/.config/autostart";
            fixture.run(Some(tier), script);
            let text = fs::read_to_string(fixture.path("user/.bashrc")).unwrap();
            assert_eq!(text, "original");
            assert!(!fixture.path("user/.config").exists());
            fixture.run(None, script);
            let text = fs::read_to_string(fixture.path("user/.bashrc")).unwrap();
            assert_eq!(text, "x\n", "the control works");
        }
    }
}

#[test]
fn late_repository_is_moved_away() {
    for user in users() {
        let fixture = Fixture::new(user);
        let script = "mkdir -p src/late/.git/hooks && echo x > src/late/.git/hooks/pre-commit";
        for tier in TIERS {
            let output = fixture.run(Some(tier), script);
            assert!(output.status.success(), "{output:?}");
            assert!(!fixture.path("ws/src/late/.git").exists(), "{tier}");
        }
        fixture.run(None, script);
        assert!(fixture.path("ws/src/late/.git/hooks").exists());
    }
}

#[test]
fn no_process_survives_a_command() {
    for user in users() {
        for tier in TIERS {
            let fixture = Fixture::new(user);
            let marker = format!("77{}", fixture.victim.id());
            let script =
                format!("(setsid sleep {marker} &) ; (setsid setsid sleep {marker} &); true");
            let output = fixture.run(Some(tier), &script);
            assert!(output.status.success(), "{output:?}");
            let entries = fs::read_dir("/proc").unwrap().flatten();
            let lines = entries.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
            let left = lines.filter(|line| line.ends_with(format!("{marker}\0").as_bytes()));
            assert_eq!(left.count(), 0, "{tier}");
        }
    }
}

#[test]
fn inherited_descriptor_is_closed() {
    for user in users() {
        let fixture = Fixture::new(user);
        for (tier, expected) in [
            (None, true),
            (Some("full"), false),
            (Some("landlock"), false),
        ] {
            let inner = match tier {
                Some(tier) => fixture.fill(&format!(
                    "exec 9<BASE/outside/secret; BASE/bin/rye-sandbox-launcher run {tier} BASE/ws \
                     bash -c 'cat <&9'"
                )),
                None => fixture.fill("exec 9<BASE/outside/secret; bash -c 'cat <&9'"),
            };
            let output = fixture.run(None, &inner);
            assert_eq!(output.status.success(), expected, "{tier:?} {output:?}");
        }
    }
}

#[test]
fn resource_bombs_stop_at_the_limits() {
    for user in users() {
        let fixture = Fixture::new(user);
        for tier in TIERS {
            let control = fixture.fill(&format!(
                "RYE_TEST_LIMITS=1 BASE/bin/rye-sandbox-launcher run {tier} BASE/ws ./attempt kill 0"
            ));
            let control = fixture.run(None, &control);
            assert!(control.status.success(), "{control:?}");
            for bomb in ["fork_bomb", "memory_bomb", "descriptor_bomb"] {
                // Without a pid namespace, the kernel does not limit root's processes.
                if bomb == "fork_bomb" && tier == "landlock" && user == 0 {
                    continue;
                }
                let script = format!(
                    "RYE_TEST_LIMITS=1 {} run {tier} BASE/ws ./attempt {bomb}",
                    "BASE/bin/rye-sandbox-launcher"
                );
                let limited = fixture.run(None, &fixture.fill(&script));
                assert!(
                    !limited.status.success(),
                    "{bomb} {tier} {user}: {limited:?}"
                );
                let free = fixture.run(None, &format!("./attempt {bomb}"));
                assert!(free.status.success(), "{bomb}: {free:?}");
            }
            let script = fixture.fill(&format!(
                "RYE_TEST_LIMITS=1 BASE/bin/rye-sandbox-launcher run {tier} BASE/ws \
                 dd if=/dev/zero of=src/big bs=1M count=20"
            ));
            let limited = fixture.run(None, &script);
            assert!(!limited.status.success(), "{limited:?}");
        }
    }
}

#[test]
fn setuid_program_gains_nothing() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(NOBODY);
    let program = fixture.path("ws/id");
    fs::copy("/usr/bin/id", &program).unwrap();
    chown(&program, Some(0), Some(0)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let uid = |tier| String::from_utf8(fixture.run(tier, "./id -u").stdout).unwrap();
    assert_eq!(uid(None), "0\n", "the control works");
    for tier in TIERS {
        assert_eq!(uid(Some(tier)), format!("{NOBODY}\n"));
    }
}

#[test]
fn exit_codes_and_signals_are_those_of_the_command() {
    let fixture = Fixture::new(users()[0]);
    for tier in TIERS {
        assert_eq!(fixture.run(Some(tier), "exit 7").status.code(), Some(7));
        let killed = fixture.run(Some(tier), "kill -TERM $$").status.code();
        assert_eq!(killed, Some(143));
    }
    let mut stdin = as_user(
        fixture.user,
        fixture.path("bin/rye-sandbox-launcher").to_str().unwrap(),
    )
    .args(["run", "full"])
    .arg(fixture.path("ws"))
    .args(["cat"])
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    stdin.stdin.take().unwrap().write_all(b"input").unwrap();
    assert_eq!(stdin.wait_with_output().unwrap().stdout, b"input");
}
