//! Tool registry: looks tools up, validates their arguments and truncates their output.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;

use lillux::Hash;
use rye_protocol::{ErrorCode, ErrorInfo, Schema, json as exact_json};
use serde_json::{Map, Value, json};

use super::catch_panic;
use crate::blob::{FULL_OUTPUT, SCHEME};
use crate::machine::{ToolLookup, ToolTraits};
use crate::model::{ModelFamily, ToolSpec};
use crate::review::REVIEW;
use crate::sandbox::Sandbox;
use crate::text::{FullText, truncate_middle};
use crate::tool::{EffectClass, Tool, ToolContext, ToolError, ToolOutput, request_approval};

/// Maximum length of a tool's text that a model is given, in bytes.
const MAX_TEXT_BYTES: usize = 100_000;
/// Maximum number of fields of a JSON object that is shortened field by field.
const MAX_FIELDS: usize = 64;

/// Maximum length of a tool's name, which all providers accept.
const MAX_NAME: usize = 64;

/// Whether every provider accepts the name of a tool.
fn is_valid_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let starts_well = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well(name) && name.len() <= MAX_NAME && name.bytes().all(is_allowed)
}

/// Tools by name.
#[derive(Clone, Default)]
pub(crate) struct ToolRegistry {
    all: BTreeMap<String, RegisteredTool>,
    /// What the models of each family see of the tools.
    specs: BTreeMap<ModelFamily, Arc<[ToolSpec]>>,
}

#[derive(Clone)]
struct RegisteredTool {
    tool: Arc<dyn Tool>,
    parameters: Arc<Schema>,
    /// Whether the tool requests decisions itself and declares when its effect starts.
    may_request_decision: bool,
}

impl ToolRegistry {
    /// Adds a tool. Fails if its name is taken or not allowed by every provider, or if its parameter
    /// schema is invalid.
    pub(crate) fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), String> {
        let spec = &tool.def().spec;
        // No model sees the tool of the review mode, so its name need not be legal.
        if spec.name != REVIEW && !is_valid_name(&spec.name) {
            return Err(format!(
                "tool `{}`: invalid name: use up to {MAX_NAME} letters, digits, `_` and `-`, and \
                 start with a letter or `_`",
                spec.name
            ));
        }
        if self.all.contains_key(&spec.name) {
            return Err(format!("tool `{}` is defined twice", spec.name));
        }
        let parameters = Schema::new(&spec.parameters)
            .map_err(|error| format!("tool `{}`: invalid parameter schema: {error}", spec.name))?;
        let name = spec.name.clone();
        let entry = RegisteredTool {
            may_request_decision: false,
            parameters: Arc::new(parameters),
            tool,
        };
        self.all.insert(name, entry);
        self.update_specs();
        Ok(())
    }

    /// The names of the tools that models can have.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.all.keys().filter(|name| *name != REVIEW)
    }

    /// Only the tools with these names.
    pub(crate) fn only(&self, names: &[String]) -> Self {
        let mut tools = self.clone();
        tools
            .all
            .retain(|name, _| name == REVIEW || names.contains(name));
        tools.update_specs();
        tools
    }

    fn update_specs(&mut self) {
        for family in ModelFamily::ALL {
            let all = self.all.values().map(|entry| entry.tool.def());
            let visible = all.filter(|def| {
                def.spec.name != REVIEW && def.family.is_none_or(|only| only == family)
            });
            let specs = visible.map(|def| def.spec.clone()).collect();
            self.specs.insert(family, specs);
        }
    }

    /// The same tools for sessions with this sandbox.
    pub(crate) fn for_sandbox(&self, sandbox: &dyn Sandbox) -> Self {
        let mut tools = self.clone();
        for entry in tools.all.values_mut() {
            entry.may_request_decision = entry.tool.may_request_decision(sandbox);
        }
        tools
    }

    /// The names of tools whose output is never pruned.
    pub(crate) fn protected(&self) -> impl Iterator<Item = String> {
        let all = self.all.iter();
        let protected = all.filter(|(_, entry)| entry.tool.def().protected_from_pruning);
        protected.map(|(name, _)| name.clone())
    }

    /// What the models of a family see of the tools.
    pub(crate) fn specs(&self, family: ModelFamily) -> Arc<[ToolSpec]> {
        self.specs.get(&family).cloned().unwrap_or_default()
    }

    /// Runs a tool. Invalid arguments, a panic and a timeout are errors that the model reads.
    pub(crate) fn run(
        &self,
        name: &str,
        args: Value,
        context: ToolContext,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send + 'static {
        let entry = self.all.get(name);
        let entry = entry.map(|entry| {
            let (tool, parameters) = (Arc::clone(&entry.tool), Arc::clone(&entry.parameters));
            // Once approved, an unrepeatable tool is marked as started before it runs.
            let runs_once = matches!(
                tool.def().effect,
                EffectClass::AtMostOnce | EffectClass::Ask
            );
            let starts_once =
                runs_once && tool.def().can_need_approval() && !entry.may_request_decision;
            (tool, parameters, starts_once)
        });
        let name = name.to_owned();
        async move {
            let fail = |code, message: String| ToolError(ErrorInfo::new(code, message));
            let Some((tool, parameters, starts_once)) = entry else {
                let message = format!("there is no tool `{name}`");
                return Err(fail(ErrorCode::UnknownTool, message));
            };
            // Arguments that the provider could not parse.
            if let Value::String(text) = &args
                && let Err(error) = exact_json::parse(text)
            {
                let message = format!("invalid arguments: {error}");
                return Err(fail(ErrorCode::InvalidArguments, message));
            }
            if let Some(error) = parameters.error(&args) {
                let message = format!("invalid arguments: {error}");
                return Err(fail(ErrorCode::InvalidArguments, message));
            }
            let edited = match catch_panic(request_approval(tool.def(), &args, &context)).await {
                Ok(approval) => approval?,
                Err(panic) => {
                    return Err(fail(ErrorCode::ToolPanicked, panicked(&context, &panic)));
                }
            };
            let args = edited.as_ref().map_or(args, |edited| edited.args.clone());
            context.redact_credentials().await;
            if starts_once {
                context.set_effect(tool.def().effect).await?;
            }
            let timeout = tool.def().timeout;
            let context_copy = context.clone();
            let work = catch_panic(async move { tool.run(args, context).await });
            let outcome = match timeout {
                None => work.await,
                Some(time) => {
                    let Ok(outcome) = tokio::time::timeout(time, work).await else {
                        let message = format!("timed out after {} s", time.as_secs_f64());
                        return Err(fail(ErrorCode::Timeout, message));
                    };
                    outcome
                }
            };
            context_copy.flush_output();
            let redactor = &context_copy.redactor;
            match outcome {
                Ok(Ok(output)) => {
                    let mut output = match edited {
                        Some(edited) => edited.annotate(output),
                        None => output,
                    };
                    redactor.redact_in_place(&mut output.text);
                    redactor.redact_value(&mut output.data);
                    Ok(truncate(output, &context_copy).await)
                }
                Ok(Err(ToolError(mut error))) => {
                    redactor.redact_in_place(&mut error.message);
                    error.message = truncate_middle(&error.message, MAX_TEXT_BYTES, None);
                    Err(ToolError(error))
                }
                Err(panic) => Err(fail(
                    ErrorCode::ToolPanicked,
                    panicked(&context_copy, &panic),
                )),
            }
        }
    }
}

fn panicked(context: &ToolContext, panic: &str) -> String {
    format!("the tool panicked: {}", context.redactor.redact(panic))
}

impl ToolLookup for ToolRegistry {
    fn traits(&self, tool: &str) -> Option<ToolTraits> {
        let entry = self.all.get(tool)?;
        let def = entry.tool.def();
        Some(ToolTraits {
            effect: def.effect,
            exclusive: def.exclusive,
            is_task: def.is_task,
            may_request_decision: entry.may_request_decision || def.can_need_approval(),
        })
    }
}

/// Truncates output that is too long for a model. The full text goes to the blob store, if
/// there is one.
async fn truncate(mut output: ToolOutput, context: &ToolContext) -> ToolOutput {
    if output.text.len() > MAX_TEXT_BYTES {
        let hash = context.store_blob(&output.text).await;
        let full_text = hash.as_ref().map(|hash| FullText {
            hash,
            first_line: 1,
        });
        output.text = truncate_middle(&output.text, MAX_TEXT_BYTES, full_text);
        output.data = truncate_data(output.data);
        if let Some(hash) = hash {
            output.data = with_full_output(output.data, &hash);
        }
        return output;
    }
    output.data = truncate_data(output.data);
    output
}

/// Adds the address of the blob with the complete output to the data of a result.
fn with_full_output(data: Value, hash: &Hash) -> Value {
    let mut fields = match data {
        Value::Object(fields) => fields,
        Value::Null => Map::new(),
        other => Map::from_iter([("result".to_owned(), other)]),
    };
    fields.insert(FULL_OUTPUT.to_owned(), json!(format!("{SCHEME}{hash}")));
    Value::Object(fields)
}

/// Replaces oversized values by a note. Truncated JSON would not parse, and small fields such as
/// the hashes of the call are worth keeping.
fn truncate_data(data: Value) -> Value {
    if size(&data) <= MAX_TEXT_BYTES {
        return data;
    }
    match data {
        Value::Object(fields) if fields.len() <= MAX_FIELDS => {
            let each = MAX_TEXT_BYTES / MAX_FIELDS;
            let fields = fields.into_iter();
            let short = |(name, value)| match size(&value) {
                bytes if bytes > each => (name, omitted(bytes)),
                _ => (name, value),
            };
            Value::Object(fields.map(short).collect())
        }
        other => omitted(size(&other)),
    }
}

fn omitted(bytes: usize) -> Value {
    Value::String(format!("[{bytes} bytes omitted]"))
}

fn size(data: &Value) -> usize {
    let mut size = ByteCounter(0);
    // Serialisation fails only for a value that cannot be stored either.
    let _ = serde_json::to_writer(&mut size, data);
    size.0
}

/// Counts the bytes written to it.
struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
