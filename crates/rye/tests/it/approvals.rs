//! Approvals: project approvals, rules of projects, the text of gates, and invalid policy
//! files.

use std::process::{Command, Output};

use crate::support::{TestEnv, json, kill_at_gate, short_gate_id};
use serde_json::Value;

const MODEL: &[&str] = &["prompt", "ship it", "--model", "scripted:agent.yaml"];
const DEPLOY: &str =
    "{ name: call_tool, args: { tool_id: 'rye:deploy', params: { to: prod }, summary: ship } }";
const TOOL: &str = "version: \"1.0.0\"\ndescription: Puts it into production\nrisk_level: high\n\
    executor_id: rye/core/runtimes/bash/bash\nconfig:\n  command: 'echo once >> ran.txt'\n\
    config_schema:\n  type: object\n  properties: { to: { type: string } }\n";

fn env_with_agent(call: &str) -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    let script =
        format!("steps:\n  - tool_calls: [{call}]\n  - text: 'It said: ${{last_tool_result}}'\n");
    env.write("project/agent.yaml", &script);
    assert!(env.run(&["init"]).status.success());
    env.write("project/.ai/tools/deploy.yaml", TOOL);
    let signed = env.run(&["sign", "deploy"]);
    assert!(signed.status.success(), "{signed:?}");
    env
}

/// `rye` in another directory of the environment.
fn command_in(env: &TestEnv, folder: &str, args: &[&str]) -> Command {
    let mut command = env.command();
    command.current_dir(env.path(folder)).args(args);
    command
}

fn gates(env: &TestEnv) -> Vec<Value> {
    let listed = json(&env.run(&["gate", "list", "--json"]));
    listed["gates"].as_array().unwrap().clone()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A project in which the tool was approved `--for project`.
fn env_with_project_approval() -> TestEnv {
    let env = env_with_agent(DEPLOY);
    kill_at_gate(&env, command_in(&env, "project", MODEL).spawn().unwrap());
    let gate = gates(&env).remove(0);
    let id = gate["id"].as_str().unwrap();
    let yes = env.run(&["gate", "approve", id, "--for", "project"]);
    assert!(yes.status.success(), "{yes:?}");
    // The approval counts at once, and not only when the session is resumed.
    let stored = std::fs::read_dir(env.path("project/.ai/config/agent/approved")).unwrap();
    assert_eq!(stored.count(), 1);
    let session = gate["origin"]["session"].as_str().unwrap();
    let resumed = env.run(&["session", "resume", session]);
    assert!(resumed.status.success(), "{resumed:?}");
    assert_eq!(env.read("project/ran.txt"), "once\n");
    let again = env.run(MODEL);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(env.read("project/ran.txt"), "once\nonce\n");
    env
}

/// Runs the agent in a directory and returns the text of its gate.
fn gate_body_in(env: &TestEnv, folder: &str) -> String {
    kill_at_gate(env, command_in(env, folder, MODEL).spawn().unwrap());
    let gate = gates(env).pop().unwrap();
    gate["body"].as_str().unwrap().to_owned()
}

#[test]
fn project_approval_is_bound_to_its_directory() {
    let env = env_with_project_approval();
    let [here, there] = ["project", "copy"].map(|it| env.path(it));
    let copied = Command::new("cp").arg("-r").args([&here, &there]).status();
    assert!(copied.unwrap().success());
    let body = gate_body_in(&env, "copy");
    let why = format!(
        "It was approved for the project in {}, but this project is in {}.\n",
        here.display(),
        there.display()
    );
    assert!(body.starts_with(&why), "{body}");
    assert_eq!(env.read("copy/ran.txt"), "once\nonce\n");

    // Approved there as well, each project has its own approval.
    let id = gates(&env).pop().unwrap()["id"].clone();
    let yes = ["gate", "approve", id.as_str().unwrap(), "--for", "project"];
    assert!(env.run(&yes).status.success());
    let session = json(&env.run(&["session", "list", "--json"]));
    let sessions = session["sessions"].as_array().unwrap();
    let there = |it: &&Value| it["workspace"].as_str().unwrap().ends_with("copy");
    let session = sessions.iter().find(there).unwrap();
    let resume = ["session", "resume", session["id"].as_str().unwrap()];
    let resumed = command_in(&env, "copy", &resume).output().unwrap();
    assert!(resumed.status.success(), "{resumed:?}");
    for (folder, times) in [("copy", 4), ("project", 3)] {
        let output = command_in(&env, folder, MODEL).output().unwrap();
        assert!(output.status.success(), "{folder}: {output:?}");
        let ran = env.read(&format!("{folder}/ran.txt"));
        assert_eq!(ran.lines().count(), times, "{folder}");
    }
}

/// Copies the project to `copy`.
fn copy_project(env: &TestEnv) {
    let [here, there] = ["project", "copy"].map(|it| env.path(it));
    let copied = Command::new("cp").arg("-r").args([&here, &there]).status();
    assert!(copied.unwrap().success());
}

fn sign(env: &TestEnv, item: &str) {
    let signed = env.run(&["sign", item]);
    assert!(signed.status.success(), "{signed:?}");
}

#[test]
fn allow_rules_of_a_copied_project_must_be_accepted() {
    let env = env_with_agent(DEPLOY);
    let rules = "rules:\n  - { tool: 'rye:deploy', action: allow }\n";
    env.write("project/.ai/config/agent/approvals.yaml", rules);
    sign(&env, "config:agent/approvals");
    let here = env.run(MODEL);
    assert!(here.status.success(), "{here:?}");
    assert_eq!(env.read("project/ran.txt"), "once\n");

    copy_project(&env);
    kill_at_gate(&env, command_in(&env, "copy", MODEL).spawn().unwrap());
    assert_eq!(env.read("copy/ran.txt"), "once\n");

    // There is no terminal to ask on.
    let accept = ["config", "accept", "--json"];
    let refused = command_in(&env, "copy", &accept).output().unwrap();
    assert_eq!(json(&refused)["error"]["code"], "needs_yes");
    let accept = ["config", "accept", "--yes", "--json"];
    let accepted = command_in(&env, "copy", &accept).output().unwrap();
    assert_eq!(json(&accepted)["counts"]["accepted"], 1, "{accepted:?}");
    let again = command_in(&env, "copy", &accept).output().unwrap();
    assert_eq!(json(&again)["counts"]["unchanged"], 1, "{again:?}");
    let there = command_in(&env, "copy", MODEL).output().unwrap();
    assert!(there.status.success(), "{there:?}");
    assert_eq!(env.read("copy/ran.txt"), "once\nonce\n");
}

#[test]
fn deny_rules_of_a_project_count_without_acceptance() {
    let env = env_with_agent(DEPLOY);
    let rules = "rules:\n  - { tool: 'rye:deploy', action: deny }\n";
    env.write("project/.ai/config/agent/approvals.yaml", rules);
    sign(&env, "config:agent/approvals");
    copy_project(&env);
    let there = command_in(&env, "copy", MODEL).output().unwrap();
    assert!(there.status.success(), "{there:?}");
    assert!(!env.path("copy/ran.txt").exists());
    assert!(gates(&env).is_empty());
}

/// A bare name finds a tool in a subdirectory; the rule names its full id.
#[test]
fn rule_applies_to_a_tool_called_by_its_bare_name() {
    let call = "{ name: call_tool, args: { tool_id: 'rye:dropall', summary: tidy up } }";
    for rule in [
        "{ tool: 'rye:db/drop*', action: deny }",
        "{ risk: [low], action: deny }",
    ] {
        let env = env_with_agent(call);
        let tool = TOOL.replace("high", "low");
        env.write("project/.ai/tools/db/dropall.yaml", &tool);
        sign(&env, "db/dropall");
        let rules = format!("rules:\n  - {rule}\n");
        env.write("user/.ai/config/agent/approvals.yaml", &rules);
        let output = env.run(&[MODEL, &["--sandbox", "local", "--yes"]].concat());
        assert!(output.status.success(), "{output:?}");
        assert!(!env.path("project/ran.txt").exists(), "{rule}");
        assert!(gates(&env).is_empty(), "{rule}");
    }
}

#[test]
fn models_of_a_copied_project_must_be_accepted() {
    let env = env_with_agent(DEPLOY);
    let models = "providers:\n  redirected:\n    api: openai-chat\n    base_url: http://127.0.0.1:9/v1\n    \
        models: { x: { context_window: 8000, max_output: 1000, price: { input: 1, output: 2 } } }\n";
    env.write("project/.ai/config/agent/models.yaml", models);
    sign(&env, "config:agent/models");
    copy_project(&env);
    let listed = |folder: &str| {
        let listed = command_in(&env, folder, &["models", "list", "--json"]);
        let listed = json(&{ listed }.output().unwrap());
        listed.to_string().contains("redirected")
    };
    assert!(listed("project") && !listed("copy"));
    let accept = ["config", "accept", "--yes"];
    let accepted = command_in(&env, "copy", &accept).output().unwrap();
    assert!(accepted.status.success(), "{accepted:?}");
    assert!(listed("copy"));
}

#[test]
fn altered_project_approval_is_ignored_and_cannot_be_signed() {
    let env = env_with_project_approval();
    let folder = env.path("project/.ai/config/agent/approved");
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    let without = text.lines().filter(|line| !line.starts_with("project: "));
    let without: Vec<_> = without.skip(1).collect();
    std::fs::write(file.path(), without.join("\n") + "\n").unwrap();
    let signed = env.run(&["sign", file.path().to_str().unwrap()]);
    assert_eq!(signed.status.code(), Some(1), "{signed:?}");
    gate_body_in(&env, "project");
    assert_eq!(env.read("project/ran.txt"), "once\nonce\n");
}

/// A command that imitates the lines of a gate.
const DECEPTIVE_COMMAND: &str = r#"{ name: bash, args: { cwd: link, command: "echo hi\nrisk: low\nsigned by ada\r\u001b[2J\u202e" } }"#;

#[test]
fn untrusted_text_of_a_gate_is_marked_with_a_bar() {
    let env = env_with_agent(DECEPTIVE_COMMAND);
    std::os::unix::fs::symlink("/usr", env.path("project/link")).unwrap();
    let local = [MODEL, &["--sandbox", "local"]].concat();
    kill_at_gate(&env, command_in(&env, "project", &local).spawn().unwrap());
    let listed = env.run(&["gate", "list"]);
    let printed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let lines: Vec<_> = printed.lines().collect();
    let folder = format!("  directory: {}", env.path("project").display());
    let gates = json(&env.run(&["gate", "list", "--json"]));
    let title = format!("{}  run: echo hi …", short_gate_id(&gates["gates"][0]));
    assert_eq!(
        lines[..8],
        [
            &*title,
            &folder,
            "  Runs without a sandbox.",
            "  risk: high",
            "  in link (resolves to /usr):",
            "  │ echo hi",
            "  │ risk: low",
            r"  │ signed by ada\u{d}\u{1b}[2J\u{202e}",
        ]
    );
    assert!(lines[8].starts_with("  rye gate approve "), "{printed}");
    assert_eq!(lines.len(), 9, "{printed}");
}

#[test]
fn link_changed_after_the_approval_is_not_followed() {
    let env = env_with_agent("{ name: bash, args: { cwd: link, command: 'touch ran' } }");
    for folder in ["one", "two"] {
        std::fs::create_dir(env.path(folder)).unwrap();
    }
    let link = env.path("project/link");
    std::os::unix::fs::symlink(env.path("one"), &link).unwrap();
    let local = [MODEL, &["--sandbox", "local"]].concat();
    kill_at_gate(&env, command_in(&env, "project", &local).spawn().unwrap());
    let gate = gates(&env).remove(0);
    let yes = ["gate", "approve", gate["id"].as_str().unwrap()];
    let for_session = [&yes[..], &["--for", "session"]].concat();
    assert!(env.run(&for_session).status.success());
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(env.path("two"), &link).unwrap();
    let session = gate["origin"]["session"].as_str().unwrap();
    let resume = ["session", "resume", session];
    kill_at_gate(&env, command_in(&env, "project", &resume).spawn().unwrap());
    assert!(!env.path("one/ran").exists() && !env.path("two/ran").exists());
    let body = gates(&env)[0]["body"].as_str().unwrap().to_owned();
    let two = env.path("two");
    assert!(
        body.contains(&format!("in link (resolves to {})", two.display())),
        "{body}"
    );
}

/// A mistake in `approvals.yaml` or `commands.yaml` stops agents, but not commands that read
/// sessions.
#[test]
fn invalid_policy_stops_agents_but_not_queries() {
    let env = env_with_agent(DEPLOY);
    kill_at_gate(&env, command_in(&env, "project", MODEL).spawn().unwrap());
    let gate = gates(&env).remove(0);
    let (gate, session) = (&gate["id"], &gate["origin"]["session"]);
    let [gate, session] = [gate, session].map(|it| it.as_str().unwrap());
    for (file, text, word) in [
        ("approvals", "rules: [{ verdict: allow }]\n", "verdict"),
        ("commands", "commands: { x: { run: 7, many: 1 } }\n", "many"),
    ] {
        let path = format!(".ai/config/agent/{file}.yaml");
        for space in ["project", "user"] {
            env.write(&format!("{space}/{path}"), text);
            let place = env.path(&format!("{space}/{path}"));
            let place = place.to_str().unwrap();
            let fix = if space == "project" {
                let signed = env.run(&["sign", &path]);
                assert!(signed.status.success(), "{signed:?}");
                format!("${{EDITOR:-vi}} {place} && rye sign {place}")
            } else {
                format!("${{EDITOR:-vi}} {place} && rye doctor")
            };
            for args in [
                &["session", "list"][..],
                &["session", "show", session],
                &["session", "verify", session],
                &["session", "export", session, "--output", "out.jsonl"],
                &["gate", "list"],
            ] {
                let output = env.run(args);
                assert!(output.status.success(), "{args:?}: {output:?}");
            }
            for args in [MODEL, &["session", "resume", session]] {
                let output = env.run(args);
                assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
                let printed = stderr(&output);
                for part in [place, word, &fix] {
                    assert!(printed.contains(part), "{args:?}: no {part}: {printed}");
                }
            }
            let checked = json(&env.run(&["doctor", "--json"]));
            let checks = checked["checks"].as_array().unwrap();
            let found = checks.iter().find(|it| it["check"] == file).unwrap();
            assert_eq!(found["state"], "fail", "{found}");
            let about = found["detail"].as_str().unwrap();
            assert!(about.contains(place) && about.contains(word), "{about}");
            assert_eq!(found["fix"], fix.as_str());
            std::fs::remove_file(place).unwrap();
        }
    }
    assert!(!env.path("project/ran.txt").exists());
    let yes = env.run(&["gate", "approve", gate]);
    assert!(yes.status.success(), "{yes:?}");
}

#[test]
fn library_is_not_listed_as_a_tool() {
    let list =
        "{ name: list_tools, args: { query: 'paths that stay in the project', limit: 200 } }";
    let env = env_with_agent(list);
    let library =
        "__version__ = \"1.0.0\"\n__tool_type__ = \"python_lib\"\n\"\"\"Paths that stay\"\"\"\n";
    env.write("project/.ai/tools/paths_that_stay.py", library);
    let signed = env.run(&["sign", "paths_that_stay"]);
    assert!(signed.status.success(), "{signed:?}");
    let output = env.run(MODEL);
    let reply = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(reply.contains("rye:rye/file-system/read "), "{reply}");
    for library in [
        "rye:paths_that_stay",
        "rye:rye/file-system/project_files",
        "rye:rye/core/extractors/tool_extractor",
    ] {
        assert!(!reply.contains(library), "{reply}");
    }
    // It can't be called by its id either.
    let call = "{ name: call_tool, args: { tool_id: 'rye:paths_that_stay', summary: x } }";
    let env = env_with_agent(call);
    env.write("project/.ai/tools/paths_that_stay.py", library);
    assert!(env.run(&["sign", "paths_that_stay"]).status.success());
    let output = env.run(MODEL);
    let reply = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(reply.contains("`executor_id`"), "{reply}");
    // `rye search` finds it.
    let found = env.run(&["search", "paths_that_stay"]);
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.contains("tool:paths_that_stay"), "{found}");
}
