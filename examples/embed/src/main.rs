//! Embeds the engine in a program, with a tool that asks for approval.
#![expect(clippy::print_stdout, reason = "an interactive example")]

use std::sync::Arc;

use rye_engine::BoxFuture;
use rye_engine::protocol::EventKind;
use rye_engine::tool::{DecisionRequest, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Decision, Engine, NewSession};
use serde_json::{Value, json};

const SCRIPT: &str = "{ steps: [{ tool_calls: [{ name: deploy }] }, { text: 'I asked.' }] }";

struct Deploy(ToolDef);

impl Tool for Deploy {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let request = DecisionRequest::approval("deploy", "deploy to production?");
            let answer = context.request_decision(request).await?;
            println!("{} said: {}", answer.by, answer.action);
            Ok(ToolOutput::text(answer.action.as_str()))
        })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let deploy = ToolDef::new("deploy", "Deploys it.", json!({ "type": "object" }));
    let engine = Engine::builder()
        .store(rye_store::SqliteStore::open("sessions.db")?)
        .models(rye_model::Catalogue::new(".").with("scripted:demo", SCRIPT.parse()?))
        .sandbox(Arc::new(rye_sandbox::VirtualSandbox::new()))
        .tool(Deploy(deploy))
        .build()?;
    let session = engine.create_session(NewSession::default()).await?;
    let mut events = session.subscribe(0);
    session.prompt("ship it").await?;
    while let Some(notice) = events.next().await? {
        match notice.event.kind {
            EventKind::DecisionGate { gate } => {
                println!("{} [approve/deny]", gate.title);
                let mut line = String::new();
                std::io::stdin().read_line(&mut line)?;
                let decision = Decision::new(line.trim(), "ada", "terminal");
                engine.decide(&gate.id, decision).await?;
            }
            EventKind::TextDelta { text } => println!("{text}"),
            EventKind::TurnEnd { .. } => break,
            _ => {}
        }
    }
    Ok(engine.shutdown().await?)
}
