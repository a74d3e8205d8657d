//! `rye execute --async` and `rye run`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use lillux::process::Handle;

use crate::graphs::holder;
use crate::support::{TestEnv, assert_transcript, json, transcript_entry};

fn tool(command: &str) -> String {
    format!(
        "version: \"1.0.0\"\nexecutor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: '{command}'\n"
    )
}

/// A `TestEnv` with a tool that succeeds, one that fails and one that runs until it is ended.
fn env_with_tools() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    assert!(env.run(&["init"]).status.success());
    for (name, command) in [
        ("good", "echo working"),
        ("bad", "echo working; exit 3"),
        (
            "endless",
            "sleep 600 & echo $! >pid.new; mv pid.new pid; wait",
        ),
    ] {
        env.write(&format!("project/.ai/tools/{name}.yaml"), &tool(command));
    }
    assert!(env.run(&["sign", "--all"]).status.success());
    env
}

/// Starts a tool in the background.
fn start(env: &TestEnv, tool: &str) -> String {
    let document = json(&env.run(&["execute", tool, "--async", "--json"]));
    assert_eq!(document["run"]["state"], "running", "{document}");
    document["run"]["id"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn state(env: &TestEnv, id: &str) -> String {
    let document = json(&env.run(&["run", "status", id, "--json"]));
    document["run"]["state"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn log(env: &TestEnv, id: &str) -> std::path::PathBuf {
    env.path(&format!("user/.local/state/rye/runs/{id}.log"))
}

#[test]
fn run_is_started_followed_and_shown() {
    let env = env_with_tools();
    let mut transcript = env.transcript(&["run list", "execute --async good --quiet"]);
    let id = transcript
        .lines()
        .find(|line| line.len() == 20 && line.contains('-'))
        .unwrap()
        .to_owned();
    transcript += &env.transcript(&[
        &format!("run tail {id} --follow"),
        &format!("run status {id}"),
        &format!("run status {id} --json"),
        &format!("run cancel {id}"),
        "run list",
    ]);
    let failed = start(&env, "bad");
    transcript += &env.transcript(&[
        &format!("run tail {failed} --follow --json"),
        &format!("run status {failed}"),
        "run list",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn cancel_ends_the_whole_process_tree() {
    let env = env_with_tools();
    let id = start(&env, "endless");
    let lookup = [env.path("project")];
    // The tool creates a file when it starts.
    while !env.path("project/pid").exists() {
        lillux::watch::wait_for_change(&lookup, Some(Duration::from_millis(200))).ok();
    }
    let sleeper: i32 = env.read("project/pid").trim().parse().unwrap();
    let sleeper = Handle::from_pid(sleeper).unwrap();
    assert_eq!(state(&env, &id), "running");
    let output = env.run(&["run", "cancel", &id]);
    assert!(output.status.success(), "{output:?}");
    assert!(!sleeper.is_alive().unwrap());
    let mut transcript = transcript_entry("rye run cancel RUN", &output);
    transcript += &env.transcript(&[
        &format!("run cancel {id} --json"),
        &format!("run tail {id} --follow"),
        "run list",
    ]);
    assert_transcript!(transcript);
}

#[test]
fn run_without_process_and_result_is_lost() {
    let env = env_with_tools();
    let id = start(&env, "endless");
    while !env.path("project/pid").exists() {
        lillux::watch::wait_for_change(&[env.path("project")], Some(Duration::from_millis(200)))
            .ok();
    }
    let handle = holder(&env, &id);
    handle.kill(Duration::ZERO).unwrap();
    assert_eq!(state(&env, &id), "lost");
}

#[test]
fn log_is_private() {
    let env = env_with_tools();
    let id = start(&env, "good");
    env.run(&["run", "tail", &id, "--follow"]);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let log = log(&env, &id);
    assert_eq!(mode(log.parent().unwrap()), 0o700);
    assert_eq!(mode(&log), 0o600);
}

#[test]
fn run_is_a_session() {
    let env = env_with_tools();
    let id = start(&env, "good");
    env.run(&["run", "tail", &id, "--follow"]);
    let sessions = json(&env.run(&["session", "list", "--json"]));
    assert_eq!(sessions["sessions"][0]["id"], id.as_str(), "{sessions}");
    assert_eq!(sessions["sessions"][0]["purpose"], "run", "{sessions}");
    for command in ["show", "verify", "export"] {
        let output = env.run(&["session", command, &id]);
        assert!(output.status.success(), "{command}: {output:?}");
    }
    let shown = env.run(&["session", "show", &id]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("calls good"), "{shown}");
    let prompt = env.run(&["prompt", "more", "--session", &id]);
    assert!(!prompt.status.success(), "{prompt:?}");
    let replay = json(&env.run(&["replay", &id, "--json"]));
    assert_eq!(replay["differences"], serde_json::json!([]), "{replay}");
    // The call and its result.
    assert_eq!(replay["steps"], 2, "{replay}");
    let database = env.path("user/.local/state/rye/sessions.db");
    let alter = "UPDATE engine_log SET doc = replace(doc, 'working', 'resting')";
    let database = rusqlite::Connection::open(database).unwrap();
    database.execute_batch(alter).unwrap();
    let replay = json(&env.run(&["replay", &id, "--json"]));
    assert_eq!(replay["error"]["code"], "differs", "{replay}");
}

/// How often the main thread of a process has gone to sleep.
fn sleep_count(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{pid}/status")).unwrap();
    let mut lines = status.lines();
    lines
        .find(|line| line.starts_with("voluntary_ctxt_switches"))
        .unwrap()
        .to_owned()
}

#[test]
fn following_a_silent_run_does_not_poll() {
    let env = env_with_tools();
    let id = start(&env, "endless");
    while !env.path("project/pid").exists() {
        lillux::watch::wait_for_change(&[env.path("project")], Some(Duration::from_millis(200)))
            .ok();
    }
    let mut tail = env
        .command()
        .args(["run", "tail", &id, "--follow"])
        .spawn()
        .unwrap();
    // Polling would wake the thread each second. The first time is for the start.
    let mut counts = Vec::new();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(1500));
        counts.push(sleep_count(tail.id()));
    }
    let is_asleep = counts.windows(2).any(|pair| pair[0] == pair[1]);
    env.run(&["run", "cancel", &id]);
    tail.wait().unwrap();
    assert!(is_asleep, "{counts:?}");
}

#[test]
fn runs_are_found_by_prefix() {
    let env = env_with_tools();
    let id = start(&env, "good");
    env.run(&["run", "tail", &id, "--follow"]);
    assert_eq!(state(&env, &id[..id.len() - 1]), "completed");
    assert_transcript!(env.transcript(&["run status nothing", "run tail 1999", "run cancel x"]));
}

#[test]
fn only_finished_runs_can_be_removed() {
    let env = env_with_tools();
    let (good, endless) = (start(&env, "good"), start(&env, "endless"));
    env.run(&["run", "tail", &good, "--follow"]);
    let mut transcript = env.transcript(&[&format!("run rm {endless}")]);
    assert!(log(&env, &endless).exists());
    // The tool creates a file when it starts.
    while !env.path("project/pid").exists() {
        lillux::watch::wait_for_change(&[env.path("project")], Some(Duration::from_millis(200)))
            .ok();
    }
    assert!(env.run(&["run", "cancel", &endless]).status.success());
    transcript += &env.transcript(&[
        &format!("run rm {endless} --json"),
        &format!("run rm {good}"),
        &format!("run rm {good}"),
        "run list",
    ]);
    assert!(!log(&env, &endless).exists());
    assert_transcript!(transcript);
}

#[test]
fn cancelled_run_has_an_end_time() {
    let env = env_with_tools();
    let id = start(&env, "endless");
    while !env.path("project/pid").exists() {
        lillux::watch::wait_for_change(&[env.path("project")], Some(Duration::from_millis(200)))
            .ok();
    }
    assert!(env.run(&["run", "cancel", &id]).status.success());
    let document = json(&env.run(&["run", "status", &id, "--json"]));
    assert_eq!(document["run"]["state"], "cancelled", "{document}");
    let (started, ended) = (&document["run"]["started_at"], &document["run"]["ended_at"]);
    assert!(ended.as_str() >= started.as_str(), "{document}");
    assert_eq!(
        document["result"]["error"]["code"], "cancelled",
        "{document}"
    );
}
