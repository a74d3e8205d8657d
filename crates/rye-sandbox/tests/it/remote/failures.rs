//! What happens when the network, the client or the server fails.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lillux::process::Handle;
use rye_engine::protocol::{SandboxId, SandboxKind};
use rye_engine::sandbox::{Exec, ExecOutput, FileAccess, NetworkAccess, Sandbox, SandboxError};
use rye_sandbox::{RemoteSandbox, SandboxServer, Secret, ServeOptions};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{SECRET, connect, docker, docker_options, engine, https, serve, stdio};
use crate::contract::{Recorder, local, script};

/// Forwards connections to a server, and cuts them on demand.
struct Network {
    address: SocketAddr,
    is_up: watch::Sender<bool>,
}

impl Network {
    async fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_up, state) = watch::channel(true);
        tokio::spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let mut state = state.clone();
                if !*state.borrow_and_update() {
                    continue;
                }
                links.spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = state.changed() => {}
                    }
                });
            }
        });
        Self { address, is_up }
    }

    fn set_up(&self, is_up: bool) {
        self.is_up.send_replace(is_up);
    }
}

fn options(timeout: Duration) -> ServeOptions {
    ServeOptions {
        secret: Secret::new(SECRET),
        client_timeout: timeout,
    }
}

/// Long enough for a slow machine to send a sign of life in time.
const PATIENT: Duration = Duration::from_secs(30);
const IMPATIENT: Duration = Duration::from_secs(2);

/// Waits until a file exists.
async fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{}",
            path.display()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a process has ended, while the server in this runtime works.
async fn wait_for_end(process: &Handle) {
    let start = Instant::now();
    while process.is_alive().unwrap() {
        assert!(start.elapsed() < Duration::from_secs(30), "{process}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn command_continues_after_a_loss_of_the_network() {
    let dir = tempfile::tempdir().unwrap();
    let network = Network::new(serve(Arc::new(local(&dir)), options(PATIENT)).await).await;
    let sandbox = connect(network.address).await.unwrap();
    let recorder = Recorder::default();
    // A line per step, and the step after the cut waits for the test.
    let command = "echo ran >> runs; seq 1 3000; touch half; \
        while [ ! -e go ]; do sleep 0.05; done; seq 3001 6000; echo end >&2";
    let cut = async {
        wait_for(&dir.path().join("half")).await;
        for _ in 0..3 {
            network.set_up(false);
            tokio::time::sleep(Duration::from_millis(100)).await;
            network.set_up(true);
            sandbox.stat("half").await.unwrap();
        }
        std::fs::write(dir.path().join("go"), "").unwrap();
    };
    let (output, ()) = tokio::join!(sandbox.exec(script(command), &recorder), cut);
    let lines: Vec<_> = (1..=6000).map(|number| number.to_string()).collect();
    let expected = format!("{}\n", lines.join("\n"));
    let output: ExecOutput = output.unwrap();
    assert_eq!(
        (output.stdout, output.exit_code),
        (expected.clone(), Some(0))
    );
    // No line was lost, and none was reported twice.
    let streamed = recorder.text.lock().unwrap().replace("end\n", "");
    assert_eq!(streamed, expected);
    assert_eq!(
        std::fs::read_to_string(dir.path().join("runs")).unwrap(),
        "ran\n"
    );
}

#[tokio::test]
async fn server_ends_the_commands_of_a_client_that_disappears() {
    let dir = tempfile::tempdir().unwrap();
    let network = Network::new(serve(Arc::new(local(&dir)), options(IMPATIENT)).await).await;
    let sandbox = connect(network.address).await.unwrap();
    let recorder = Recorder::default();
    let command = "trap '' TERM; (setsid sh -c 'echo $$; exec sleep 300' &); sleep 300";
    let cut = async {
        let (_, child) = recorder.start_and_output().await;
        network.set_up(false);
        Handle::from_pid(child.trim().parse().unwrap()).unwrap()
    };
    let (outcome, child) = tokio::join!(sandbox.exec(script(command), &recorder), cut);
    assert!(
        matches!(outcome, Err(SandboxError::Interrupted(_))),
        "{outcome:?}"
    );
    wait_for_end(&child).await;
    // The sandbox works again with the network.
    network.set_up(true);
    sandbox.write("a", b"x").await.unwrap();
}

#[tokio::test]
async fn dropped_command_ends_on_the_other_machine() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let all: [RemoteSandbox; 3] = [
        https(Arc::new(local(&dirs[0]))).await,
        stdio(&dirs[1]).await,
        docker(&dirs[2]).await,
    ];
    for sandbox in &all {
        let recorder = Recorder::default();
        let command = "trap '' TERM; echo up; sleep 300; sleep 300";
        let process = tokio::select! {
            ended = sandbox.exec(script(command), &recorder) => panic!("{ended:?}"),
            (process, _) = recorder.start_and_output() => process,
        };
        wait_for_end(&process.parse().unwrap()).await;
    }
}

#[tokio::test]
async fn command_is_interrupted_when_the_server_dies() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = stdio(&dir).await;
    // The server is the parent of the supervisor of the command, so it is found by its socket-free
    // streams: here, as the child of this process with this workspace.
    let recorder = Recorder::default();
    let kill = async {
        recorder.text().await;
        let server = child_with_argument(dir.path().to_str().unwrap());
        Handle::from_pid(server)
            .unwrap()
            .kill(Duration::ZERO)
            .unwrap();
    };
    let command = script("echo up; sleep 300");
    let (outcome, ()) = tokio::join!(sandbox.exec(command, &recorder), kill);
    assert!(
        matches!(outcome, Err(SandboxError::Interrupted(_))),
        "{outcome:?}"
    );
    // The next use starts a new server.
    sandbox.write("again", b"x").await.unwrap();
}

/// The child of this process with an argument.
fn child_with_argument(argument: &str) -> i32 {
    let me = std::process::id();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let entry = entry.unwrap().path();
        let read = |name: &str| std::fs::read(entry.join(name)).unwrap_or_default();
        let command = String::from_utf8_lossy(&read("cmdline")).into_owned();
        let status = String::from_utf8_lossy(&read("status")).into_owned();
        let is_child = status.lines().any(|line| line == format!("PPid:\t{me}"));
        if is_child && command.split('\0').any(|it| it == argument) {
            return entry
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .parse()
                .unwrap();
        }
    }
    panic!("no child has the argument {argument}")
}

#[tokio::test]
async fn wrong_token_and_unknown_certificate_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let other = ServeOptions {
        secret: Secret::new("another secret that also has 32 characters"),
        ..ServeOptions::default()
    };
    let address = serve(Arc::new(local(&dir)), other).await;
    let refused = connect(address).await.err();
    assert!(
        matches!(refused, Some(SandboxError::Unavailable { .. })),
        "{refused:?}"
    );
    assert!(Secret::new("too short").is_none());
    // Without the authority, the certificate is not trusted.
    let address = serve(Arc::new(local(&dir)), options(PATIENT)).await;
    let secret = Secret::new(SECRET).unwrap();
    let target = rye_sandbox::HttpsTarget::new(&format!("https://{address}"), secret, None);
    let refused = RemoteSandbox::https(target.unwrap(), &SandboxId::new()).await;
    assert!(matches!(
        refused.err(),
        Some(SandboxError::Unavailable { .. })
    ));
    // A secret is never sent in clear text to another machine.
    let secret = Secret::new(SECRET).unwrap();
    assert!(rye_sandbox::HttpsTarget::new("http://192.0.2.1:1", secret, None).is_err());
}

#[tokio::test]
async fn token_is_valid_for_one_sandbox_only() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(Arc::new(local(&dir)), options(PATIENT)).await;
    let first = connect(address).await.unwrap();
    let second = connect(address).await.unwrap();
    let recorder = Recorder::default();
    let other = Recorder::default();
    tokio::select! {
        ended = first.exec(script("echo up; sleep 300"), &recorder) => panic!("{ended:?}"),
        () = async {
            let (process, _) = recorder.start_and_output().await;
            // Another sandbox cannot kill it.
            second.kill(&process).await;
            let alive = second.exec(script("echo alive"), &other).await.unwrap();
            assert_eq!(alive.stdout, "alive\n");
            assert!(process.parse::<Handle>().unwrap().is_alive().unwrap());
        } => {}
    }
}

#[tokio::test]
async fn output_and_files_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = https(Arc::new(local(&dir))).await;
    let exec = Exec {
        // More than the server captures.
        max_output: Some(usize::MAX),
        max_streamed: Some(1000),
        ..script("head -c 40000000 /dev/zero | tr '\\0' x")
    };
    let recorder = Recorder::default();
    let output = sandbox.exec(exec, &recorder).await.unwrap();
    assert!(output.truncated && output.stdout.len() < 10_000_000);
    assert!(recorder.text.lock().unwrap().len() < 1_000_000);
    let file = std::fs::File::create(dir.path().join("huge")).unwrap();
    file.set_len(65 * 1024 * 1024).unwrap();
    assert!(sandbox.read("huge").await.is_err());
    let many = sandbox.read_many(&["huge".to_owned()], 1000).await;
    assert!(many[0].is_err());
    // The connection still works.
    sandbox.write("small", b"x").await.unwrap();
}

#[tokio::test]
async fn hostile_paths_arrive_unchanged_and_are_refused() {
    // Not in `/tmp`, which is another directory in the sandbox.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let outside = dir.path().join("outside");
    let work = tempfile::tempdir_in(dir.path()).unwrap();
    std::fs::write(&outside, "secret").unwrap();
    std::os::unix::fs::symlink(&outside, work.path().join("link")).unwrap();
    let sandbox = stdio(&work).await;
    let absolute = outside.to_str().unwrap();
    let through_proc = format!("/proc/self/root{absolute}");
    for path in [
        absolute,
        "../outside",
        "a/../../outside",
        "link",
        &through_proc,
    ] {
        let refused = Err(SandboxError::Outside(path.to_owned()));
        assert_eq!(sandbox.read(path).await, refused, "{path}");
        assert!(sandbox.write(path, b"x").await.is_err(), "{path}");
        assert!(sandbox.mkdir(&format!("{path}/x")).await.is_err(), "{path}");
        // Of a link, only the link is removed.
        assert_eq!(sandbox.rm(path).await.is_err(), path != "link", "{path}");
        assert_eq!(std::fs::read(&outside).unwrap(), b"secret");
    }
    for path in ["a&path=b", "a?b#c", "a b%20+", "ä\n\"'", "&permitted={}"] {
        sandbox.write(path, path.as_bytes()).await.unwrap();
        assert_eq!(sandbox.read(path).await.unwrap(), path.as_bytes());
        assert_eq!(sandbox.stat(path).await.unwrap().path, path);
    }
}

#[tokio::test]
async fn remote_reports_what_the_other_end_confines() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let unconfined = https(Arc::new(local(&dirs[0]))).await;
    assert_eq!(unconfined.kind(), SandboxKind::Remote);
    assert!(!unconfined.confinement().confines_commands());
    // It has no directory on this machine, but approvals are bound to where it is.
    assert_eq!(unconfined.working_dir(), None);
    assert!(
        unconfined
            .location()
            .unwrap()
            .starts_with("https://127.0.0.1:")
    );
    let confined = stdio(&dirs[1]).await.confinement();
    assert!(confined.confines_commands());
    assert!(confined.enforcement.is_some());
    let container = docker(&dirs[2]).await;
    let confined = container.confinement();
    assert_eq!(confined.files, FileAccess::Workspace);
    assert_eq!(confined.network, NetworkAccess::None);
    assert!(confined.confines_commands() && confined.enforcement.is_some());
    let workspace = dirs[2].path().canonicalize().unwrap();
    assert_eq!(container.working_dir().as_deref(), workspace.to_str());
}

#[tokio::test]
async fn container_with_a_network_does_not_confine() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = docker_options(&dir, engine::start());
    options.network = "bridge".to_owned();
    let sandbox = options.clone().open(&SandboxId::new()).await.unwrap();
    assert!(!sandbox.confinement().confines_commands());
    options.image = "localhost/missing".to_owned();
    let missing = options.open(&SandboxId::new()).await.err();
    let Some(SandboxError::Unavailable {
        hint: Some(hint), ..
    }) = missing
    else {
        panic!("{missing:?}");
    };
    assert_eq!(hint, "docker pull localhost/missing");
}

#[tokio::test]
async fn protected_file_that_a_container_created_is_moved_away() {
    let dir = tempfile::tempdir().unwrap();
    let sandbox = docker(&dir).await;
    let config = dir.path().join("sub/.git/config");
    for keep in [true, false] {
        let command = script("mkdir -p sub/.git && echo x > sub/.git/config");
        let output = sandbox.exec(command, &Recorder::default()).await.unwrap();
        assert_eq!(output.quarantined, ["sub/.git"]);
        assert!(!config.exists());
        let settled = sandbox.settle_quarantined(&output.quarantined, keep).await;
        settled.unwrap();
        assert_eq!(config.exists(), keep);
        let _ = std::fs::remove_dir_all(dir.path().join("sub"));
    }
}

#[tokio::test]
async fn server_that_became_another_sandbox_is_refused() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = SandboxServer::new(Arc::new(local(&first)), options(PATIENT));
    let serving = tokio::spawn(async move { server.serve_tcp(listener, None).await });
    let secret = Secret::new(SECRET).unwrap();
    let target = rye_sandbox::HttpsTarget::new(&format!("http://{address}"), secret, None).unwrap();
    let sandbox = RemoteSandbox::https(target, &SandboxId::new())
        .await
        .unwrap();
    sandbox.write("a", b"x").await.unwrap();
    serving.abort();
    let _ = serving.await;
    let listener = TcpListener::bind(address).await.unwrap();
    let server = SandboxServer::new(Arc::new(local(&second)), options(PATIENT));
    tokio::spawn(async move { server.serve_tcp(listener, None).await });
    let refused = sandbox.read("a").await;
    assert!(
        matches!(refused, Err(SandboxError::Unavailable { .. })),
        "{refused:?}"
    );
}
