//! Tools that do what a tool should not.

use std::future::pending;
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::tool::{
    DecisionRequest, Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use serde_json::{Value, json};

/// What a tool does.
#[derive(Clone, Copy)]
pub(crate) enum Habit {
    Panics,
    NeverReturns,
    /// Gives so many bytes.
    Gives(usize),
    /// Gives so many bytes to programs rather than to models.
    GivesData(usize),
    /// Fails with so many bytes.
    FailsWith(usize),
    Asks(Option<Duration>),
}

pub(crate) struct Odd {
    def: ToolDef,
    habit: Habit,
}

/// A tool of a habit. It takes a `word`, and nothing but words.
pub(crate) fn odd(name: &str, habit: Habit) -> Odd {
    let schema = json!({
        "type": "object",
        "properties": { "word": { "type": "string" } },
        "additionalProperties": false,
    });
    let mut def = ToolDef::new(name, "does something odd", schema).effect(Effect::AtMostOnce);
    def.timeout = matches!(habit, Habit::NeverReturns).then_some(Duration::from_millis(50));
    Odd { def, habit }
}

impl Tool for Odd {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            match self.habit {
                Habit::Panics => panic!("this tool always does"),
                Habit::NeverReturns => pending().await,
                Habit::Gives(bytes) => Ok(ToolOutput::text("x".repeat(bytes))),
                Habit::GivesData(bytes) => Ok(ToolOutput {
                    data: json!("x".repeat(bytes)),
                    ..ToolOutput::text("there is data")
                }),
                Habit::FailsWith(bytes) => Err(ToolError::failed("x".repeat(bytes))),
                Habit::Asks(time) => {
                    let mut request = DecisionRequest::approval("may it", "may it?");
                    request.expires_in = time;
                    let answer = context.request_decision(request).await?;
                    Ok(ToolOutput::text(answer.action))
                }
            }
        })
    }
}
