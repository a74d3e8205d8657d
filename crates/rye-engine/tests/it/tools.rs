//! Registration of tools.

use std::sync::Arc;

use rye_engine::BoxFuture;
use rye_engine::model::{ModelFamily, Models as _};
use rye_engine::tool::{Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{BuildError, Engine};
use rye_model::{Catalogue, Script, Step};
use rye_sandbox::VirtualSandbox;
use rye_store::MemoryStore;
use serde_json::{Value, json};

struct Named(ToolDef);

impl Named {
    fn new(name: &str) -> Self {
        Self(ToolDef::new(name, "Does it.", json!({ "type": "object" })))
    }
}

impl Tool for Named {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async { Ok(ToolOutput::text("done")) })
    }
}

fn build(tools: Vec<Arc<dyn Tool>>) -> Result<Engine, BuildError> {
    let script = Script::new([Step::text("done")]);
    Engine::builder()
        .store(MemoryStore::new())
        .models(Catalogue::new(".").with("scripted:test", script))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tools(tools)
        .build()
}

fn named(name: &str) -> Arc<dyn Tool> {
    Arc::new(Named::new(name))
}

#[tokio::test]
async fn tool_names_are_unique_and_legal_for_every_provider() {
    let longest = "x".repeat(64);
    for name in ["a", "_a", "read_file-2", &longest] {
        assert!(build(vec![named(name)]).is_ok(), "{name}");
    }
    let too_long = "x".repeat(65);
    for name in ["", "a b", "a.b", "é", "1a", "-a", "a/b", &too_long] {
        let built = build(vec![named(name)]);
        assert!(matches!(built, Err(BuildError::Tool(_))), "{name}");
    }
    let twice = build(vec![named("a"), named("a")]);
    assert!(matches!(twice, Err(BuildError::Tool(_))));
    assert!(build(rye_tools::tools()).is_ok());
}

#[tokio::test]
async fn tool_of_a_family_is_hidden_from_other_models() {
    let mut only = Named::new("patch");
    only.0.family = Some(ModelFamily::OpenAi);
    let engine = build(vec![Arc::new(only), named("edit")]).unwrap();
    let names: Vec<_> = engine.tools().iter().map(|it| it.name.clone()).collect();
    assert_eq!(
        Catalogue::new(".").family("scripted:test"),
        ModelFamily::Other
    );
    assert_eq!(names, ["edit"]);
}
