//! Tools with countable effects and kill points.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use rye_engine::BoxFuture;
use rye_engine::sandbox::Sandbox;
use rye_engine::tool::{
    DecisionRequest, EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use serde_json::{Value, json};

use rye_testkit::wrapped_store::kill_point;

/// Effects that must not happen twice, one per line.
pub(crate) const LOG: &str = "effects.log";

/// Appends a line to the log, possibly after an approval.
pub(crate) struct Append {
    def: ToolDef,
    log: PathBuf,
    gates: Vec<&'static str>,
    expires_in: Option<Duration>,
    counted: bool,
}

impl Append {
    pub(crate) fn new(
        dir: &std::path::Path,
        name: &str,
        effect: EffectClass,
        gates: &[&'static str],
    ) -> Self {
        let schema = json!({ "type": "object", "properties": { "line": { "type": "string" } } });
        Self {
            def: ToolDef::new(name, "appends a line", schema).effect(effect),
            log: dir.join(LOG),
            gates: gates.to_vec(),
            expires_in: None,
            // Repeatable effects may occur twice.
            counted: matches!(effect, EffectClass::AtMostOnce),
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
            kill_point();
            if self.counted {
                let log = OpenOptions::new().create(true).append(true).open(&self.log);
                let mut log = log.map_err(|error| ToolError::failed(error.to_string()))?;
                let written = writeln!(log, "{line}").and_then(|()| log.sync_all());
                written.map_err(|error| ToolError::failed(error.to_string()))?;
            }
            kill_point();
            Ok(ToolOutput::text("ok"))
        })
    }
}
