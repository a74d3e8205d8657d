//! A host is killed, and what it had started ends.

#![expect(
    clippy::print_stdout,
    reason = "by what it prints the host tells what it started"
)]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use lillux::process::{Handle, Supervisor};
use rye_engine::sandbox::{Exec, ExecObserver, Sandbox as _};
use rye_sandbox::Local;

/// Tells whoever started the host.
struct Aloud;

impl ExecObserver for Aloud {
    fn on_start(&self, process: &str) {
        println!("\nprocess {process}");
    }

    fn on_output(&self, text: &str) {
        println!("\nchild {}", text.trim());
    }
}

/// Tells a process that it is the host.
const HOST: &str = "RYE_SANDBOX_TEST_HOST";

/// The host: run by the test below, in a process of its own; else it has nothing to do.
#[tokio::test]
async fn host() {
    if std::env::var_os(HOST).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let local = Local::new(folder.path(), Supervisor::start().unwrap()).unwrap();
    let command = "(setsid sh -c 'trap \"\" TERM; echo $$; sleep 300; sleep 300' &); sleep 300";
    let exec = Exec {
        command: command.to_owned(),
        ..Exec::default()
    };
    local.exec(exec, &Aloud).await.unwrap();
}

#[test]
fn what_a_host_had_started_ends_when_it_is_killed() {
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "death::host", "--nocapture"])
        .env(HOST, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut handles: Vec<Handle> = Vec::new();
    let told = BufReader::new(host.stdout.take().unwrap());
    for line in told.lines().map(Result::unwrap) {
        if let Some(process) = line.strip_prefix("process ") {
            handles.push(process.parse().unwrap());
        } else if let Some(child) = line.strip_prefix("child ") {
            handles.push(Handle::from_pid(child.parse().unwrap()).unwrap());
        }
        if handles.len() == 2 {
            break;
        }
    }
    assert_eq!(handles.len(), 2);
    host.kill().unwrap();
    host.wait().unwrap();
    for handle in handles {
        assert!(
            handle.wait(Some(Duration::from_secs(20))).unwrap(),
            "{handle}"
        );
    }
}
