//! Tools whose processes are confined: which calls, with which files, and how results say so.
//! What the kernel confines is tested with the real confiner, in the tests of `rye`.

use std::path::Path;
use std::sync::Arc;

use lillux::process::Supervisor;
use rye_executor::{
    Approval, Executor, Request, Roots, Status, Trace, TraceStepKind, check_before_signing,
};
use rye_protocol::{ProjectAccess, ToolSandbox};
use serde_json::json;

use crate::support::confiner::RecordingConfiner;
use crate::support::{BASH, TestEnv, warnings};

/// The same declaration in all metadata formats, with a tool that prints `ran`.
const READ_ONLY: [(&str, &str); 4] = [
    (
        "header.sh",
        "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\n\
         # sandbox: {filesystem: read_only, network: none}\necho ran\n",
    ),
    (
        "constants.py",
        "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/function\"\n\
         __sandbox__ = {\"filesystem\": \"read_only\"}\ndef execute(params, project):\n    return \"ran\"\n",
    ),
    (
        "exports.js",
        "export const __version__ = \"1.0.0\";\n\
         export const __executor_id__ = \"rye/core/runtimes/node/node\";\n\
         export const __sandbox__ = { filesystem: \"read_only\" };\n\
         export function execute() { return \"ran\"; }\n",
    ),
    (
        "mapping.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/primitives/execute\n\
         sandbox: {filesystem: read_only}\nconfig: {command: echo, args: [ran]}\n",
    ),
];

fn with_confiner(mut env: TestEnv) -> (TestEnv, RecordingConfiner) {
    let confiner = RecordingConfiner::default();
    let executor = env.executor.clone();
    env.executor = executor.with_confiner(Arc::new(confiner.clone()));
    (env, confiner)
}

#[tokio::test]
async fn declaration_confines_the_process_in_all_formats() {
    let (env, confiner) = with_confiner(TestEnv::new());
    for (file, text) in READ_ONLY {
        env.signed(&format!("tools/{file}"), text);
        let id = file.split('.').next().unwrap();
        let result = env.run(id, json!({})).await;
        assert_eq!(result.status, Status::Success, "{result:?}");
        let sandbox = &result.metadata["sandbox"];
        assert_eq!(sandbox["tier"], "test");
        assert_eq!(sandbox["filesystem"], "read_only");
        assert_eq!(sandbox["policy"].as_str().unwrap().len(), 64);
        let confined = confiner.calls.lock().unwrap().pop().unwrap();
        assert_eq!(confined.sandbox.filesystem, ProjectAccess::ReadOnly);
        // The interpreter and the private copy of the tool.
        let is_shown = |part: &str| {
            let mut all = confined.programs.iter();
            all.any(|path| path.to_string_lossy().contains(part))
        };
        if id == "mapping" {
            assert!(is_shown("/echo"), "{confined:?}");
        } else {
            assert!(is_shown(env.cache().to_str().unwrap()), "{confined:?}");
        }
    }
}

#[tokio::test]
async fn undeclared_tool_is_confined_on_request_only() {
    let (env, confiner) = with_confiner(TestEnv::new());
    env.script("plain", "echo ran\n");
    let result = env.run("plain", json!({})).await;
    assert!(!result.metadata.contains_key("sandbox"), "{result:?}");
    assert!(confiner.calls.lock().unwrap().is_empty());

    let mut request = Request::new("plain".parse().unwrap());
    request.confine = true;
    let result = env.executor.execute(request.clone()).await;
    assert_eq!(result.metadata["sandbox"]["filesystem"], "workspace");
    assert_eq!(
        confiner.calls.lock().unwrap()[0].sandbox,
        ToolSandbox::default()
    );

    request.dry_run = true;
    let mut trace = Trace::enabled();
    let result = env.executor.try_execute(request, &mut trace).await.unwrap();
    assert_eq!(result.status, Status::ValidationPassed);
    assert_eq!(result.metadata["sandbox"]["tier"], "test");
    let mut steps = trace.steps().iter();
    assert!(steps.any(|step| matches!(step.kind, TraceStepKind::Sandbox(_))));
}

#[tokio::test]
async fn runtime_can_declare_the_sandbox_of_its_tools() {
    let (env, confiner) = with_confiner(TestEnv::new());
    env.signed(
        "tools/strict.yaml",
        "version: \"1.0.0\"\ntool_type: runtime\nexecutor_id: rye/core/runtimes/bash/bash\n\
         sandbox: {filesystem: none}\n",
    );
    let tool = "# executor_id: strict\n# version: \"1.0.0\"\n";
    env.signed("tools/inherits.sh", &format!("{tool}echo ran\n"));
    let own = format!("{tool}# sandbox: confined\necho ran\n");
    env.signed("tools/decides.sh", &own);
    for (id, expected) in [
        ("inherits", ProjectAccess::None),
        ("decides", ProjectAccess::Workspace),
    ] {
        let result = env.run(id, json!({})).await;
        assert_eq!(result.status, Status::Success, "{result:?}");
        let confined = confiner.calls.lock().unwrap().pop().unwrap();
        assert_eq!(confined.sandbox.filesystem, expected, "{id}");
    }
}

#[tokio::test]
async fn call_that_cannot_be_confined_is_refused() {
    let env = TestEnv::new();
    let marker = "# sandbox: confined\ntouch \"$1/ran\"\n";
    env.signed("tools/declared.sh", &format!("{BASH}{marker}"));
    let roots = Roots {
        user: Some(env.user()),
        ..Roots::new(env.project(), env.cache())
    };
    let supervisor = Arc::new(Supervisor::start().unwrap());
    let without = Executor::new(roots, supervisor);
    let refused = without.execute(Request::new("declared".parse().unwrap()));
    assert_eq!(refused.await.error.unwrap().code, "sandbox");
    assert!(!env.ran());

    env.signed(
        "tools/fetch.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/primitives/http_client\n\
         config: {url: \"http://127.0.0.1:1/\"}\n",
    );
    let mut request = Request::new("fetch".parse().unwrap());
    request.confine = true;
    let result = env.executor.execute(request).await;
    assert_eq!(result.error.unwrap().code, "sandbox");

    env.signed(
        "tools/found.yaml",
        "version: \"1.0.0\"\nexecutor_id: rye/core/primitives/execute\nsandbox: confined\n\
         env_config: {interpreter: {type: command, resolve_cmd: [which, bash], var: FOUND}}\n\
         config: {command: '${FOUND}', args: [-c, 'touch ran']}\n",
    );
    assert_eq!(env.refused("found", json!({})).await.code, "sandbox");
}

#[tokio::test]
async fn invalid_declaration_is_refused_when_signed_and_when_run() {
    let env = TestEnv::new();
    for (id, declaration) in [
        ("unknown_key", "{fs: none}"),
        ("unknown_value", "{network: host}"),
        ("unknown_name", "local"),
        ("wrong_type", "[confined]"),
    ] {
        let text = format!("{BASH}# sandbox: {declaration}\ntouch \"$1/ran\"\n");
        env.signed(&format!("tools/{id}.sh"), &text);
        let error = env.refused(id, json!({})).await;
        assert_eq!(error.code, "bad_sandbox", "{error:?}");
        let library = env.executor.library().unwrap();
        let found = library.find(&id.parse().unwrap()).unwrap();
        let signed = check_before_signing(&library, &found, text.as_bytes());
        assert_eq!(signed.unwrap_err().code(), "bad_sandbox");
    }
}

#[tokio::test]
async fn confined_tool_inherits_basic_and_declared_variables() {
    let env = TestEnv::new();
    let script = "# sandbox: confined\n# requires_env: [WANTED]\necho \"$WANTED,$OTHER,$HOME\"\n";
    env.signed("tools/variables.sh", &format!("{BASH}{script}"));
    let variables = [("WANTED", "a"), ("OTHER", "b"), ("HOME", "/users/ada")];
    let result = env.run_with("variables", &variables).await;
    assert_eq!(result.data["stdout"], "a,,/users/ada\n", "{result:?}");
}

#[tokio::test]
async fn result_lists_the_files_that_were_moved_away() {
    let env = TestEnv::new();
    env.script("plain", "echo ran\n");
    let confiner = RecordingConfiner {
        quarantined: vec!["sub/.git".to_owned()],
        ..RecordingConfiner::default()
    };
    let executor = env.executor.clone().with_confiner(Arc::new(confiner));
    let mut request = Request::new("plain".parse().unwrap());
    request.confine = true;
    let result = executor.execute(request).await;
    assert_eq!(result.metadata["quarantined"], json!(["sub/.git"]));
    assert!(warnings(&result)[0].contains("sub/.git"), "{result:?}");
}

#[tokio::test]
async fn unapproved_call_of_a_confined_tool_runs_unless_it_declares_approval() {
    let env = TestEnv::new();
    let tools = [
        ("risky", "# risk_level: high\n", false),
        (
            "confined",
            "# risk_level: high\n# sandbox: confined\n",
            true,
        ),
        (
            "declared",
            "# risk_level: high\n# sandbox: confined\n# requires_approval: true\n",
            false,
        ),
    ];
    for (id, header, expected) in tools {
        env.script(id, &format!("{header}echo ran\n"));
        let mut request = Request::new(id.parse().unwrap());
        request.approval = Approval::None;
        assert_eq!(env.executor.check_unapproved(&request).is_ok(), expected);
        let result = env.executor.execute(request).await;
        assert_eq!(result.error.is_none(), expected, "{id}: {result:?}");
    }
}

#[tokio::test]
async fn program_outside_of_the_system_is_shown_with_its_installation() {
    let (env, confiner) = with_confiner(TestEnv::new());
    let installed = env.dir().join("language/bin");
    std::fs::create_dir_all(&installed).unwrap();
    std::fs::copy("/bin/true", installed.join("run")).unwrap();
    let command = installed.join("run");
    let text = format!(
        "version: \"1.0.0\"\nexecutor_id: rye/core/primitives/execute\nsandbox: confined\n\
         config: {{command: {}}}\n",
        command.display()
    );
    env.signed("tools/elsewhere.yaml", &text);
    env.run("elsewhere", json!({})).await;
    let confined = confiner.calls.lock().unwrap().pop().unwrap();
    let language: &Path = &env.dir().join("language");
    assert!(
        confined.programs.iter().any(|it| it == language),
        "{confined:?}"
    );
}
