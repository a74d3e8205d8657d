//! Tools with effects that can be counted, and points at which their process may die.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::sandbox::Sandbox;
use rye_engine::tool::{
    DecisionRequest, Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use serde_json::{Value, json};

use super::killer::point;

/// What must not happen twice, a line each.
pub(crate) const LOG: &str = "effects.log";

/// Appends a line to the log, perhaps after a person has let it.
pub(crate) struct Append {
    def: ToolDef,
    log: PathBuf,
    gates: Vec<&'static str>,
    expires_in: Option<Duration>,
    counted: bool,
}

impl Append {
    pub(crate) fn new(
        folder: &std::path::Path,
        name: &str,
        effect: Effect,
        gates: &[&'static str],
    ) -> Self {
        let schema = json!({ "type": "object", "properties": { "line": { "type": "string" } } });
        Self {
            def: ToolDef::new(name, "appends a line", schema).effect(effect),
            log: folder.join(LOG),
            gates: gates.to_vec(),
            expires_in: None,
            // What may be repeated may be seen twice.
            counted: matches!(effect, Effect::AtMostOnce),
        }
    }

    pub(crate) fn expires_in(mut self, time: Duration) -> Self {
        self.expires_in = Some(time);
        self
    }
}

impl Tool for Append {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn may_request_decision(&self, _: &dyn Sandbox) -> bool {
        !self.gates.is_empty()
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let line = args["line"].as_str().unwrap_or_default();
            for gate in &self.gates {
                let mut request = DecisionRequest::approval(format!("{line}-{gate}"), *gate);
                request.expires_in = self.expires_in;
                let resolution = context.request_decision(request).await?;
                if resolution.action != "approve" {
                    return Err(ToolError::failed("denied"));
                }
            }
            if !self.gates.is_empty() {
                context.set_effect(self.def.effect).await?;
            }
            point();
            if self.counted {
                let log = OpenOptions::new().create(true).append(true).open(&self.log);
                let mut log = log.map_err(|error| ToolError::failed(error.to_string()))?;
                let written = writeln!(log, "{line}").and_then(|()| log.sync_all());
                written.map_err(|error| ToolError::failed(error.to_string()))?;
            }
            point();
            Ok(ToolOutput::text("ok"))
        })
    }
}
