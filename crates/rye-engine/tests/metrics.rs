//! Metrics and tracing spans of an engine.
//!
//! A process of its own: which spans are enabled is cached for all threads, so tests without a
//! subscriber would disable them.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use rye_engine::BoxFuture;
use rye_engine::metrics::Metric;
use rye_engine::protocol::EventKind;
use rye_engine::tool::{DecisionRequest, Tool, ToolContext, ToolDef, ToolError, ToolOutput};
use rye_engine::{Decision, Engine, NewSession};
use rye_model::{Catalogue, Config, ConfigFile, Script, Step};
use rye_sandbox::VirtualSandbox;
use rye_store::MemoryStore;
use serde_json::{Value, json};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A subscriber that records the names of all spans with those of their parents.
#[derive(Clone, Default)]
struct SpanTree(Arc<Mutex<Spans>>);

#[derive(Default)]
struct Spans {
    names: Vec<&'static str>,
    entered: Vec<u64>,
    seen: BTreeSet<(&'static str, Option<&'static str>)>,
}

impl Subscriber for SpanTree {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("rye_engine")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut spans = self.0.lock().unwrap();
        let current = spans.entered.last().filter(|_| span.is_contextual());
        let parent = span.parent().map(Id::into_u64).or(current.copied());
        let parent = parent.map(|id| spans.names[usize::try_from(id).unwrap() - 1]);
        let name = span.metadata().name();
        spans.seen.insert((name, parent));
        spans.names.push(name);
        Id::from_u64(spans.names.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.0.lock().unwrap().entered.push(id.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().entered.pop();
    }
}

/// A tool that asks for a decision.
struct ConfirmTool(ToolDef);

impl Tool for ConfirmTool {
    fn def(&self) -> &ToolDef {
        &self.0
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let request = DecisionRequest::approval("confirm", "Approve?");
            context.request_decision(request).await?;
            Ok(ToolOutput::text("approved"))
        })
    }
}

/// A failing model with a failover model.
fn models() -> Catalogue {
    let config = ConfigFile {
        path: "models.yaml".into(),
        text: "failover: ['scripted:other']\nretry: { max_attempts: 1, initial_delay_ms: 1 }\n"
            .to_owned(),
    };
    let busy = Script {
        after_last: Step::Fail {
            fault: rye_model::Fault::Overloaded,
            times: None,
        },
        ..Script::default()
    };
    let write = Step::call("bash", json!({ "command": "echo hi > it.txt" }));
    let ask = Step::call("confirm", json!({}));
    let other = Script::new([write, ask, Step::text("done")]);
    Catalogue::new(".")
        .with_config(Config::merge(&[config]).unwrap())
        .with("scripted:busy", busy)
        .with("scripted:other", other)
}

#[test]
fn engine_activity_is_counted_and_traced() {
    let tree = SpanTree::default();
    let _listening = tracing::subscriber::set_default(tree.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let text = runtime.block_on(async {
        let engine = Engine::builder()
            .store(MemoryStore::new())
            .models(models().default_model("scripted:busy"))
            .sandbox(Arc::new(VirtualSandbox::new()))
            .tools(rye_tools::tools())
            .tool(ConfirmTool(ToolDef::new(
                "confirm",
                "Asks for approval.",
                json!({ "type": "object" }),
            )))
            .build()
            .unwrap();
        let session = engine.create_session(NewSession::default()).await.unwrap();
        session.prompt("write it").await.unwrap();
        let mut events = session.subscribe(0);
        while let Some(notice) = events.next().await.unwrap() {
            match notice.event.kind {
                EventKind::DecisionGate { gate } => {
                    let yes = Decision::new("approve", "ada", "test");
                    engine.decide(&gate.id, yes).await.unwrap();
                }
                EventKind::TurnEnd { .. } => break,
                _ => {}
            }
        }
        engine.metrics().prometheus()
    });
    for expected in [
        r#"rye_llm_call_seconds_count{model="scripted:busy",outcome="error"} 1"#,
        r#"rye_llm_call_seconds_count{model="scripted:other",outcome="success"} 3"#,
        r#"rye_tool_exec_seconds_count{tool="bash",outcome="success"} 1"#,
        r#"rye_tool_exec_seconds_count{tool="confirm",outcome="success"} 1"#,
        r#"rye_decision_gate_wait_seconds_count{status="resolved"} 1"#,
        "rye_queue_wait_seconds_count 1",
        r#"rye_turn_complete_seconds_count{reason="end_turn"} 1"#,
        r#"rye_sandbox_exec_seconds_count{outcome="success"} 1"#,
        r#"rye_model_failover_total{from="scripted:busy",to="scripted:other"} 1"#,
    ] {
        assert!(
            text.lines().any(|line| line == expected),
            "{expected}\n{text}"
        );
    }
    let turn = Metric::TurnComplete.name();
    let tool = Metric::ToolExec.name();
    let spans = tree.0.lock().unwrap();
    for (metric, parent) in [
        (Metric::QueueWait, None),
        (Metric::TurnComplete, None),
        (Metric::LlmCall, Some(turn)),
        (Metric::ModelFailover, Some(turn)),
        (Metric::ToolExec, Some(turn)),
        (Metric::SandboxExec, Some(tool)),
        (Metric::DecisionGateWait, Some(tool)),
    ] {
        let seen = &spans.seen;
        assert!(
            seen.contains(&(metric.name(), parent)),
            "{metric:?}: {seen:?}"
        );
    }
}
