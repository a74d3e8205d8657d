//! The confined sandbox: `rye sandbox`, and agents that work in it.

use std::fs;

use crate::support::{TestEnv, json, outcome};

/// A script that runs one command and reports its result.
fn script(env: &TestEnv, command: &str) {
    let call = serde_json::json!({ "name": "bash", "args": { "command": command } });
    let text = format!("steps:\n  - tool_calls: [{call}]\n  - text: '${{last_tool_result}}'\n");
    env.write("project/script.yaml", &text);
}

fn prompt(env: &TestEnv, options: &[&str]) -> std::process::Output {
    let mut args = vec!["prompt", "go", "--model", "scripted:script.yaml", "--json"];
    args.extend(options);
    env.run(&args)
}

#[test]
fn check_reports_the_tier() {
    let env = TestEnv::new();
    let output = env.run(&["sandbox", "check", "--json"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(json(&output)["tier"], "full");
    let text = env.run(&["sandbox", "check"]);
    assert!(text.status.success() && !text.stdout.is_empty());
}

#[test]
fn run_confines_a_command_to_the_project() {
    let env = TestEnv::new();
    env.write("outside", "secret");
    for tier in ["full", "landlock"] {
        let run = |script: &str| {
            let args = ["sandbox", "run", "--tier", tier, "--", "sh", "-c", script];
            env.run(&args)
        };
        fs::create_dir_all(env.path("project/src")).unwrap();
        let output = run("echo hi && echo x > src/file && exit 7");
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert_eq!(output.stdout, b"hi\n");
        assert_eq!(env.read("project/src/file"), "x\n");
        assert!(!run("cat ../outside").status.success());
        assert!(!run("echo x > .ai/tool").status.success());
        assert_eq!(run("kill -KILL $$").status.code(), Some(137));
    }
}

#[test]
fn confined_command_runs_without_asking() {
    let env = TestEnv::new();
    script(
        &env,
        "echo made > made.txt; cat made.txt; cat /etc/shadow || echo hidden",
    );
    let output = prompt(&env, &["--sandbox", "confined", "--no-wait"]);
    assert!(output.status.success(), "{output:?}");
    let answer = outcome(&output)["answer"].as_str().unwrap().to_owned();
    assert!(
        answer.contains("made") && answer.contains("hidden"),
        "{answer}"
    );
    assert_eq!(env.read("project/made.txt"), "made\n");
}

#[test]
fn new_session_is_confined_in_a_project_and_virtual_elsewhere() {
    let env = TestEnv::new();
    script(&env, "echo made > made.txt");
    let output = prompt(&env, &["--no-wait"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(env.read("project/made.txt"), "made\n");
    fs::remove_file(env.path("project/made.txt")).unwrap();
    let output = prompt(&env, &["--no-wait", "--sandbox", "virtual"]);
    assert!(output.status.success(), "{output:?}");
    assert!(!env.path("project/made.txt").exists());

    let bare = TestEnv::bare();
    script(&bare, "echo made > made.txt");
    let output = prompt(&bare, &["--no-wait"]);
    assert!(output.status.success(), "{output:?}");
    assert!(!bare.path("project/made.txt").exists());
    assert!(!output.stderr.is_empty(), "says why the session is virtual");
}

#[test]
fn new_session_is_virtual_where_the_workspace_cannot_be_confined() {
    let env = TestEnv::new();
    script(&env, "echo made > made.txt");
    let home = env.path("project").display().to_string();
    let mut command = env.command();
    let args = ["prompt", "go", "--model", "scripted:script.yaml", "--json"];
    let output = command
        .args(args)
        .args(["--project", &home])
        .env("HOME", &home)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!output.stderr.is_empty(), "says why the session is virtual");
    assert!(!env.path("project/made.txt").exists());
}

#[test]
fn protected_file_that_a_command_created_is_a_gate() {
    for (decision, is_kept) in [("approve", true), ("deny", false)] {
        let env = TestEnv::new();
        script(&env, "mkdir -p sub/.git && echo x > sub/.git/config");
        let mut child = env
            .command()
            .args([
                "prompt",
                "go",
                "--model",
                "scripted:script.yaml",
                "--sandbox",
                "confined",
            ])
            .spawn()
            .unwrap();
        let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
        let gate = crate::support::wait_for_gate(&env, &mut errors);
        assert!(!env.path("project/sub/.git").exists());
        assert_eq!(
            gate["context"]["protected"],
            serde_json::json!(["sub/.git"])
        );
        assert_eq!(gate["context"]["sandbox"]["tier"], "full");
        assert!(gate["context"]["sandbox"]["policy"].is_string());
        let id = crate::support::short_gate_id(&gate);
        assert!(env.run(&["gate", decision, &id]).status.success());
        assert!(child.wait().unwrap().success());
        assert_eq!(env.path("project/sub/.git/config").exists(), is_kept);
        assert!(!env.path("project/.rye-quarantine").exists());
    }
}

#[test]
fn rules_still_apply_to_confined_commands() {
    let env = TestEnv::new();
    let rules = "rules:\n  - { tool: 'builtin:bash', action: ask }\n";
    env.write("user/.ai/config/agent/approvals.yaml", rules);
    script(&env, "echo hi");
    let output = prompt(&env, &["--sandbox", "confined", "--no-wait"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let gates = json(&env.run(&["gate", "list", "--json"]));
    let context = &gates["gates"][0]["context"];
    assert_eq!(context["sandbox"]["tier"], "full", "{gates}");
}

#[test]
fn policy_of_the_user_adds_paths() {
    let env = TestEnv::new();
    env.write("data/file", "readable");
    let path = env.path("data");
    let command = format!("cat {}/file", path.display());
    let args = ["sandbox", "run", "--", "sh", "-c", &command];
    assert!(!env.run(&args).status.success());
    let policy = format!("read: [{}]\n", path.display());
    env.write("user/.ai/config/agent/sandbox.yaml", &policy);
    let output = env.run(&args);
    assert_eq!(output.stdout, b"readable", "{output:?}");
    // A project cannot widen its own sandbox.
    fs::remove_file(env.path("user/.ai/config/agent/sandbox.yaml")).unwrap();
    env.write("project/.ai/config/agent/sandbox.yaml", &policy);
    assert!(!env.run(&args).status.success());
}

#[test]
fn workspace_that_contains_the_home_directory_is_refused() {
    let env = TestEnv::new();
    let home = env.path("user");
    let output = env.run(&[
        "sandbox",
        "run",
        "--workspace",
        home.to_str().unwrap(),
        "--",
        "true",
    ]);
    assert_eq!(output.status.code(), Some(1));
}
