//! What the calls of one executor share, and what each has for itself.

use std::fs;
use std::sync::Arc;

use crate::support::World;
use rye_executor::Request;
use rye_executor::primitive::{Call, CallFuture, CallOutcome, Primitive};
use serde_json::json;

/// The variables that a tool prints which inherits those of this process.
async fn variables(world: &World, tool: &str) -> Vec<String> {
    let request = Request::new(tool.parse().unwrap());
    let envelope = world.executor.execute(request).await;
    let printed = envelope.data["stdout"].as_str().unwrap();
    printed.split('\0').map(str::to_owned).collect()
}

#[tokio::test]
async fn what_one_call_sets_no_other_has() {
    let world = World::new();
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
    world.signed("tools/own.yaml", &own);
    world.signed("tools/plain.yaml", &tool("", ""));
    let minimal = tool("env_config: {inherit: minimal}\n", "");
    world.signed("tools/minimal.yaml", &minimal);
    let inherited = format!("CARGO_MANIFEST_DIR={}", env!("CARGO_MANIFEST_DIR"));
    let file = world.project().join(".env");
    // Until a chain is kept, and from then on.
    for _ in 0..3 {
        fs::write(&file, "THREE=3\n").unwrap();
        let found = variables(&world, "own").await;
        for expected in ["ONE=1", "TWO=2", "THREE=3", &inherited] {
            assert!(found.iter().any(|it| it == expected), "{found:?}");
        }
        fs::remove_file(&file).unwrap();
        let found = variables(&world, "plain").await;
        assert!(found.contains(&inherited), "{found:?}");
        for other in ["ONE=", "TWO=", "THREE="] {
            assert!(!found.iter().any(|it| it.starts_with(other)), "{found:?}");
        }
        let found = variables(&world, "minimal").await;
        assert!(!found.contains(&inherited), "{found:?}");
        assert!(found.iter().any(|it| it.starts_with("PATH=")), "{found:?}");
    }
}

/// Gives what it is given.
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
async fn a_store_for_long_output_is_made_by_who_may_need_one() {
    let mut world = World::new();
    let id = "echo".parse().unwrap();
    let primitives = world.executor.primitives_mut();
    primitives.register(id, Vec::new(), Arc::new(Echo));
    world.signed(
        "tools/echo.yaml",
        "version: \"1.0.0\"\ntool_type: primitive\nexecutor_id: null\n",
    );
    world.signed("tools/it.yaml", "version: \"1.0.0\"\nexecutor_id: echo\n");
    let given = json!({"text": "hello"});
    let envelope = world.run("it", given.clone()).await;
    assert_eq!(envelope.data, given, "{envelope:?}");
    assert!(!world.cache().join("output").exists());
    world.script("sh", "echo 1\n");
    world.run("sh", json!({})).await;
    assert!(world.cache().join("output").is_dir());
}
