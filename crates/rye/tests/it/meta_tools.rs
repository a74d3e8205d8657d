//! `list_tools` and `call_tool`: agents find and call signed items, whose approval is bound to
//! their bytes.

use std::io::BufReader;
use std::process::{Child, Output};

use crate::support::{TestEnv, json, wait_for_gate};
use serde_json::Value;

const MODEL: &[&str] = &["prompt", "ship it", "--model", "scripted:agent.yaml"];

/// A tool that writes to `ran.txt`, run by a runtime of the project.
fn tool(text: &str) -> String {
    format!(
        "version: \"1.0.0\"\ndescription: Puts it into production\nrisk_level: high\n\
         executor_id: {RUNTIME}\nconfig:\n  command: 'echo {text} >> ran.txt; cat ran.txt'\n\
         config_schema:\n  type: object\n  properties: {{ to: {{ type: string }} }}\n  \
         additionalProperties: false\n"
    )
}

const RUNTIME: &str = "rye/core/runtimes/bash/bash";

fn env_with_agent(call: &str) -> TestEnv {
    let mut env = TestEnv::new();
    env.set("USER", "ada");
    let script =
        format!("steps:\n  - tool_calls: [{call}]\n  - text: 'It said: ${{last_tool_result}}'\n");
    env.write("project/agent.yaml", &script);
    assert!(env.run(&["init"]).status.success());
    env.write("project/.ai/tools/deploy.yaml", &tool("once"));
    // The project has its own copy of the runtime.
    let copied = env.run(&["load", RUNTIME, "--to", "project"]);
    assert!(copied.status.success(), "{copied:?}");
    sign(&env);
    env
}

fn sign(env: &TestEnv) {
    let output = env.run(&["sign", "deploy"]);
    assert!(output.status.success(), "{output:?}");
}

const DEPLOY: &str =
    "{ name: call_tool, args: { tool_id: 'rye:deploy', params: { to: prod }, summary: ship } }";

fn stdout_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn run_count(env: &TestEnv) -> usize {
    let text = std::fs::read_to_string(env.path("project/ran.txt")).unwrap_or_default();
    text.lines().count()
}

fn gates(env: &TestEnv) -> Vec<Value> {
    let listed = json(&env.run(&["gate", "list", "--json"]));
    listed["gates"].as_array().unwrap().clone()
}

/// A `rye prompt` that waits at a gate, killed on drop.
struct WaitingPrompt(Child);

impl WaitingPrompt {
    fn start(env: &TestEnv, args: &[&str]) -> Self {
        let mut child = env.command().args(args).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        wait_for_gate(env, &mut errors);
        Self(child)
    }
}

impl Drop for WaitingPrompt {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Warnings are for people at a terminal.
#[test]
fn development_mode_does_not_let_agents_run_unverified_items() {
    let mut env = env_with_agent(DEPLOY);
    env.set("RYE_DEV_MODE", "1");
    let low = tool("twice").replace("risk_level: high", "risk_level: low");
    env.write("project/.ai/tools/deploy.yaml", &low);
    let output = env.run(&[MODEL, &["--yes"]].concat());
    let printed = stdout_text(&output);
    assert!(printed.contains("cannot be trusted"), "{output:?}");
    assert_eq!(run_count(&env), 0);
    // A person's own call runs with a warning.
    let output = env.run(&["execute", "deploy"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(run_count(&env), 1);
}

#[test]
fn items_are_found_by_their_description() {
    let env = env_with_agent("{ name: list_tools, args: { query: production } }");
    let output = env.run(MODEL);
    assert!(
        stdout_text(&output).contains(
            "rye:deploy [high]: Puts it into production\n  \
             {\"type\":\"object\",\"properties\":{\"to\":"
        ),
        "{output:?}"
    );
}

#[test]
fn call_approved_after_a_kill_runs_once() {
    let env = env_with_agent(DEPLOY);
    drop(WaitingPrompt::start(&env, MODEL));
    let gate = gates(&env).remove(0);
    let body = gate["body"].as_str().unwrap();
    for shown in [
        "risk: high",
        "runs: deploy ",
        "runs: rye/core/runtimes/bash/bash ",
        "signed by",
        "\"to\": \"prod\"",
    ] {
        assert!(body.contains(shown), "{shown} is not shown: {body}");
    }
    let id = gate["id"].as_str().unwrap();
    let session = gate["origin"]["session"].as_str().unwrap();
    assert!(env.run(&["gate", "approve", id]).status.success());
    assert_eq!(run_count(&env), 0);
    let output = env.run(&["session", "resume", session]);
    assert!(stdout_text(&output).contains("It said: "), "{output:?}");
    assert_eq!(run_count(&env), 1);
    let verified = json(&env.run(&["session", "verify", session, "--json"]));
    assert_eq!(verified["sessions"][0]["receipts"], 1);
    assert_eq!(verified["sessions"][0]["findings"], serde_json::json!([]));
}

/// Approves a call, then makes a change before it runs.
fn approve_then_change(change: impl Fn(&TestEnv)) -> (TestEnv, String) {
    let env = env_with_agent(DEPLOY);
    drop(WaitingPrompt::start(&env, MODEL));
    let gate = gates(&env).remove(0);
    assert!(
        env.run(&["gate", "approve", gate["id"].as_str().unwrap()])
            .status
            .success()
    );
    change(&env);
    let session = gate["origin"]["session"].as_str().unwrap().to_owned();
    (env, session)
}

#[test]
fn changed_tool_needs_another_approval() {
    let (env, session) = approve_then_change(|env| {
        env.write("project/.ai/tools/deploy.yaml", &tool("twice"));
        sign(env);
    });
    drop(WaitingPrompt::start(&env, &["session", "resume", &session]));
    assert_eq!(run_count(&env), 0);
    let gate = gates(&env).remove(0);
    let body = gate["body"].as_str().unwrap();
    assert!(
        body.starts_with("Changed since the approval:\n- deploy changed from "),
        "{body}"
    );
    assert!(!body.contains("- rye/"), "{body}");
    assert!(
        env.run(&["gate", "approve", gate["id"].as_str().unwrap()])
            .status
            .success()
    );
    env.run(&["session", "resume", &session]);
    assert_eq!(run_count(&env), 1);
    assert!(env.run(&["session", "verify", &session]).status.success());
}

/// The last decision counts, even if the files are back to what was approved.
#[test]
fn approval_is_void_after_a_newer_gate() {
    for answer in ["deny", "approve"] {
        let (env, session) = approve_then_change(|env| {
            env.write("project/.ai/tools/deploy.yaml", &tool("twice"));
            sign(env);
        });
        drop(WaitingPrompt::start(&env, &["session", "resume", &session]));
        let gate = gates(&env).remove(0);
        let decided = env.run(&["gate", answer, gate["id"].as_str().unwrap()]);
        assert!(decided.status.success(), "{decided:?}");
        env.write("project/.ai/tools/deploy.yaml", &tool("once"));
        sign(&env);
        if answer == "deny" {
            let output = env.run(&["session", "resume", &session]);
            assert!(stdout_text(&output).contains("denied by "), "{output:?}");
        } else {
            drop(WaitingPrompt::start(&env, &["session", "resume", &session]));
            let body = gates(&env).remove(0)["body"].as_str().unwrap().to_owned();
            assert!(body.starts_with("Changed since the approval"), "{body}");
        }
        assert_eq!(run_count(&env), 0, "{answer}");
        let verified = env.run(&["session", "verify", &session]);
        assert!(verified.status.success(), "{answer}: {verified:?}");
    }
}

#[test]
fn changed_runtime_needs_another_approval() {
    let (env, session) = approve_then_change(|env| {
        let path = format!("project/.ai/tools/{RUNTIME}.yaml");
        let other = format!("{}# And more.\n", env.read(&path));
        env.write(&path, &other);
        let signed = env.run(&["sign", RUNTIME]);
        assert!(signed.status.success(), "{signed:?}");
    });
    drop(WaitingPrompt::start(&env, &["session", "resume", &session]));
    assert_eq!(run_count(&env), 0);
    let body = gates(&env).remove(0)["body"].as_str().unwrap().to_owned();
    assert!(
        body.contains("- rye/core/runtimes/bash/bash changed from "),
        "{body}"
    );
    assert!(!body.contains("- deploy "), "{body}");
}

#[test]
fn changed_dependency_needs_another_approval() {
    let env = env_with_agent("{ name: call_tool, args: { tool_id: 'rye:pay/pay', summary: pay } }");
    let pay = "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/script\"\n\
               __risk_level__ = \"high\"\nfrom helper import act\nact()\n";
    let helper = |text: &str| {
        let code = format!("def act():\n    open('ran.txt', 'a').write('{text}\\n')\n");
        env.write("project/.ai/tools/pay/helper.py", &code);
        assert!(env.run(&["sign", "--all"]).status.success());
    };
    env.write("project/.ai/tools/pay/__init__.py", "");
    env.write("project/.ai/tools/pay/pay.py", pay);
    helper("honest");
    drop(WaitingPrompt::start(&env, MODEL));
    let gate = gates(&env).remove(0);
    let body = gate["body"].as_str().unwrap();
    assert!(body.contains("runs: 2 dependency files "), "{body}");
    let approve = |gate: &Value| {
        let approved = env.run(&["gate", "approve", gate["id"].as_str().unwrap()]);
        assert!(approved.status.success(), "{approved:?}");
    };
    approve(&gate);
    helper("other");
    let session = gate["origin"]["session"].as_str().unwrap();
    drop(WaitingPrompt::start(&env, &["session", "resume", session]));
    assert_eq!(run_count(&env), 0);
    let gate = gates(&env).remove(0);
    let body = gate["body"].as_str().unwrap();
    assert!(
        body.contains("- 2 dependency files changed from "),
        "{body}"
    );
    approve(&gate);
    let resumed = env.run(&["session", "resume", session]);
    assert_eq!(run_count(&env), 1, "{resumed:?}");
    let verified = env.run(&["session", "verify", session]);
    assert!(verified.status.success(), "{verified:?}");
}

#[test]
fn changed_arguments_need_another_approval() {
    let (env, session) = approve_then_change(|env| {
        let database = env.path("user/.local/state/rye/sessions.db");
        let db = rusqlite::Connection::open(database).unwrap();
        let text =
            "UPDATE engine_log SET doc = replace(doc, '\"prod\"', '\"moon\"') WHERE kind = 'entry'";
        assert!(db.execute(text, []).unwrap() > 0);
    });
    drop(WaitingPrompt::start(&env, &["session", "resume", &session]));
    assert_eq!(run_count(&env), 0);
    let body = gates(&env).remove(0)["body"].as_str().unwrap().to_owned();
    assert!(body.contains("- the arguments changed"), "{body}");
    let verified = env.run(&["session", "verify", &session]);
    assert_eq!(verified.status.code(), Some(3), "and the record tells");
}

#[test]
fn tool_changed_without_a_signature_is_refused() {
    let (env, session) = approve_then_change(|env| {
        let text = env
            .read("project/.ai/tools/deploy.yaml")
            .replace("once", "more");
        env.write("project/.ai/tools/deploy.yaml", &text);
    });
    let output = env.run(&["session", "resume", &session]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(run_count(&env), 0);
    assert!(gates(&env).is_empty());
    assert!(
        stdout_text(&output).contains("content does not match its signature"),
        "the model is told: {output:?}"
    );
}

#[test]
fn denied_call_does_not_run() {
    let env = env_with_agent(DEPLOY);
    drop(WaitingPrompt::start(&env, MODEL));
    let gate = gates(&env).remove(0);
    assert!(
        env.run(&["gate", "deny", gate["id"].as_str().unwrap()])
            .status
            .success()
    );
    let session = gate["origin"]["session"].as_str().unwrap();
    let output = env.run(&["session", "resume", session]);
    assert!(stdout_text(&output).contains("denied by "), "{output:?}");
    assert_eq!(run_count(&env), 0);
}

#[test]
fn rules_allow_and_deny() {
    for (action, count, word) in [("allow", 1, "once"), ("deny", 0, "denied by the policy")] {
        let env = env_with_agent(DEPLOY);
        let rules = format!("rules:\n  - {{ tool: 'rye:dep*', action: {action} }}\n");
        env.write("user/.ai/config/agent/approvals.yaml", &rules);
        // `--yes` doesn't override `deny`.
        let mut args = MODEL.to_vec();
        args.push("--yes");
        let output = env.run(&args);
        assert!(stdout_text(&output).contains(word), "{action}: {output:?}");
        assert_eq!(run_count(&env), count, "{action}");
    }
    let env = env_with_agent(DEPLOY);
    env.write(
        "user/.ai/config/agent/approvals.yaml",
        "rules: [{ verdict: allow }]\n",
    );
    let output = env.run(MODEL);
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        printed.contains("approvals.yaml") && printed.contains("verdict"),
        "{printed}"
    );
}

#[test]
fn project_approval_is_valid_until_the_tool_changes() {
    let env = env_with_agent(DEPLOY);
    drop(WaitingPrompt::start(&env, MODEL));
    let gate = gates(&env).remove(0);
    let id = gate["id"].as_str().unwrap();
    assert!(
        env.run(&["gate", "approve", id, "--for", "project"])
            .status
            .success()
    );
    env.run(&[
        "session",
        "resume",
        gate["origin"]["session"].as_str().unwrap(),
    ]);
    assert_eq!(run_count(&env), 1);
    let again = env.run(MODEL);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(run_count(&env), 2);
    env.write("project/.ai/tools/deploy.yaml", &tool("twice"));
    sign(&env);
    drop(WaitingPrompt::start(&env, MODEL));
    assert_eq!(run_count(&env), 2);
}

#[test]
fn session_approval_covers_further_calls() {
    let twice = format!("{DEPLOY}]\n  - tool_calls: [{DEPLOY}");
    let env = env_with_agent(&twice);
    drop(WaitingPrompt::start(&env, MODEL));
    let gate = gates(&env).remove(0);
    let id = gate["id"].as_str().unwrap();
    assert!(
        env.run(&["gate", "approve", id, "--for", "session"])
            .status
            .success()
    );
    let session = gate["origin"]["session"].as_str().unwrap();
    let output = env.run(&["session", "resume", session]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(run_count(&env), 2);
    // Another session needs its own approval.
    drop(WaitingPrompt::start(&env, MODEL));
}

#[test]
fn invalid_calls_are_reported_to_the_model() {
    let table = [
        (
            "tool_id: 'rye:nothing', summary: x",
            "tool:nothing not found",
        ),
        (
            "tool_id: nothing, summary: x",
            "unknown tool `nothing`: use an id that `list_tools` returns, such as `rye:nothing`",
        ),
        ("tool_id: 'tool:deploy', summary: x", "such as `rye:deploy`"),
        (
            "tool_id: 'web:get', summary: x",
            "unknown tool `web:get`: use an id that `list_tools` returns; they start with one of \
             the services rye",
        ),
        (
            "tool_id: 'rye:deploy', params: { to: 7 }, summary: x",
            "/to: 7 is not of type",
        ),
        ("tool_id: 'rye:../x', summary: x", ".."),
    ];
    for (args, word) in table {
        let env = env_with_agent(&format!("{{ name: call_tool, args: {{ {args} }} }}"));
        let output = env.run(MODEL);
        assert!(output.status.success(), "{output:?}");
        assert!(stdout_text(&output).contains(word), "{args}: {output:?}");
        assert_eq!(run_count(&env), 0);
    }
}
