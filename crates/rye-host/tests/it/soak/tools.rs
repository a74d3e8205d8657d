//! Tools and scripts: every effect, gates that are answered and gates that expire.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::tool::{
    DecisionRequest, Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use rye_model::{Catalogue, Fault, Script, ScriptedAnswer, Step};
use serde_json::{Value, json};

use super::dice::Dice;

/// What must not happen twice, a line each.
pub(crate) const EFFECTS: &str = "effects.log";

/// How many scripts there are, and how many steps each has.
const SCRIPTS: u64 = 8;
const STEPS: u64 = 150;

/// All tools: name, effect, gates, how long these are open.
const TOOLS: [(&str, Effect, u32, Option<u64>); 7] = [
    ("once", Effect::AtMostOnce, 0, None),
    ("pure", Effect::Pure, 0, None),
    ("idempotent", Effect::Idempotent, 0, None),
    ("ask", Effect::Ask, 0, None),
    ("gated", Effect::AtMostOnce, 1, None),
    ("gated_twice", Effect::AtMostOnce, 2, None),
    ("expiring", Effect::AtMostOnce, 1, Some(40)),
];

/// Adds a line to a file, whole or not at all.
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
            if self.def.effect == Effect::AtMostOnce {
                let (session, thread) = (&context.session, &context.thread);
                append(&self.log, &format!("{session} {thread} {}", context.call));
            }
            Ok(ToolOutput::text("ok"))
        })
    }
}

/// The tools, which write to a folder.
pub(crate) fn tools(folder: &Path) -> Vec<std::sync::Arc<dyn Tool>> {
    let schema = json!({ "type": "object", "properties": { "ms": { "type": "integer" } } });
    let tool = |(name, effect, gates, open): (&str, Effect, u32, Option<u64>)| {
        let work = Work {
            def: ToolDef::new(name, "does something", schema.clone()).effect(effect),
            log: folder.join(EFFECTS),
            gates,
            expires_in: open.map(Duration::from_millis),
        };
        std::sync::Arc::new(work) as std::sync::Arc<dyn Tool>
    };
    TOOLS.into_iter().map(tool).collect()
}

/// The name of a model.
pub(crate) fn model(dice: &mut Dice) -> String {
    format!("scripted:{}", dice.below(SCRIPTS))
}

/// Models whose answers come from the seed, the same ones in every process.
pub(crate) fn models(folder: &Path, seed: u64) -> Catalogue {
    let mut models = Catalogue::new(folder);
    for number in 0..SCRIPTS {
        let mut dice = Dice::of(seed, number);
        let script = Script::new((0..STEPS).map(|_| step(&mut dice)));
        models = models.with(format!("scripted:{number}"), script);
    }
    models
}

fn step(dice: &mut Dice) -> Step {
    let ms = dice.below(12);
    let args = json!({ "ms": ms });
    match dice.below(100) {
        0..45 => Step::text("an answer"),
        // Slow enough to be aborted in the middle of it.
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
            let count = 2 + dice.below(3);
            Step::calls((0..count).map(|_| (dice.pick(&TOOLS).0.to_owned(), args.clone())))
        }
        _ => Step::call(dice.pick(&TOOLS).0, args),
    }
}
