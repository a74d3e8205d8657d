//! The tools of an engine: looked up, their arguments checked, their output cut.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;

use rye_protocol::{ErrorCode, ErrorInfo};
use rye_schema::Schema;
use serde_json::Value;

use super::unharmed::unharmed;
use crate::machine::{Fact, Facts};
use crate::model::ToolSpec;
use crate::sandbox::Sandbox;
use crate::schema;
use crate::text::{Whole, without_middle};
use crate::tool::{Effect, Tool, ToolContext, ToolError, ToolOutput, agreed};

/// How much of a tool's text a model is given.
pub(crate) const LONGEST: usize = 100_000;
/// How many fields a document may have to be shortened rather than left out.
const FIELDS: usize = 64;

/// Tools by name.
#[derive(Default)]
pub(crate) struct Toolbox {
    all: BTreeMap<String, Known>,
    /// What models see of them.
    specs: Arc<[ToolSpec]>,
}

struct Known {
    tool: Arc<dyn Tool>,
    parameters: Arc<Schema>,
    /// Whether it asks by itself, and says when it begins.
    may_request_decision: bool,
}

impl Toolbox {
    /// Adds a tool that works in a sandbox; one of the same name makes room. In words why it
    /// cannot be.
    pub(crate) fn add(&mut self, tool: Arc<dyn Tool>, sandbox: &dyn Sandbox) -> Result<(), String> {
        let spec = &tool.def().spec;
        let parameters = Schema::new(&spec.parameters)
            .map_err(|error| format!("the schema of `{}` is no schema: {error}", spec.name))?;
        let name = spec.name.clone();
        let known = Known {
            may_request_decision: tool.may_request_decision(sandbox),
            parameters: Arc::new(parameters),
            tool,
        };
        self.all.insert(name, known);
        let all = self.all.values();
        self.specs = all.map(|known| known.tool.def().spec.clone()).collect();
        Ok(())
    }

    /// The names of those whose output is never left out.
    pub(crate) fn protected(&self) -> impl Iterator<Item = String> {
        let all = self.all.iter();
        let protected = all.filter(|(_, known)| known.tool.def().protected_from_pruning);
        protected.map(|(name, _)| name.clone())
    }

    pub(crate) fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    /// Runs a tool. Whatever it does, something comes of it: wrong arguments, a panic and
    /// a time that is up are what the model is told.
    pub(crate) fn run(
        &self,
        name: &str,
        args: Value,
        context: ToolContext,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send + 'static {
        let known = self.all.get(name);
        let known = known.map(|known| {
            let (tool, parameters) = (Arc::clone(&known.tool), Arc::clone(&known.parameters));
            // Nobody is asked about it any more once it is run.
            let is_once = matches!(tool.def().effect, Effect::AtMostOnce | Effect::Ask);
            let begins = is_once && tool.def().may_be_asked_about() && !known.may_request_decision;
            (tool, parameters, begins)
        });
        let name = name.to_owned();
        async move {
            let fail = |code, message: String| ToolError(ErrorInfo::new(code, message));
            let Some((tool, parameters, begins)) = known else {
                let message = format!("there is no tool `{name}`");
                return Err(fail(ErrorCode::UnknownTool, message));
            };
            if let Some(wrong) = schema::wrong(&parameters, &args) {
                let message = format!("the arguments do not fit: {wrong}");
                return Err(fail(ErrorCode::InvalidArguments, message));
            }
            let instead = match unharmed(agreed(tool.def(), &args, &context)).await {
                Ok(agreed) => agreed?,
                Err(why) => return Err(fail(ErrorCode::ToolPanicked, panicked(&context, &why))),
            };
            let args = instead
                .as_ref()
                .map_or(args, |instead| instead.args.clone());
            context.learn_secrets().await;
            if begins {
                context.set_effect(tool.def().effect).await?;
            }
            let timeout = tool.def().timeout;
            let own = context.clone();
            let work = unharmed(async move { tool.run(args, context).await });
            let outcome = match timeout {
                None => work.await,
                Some(time) => {
                    let Ok(outcome) = tokio::time::timeout(time, work).await else {
                        let message = format!("it was ended after {} s", time.as_secs_f64());
                        return Err(fail(ErrorCode::Timeout, message));
                    };
                    outcome
                }
            };
            own.output_rest();
            let redactor = &own.redactor;
            match outcome {
                Ok(Ok(output)) => {
                    let mut output = match instead {
                        Some(instead) => instead.told(output),
                        None => output,
                    };
                    redactor.redact_in_place(&mut output.text);
                    redactor.redact_value(&mut output.data);
                    Ok(cut(output, &own).await)
                }
                Ok(Err(ToolError(mut error))) => {
                    redactor.redact_in_place(&mut error.message);
                    error.message = without_middle(&error.message, LONGEST, None);
                    Err(ToolError(error))
                }
                Err(why) => Err(fail(ErrorCode::ToolPanicked, panicked(&own, &why))),
            }
        }
    }
}

fn panicked(context: &ToolContext, why: &str) -> String {
    format!("it broke down: {}", context.redactor.redact(why))
}

impl Facts for Toolbox {
    fn of(&self, tool: &str) -> Option<Fact> {
        let known = self.all.get(tool)?;
        let def = known.tool.def();
        Some(Fact {
            effect: def.effect,
            exclusive: def.exclusive,
            is_task: def.is_task,
            may_request_decision: known.may_request_decision || def.may_be_asked_about(),
        })
    }
}

/// Cuts what is too long for a model. The whole is kept, where there is a place for it.
async fn cut(mut output: ToolOutput, context: &ToolContext) -> ToolOutput {
    if output.text.len() > LONGEST {
        let hash = context.keep(&output.text).await;
        let whole = hash.as_ref().map(|hash| Whole {
            hash,
            first_line: 1,
        });
        output.text = without_middle(&output.text, LONGEST, whole);
    }
    output.data = data(output.data);
    output
}

/// Half a document is none, so what is too long in it is left out whole. What stands
/// beside it stays: hashes of what ran, for one.
fn data(data: Value) -> Value {
    if size(&data) <= LONGEST {
        return data;
    }
    match data {
        Value::Object(fields) if fields.len() <= FIELDS => {
            let each = LONGEST / FIELDS;
            let fields = fields.into_iter();
            let short = |(name, value)| match size(&value) {
                more if more > each => (name, left_out(more)),
                _ => (name, value),
            };
            Value::Object(fields.map(short).collect())
        }
        other => left_out(size(&other)),
    }
}

fn left_out(bytes: usize) -> Value {
    Value::String(format!("{bytes} bytes are left out here"))
}

fn size(data: &Value) -> usize {
    let mut size = Size(0);
    // Counting fails only where there is no text of it, and then it is not written either.
    let _ = serde_json::to_writer(&mut size, data);
    size.0
}

/// Counts what is written.
struct Size(usize);

impl io::Write for Size {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
