//! Permissions of built-in tools in the local sandbox, and approval of host tools.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use lillux::path_policy::ProtectedPaths;
use lillux::process::Supervisor;
use rye_engine::BoxFuture;
use rye_engine::arguments::is_editable;
use rye_engine::policy::{Mode, Policy, Risk, Rule};
use rye_engine::protocol::{EventKind, Gate, TurnEnd};
use rye_engine::tool::{ApprovalRequirement, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{DecideError, Decision, Engine, NewSession, Session};
use rye_model::{Catalogue, Script, Step};
use rye_sandbox::{LocalSandbox, VirtualSandbox};
use rye_store::MemoryStore;
use serde_json::{Value, json};
use tempfile::TempDir;

struct TestEnv {
    dir: TempDir,
    workspace: PathBuf,
}

impl TestEnv {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("workspace");
        fs::create_dir_all(workspace.join(".git/hooks")).unwrap();
        fs::create_dir(workspace.join(".ai")).unwrap();
        fs::create_dir_all(dir.path().join("user/.keys")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        let links = [
            (dir.path().join("outside"), "link"),
            (dir.path().join("outside/new.txt"), "nowhere"),
            (workspace.join("nowhere"), "twice"),
            (PathBuf::from(".git"), "innocent"),
        ];
        for (target, name) in links {
            std::os::unix::fs::symlink(target, workspace.join(name)).unwrap();
        }
        fs::write(workspace.join("there.txt"), "one\n").unwrap();
        Self { dir, workspace }
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("user")
    }

    fn sandbox(&self, supervisor: Supervisor) -> LocalSandbox {
        let protected = ProtectedPaths {
            private: vec![self.home().join(".keys")],
            homes: vec![self.home()],
        };
        let local = LocalSandbox::new(&self.workspace, supervisor).unwrap();
        local.protected(protected, &self.workspace)
    }

    /// Has an agent write a file. Returns whether a gate was opened, and whether the file exists.
    async fn write(&self, path: &str, answer: &'static str, rules: Vec<Rule>) -> (bool, bool) {
        let args = json!({ "path": path, "content": "two\n" });
        let script = Script::new([Step::call("write", args), Step::text("done")]);
        let supervisor = Supervisor::start().unwrap();
        let policy = Policy {
            rules,
            ..Policy::default()
        };
        let engine = Engine::builder()
            .store(MemoryStore::new())
            .models(Catalogue::new(".").with("scripted:test", script))
            .sandbox(Arc::new(self.sandbox(supervisor)))
            .tools(rye_tools::tools())
            .policy(policy)
            .build()
            .unwrap();
        let mut feed = engine.feed();
        let session = engine.create_session(NewSession::default()).await.unwrap();
        let prompt = session.prompt("go").await.unwrap();
        let asked = std::cell::Cell::new(false);
        let gates = async {
            while let Ok(Some(notice)) = feed.next().await {
                if let EventKind::DecisionGate { gate } = notice.event.kind {
                    assert!(gate.context.contains_key("args_hash"));
                    asked.set(true);
                    let decision = Decision::new(answer, "ada", "test");
                    engine.decide(&gate.id, decision).await.unwrap();
                }
            }
        };
        tokio::select! {
            answer = session.wait_for_answer(&prompt) => { answer.unwrap(); }
            () = gates => unreachable!("the engine is gone"),
        }
        let there = fs::read_to_string(self.workspace.join(path));
        (asked.get(), there.is_ok_and(|text| text == "two\n"))
    }
}

fn rule(tool: &str, action: Mode) -> Vec<Rule> {
    vec![Rule {
        tool: Some(tool.to_owned()),
        action,
        ..Rule::default()
    }]
}

#[tokio::test]
async fn writes_outside_of_the_workspace_need_approval() {
    let outside = |env: &TestEnv| env.dir.path().join("outside/x").display().to_string();
    let inside = |env: &TestEnv| env.workspace.join("a/b.txt").display().to_string();
    let absolute = TestEnv::new();
    let table = [
        ("there.txt".to_owned(), false),
        ("new/dir/file.txt".to_owned(), false),
        ("new/../file.txt".to_owned(), false),
        (inside(&absolute), false),
        (outside(&absolute), true),
        ("../outside.txt".to_owned(), true),
        ("a/../../outside.txt".to_owned(), true),
        ("link/file.txt".to_owned(), true),
        ("nowhere".to_owned(), true),
        ("twice".to_owned(), true),
        (".git/hooks/pre-commit".to_owned(), true),
        ("innocent/hooks/pre-push".to_owned(), true),
        ("sub/.ai/tools/x.yaml".to_owned(), true),
        (".GIT/config".to_owned(), true),
        (".venv/bin/python".to_owned(), true),
        ("lib/site-packages/x.pth".to_owned(), true),
        ("node_modules/x/index.js".to_owned(), true),
        ("src/__pycache__/x.pyc".to_owned(), true),
        (".env".to_owned(), true),
        (".env.local".to_owned(), true),
        (".envrc".to_owned(), true),
        (".vscode/tasks.json".to_owned(), true),
        (".claude/settings.json".to_owned(), true),
        (".husky/pre-commit".to_owned(), true),
    ];
    for (path, asks) in table {
        let (asked, written) = absolute.write(&path, "approve", Vec::new()).await;
        assert_eq!(asked, asks, "{path}");
        assert!(written || path.contains("../"), "{path}");
    }
}

#[tokio::test]
async fn denied_write_does_not_happen() {
    let env = TestEnv::new();
    for path in ["../outside.txt", "nowhere", ".git/config"] {
        assert_eq!(env.write(path, "deny", Vec::new()).await, (true, false));
    }
    assert!(!env.dir.path().join("outside.txt").exists());
}

#[tokio::test]
async fn rules_cannot_allow_writes_outside_of_the_workspace() {
    let env = TestEnv::new();
    let allow = || rule("builtin:*", Mode::Allow);
    assert_eq!(env.write(".git/x", "deny", allow()).await, (false, true));
    assert_eq!(env.write("../x", "deny", allow()).await, (true, false));
    let ask = rule("builtin:write", Mode::Ask);
    assert_eq!(env.write("a.txt", "approve", ask).await, (true, true));
    let deny = rule("builtin:write", Mode::Deny);
    assert_eq!(env.write("b.txt", "approve", deny).await, (false, false));
}

#[tokio::test]
async fn every_write_needs_approval_in_a_home_or_without_a_project() {
    let allow = || rule("builtin:*", Mode::Allow);
    let mut env = TestEnv::new();
    env.workspace = env.home();
    for (path, is_hidden) in [(".bashrc", true), (".ssh/config", true), ("x.txt", false)] {
        assert_eq!(env.write(path, "approve", Vec::new()).await, (true, true));
        // A rule can allow files that are not hidden.
        let by_rule = env.write(path, "approve", allow()).await;
        assert_eq!(by_rule, (is_hidden, true), "{path}");
    }
    // Also above a home, and in a directory that is not a project.
    env.workspace = env.dir.path().to_owned();
    assert_eq!(
        env.write("user/.profile", "deny", allow()).await,
        (true, false)
    );
    env.workspace = env.dir.path().join("outside");
    assert_eq!(env.write("x", "deny", Vec::new()).await, (true, false));
}

#[tokio::test]
async fn write_to_a_private_path_is_refused_without_a_gate() {
    let env = TestEnv::new();
    let private = env.home().join(".keys/new").display().to_string();
    for path in [private.as_str(), "../user/.keys/new"] {
        for rules in [Vec::new(), rule("builtin:*", Mode::Allow)] {
            let outcome = env.write(path, "approve", rules).await;
            assert_eq!(outcome, (false, false), "{path}");
        }
    }
    assert!(!env.home().join(".keys/new").exists());
}

/// A tool of the host with its own approval rule.
struct DeployTool(ToolDef);

impl Tool for DeployTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, args: Value, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move { Ok(ToolOutput::text(format!("to {}", args["to"]))) })
    }
}

/// A session with a model that calls the tool.
async fn deploy_session(def: ToolDef, rules: Vec<Rule>, to: &[&str]) -> (Engine, Session) {
    let calls = to
        .iter()
        .map(|to| Step::call("deploy", json!({ "to": to })));
    let steps = calls.chain([Step::text("${last_tool_result}")]);
    let policy = Policy {
        rules,
        ..Policy::default()
    };
    let engine = Engine::builder()
        .store(MemoryStore::new())
        .models(Catalogue::new(".").with("scripted:test", Script::new(steps)))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tool(DeployTool(def))
        .policy(policy)
        .build()
        .unwrap();
    let session = engine.create_session(NewSession::default()).await.unwrap();
    (engine, session)
}

/// Runs the session with these decisions. Returns the gates and the result.
async fn run_with_decisions(
    def: ToolDef,
    rules: Vec<Rule>,
    to: &[&str],
    decisions: &[Decision],
) -> (Vec<Gate>, String) {
    let (engine, session) = deploy_session(def, rules, to).await;
    let mut events = session.subscribe(0);
    let prompt = session.prompt("go").await.unwrap();
    let mut asked = Vec::new();
    loop {
        match events.next().await.unwrap().unwrap().event.kind {
            EventKind::DecisionGate { gate } => {
                let decision = decisions[asked.len()].clone();
                engine.decide(&gate.id, decision).await.unwrap();
                asked.push(*gate);
            }
            EventKind::TurnEnd { reason, .. } => {
                assert_eq!(reason, TurnEnd::EndTurn);
                let result = session.wait_for_answer(&prompt).await.unwrap().text;
                return (asked, result);
            }
            _ => {}
        }
    }
}

/// Returns whether a gate was opened, and the result.
async fn deploy(def: ToolDef, answer: &str, rules: Vec<Rule>) -> (bool, String) {
    let (asked, result) = run_with_decisions(
        def,
        rules,
        &["prod"],
        &[Decision::new(answer, "ada", "test")],
    )
    .await;
    for gate in &asked {
        assert!(gate.body.contains("\"to\": \"prod\""), "{}", gate.body);
        assert!(gate.context.contains_key("args_hash"));
    }
    (!asked.is_empty(), result)
}

#[tokio::test]
async fn host_tool_needs_approval_by_risk_and_arguments() {
    let def = || ToolDef::new("deploy", "Deploys.", json!({ "type": "object" }));
    let to = |place: &'static str| ApprovalRequirement::when(move |args| args["to"] == place);
    let ran = || "to \"prod\"".to_owned();
    for (def, asks) in [
        (def(), false),
        (def().risk(Risk::Medium), false),
        (def().risk(Risk::High), true),
        (def().requires_approval(ApprovalRequirement::Always), true),
        (def().requires_approval(to("prod")), true),
        (def().requires_approval(to("test")), false),
    ] {
        let about = format!("{def:?}");
        let outcome = deploy(def, "approve", Vec::new()).await;
        assert_eq!(outcome, (asks, ran()), "{about}");
    }
    let risky = || def().risk(Risk::Critical);
    let denied = deploy(risky(), "deny", Vec::new()).await;
    assert_eq!(denied, (true, "denied by ada".to_owned()));
    let allowed = deploy(risky(), "deny", rule("builtin:deploy", Mode::Allow)).await;
    assert_eq!(allowed, (false, ran()));
    let (asked, result) = deploy(risky(), "approve", rule("*", Mode::Deny)).await;
    assert!(
        !asked && result.contains("denied by the policy"),
        "{result}"
    );
    let bad = def().requires_approval(ApprovalRequirement::when(|_| panic!("not a word")));
    let (asked, result) = deploy(bad, "approve", Vec::new()).await;
    assert!(!asked && result.contains("not a word"), "{result}");
}

#[tokio::test]
async fn arguments_of_a_host_tool_can_be_edited_at_approval() {
    let schema = json!({ "type": "object", "properties": { "to": { "type": "string" } } });
    let def =
        ToolDef::new("deploy", "Deploys.", schema).requires_approval(ApprovalRequirement::Always);
    let instead = |args: Value| Decision {
        value: json!({ "arguments": args }),
        ..Decision::new("approve", "ada", "test")
    };
    let decisions = [instead(json!({ "to": "test" }))];
    let (asked, result) = run_with_decisions(def, Vec::new(), &["prod"], &decisions).await;
    assert!(asked.iter().all(|gate| is_editable(&gate.context)));
    assert_eq!(asked[0].context["params"], json!({ "to": "prod" }));
    assert_eq!(
        result,
        "[ada edited the arguments: {\"to\":\"test\"}]\nto \"test\""
    );
}

#[tokio::test]
async fn invalid_edited_arguments_are_refused_and_the_gate_stays_pending() {
    let schema = json!({ "type": "object", "properties": { "to": { "type": "string" } } });
    let def =
        ToolDef::new("deploy", "Deploys.", schema).requires_approval(ApprovalRequirement::Always);
    let (engine, session) = deploy_session(def, Vec::new(), &["prod"]).await;
    let mut events = session.subscribe(0);
    session.prompt("go").await.unwrap();
    let gate = loop {
        let event = events.next().await.unwrap().unwrap().event;
        if let EventKind::DecisionGate { gate } = event.kind {
            break gate.id;
        }
    };
    let decision = Decision {
        value: json!({ "arguments": { "to": 1 } }),
        ..Decision::new("approve", "ada", "test")
    };
    let decided = engine.decide(&gate, decision).await;
    assert!(
        matches!(decided, Err(DecideError::InvalidArguments { .. })),
        "{decided:?}"
    );
    let gate = engine.gate(&gate).await.unwrap().unwrap();
    assert!(gate.status.is_pending());
}

#[tokio::test]
async fn approval_for_a_session_covers_the_same_arguments_only() {
    let def = || {
        let def = ToolDef::new("deploy", "Deploys.", json!({ "type": "object" }));
        def.requires_approval(ApprovalRequirement::Always)
    };
    let yes = |action: &str| Decision::new(action, "ada", "test");
    let about = |gates: &[Gate]| -> Vec<Value> {
        let params = gates
            .iter()
            .map(|gate| gate.context["params"]["to"].clone());
        params.collect()
    };
    let to = ["a", "a", "b", "a", "b"];
    let decisions = [yes("approve_session"), yes("approve"), yes("approve")];
    let (asked, result) = run_with_decisions(def(), Vec::new(), &to, &decisions).await;
    assert_eq!(about(&asked), ["a", "b", "b"]);
    assert_eq!(result, "to \"b\"");
    // With edited arguments, it covers the edited ones.
    let instead = Decision {
        value: json!({ "arguments": { "to": "b" } }),
        ..yes("approve_session")
    };
    let (asked, result) =
        run_with_decisions(def(), Vec::new(), &["a", "b", "a"], &[instead, yes("deny")]).await;
    assert_eq!(about(&asked), ["a", "a"]);
    assert_eq!(result, "denied by ada");
}
