//! Tools of all effect classes, with and without gates, and random scripts.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::tool::{
    DecisionRequest, EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use rye_model::{Catalogue, Fault, Script, ScriptedAnswer, Step};
use serde_json::{Value, json};

use super::rng::Rng;

/// Effects that must not happen twice, one per line.
pub(crate) const EFFECTS: &str = "effects.log";

/// Number of scripts, and of steps per script.
const SCRIPTS: u64 = 8;
const STEPS: u64 = 150;

/// All tools: name, effect class, number of gates, expiry of the gates.
const TOOLS: [(&str, EffectClass, u32, Option<u64>); 7] = [
    ("once", EffectClass::AtMostOnce, 0, None),
    ("pure", EffectClass::Pure, 0, None),
    ("idempotent", EffectClass::Idempotent, 0, None),
    ("ask", EffectClass::Ask, 0, None),
    ("gated", EffectClass::AtMostOnce, 1, None),
    ("gated_twice", EffectClass::AtMostOnce, 2, None),
    ("expiring", EffectClass::AtMostOnce, 1, Some(40)),
];

/// Appends a line to a file atomically.
pub(crate) fn append(file: &Path, line: &str) {
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    log.write_all(format!("{line}\n").as_bytes()).unwrap();
}

struct Work {
    def: ToolDef,
    log: PathBuf,
    gates: u32,
    expires_in: Option<Duration>,
}

impl Tool for Work {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            for gate in 0..self.gates {
                let key = format!("{}-{gate}", context.call);
                let mut request = DecisionRequest::approval(key, "may it?");
                request.expires_in = self.expires_in;
                let answer = context.request_decision(request).await?;
                if answer.action != "approve" {
                    return Err(ToolError::failed("denied"));
                }
            }
            if let Some(time) = args["ms"].as_u64() {
                tokio::time::sleep(Duration::from_millis(time)).await;
            }
            if self.def.effect == EffectClass::AtMostOnce {
                let (session, thread) = (&context.session, &context.thread);
                append(&self.log, &format!("{session} {thread} {}", context.call));
            }
            Ok(ToolOutput::text("ok"))
        })
    }
}

/// The tools; they write to a directory.
pub(crate) fn tools(dir: &Path) -> Vec<std::sync::Arc<dyn Tool>> {
    let schema = json!({ "type": "object", "properties": { "ms": { "type": "integer" } } });
    let tool = |(name, effect, gates, open): (&str, EffectClass, u32, Option<u64>)| {
        let work = Work {
            def: ToolDef::new(name, "does something", schema.clone()).effect(effect),
            log: dir.join(EFFECTS),
            gates,
            expires_in: open.map(Duration::from_millis),
        };
        std::sync::Arc::new(work) as std::sync::Arc<dyn Tool>
    };
    TOOLS.into_iter().map(tool).collect()
}

/// The name of a random model.
pub(crate) fn model(rng: &mut Rng) -> String {
    format!("scripted:{}", rng.below(SCRIPTS))
}

/// Scripted models generated from the seed, identical in every process.
pub(crate) fn models(dir: &Path, seed: u64) -> Catalogue {
    let mut models = Catalogue::new(dir);
    for number in 0..SCRIPTS {
        let mut rng = Rng::for_stream(seed, number);
        let script = Script::new((0..STEPS).map(|_| step(&mut rng)));
        models = models.with(format!("scripted:{number}"), script);
    }
    models
}

fn step(rng: &mut Rng) -> Step {
    let ms = rng.below(12);
    let args = json!({ "ms": ms });
    match rng.below(100) {
        0..45 => Step::text("an answer"),
        // Slow enough to be aborted while it runs.
        45..55 => Step::Answer(ScriptedAnswer {
            text: "an answer that takes its time".to_owned(),
            delay_ms: ms,
            chunk_chars: Some(5),
            chunk_ms: 3,
            ..ScriptedAnswer::default()
        }),
        55..58 => Step::Fail {
            fault: Fault::InvalidRequest,
            times: None,
        },
        58..60 => Step::call("no_such_tool", args),
        60..75 => Step::call("once", args),
        75..85 => {
            let count = 2 + rng.below(3);
            Step::calls((0..count).map(|_| (rng.pick(&TOOLS).0.to_owned(), args.clone())))
        }
        _ => Step::call(rng.pick(&TOOLS).0, args),
    }
}
