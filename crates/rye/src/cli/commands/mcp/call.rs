//! `rye mcp call`: calls a tool of a server.

use rye_executor::OutputListener;
use rye_host::mcp_items as items;
use rye_mcp::client::{RemoteTool, ToolCall};
use serde_json::{Map, Value, json};

use super::super::execute::{self, StartedSupervisor, TypedOptions, param_args, parameters};
use crate::cli::args::{CallOptions, McpCallArgs};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{Page, sanitize};
use crate::cli::printer::{Outcome, Printer, Report};

pub(crate) fn run(
    args: &McpCallArgs,
    context: &mut Context,
    printer: &mut Printer,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    let (tool, words) = args
        .call
        .split_first()
        .map_or(("", &[][..]), |(tool, words)| (tool.as_str(), words));
    let mut typed = TypedOptions::from(CallOptions {
        params: args.params.clone(),
        timeout: args.timeout,
        ..CallOptions::default()
    });
    let answer = call(args, (tool, words), context, supervisor, &mut typed);
    execute::apply(&typed, words, context, printer);
    let done = rye_mcp::tool_result(answer?);
    Ok(Box::new(CallReport {
        tool: tool.to_owned(),
        data: done.data,
        failure: done
            .failure
            .map(|failed| Failure::failed(failed.code, failed.message)),
    }))
}

/// Calls the tool with the typed parameters, and returns the answer of the server.
fn call(
    args: &McpCallArgs,
    (tool, words): (&str, &[String]),
    context: &Context,
    supervisor: &mut StartedSupervisor,
    typed: &mut TypedOptions,
) -> Result<Value, Failure> {
    let name = args.name.as_str();
    let library = context.library()?;
    let item = items::ServerItem::load(library, name)?;
    let accepted = items::tools(library, item.item.space, name);
    let accepted = accepted.into_iter().find(|item| item.tool == tool);
    let server = item.server(context);
    super::with_pool(supervisor, context, async |pool| {
        let schema = match &accepted {
            Some(item) => item.definition.get("inputSchema").cloned(),
            None if words.is_empty() => None,
            None => {
                let tools = pool.tools(&server).await?;
                let found = tools.iter().find(|found| found.name() == tool);
                found.map(RemoteTool::input_schema).cloned()
            }
        };
        let arguments = match parse(words, schema.as_ref(), typed) {
            Ok(arguments) => arguments,
            Err(failure) => return Ok(Err(failure.or_hint("rye mcp call --help".to_owned()))),
        };
        let mut call = ToolCall::new(tool, arguments);
        call.timeout = typed.options.timeout;
        call.pin = accepted.as_ref().map(|item| item.pin.clone());
        let printer = Printer {
            quiet: context.printer.quiet || typed.quiet,
            json: context.printer.json || typed.json,
            ..context.printer
        };
        if accepted.is_none() {
            let hint = format!("rye mcp discover {name}");
            let text = format!("tool {tool} of {name} is not pinned");
            printer.warn(&text, Some(&hint));
        }
        let is_silent = printer.json || printer.quiet;
        call.listener =
            (!is_silent).then(|| OutputListener::new(|_, bytes| Printer::raw_error(bytes)));
        Ok(Ok(pool.call(&server, &call).await?))
    })??
}

/// The parameters of the call, by name and from `--params`.
fn parse(
    words: &[String],
    schema: Option<&Value>,
    typed: &mut TypedOptions,
) -> Result<Map<String, Value>, Failure> {
    let named = param_args::parse(words, schema, typed)?;
    let options = &typed.options;
    if typed.help || options.dry_run || options.background || options.trace.is_some() {
        let message = "--help, --dry-run, --async and --trace do not apply to a call of a server";
        return Err(Failure::usage(message));
    }
    match parameters::merged(options.params.as_deref(), named)? {
        Value::Object(arguments) => Ok(arguments),
        _ => Err(Failure::usage("--params: expected a JSON object")),
    }
}

struct CallReport {
    tool: String,
    data: Value,
    failure: Option<Failure>,
}

impl Report for CallReport {
    fn json(&self) -> Value {
        json!({ "tool": self.tool, "data": self.data })
    }

    fn show(&self, page: &mut Page) {
        match self.data.get("text").and_then(Value::as_str) {
            Some(_) if self.failure.is_some() => {}
            Some(text) if self.data.get("content").is_none() => {
                page.line(sanitize(text.trim_end()));
            }
            _ => {
                let text = serde_json::to_string_pretty(&self.data).unwrap_or_default();
                page.line(sanitize(&text));
            }
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.clone()
    }
}
