//! Tools that misbehave.

use std::future::pending;
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::tool::{
    DecisionRequest, EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use serde_json::{Value, json};

/// How a tool behaves.
#[derive(Clone, Copy)]
pub(crate) enum Behaviour {
    Panics,
    NeverReturns,
    /// Returns a text of this many bytes.
    Gives(usize),
    /// Returns this many bytes as data for programs.
    GivesData(usize),
    /// Fails with an error of this many bytes.
    FailsWith(usize),
    Asks(Option<Duration>),
}

pub(crate) struct TestTool {
    def: ToolDef,
    behaviour: Behaviour,
}

/// A tool with one string parameter, `word`.
pub(crate) fn test_tool(name: &str, behaviour: Behaviour) -> TestTool {
    let schema = json!({
        "type": "object",
        "properties": { "word": { "type": "string" } },
        "additionalProperties": false,
    });
    let mut def = ToolDef::new(name, "does something odd", schema).effect(EffectClass::AtMostOnce);
    def.timeout = matches!(behaviour, Behaviour::NeverReturns).then_some(Duration::from_millis(50));
    TestTool { def, behaviour }
}

impl Tool for TestTool {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            match self.behaviour {
                Behaviour::Panics => panic!("this tool always does"),
                Behaviour::NeverReturns => pending().await,
                Behaviour::Gives(bytes) => Ok(ToolOutput::text("x".repeat(bytes))),
                Behaviour::GivesData(bytes) => Ok(ToolOutput {
                    data: json!("x".repeat(bytes)),
                    ..ToolOutput::text("there is data")
                }),
                Behaviour::FailsWith(bytes) => Err(ToolError::failed("x".repeat(bytes))),
                Behaviour::Asks(time) => {
                    let mut request = DecisionRequest::approval("may it", "may it?");
                    request.expires_in = time;
                    let answer = context.request_decision(request).await?;
                    Ok(ToolOutput::text(answer.action.as_str()))
                }
            }
        })
    }
}
