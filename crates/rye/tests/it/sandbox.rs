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
    assert_eq!(json(&output)["review_error"], serde_json::Value::Null);
    let state = fs::read_dir(env.path("user/.local/state/rye")).unwrap();
    assert_eq!(state.count(), 0, "nothing is left behind");
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

/// A project and a user with a key.
fn env_with_key() -> TestEnv {
    let env = TestEnv::new();
    assert!(env.run(&["keys", "generate"]).status.success());
    env
}

/// Signs a tool of bash with these header lines.
fn tool(env: &TestEnv, id: &str, header: &str, script: &str) {
    let text = format!(
        "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\n{header}\n{script}\n"
    );
    env.write(&format!("project/.ai/tools/{id}.sh"), &text);
    let output = env.run(&["sign", id]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn declared_tool_is_confined_to_what_it_declares() {
    let env = env_with_key();
    env.write("outside", "secret");
    env.write("project/file", "text");
    fs::create_dir_all(env.path("tmp")).unwrap();
    let script = "for attempt in 'echo x > new' 'cat file' 'cat ../outside' 'ls /var' \
                  'echo x > .ai/x' 'echo x > $TMPDIR/x'; do \
                  if (eval \"$attempt\") > /dev/null 2>&1; then echo \"$attempt\"; fi; done";
    for (id, header, expected) in [
        (
            "free",
            "#",
            "echo x > new\ncat file\ncat ../outside\nls /var\necho x > .ai/x\necho x > $TMPDIR/x\n",
        ),
        (
            "workspace",
            "# sandbox: confined",
            "echo x > new\ncat file\necho x > $TMPDIR/x\n",
        ),
        (
            "read_only",
            "# sandbox: {filesystem: read_only, network: none}",
            "cat file\necho x > $TMPDIR/x\n",
        ),
        (
            "none",
            "# sandbox: {filesystem: none}",
            "echo x > new\necho x > $TMPDIR/x\n",
        ),
    ] {
        let _ = fs::remove_file(env.path("project/new"));
        tool(&env, id, header, script);
        let mut command = env.command();
        let output = command
            .args(["execute", id, "--json"])
            .env("TMPDIR", env.path("tmp"));
        let result = json(&output.output().unwrap());
        assert_eq!(result["data"]["stdout"], expected, "{id}: {result}");
        let is_writable = id == "free" || id == "workspace";
        assert_eq!(env.path("project/new").exists(), is_writable, "{id}");
        if id != "free" {
            let sandbox = &result["metadata"]["sandbox"];
            assert_eq!(sandbox["tier"], "full", "{result}");
            assert!(sandbox["policy"].is_string(), "{result}");
        }
    }
}

#[test]
fn any_tool_that_runs_a_process_can_be_confined() {
    let env = env_with_key();
    env.write("outside", "secret");
    tool(&env, "peek", "#", "cat ../outside || echo hidden");
    let run = |options: &[&str]| {
        let args = [&["execute", "peek", "--json"], options].concat();
        json(&env.run(&args))
    };
    assert_eq!(run(&[])["data"]["stdout"], "secret");
    let confined = run(&["--sandbox", "confined"]);
    assert_eq!(confined["data"]["stdout"], "hidden\n", "{confined}");
    let dry = run(&["--sandbox", "confined", "--dry-run"]);
    assert_eq!(dry["metadata"]["sandbox"], confined["metadata"]["sandbox"]);
    let trace = env.run(&["execute", "--sandbox", "confined", "--trace", "peek"]);
    assert!(
        String::from_utf8_lossy(&trace.stderr).contains("tier full"),
        "{trace:?}"
    );

    env.write(
        "project/.ai/tools/fetch.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/primitives/http_client\n\
         config: {url: \"http://127.0.0.1:1/\"}\n",
    );
    assert!(env.run(&["sign", "fetch"]).status.success());
    let refused = env.run(&["execute", "--json", "--sandbox", "confined", "fetch"]);
    assert_eq!(json(&refused)["error"]["code"], "sandbox");
    let background = env.run(&["execute", "--sandbox", "confined", "--async", "peek"]);
    assert_eq!(background.status.code(), Some(2), "{background:?}");
}

#[test]
fn unknown_key_of_a_declaration_is_refused_when_it_is_signed() {
    let env = env_with_key();
    env.write(
        "project/.ai/tools/typo.py",
        "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/function\"\n\
         __sandbox__ = {\"file_system\": \"none\"}\ndef main():\n    pass\n",
    );
    let output = env.run(&["sign", "typo"]);
    assert!(!output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("file_system") && text.contains("3:"),
        "{text}"
    );
}

#[test]
fn confined_tool_gets_no_variables_that_load_code_into_the_launcher() {
    let env = env_with_key();
    env.write(
        "project/.ai/tools/preload.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/primitives/execute\nsandbox: confined\n\
         env_config: {env: {LD_TRACE_LOADED_OBJECTS: \"1\"}}\n\
         config: {command: /bin/sh, args: [-c, \"echo ran\"]}\n",
    );
    assert!(env.run(&["sign", "preload"]).status.success());
    let result = json(&env.run(&["execute", "--json", "preload"]));
    // The loader lists the libraries of the shell, not those of the launcher.
    let listed = result["data"]["stdout"].as_str().unwrap();
    assert!(
        listed.contains("libc") && !listed.contains("libgcc_s"),
        "{result}"
    );
}

#[test]
fn protected_file_that_a_tool_created_is_moved_away() {
    let env = env_with_key();
    tool(
        &env,
        "init",
        "# sandbox: confined",
        "mkdir -p sub/.git && echo done",
    );
    let result = json(&env.run(&["execute", "--json", "init"]));
    assert_eq!(
        result["metadata"]["quarantined"],
        serde_json::json!(["sub/.git"])
    );
    assert!(!env.path("project/sub/.git").exists());
    assert!(env.path("project/.rye-quarantine").exists());
}

#[test]
fn tool_that_cannot_be_confined_is_refused() {
    let env = TestEnv::new();
    let mut command = env.command();
    // A project that is the home directory.
    command.env("HOME", env.path("project"));
    command.args([
        "execute",
        "--json",
        "rye/bash/bash",
        "--command",
        "echo > ran",
    ]);
    let output = command.output().unwrap();
    assert_eq!(json(&output)["error"]["code"], "sandbox", "{output:?}");
    assert!(!env.path("project/ran").exists());
}

#[test]
fn agent_calls_a_confined_tool_of_high_risk_without_asking() {
    let env = env_with_key();
    let header = "# risk_level: high\n# sandbox: confined";
    tool(&env, "build", header, "echo ran >> ran");
    tool(
        &env,
        "asks",
        &format!("{header}\n# requires_approval: true"),
        "echo ran >> ran",
    );
    let call = |id: &str| {
        let args = serde_json::json!({ "tool_id": format!("rye:{id}"), "summary": "build" });
        let call = serde_json::json!({ "name": "call_tool", "args": args });
        let text = format!("steps:\n  - tool_calls: [{call}]\n  - text: done\n");
        env.write("project/script.yaml", &text);
    };
    let ran = || fs::read_to_string(env.path("project/ran")).unwrap_or_default();
    call("build");
    let output = prompt(&env, &["--sandbox", "confined", "--no-wait"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(ran(), "ran\n");
    // It would change the project, which an agent in memory cannot.
    let output = prompt(&env, &["--sandbox", "virtual", "--no-wait"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    call("asks");
    let output = prompt(&env, &["--sandbox", "confined", "--no-wait"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let gates = json(&env.run(&["gate", "list", "--json"]));
    let contexts = gates["gates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gate| &gate["context"]);
    let mut shown = contexts.map(|context| &context["sandbox"]["tier"]);
    assert!(shown.all(|tier| tier == "full"), "{gates}");
    assert_eq!(ran(), "ran\n");
}

#[test]
fn shipped_shell_tool_is_confined() {
    let env = TestEnv::new();
    env.write("outside", "secret");
    let command = "cat ../outside || echo hidden > made.txt";
    let output = env.run(&["execute", "--json", "rye/bash/bash", "--command", command]);
    let result = json(&output);
    assert_eq!(result["metadata"]["sandbox"]["tier"], "full", "{result}");
    assert_eq!(env.read("project/made.txt"), "hidden\n");
}
