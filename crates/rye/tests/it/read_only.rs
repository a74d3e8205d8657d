//! Sessions on a read-only disk.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{TestEnv, json, kill_at_gate, outcome};

const SCRIPT: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'echo hi' } }]
  - text: 'It said: ${last_tool_result}'
";

fn env_with_script() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    env.set("RYE_STATE_DIR", env.path("state").to_str().unwrap());
    env.write("project/agent.yaml", SCRIPT);
    assert!(env.run(&["init"]).status.success());
    env
}

fn answered_session(env: &TestEnv) -> String {
    let output = env.run(&["prompt", "go", "--model", "scripted:agent.yaml", "--json"]);
    outcome(&output)["session"].as_str().unwrap().to_owned()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a directory can be made read-only for this user.
#[expect(clippy::print_stdout, reason = "a skipped test must be visible")]
fn can_make_read_only() -> bool {
    let mount_namespace = Command::new("unshare").args(["-m", "true"]).status();
    if is_root() && !mount_namespace.is_ok_and(|status| status.success()) {
        println!("skipped: cannot mount");
        return false;
    }
    true
}

/// Runs `rye` with a read-only state directory. Root ignores file modes, so for root the
/// directory is mounted read-only.
fn run_read_only(env: &TestEnv, args: &[&str]) -> Output {
    let state = env.path("state");
    let rye = env.command();
    if !is_root() {
        let modes = |folder: u32, file: u32| {
            let set = |path: &Path, mode: u32| {
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            };
            set(&state, 0o700);
            for entry in fs::read_dir(&state).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    set(&path, file);
                }
            }
            set(&state, folder);
        };
        modes(0o500, 0o400);
        let output = env.run(args);
        modes(0o700, 0o600);
        return output;
    }
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(state);
    command.arg(rye.get_program()).args(args).env_clear();
    command.envs(
        rye.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command.current_dir(rye.get_current_dir().unwrap());
    command.output().unwrap()
}

/// Files of a directory with their content.
fn files_in(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let files = files.filter(|path| path.is_file());
    let mut files: Vec<_> = files
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn sessions_can_be_read_on_a_read_only_disk() {
    if !can_make_read_only() {
        return;
    }
    let env = env_with_script();
    let id = answered_session(&env);
    let before = files_in(&env.path("state"));
    for args in [
        &["session", "list"][..],
        &["session", "show", &id],
        &["session", "verify", &id],
        &["session", "export", &id, "--output", "work.jsonl"],
        &["replay", &id],
        &["gate", "list"],
    ] {
        let output = run_read_only(&env, args);
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
    let listed = json(&run_read_only(&env, &["session", "list", "--json"]));
    assert_eq!(listed["sessions"][0]["id"], id);
    assert!(
        env.run(&["session", "verify", "work.jsonl"])
            .status
            .success()
    );
    for args in [
        &["prompt", "go", "--model", "scripted:agent.yaml"][..],
        &["prompt", "go", "--session", &id],
        &["session", "rm", &id],
    ] {
        let output = run_read_only(&env, args);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {printed}");
        assert!(printed.contains("sessions.db is read-only"), "{printed}");
        assert!(printed.contains("export RYE_STATE_DIR="), "{printed}");
    }
    let health = run_read_only(&env, &["doctor"]);
    let printed = String::from_utf8_lossy(&health.stdout);
    assert!(printed.contains("sessions.db, format 3, "), "{printed}");
    assert!(printed.contains(", read-only: "), "{printed}");
    assert!(printed.contains("export RYE_STATE_DIR="), "{printed}");
    assert!(files_in(&env.path("state")) == before);
}

/// The last writes may only be in the log.
#[test]
fn log_of_a_killed_process_can_be_read_on_a_read_only_disk() {
    if !can_make_read_only() {
        return;
    }
    let env = env_with_script();
    let mut prompt = env.command();
    let asked = ["prompt", "go", "--model", "scripted:agent.yaml"];
    prompt.args(asked).args(["--sandbox", "local"]);
    kill_at_gate(&env, prompt.spawn().unwrap());
    let log = env.path("state/sessions.db-wal");
    assert!(fs::metadata(&log).unwrap().len() > 0);
    let before = files_in(&env.path("state"));
    let listed = json(&run_read_only(&env, &["session", "list", "--json"]));
    assert_eq!(
        listed["pending_gates"].as_array().unwrap().len(),
        1,
        "{listed}"
    );
    let id = listed["sessions"][0]["id"].as_str().unwrap();
    let shown = run_read_only(&env, &["session", "show", id]);
    assert!(shown.status.success(), "{shown:?}");
    assert!(files_in(&env.path("state")) == before);

    // Without write access, the log can't be read without its index.
    fs::remove_file(env.path("state/sessions.db-shm")).unwrap();
    let refused = run_read_only(&env, &["session", "list"]);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(printed.contains(log.to_str().unwrap()), "{printed}");
    assert!(printed.contains("Copy the directory"), "{printed}");
    let listed = json(&env.run(&["session", "list", "--json"]));
    assert_eq!(listed["pending_gates"].as_array().unwrap().len(), 1);
}
