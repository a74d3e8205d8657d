//! Sandboxes on other machines: `rye sandbox serve`, over ssh and over HTTP.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lillux::process::Handle;
use serde_json::json;

use crate::support::{TestEnv, json, outcome};

const SECRET: &str = "a secret with at least 32 characters";
const SSHD: &str = "/usr/sbin/sshd";

fn script(env: &TestEnv, command: &str) {
    let call = json!({ "name": "bash", "args": { "command": command } });
    let text = format!("steps:\n  - tool_calls: [{call}]\n  - text: '${{last_tool_result}}'\n");
    env.write("project/script.yaml", &text);
}

const PROMPT: [&str; 8] = [
    "prompt",
    "go",
    "--model",
    "scripted:script.yaml",
    "--sandbox",
    "remote",
    "--no-wait",
    "--json",
];

fn config(env: &TestEnv, remote: &serde_json::Value) {
    let text = json!({ "remote": remote }).to_string();
    env.write("user/.ai/config/agent/sandbox.yaml", &text);
}

/// A server, which is ended when the test ends.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Serves a directory with the binary of another user's environment.
    fn http(other: &TestEnv, kind: &str) -> Self {
        fs::create_dir_all(other.path("work")).unwrap();
        other.write("secret", SECRET);
        let mut command = other.command();
        command.args(["sandbox", "serve", "--listen", "127.0.0.1:0"]);
        command.args(["--sandbox", kind, "--client-timeout", "3"]);
        command.arg("--workspace").arg(other.path("work"));
        command.arg("--token-file").arg(other.path("secret"));
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut line).unwrap();
        let address = line.split_whitespace().last().unwrap().to_owned();
        Self { child, address }
    }

    /// An ssh server for this user, with keys of its own.
    fn ssh(dir: &Path) -> Self {
        let port = rye_testkit::port::unassigned();
        for name in ["host_key", "user_key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.join(name))
                .status();
            assert!(made.unwrap().success());
        }
        let public = fs::read_to_string(dir.join("host_key.pub")).unwrap();
        fs::write(
            dir.join("known_hosts"),
            format!("[127.0.0.1]:{port} {public}"),
        )
        .unwrap();
        if rustix::process::getuid().is_root() {
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let at = |name: &str| dir.join(name).display().to_string();
        let server = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
             PidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n",
            at("host_key"),
            at("user_key.pub"),
        );
        fs::write(dir.join("sshd_config"), server).unwrap();
        let client = format!(
            "Host box\n HostName 127.0.0.1\n Port {port}\n IdentityFile {}\n IdentitiesOnly yes\n \
             UserKnownHostsFile {}\n StrictHostKeyChecking yes\n",
            at("user_key"),
            at("known_hosts"),
        );
        fs::write(dir.join("ssh_config"), client).unwrap();
        let child = Command::new(SSHD)
            .args(["-D", "-e", "-f"])
            .arg(dir.join("sshd_config"))
            .stdin(Stdio::null())
            .stderr(fs::File::create(dir.join("sshd.log")).unwrap())
            .spawn();
        let child = child
            .unwrap_or_else(|error| panic!("{SSHD}: {error}; run: cargo xtask test --only tests"));
        let address = format!("127.0.0.1:{port}");
        let start = Instant::now();
        while std::net::TcpStream::connect(&address).is_err() {
            let log = fs::read_to_string(dir.join("sshd.log")).unwrap_or_default();
            assert!(start.elapsed() < Duration::from_secs(30), "{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A machine that is reached over ssh: its configuration for `sandbox.yaml`.
fn ssh_config(other: &TestEnv, server: &Path) -> serde_json::Value {
    fs::create_dir_all(other.path("work")).unwrap();
    let home = other.path("user");
    let command = format!("env HOME={} {}", home.display(), env!("CARGO_BIN_EXE_rye"));
    json!({
        "ssh": "box",
        "ssh_config": server.join("ssh_config"),
        "workspace": other.path("work"),
        "command": command,
    })
}

fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(
            start.elapsed() < Duration::from_mins(1),
            "{}",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn agent_works_over_ssh_in_the_confined_sandbox_of_the_other_machine() {
    let (env, other, dir) = (TestEnv::new(), TestEnv::new(), tempfile::tempdir().unwrap());
    let _server = Server::ssh(dir.path());
    config(&env, &ssh_config(&other, dir.path()));
    script(
        &env,
        "echo made > made.txt; cat made.txt; cat /etc/shadow || echo hidden",
    );
    let output = env.run(&PROMPT);
    assert!(output.status.success(), "{output:?}");
    let answer = outcome(&output)["answer"].as_str().unwrap().to_owned();
    assert!(
        answer.contains("made") && answer.contains("hidden"),
        "{answer}"
    );
    assert_eq!(other.read("work/made.txt"), "made\n");
    assert!(!env.path("project/made.txt").exists());
    // The session continues there.
    let session = outcome(&output)["session"].as_str().unwrap().to_owned();
    script(&env, "cat made.txt");
    let resumed = [
        "prompt",
        "again",
        "--session",
        &session,
        "--no-wait",
        "--json",
    ];
    let output = env.run(&resumed);
    assert!(output.status.success(), "{output:?}");
    // But not in another directory.
    let mut elsewhere = ssh_config(&other, dir.path());
    elsewhere["workspace"] = json!(other.path("project"));
    config(&env, &elsewhere);
    let output = env.run(&resumed);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn unconfined_machine_asks_for_every_command() {
    let (env, other) = (TestEnv::new(), TestEnv::new());
    let server = Server::http(&other, "local");
    env.feed(
        &["vault", "set", "BOX", "--space", "user"],
        SECRET.as_bytes(),
    );
    config(
        &env,
        &json!({ "url": server.address, "token": "vault:BOX" }),
    );
    script(&env, "echo made > made.txt");
    let output = env.run(&PROMPT);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(!other.path("work/made.txt").exists());
    let gates = json(&env.run(&["gate", "list", "--json"]));
    assert_eq!(gates["gates"].as_array().map(Vec::len), Some(1), "{gates}");
    // A wrong secret is refused before a session exists.
    env.feed(
        &["vault", "set", "BOX", "--space", "user"],
        [b'x'; 40].as_slice(),
    );
    let output = env.run(&PROMPT);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let sessions = json(&env.run(&["session", "list", "--json"]));
    assert_eq!(
        sessions["sessions"].as_array().map(Vec::len),
        Some(1),
        "{sessions}"
    );
}

/// Starts a prompt whose command runs until it is ended, and kills `rye`. The command must end too.
fn kill_host(env: &TestEnv, work: &Path) {
    let command = "trap '' TERM HUP; echo $$ > pid.new; mv pid.new pid; sleep 300; sleep 300";
    script(env, command);
    let mut host = env.command().args(PROMPT).spawn().unwrap();
    wait_for(&work.join("pid"));
    let pid = fs::read_to_string(work.join("pid")).unwrap();
    // In the full tier, this is the number in another namespace.
    let running = processes_in(work);
    assert!(!running.is_empty(), "{pid}");
    host.kill().unwrap();
    host.wait().unwrap();
    for handle in running {
        assert!(
            handle.wait(Some(Duration::from_secs(30))).unwrap(),
            "{handle}"
        );
    }
}

/// The processes whose working directory is this one.
fn processes_in(dir: &Path) -> Vec<Handle> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let in_dir = entries.filter(|entry| {
        fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd: PathBuf| cwd == dir)
    });
    let pids = in_dir.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Handle::from_pid(pid).ok()).collect()
}

#[test]
fn killed_host_leaves_nothing_running_over_ssh() {
    let (env, other, dir) = (TestEnv::new(), TestEnv::new(), tempfile::tempdir().unwrap());
    let _server = Server::ssh(dir.path());
    config(&env, &ssh_config(&other, dir.path()));
    kill_host(&env, &other.path("work"));
}

#[test]
fn killed_host_leaves_nothing_running_over_http() {
    let (env, other) = (TestEnv::new(), TestEnv::new());
    let server = Server::http(&other, "confined");
    env.feed(
        &["vault", "set", "BOX", "--space", "user"],
        SECRET.as_bytes(),
    );
    config(
        &env,
        &json!({ "url": server.address, "token": "vault:BOX" }),
    );
    kill_host(&env, &other.path("work"));
}

#[test]
fn serving_without_tls_to_other_machines_is_refused() {
    let env = TestEnv::new();
    env.write("secret", SECRET);
    let secret = env.path("secret");
    let args = [
        "sandbox",
        "serve",
        "--listen",
        "0.0.0.0:0",
        "--workspace",
        ".",
        "--token-file",
    ];
    let output = env.command().args(args).arg(&secret).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    env.write("secret", "short");
    let args = [
        "sandbox",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--workspace",
        ".",
        "--token-file",
    ];
    let output = env.command().args(args).arg(&secret).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
