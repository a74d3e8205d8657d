//! MCP servers that are started through an installer such as `npx`: a slow first start, failures
//! with noise, and the end of an installer that still writes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use crate::support::TestEnv;
use rustix::process::{Pid, Signal, kill_process};

/// Answers the handshake and lists no tools.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {"tools": []}
    if message["method"] == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"],
                  "capabilities": {"tools": {}}, "serverInfo": {"name": "test", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// An environment whose `npx` is this shell script.
fn env_with_npx(script: &str) -> TestEnv {
    let mut env = TestEnv::new();
    env.run(&["init"]);
    env.write("server.py", SERVER);
    env.write("bin/npx", &format!("#!/bin/sh\n{script}\n"));
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(env.path("bin/npx"), mode).unwrap();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", env.path("bin").display());
    env.set("PATH", path);
    env
}

fn add(env: &TestEnv) -> Child {
    let mut command = env.command();
    command.args(["mcp", "add", "slow", "--", "npx", "-y", "slow-server"]);
    command.spawn().unwrap()
}

/// Waits until a condition holds, which is checked after each change of a directory.
fn wait_until(directory: &Path, is_met: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_met() {
            return;
        }
        let directory = directory.to_owned();
        lillux::watch::wait_for_change(&[directory], Some(Duration::from_millis(100))).ok();
    }
    unreachable!("nothing happens in {}", directory.display());
}

#[test]
fn slow_installation_is_announced_and_awaited() {
    let env = env_with_npx(
        "touch ../started; while [ ! -e ../go ]; do sleep 0.05; done\nexec python3 ../server.py",
    );
    let mut child = add(&env);
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut progress = String::new();
    // The server does not answer before the progress is shown.
    errors.read_line(&mut progress).unwrap();
    assert!(!progress.is_empty());
    env.write("go", "");
    let mut rest = String::new();
    errors.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{progress}{rest}");
}

#[test]
fn failed_installation_shows_the_meaningful_lines() {
    let env = env_with_npx(
        "cat >&2 <<'END'\n\
         npm warn deprecated glob@7.2.3: no longer supported\n\
         npm error code E404\n\
         npm error 404 Not Found - GET https://registry.example/slow-server - Not found\n\
         npm error 404\n\
         npm error A complete log of this run can be found in: /srv/npm/_logs/x.log\n\
         END\n\
         exit 1",
    );
    let output = add(&env).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("404 Not Found - GET"), "{errors}");
    let error = errors
        .lines()
        .find(|line| line.starts_with("error"))
        .unwrap();
    // The hint works when it is pasted.
    let hint = "hint: rye mcp add slow --force -- npx -y slow-server";
    assert!(errors.contains(hint), "{errors}");
    assert!(
        !error.contains("complete log") && !error.contains("deprecated"),
        "{error}"
    );
}

/// Notes SIGTERM, and needs a moment to finish what it writes. It reports that on standard error,
/// with more than a pipe holds.
const WRITING: &str = "\
trap 'echo terminated > ../signal; head -c 200000 /dev/zero >&2 || exit 9; sleep 1; \
echo closing >&2; echo complete > ../cache; exit 1' TERM
echo partial > ../cache
sleep 0.3
touch ../started
while :; do sleep 0.05; done";

#[test]
fn interrupted_installer_can_finish_what_it_writes() {
    let env = env_with_npx(WRITING);
    let mut child = add(&env);
    wait_until(&env.path(""), || env.path("started").exists());
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    child.wait().unwrap();
    wait_until(&env.path(""), || env.path("signal").exists());
    wait_until(&env.path(""), || env.read("cache") == "complete\n");
}

#[test]
fn installer_that_exceeds_the_start_timeout_can_finish_what_it_writes() {
    let env = env_with_npx(WRITING);
    let added = env.run(&[
        "mcp",
        "add",
        "slow",
        "--no-check",
        "--",
        "npx",
        "-y",
        "slow-server",
    ]);
    assert!(added.status.success(), "{added:?}");
    let file = "project/.ai/tools/mcp/servers/slow.yaml";
    let text = env.read(file);
    let text = text.replace("config:\n", "config:\n  start_timeout: 5\n");
    assert!(text.contains("start_timeout"), "{text}");
    env.write(file, &text);
    let signed = env.run(&["sign", "mcp/servers/slow"]);
    assert!(signed.status.success(), "{signed:?}");
    let output = env.run(&["mcp", "discover", "slow"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    wait_until(&env.path(""), || env.path("signal").exists());
    wait_until(&env.path(""), || env.read("cache") == "complete\n");
}
