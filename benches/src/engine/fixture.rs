//! The measured turn: a prompt, a tool call and an answer.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rye_engine::BoxFuture;
use rye_engine::model::{Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest, Models};
use rye_engine::store::SessionStore;
use rye_engine::tool::{
    DecisionRequest, EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use rye_engine::{Builder, Engine, NewSession, Session, Subscription};
use rye_protocol::{CallId, EntryKind, EventKind, Part, Role, Usage};
use rye_sandbox::VirtualSandbox;
use serde_json::{Value, json};

/// A model that calls a tool after a prompt, and answers after the result.
struct ToolThenAnswer(&'static str, Value);

impl Model for ToolThenAnswer {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            context_window: 200_000,
            max_output: 8_000,
            images: false,
        }
    }

    fn call(
        &self,
        request: ModelRequest,
        _: Deltas,
    ) -> BoxFuture<'_, Result<ModelAnswer, ModelError>> {
        let last = request.messages.last().map(|message| message.role);
        let part = if last == Some(Role::Tool) {
            let text = "done".to_owned();
            Part::Text { text }
        } else {
            Part::ToolCall {
                call_id: CallId::new(),
                tool: self.0.to_owned(),
                args: self.1.clone(),
            }
        };
        let answer = ModelAnswer {
            parts: vec![part],
            stop_reason: None,
            incomplete: None,
            usage: Usage {
                input_tokens: 100,
                output_tokens: 10,
                ..Usage::default()
            },
        };
        Box::pin(async move { Ok(answer) })
    }
}

/// A catalogue with a single model.
struct SingleModel(Arc<ToolThenAnswer>);

impl Models for SingleModel {
    fn get(&self, _: &str) -> Result<Arc<dyn Model>, String> {
        Ok(Arc::clone(&self.0) as Arc<dyn Model>)
    }

    fn default_name(&self) -> String {
        "bench".to_owned()
    }
}

/// A tool that does nothing, optionally after an approval.
struct LookTool {
    def: ToolDef,
    asks: bool,
}

impl Tool for LookTool {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            if self.asks {
                let request = DecisionRequest::approval("look", "approve the call");
                context.request_decision(request).await?;
            }
            Ok(ToolOutput::text("seen"))
        })
    }
}

fn look(name: &str, asks: bool) -> LookTool {
    let schema = json!({ "type": "object", "properties": { "at": { "type": "string" } } });
    let def = ToolDef::new(name, "Looks.", schema).effect(EffectClass::AtMostOnce);
    LookTool { def, asks }
}

/// An engine whose model calls `look`, or `ask`, which waits at a gate.
pub(super) fn engine(store: impl SessionStore, calls: &'static str) -> Result<Engine> {
    let engine = builder_calling(calls, json!({ "at": "it" }));
    Ok(engine.store(store).build()?)
}

/// Builder of an engine whose model calls a tool with these arguments.
pub(super) fn builder_calling(tool: &'static str, args: Value) -> Builder {
    Engine::builder()
        .models(SingleModel(Arc::new(ToolThenAnswer(tool, args))))
        .sandbox(Arc::new(VirtualSandbox::new()))
        .tool(look("look", false))
        .tool(look("ask", true))
}

/// A session with its events.
pub(super) struct BenchSession {
    pub(super) session: Session,
    events: Subscription,
    /// Keeps the engine alive.
    _engine: Engine,
}

impl BenchSession {
    pub(super) async fn start(engine: &Engine) -> Result<Self> {
        let session = engine.create_session(NewSession::default()).await?;
        let events = session.subscribe(0);
        Ok(Self {
            session,
            events,
            _engine: engine.clone(),
        })
    }

    /// The tool results so far, as JSON.
    pub(super) async fn tool_results(&self) -> Result<String> {
        let mut results = String::new();
        for thread in self.session.threads() {
            for entry in self.session.entries(&thread.id, None, usize::MAX).await? {
                match &entry.kind {
                    EntryKind::Message(message) if message.role == Role::Tool => {
                        results += &serde_json::to_string(&message.parts)?;
                    }
                    _ => {}
                }
            }
        }
        Ok(results)
    }

    /// Sends a prompt and waits for the end of the turn.
    pub(super) async fn turn(&mut self) -> Result<()> {
        self.session.prompt("look at it").await?;
        loop {
            let notice = self.events.next().await?.context("the session ended")?;
            match notice.event.kind {
                EventKind::TurnEnd { .. } => return Ok(()),
                // Nobody answers it, so that the turn would never end.
                EventKind::DecisionGate { gate } => bail!("unexpected gate: {}", gate.body),
                _ => {}
            }
        }
    }
}
