//! The turn that is measured: a prompt, a call of a tool, an answer.

use std::sync::Arc;

use anyhow::{Context, Result};
use rye_engine::model::{Deltas, Model, ModelAnswer, ModelError, ModelInfo, ModelRequest, Models};
use rye_engine::store::{Later, SessionStore};
use rye_engine::tool::{
    DecisionRequest, Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use rye_engine::{Builder, Engine, NewSession, Session, Subscription};
use rye_protocol::{CallId, EntryKind, EventKind, Part, Role, Usage};
use rye_sandbox::Virtual;
use serde_json::{Value, json};

/// A model that calls a tool when it is asked something, and answers when the tool has.
struct Alternates(&'static str, Value);

impl Model for Alternates {
    fn info(&self) -> ModelInfo {
        ModelInfo {
            context_window: 200_000,
            max_output: 8_000,
            images: false,
        }
    }

    fn call(&self, request: ModelRequest, _: Deltas) -> Later<'_, Result<ModelAnswer, ModelError>> {
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
            usage: Usage {
                input_tokens: 100,
                output_tokens: 10,
                ..Usage::default()
            },
        };
        Box::pin(async move { Ok(answer) })
    }
}

/// The one model there is.
struct Only(Arc<Alternates>);

impl Models for Only {
    fn get(&self, _: &str) -> Result<Arc<dyn Model>, String> {
        Ok(Arc::clone(&self.0) as Arc<dyn Model>)
    }

    fn default_name(&self) -> String {
        "bench".to_owned()
    }
}

/// A tool that does nothing, or asks a person first.
struct Look {
    def: ToolDef,
    asks: bool,
}

impl Tool for Look {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, _: Value, context: ToolContext) -> Later<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            if self.asks {
                let request = DecisionRequest::approval("look", "may it look?");
                context.request_decision(request).await?;
            }
            Ok(ToolOutput::text("seen"))
        })
    }
}

fn look(name: &str, asks: bool) -> Look {
    let schema = json!({ "type": "object", "properties": { "at": { "type": "string" } } });
    let def = ToolDef::new(name, "Looks.", schema).effect(Effect::AtMostOnce);
    Look { def, asks }
}

/// An engine whose model calls this tool: `look`, or `ask`, which waits for a person.
pub(super) fn engine(store: impl SessionStore, calls: &'static str) -> Result<Engine> {
    let engine = calling(calls, json!({ "at": "it" }));
    Ok(engine.store(store).build()?)
}

/// An engine to be whose model calls any tool, with these arguments.
pub(super) fn calling(tool: &'static str, args: Value) -> Builder {
    Engine::builder()
        .models(Only(Arc::new(Alternates(tool, args))))
        .sandbox(Arc::new(Virtual::new()))
        .tool(look("look", false))
        .tool(look("ask", true))
}

/// A session, and what is heard of it.
pub(super) struct Talk {
    pub(super) session: Session,
    events: Subscription,
    /// Whose tools are there as long as it is.
    _engine: Engine,
}

impl Talk {
    pub(super) async fn begin(engine: &Engine) -> Result<Self> {
        let session = engine.create_session(NewSession::default()).await?;
        let events = session.subscribe(0);
        Ok(Self {
            session,
            events,
            _engine: engine.clone(),
        })
    }

    /// What the tools have given so far, as text.
    pub(super) async fn given(&self) -> Result<String> {
        let mut given = String::new();
        for thread in self.session.threads() {
            for entry in self.session.entries(&thread.id, None, usize::MAX).await? {
                match &entry.kind {
                    EntryKind::Message(said) if said.role == Role::Tool => {
                        given += &serde_json::to_string(&said.parts)?;
                    }
                    _ => {}
                }
            }
        }
        Ok(given)
    }

    /// Asks something, and waits until it is answered.
    pub(super) async fn turn(&mut self) -> Result<()> {
        self.session.prompt("look at it").await?;
        loop {
            let notice = self.events.next().await?.context("the session ended")?;
            if matches!(notice.event.kind, EventKind::TurnEnd { .. }) {
                return Ok(());
            }
        }
    }
}
