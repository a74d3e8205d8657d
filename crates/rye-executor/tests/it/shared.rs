//! State that the calls of one executor share or do not share.

use std::fs;
use std::sync::Arc;

use crate::support::TestEnv;
use rye_executor::Request;
use rye_executor::primitive::{Call, CallFuture, CallOutcome, Primitive};
use serde_json::json;

/// Variables of a tool that inherits those of this process.
async fn variables(env: &TestEnv, tool: &str) -> Vec<String> {
    let request = Request::new(tool.parse().unwrap());
    let result = env.executor.execute(request).await;
    let printed = result.data["stdout"].as_str().unwrap();
    printed.split('\0').map(str::to_owned).collect()
}

#[tokio::test]
async fn calls_do_not_share_variables() {
    let env = TestEnv::new();
    let tool = |more: &str, config: &str| {
        format!(
            "version: \"1.0.0\"\nexecutor_id: subprocess\n{more}\
             config: {{command: env, args: [\"-0\"]{config}}}\n"
        )
    };
    let own = tool(
        "requires_env: [THREE]\nenv_config: {env: {ONE: \"1\"}}\n",
        ", env: {TWO: \"2\"}",
    );
    env.signed("tools/own.yaml", &own);
    env.signed("tools/plain.yaml", &tool("", ""));
    let minimal = tool("env_config: {inherit: minimal}\n", "");
    env.signed("tools/minimal.yaml", &minimal);
    let inherited = format!("CARGO_MANIFEST_DIR={}", env!("CARGO_MANIFEST_DIR"));
    let file = env.project().join(".env");
    // Before and after the chain is cached.
    for _ in 0..3 {
        fs::write(&file, "THREE=3\n").unwrap();
        let found = variables(&env, "own").await;
        for expected in ["ONE=1", "TWO=2", "THREE=3", &inherited] {
            assert!(found.iter().any(|it| it == expected), "{found:?}");
        }
        fs::remove_file(&file).unwrap();
        let found = variables(&env, "plain").await;
        assert!(found.contains(&inherited), "{found:?}");
        for other in ["ONE=", "TWO=", "THREE="] {
            assert!(!found.iter().any(|it| it.starts_with(other)), "{found:?}");
        }
        let found = variables(&env, "minimal").await;
        assert!(!found.contains(&inherited), "{found:?}");
        assert!(found.iter().any(|it| it.starts_with("PATH=")), "{found:?}");
    }
}

/// A primitive that returns its parameters.
struct Echo;

impl Primitive for Echo {
    fn runs_programs(&self) -> bool {
        false
    }

    fn run(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            CallOutcome {
                data: call.parameters,
                ..CallOutcome::default()
            }
        })
    }
}

#[tokio::test]
async fn output_store_is_created_only_when_needed() {
    let mut env = TestEnv::new();
    let id = "echo".parse().unwrap();
    let primitives = env.executor.primitives_mut();
    primitives.register(id, Vec::new(), Arc::new(Echo));
    env.signed(
        "tools/echo.yaml",
        "version: \"1.0.0\"\ntool_type: primitive\nexecutor_id: null\n",
    );
    env.signed("tools/it.yaml", "version: \"1.0.0\"\nexecutor_id: echo\n");
    let given = json!({"text": "hello"});
    let result = env.run("it", given.clone()).await;
    assert_eq!(result.data, given, "{result:?}");
    assert!(!env.cache().join("output").exists());
    env.script("sh", "echo 1\n");
    env.run("sh", json!({})).await;
    assert!(env.cache().join("output").is_dir());
}
