//! Killing the host ends the commands that it started.

#![expect(
    clippy::print_stdout,
    reason = "the host reports its processes on standard output"
)]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use lillux::process::{Handle, Supervisor};
use rye_engine::sandbox::{Exec, ExecObserver, Sandbox as _};
use rye_sandbox::LocalSandbox;

/// Prints events for the test that started the host.
struct PrintEvents;

impl ExecObserver for PrintEvents {
    fn on_start(&self, process: &str) {
        println!("\nprocess {process}");
    }

    fn on_output(&self, text: &str) {
        println!("\nchild {}", text.trim());
    }
}

/// Set in the process that acts as the host.
const HOST: &str = "RYE_SANDBOX_TEST_HOST";

/// The host, which the test below runs in a separate process. Otherwise does nothing.
#[tokio::test]
async fn host() {
    if std::env::var_os(HOST).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let local = LocalSandbox::new(dir.path(), Supervisor::start().unwrap()).unwrap();
    let command = "(setsid sh -c 'trap \"\" TERM; echo $$; sleep 300; sleep 300' &); sleep 300";
    let exec = Exec {
        command: command.to_owned(),
        ..Exec::default()
    };
    local.exec(exec, &PrintEvents).await.unwrap();
}

#[test]
fn killing_the_host_ends_its_commands() {
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "host_death::host", "--nocapture"])
        .env(HOST, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut handles: Vec<Handle> = Vec::new();
    let output = BufReader::new(host.stdout.take().unwrap());
    for line in output.lines().map(Result::unwrap) {
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
