//! `rye mcp call`: calls a tool of a server.

use rye_executor::OutputListener;
use rye_host::mcp_items as items;
use rye_mcp::client::ToolCall;
use serde_json::{Map, Value, json};

use super::super::execute::{StartedSupervisor, parameters};
use crate::cli::args::McpCallArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::page::{Page, sanitize};
use crate::cli::printer::{Outcome, Printer, Report};

pub(crate) fn run(
    args: &McpCallArgs,
    context: &Context,
    supervisor: &mut StartedSupervisor,
) -> Outcome {
    let library = context.library()?;
    let item = items::ServerItem::load(library, args.name.as_str())?;
    let accepted = items::tools(library, item.item.space, args.name.as_str());
    let accepted = accepted.into_iter().find(|item| item.tool == args.tool);
    let given = parameters::merged(args.params.as_deref(), Map::new())?;
    let Value::Object(arguments) = given else {
        return Err(Failure::usage("--params: expected a JSON object"));
    };
    let mut call = ToolCall::new(&args.tool, arguments);
    call.timeout = args.timeout;
    if let Some(item) = accepted {
        call.pin = Some(item.pin);
    } else {
        let hint = format!("rye mcp discover {}", args.name);
        let text = format!("tool {} of {} is not pinned", args.tool, args.name);
        context.printer.warn(&text, Some(&hint));
    }
    if !context.printer.json && !context.printer.quiet {
        call.listener = Some(OutputListener::new(|_, bytes| Printer::raw_error(bytes)));
    }
    let server = item.server(context);
    let answer = super::with_pool(supervisor, context, async |pool| {
        pool.call(&server, &call).await
    })??;
    let done = rye_mcp::tool_result(answer);
    Ok(Box::new(CallReport {
        tool: args.tool.clone(),
        data: done.data,
        failure: done
            .failure
            .map(|failed| Failure::failed(failed.code, failed.message)),
    }))
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
