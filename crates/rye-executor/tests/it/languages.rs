//! Tools in all supported languages, with real interpreters.

use crate::support::TestEnv;
use rye_executor::{Request, Status};
use serde_json::json;

#[tokio::test]
async fn python_function_gets_parameters_and_returns_a_result() {
    let env = TestEnv::new();
    env.signed(
        "tools/greet.py",
        "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/function\"\n\
         CONFIG_SCHEMA = {\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"default\": \"world\"}}}\n\
         def execute(params, project_path):\n    return {\"hello\": params[\"name\"], \"project\": project_path}\n",
    );
    let result = env.run("greet", json!({"name": "Ada"})).await;
    assert_eq!(result.status, Status::Success, "{result:?}");
    assert_eq!(
        result.data,
        json!({"hello": "Ada", "project": env.project()})
    );
    assert_eq!(
        result.chain,
        [
            "greet",
            "rye/core/runtimes/python/function",
            "rye/core/primitives/execute"
        ]
    );
    assert_eq!(result.metadata["exit_code"], 0);
    let result = env.run("greet", json!({})).await;
    assert_eq!(result.data["hello"], "world");
}

#[tokio::test]
async fn bash_tool_gets_parameters_on_standard_input() {
    let env = TestEnv::new();
    env.signed(
        "tools/say.sh",
        "#!/bin/bash\n# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\n\
         printf '{\"project\": \"%s\", \"given\": %s}' \"$1\" \"$(cat)\"\n",
    );
    let result = env
        .run("say", json!({"x": "$(touch pwned) `id` ${HOME}"}))
        .await;
    assert_eq!(result.status, Status::Success, "{result:?}");
    assert_eq!(result.data["given"]["x"], "$(touch pwned) `id` ${HOME}");
    assert_eq!(result.data["project"], json!(env.project()));
}

#[tokio::test]
async fn bash_command_gets_parameters_as_variables() {
    let env = TestEnv::new();
    env.signed(
        "tools/echo.yaml",
        "version: \"1.0.0\"\ntool_type: tool\nexecutor_id: rye/core/runtimes/bash/bash\n\
         config:\n  command: 'echo got \"$NAME\"'\n  env: {NAME: \"{name}\"}\n",
    );
    let result = env.run("echo", json!({"name": "$(id); x"})).await;
    assert_eq!(result.data["stdout"], "got $(id); x\n", "{result:?}");
    // A parameter with the name of a runtime parameter is data, never code.
    let result = env
        .run("echo", json!({"name": "a", "command": "touch pwned"}))
        .await;
    assert_eq!(result.data["stdout"], "got a\n");
    assert!(!env.project().join("pwned").exists());
}

#[tokio::test]
async fn node_tool_runs() {
    let env = TestEnv::new();
    env.signed(
        "tools/up.mjs",
        "export const __version__ = \"1.0.0\";\nexport const __executor_id__ = \"rye/core/runtimes/node/node\";\n\
         let text = \"\";\nfor await (const piece of process.stdin) text += piece;\n\
         console.log(JSON.stringify({ up: JSON.parse(text).word.toUpperCase() }));\n",
    );
    let result = env.run("up", json!({"word": "hi"})).await;
    assert_eq!(result.data, json!({"up": "HI"}), "{result:?}");
}

#[tokio::test]
async fn dry_run_reports_the_chain_and_runs_nothing() {
    let env = TestEnv::new();
    env.signed(
        "tools/touch.sh",
        "# executor_id: rye/core/runtimes/bash/bash\n# version: \"1.0.0\"\ntouch \"$1/made\"\n",
    );
    let mut request = Request::new("touch".parse().unwrap());
    request.dry_run = true;
    let result = env.executor.execute(request).await;
    assert_eq!(result.status, Status::ValidationPassed);
    let pairs = serde_json::to_value(&result.validated_pairs).unwrap();
    assert_eq!(
        pairs,
        json!([
            {"child": "touch", "parent": "rye/core/runtimes/bash/bash", "space_ok": true, "io_ok": true, "version_ok": true},
            {"child": "rye/core/runtimes/bash/bash", "parent": "rye/core/primitives/execute", "space_ok": true, "io_ok": true, "version_ok": true},
        ])
    );
    assert!(!env.project().join("made").exists());
    env.run("touch", json!({})).await;
    assert!(env.project().join("made").exists());
}

#[tokio::test]
async fn dotenv_reaches_a_tool_but_cannot_load_code() {
    let env = TestEnv::new();
    env.signed(
        "tools/show.py",
        "__version__ = \"1.0.0\"\n__executor_id__ = \"rye/core/runtimes/python/script\"\n\
         __requires_env__ = [\"MINE\", \"PYTHONPATH\"]\n\
         import json, os\nprint(json.dumps({\"mine\": os.environ.get(\"MINE\")}))\n",
    );
    let project = env.project();
    std::fs::write(project.join("evil.py"), "open('pwned', 'w')\n").unwrap();
    std::fs::write(
        project.join(".env"),
        "MINE=\"a b\"\nPYTHONSTARTUP=evil.py\nPYTHONPATH=.\nLD_PRELOAD=./evil.so\nPATH=.\n",
    )
    .unwrap();
    std::fs::write(project.join("json.py"), "open('pwned', 'w')\n").unwrap();
    let result = env.run("show", json!({})).await;
    assert_eq!(result.data, json!({"mine": "a b"}), "{result:?}");
    assert!(!project.join("pwned").exists());
}
