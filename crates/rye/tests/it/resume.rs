//! Resuming a session: lookup by id, project and workspace.

use std::process::Output;

use crate::support::{TestEnv, json, kill_at_gate, outcome, transcript_entry};
use rye_engine::protocol::short_id;

const SCRIPT: &str = "\
steps:
  - tool_calls: [{ name: bash, args: { command: 'echo ran >> out.txt' } }]
  - text: 'It is done.'
";

const PROMPT_TO_GATE: &[&str] = &[
    "prompt",
    "go",
    "--model",
    "scripted:agent.yaml",
    "--sandbox",
    "local",
    "--no-wait",
    "--json",
];

/// The id of a session that waits at a gate.
fn session_at_gate(env: &TestEnv) -> String {
    env.write("project/agent.yaml", SCRIPT);
    let output = env.run(PROMPT_TO_GATE);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    outcome(&output)["session"].as_str().unwrap().to_owned()
}

#[test]
fn empty_id_is_refused() {
    let env = TestEnv::new();
    let session = session_at_gate(&env);
    for args in [
        &["gate", "approve", ""][..],
        &["gate", "deny", ""],
        &["gate", "answer", "", "--value", "x"],
        &["gate", "approve", " "],
        &["session", "rm", ""],
        &["session", "resume", ""],
        &["session", "show", ""],
        &["session", "verify", ""],
        &["session", "export", ""],
        &["session", "fork", ""],
        &["session", "fork", &session, "--at", ""],
        &["session", "compact", ""],
        &["prompt", "go", "--session", ""],
        &["chat", "--plain", "--session", ""],
        &["replay", ""],
        &["run", "cancel", ""],
        &["run", "rm", ""],
        &["graph", "run", "--resume", ""],
    ] {
        let output = env.run(args);
        let reply = transcript_entry(&args.join(" "), &output);
        assert_eq!(output.status.code(), Some(2), "{reply}");
        assert!(reply.contains("an id must not be empty"), "{reply}");
    }
    let listed = json(&env.run(&["gate", "list", "--json"]));
    assert_eq!(listed["gates"][0]["origin"]["session"], session, "{listed}");
}

#[test]
fn session_is_found_by_prefix_or_suffix_of_its_id() {
    let env = TestEnv::new();
    let session = session_at_gate(&env);
    let (beginning, middle) = (&session[..8], &session[9..18]);
    let end = &session[session.len() - 8..];
    for args in [
        &["session", "rm", "--", "-"][..],
        &["session", "rm", middle],
        &["session", "show", middle],
        &["session", "resume", middle],
        &["session", "fork", middle],
        &["session", "export", middle],
        &["prompt", "go", "--session", middle],
        &["chat", "--plain", "--session", middle],
        &["replay", middle],
    ] {
        let output = env.run(args);
        let reply = transcript_entry(&args.join(" "), &output);
        assert_eq!(output.status.code(), Some(1), "{reply}");
        assert!(reply.contains("not found"), "{reply}");
    }
    for part in [beginning, end, &session] {
        let shown = json(&env.run(&["session", "show", part, "--json"]));
        assert_eq!(shown["session"], session, "{part}: {shown}");
    }
    // `rm` needs at least four characters.
    let output = env.run(&["session", "rm", &session[..3]]);
    let reply = transcript_entry("", &output);
    assert_eq!(output.status.code(), Some(2), "{reply}");
    let hint = format!("rye session rm {}\n", short_id(&session));
    assert!(reply.contains(&hint), "{reply}");
    let removed = json(&env.run(&["session", "rm", beginning, "--json"]));
    assert_eq!(removed["removed"], session, "{removed}");
}

/// Runs `rye` in another directory.
fn run_in(env: &TestEnv, folder: &str, args: &[&str]) -> Output {
    let mut command = env.command();
    command.current_dir(env.path(folder)).args(args);
    command.output().unwrap()
}

/// Adds a project whose policy allows commands.
fn env_with_permissive_project() -> TestEnv {
    let env = TestEnv::new();
    assert!(env.run(&["keys", "generate"]).status.success());
    let rules = "rules:\n  - { tool: 'builtin:bash', action: allow }\n";
    env.write("other/.ai/config/agent/approvals.yaml", rules);
    let signed = run_in(&env, "other", &["sign", "--all"]);
    assert!(signed.status.success(), "{signed:?}");
    env
}

#[test]
fn session_resumes_in_its_own_project() {
    let env = env_with_permissive_project();
    let session = session_at_gate(&env);
    let approved = run_in(&env, "other", &["gate", "approve", &session]);
    assert!(approved.status.success(), "{approved:?}");
    let resumed = run_in(&env, "other", &["session", "resume", &session]);
    let reply = transcript_entry("", &resumed);
    assert!(reply.contains("It is done."), "{reply}");
    assert!(
        reply.contains("/project, where the session was created"),
        "{reply}"
    );
    assert_eq!(env.read("project/out.txt"), "ran\n");
    assert!(!env.path("other/out.txt").exists());
}

#[test]
fn policy_is_that_of_the_sessions_project() {
    let env = env_with_permissive_project();
    let session = session_at_gate(&env);
    env.run(&["gate", "approve", &session]);
    env.run(&["session", "resume", &session]);
    // The other project's policy allows it.
    env.write("other/agent.yaml", SCRIPT);
    let unasked = run_in(&env, "other", PROMPT_TO_GATE);
    assert_eq!(unasked.status.code(), Some(0), "{unasked:?}");
    // Another command in the first project still needs approval.
    env.write("project/again.yaml", &format!("{SCRIPT}  - text: 'x'\n"));
    let args = [
        "prompt",
        "again",
        "--thread",
        "second",
        "--model",
        "scripted:again.yaml",
        "--no-wait",
        "--session",
        &session,
    ];
    let output = run_in(&env, "other", &args);
    assert_eq!(
        output.status.code(),
        Some(5),
        "{}",
        transcript_entry("", &output)
    );
    for folder in ["project", "other"] {
        assert_eq!(env.read(&format!("{folder}/out.txt")), "ran\n");
    }
}

#[test]
fn named_project_is_used_with_a_notice() {
    let env = env_with_permissive_project();
    let session = session_at_gate(&env);
    env.run(&["gate", "approve", &session]);
    env.write("other/agent.yaml", SCRIPT);
    let other = env.path("other");
    let args = ["session", "resume", &session, "--project"];
    let output = env.run(&[&args[..], &[other.to_str().unwrap()]].concat());
    let reply = transcript_entry("", &output);
    assert!(
        reply.contains("/other; the session was created in "),
        "{reply}"
    );
    assert_eq!(env.read("other/out.txt"), "ran\n");
    assert!(!env.path("project/out.txt").exists());
}

#[test]
fn chat_uses_its_workspace_and_the_items_of_its_project() {
    let mut env = env_with_permissive_project();
    env.set("USER", "ada");
    env.write("elsewhere/agent.yaml", SCRIPT);
    let folder = env.path("elsewhere");
    let args = [
        "chat",
        "--plain",
        "--model",
        "scripted:agent.yaml",
        "--sandbox",
        "local",
        "--workspace",
        folder.to_str().unwrap(),
    ];
    let chat = env.feed(&args, b"go\n");
    let reply = transcript_entry("", &chat);
    let (_, session) = reply.split_once("rye chat --session ").unwrap();
    let session = session.split_whitespace().next().unwrap();
    let approved = run_in(&env, "other", &["gate", "approve", session]);
    assert!(approved.status.success(), "{reply}{approved:?}");
    let resumed = run_in(&env, "other", &["session", "resume", session]);
    let reply = transcript_entry("", &resumed);
    assert!(
        reply.contains("/project, where the session was created"),
        "{reply}"
    );
    assert_eq!(env.read("elsewhere/out.txt"), "ran\n");
}

/// The id of the only gate in a list.
fn only_gate(listed: &Output) -> String {
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let gates = listed["gates"].as_array().unwrap().clone();
    assert_eq!(gates.len(), 1, "{gates:?}");
    gates[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn missing_directory_is_reported_with_a_hint() {
    let env = TestEnv::new();
    let session = session_at_gate(&env);
    std::fs::rename(env.path("project"), env.path("moved")).unwrap();
    std::fs::create_dir(env.path("bare")).unwrap();
    let refused = run_in(&env, "bare", &["session", "resume", &session]);
    let reply = transcript_entry("", &refused);
    assert_eq!(refused.status.code(), Some(1), "{reply}");
    assert!(reply.contains("/project, which does not exist"), "{reply}");
    let hint = format!("rye session resume {} --project ", short_id(&session));
    assert!(reply.contains(&hint), "{reply}");
    run_in(&env, "bare", &["gate", "approve", &session]);
    // An empty directory, from which the test calls `rye gate list`.
    std::fs::create_dir(env.path("project")).unwrap();
    let moved = env.path("moved");
    let args = ["session", "resume", &session, "--project"];
    let args = [&args[..], &[moved.to_str().unwrap()]].concat();
    // The approval was for the missing directory.
    let mut asked = env.command();
    asked.current_dir(env.path("bare")).args(&args);
    kill_at_gate(&env, asked.spawn().unwrap());
    let listed = run_in(&env, "bare", &["gate", "list", "--json"]);
    run_in(&env, "bare", &["gate", "approve", &only_gate(&listed)]);
    let reply = transcript_entry("", &run_in(&env, "bare", &args));
    assert!(reply.contains("It is done."), "{reply}");
    assert_eq!(env.read("moved/out.txt"), "ran\n");
}

/// As on another machine, where only the exported file exists.
#[test]
fn session_without_its_directory_resumes_in_the_current_project() {
    let first = TestEnv::new();
    let session = session_at_gate(&first);
    let file = first.path("work.jsonl");
    let file = file.to_str().unwrap();
    let exported = first.run(&["session", "export", &session, "--output", file]);
    assert!(exported.status.success(), "{exported:?}");
    std::fs::remove_dir_all(first.path("project")).unwrap();

    let second = TestEnv::new();
    second.write("project/agent.yaml", SCRIPT);
    let imported = second.run(&["session", "import", file, "--allow-unverified"]);
    assert!(imported.status.success(), "{imported:?}");
    let approved = second.run(&["gate", "approve", &session]);
    assert!(approved.status.success(), "{approved:?}");
    // The approval was for the other machine's directory.
    let mut asked = second.command();
    asked.args(["session", "resume", &session]);
    kill_at_gate(&second, asked.spawn().unwrap());
    let listed = second.run(&["gate", "list", "--json"]);
    second.run(&["gate", "approve", &only_gate(&listed)]);
    let reply = transcript_entry("", &second.run(&["session", "resume", &session]));
    assert!(
        reply.contains("where the session was created, does not exist"),
        "{reply}"
    );
    assert!(reply.contains("It is done."), "{reply}");
    assert_eq!(second.read("project/out.txt"), "ran\n");
}
