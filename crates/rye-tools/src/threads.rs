//! The tools `list_threads` and `thread_read`: read related threads.

mod read;

use serde_json::{Value, json};

use super::tool;
use rye_engine::related_sessions::{RelatedSession, Relation};
use rye_engine::store::StoreError;
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

pub use read::thread_read;

/// Maximum number of child tasks and of sibling tasks to list.
const MAX_TASKS: usize = 100;

/// Lists the threads that [`thread_read`] can read.
pub fn list_threads() -> impl Tool {
    let description = "Lists the threads that `thread_read` can read: those of this session, of its \
        parent session, of sibling tasks, and of the tasks that this session started.";
    let parameters = json!({ "type": "object", "additionalProperties": false });
    let def = ToolDef::new("list_threads", description, parameters).effect(EffectClass::Pure);
    tool(def, run)
}

async fn run(_: Value, context: ToolContext) -> Result<ToolOutput, ToolError> {
    let sessions = context.related_sessions()?;
    // One more, to know whether there are more.
    let mut all = sessions.list(MAX_TASKS + 1).await.map_err(store_error)?;
    let more = [Relation::Sibling, Relation::Child].map(|it| truncate(&mut all, it));
    let mut lines = Vec::new();
    for related in &all {
        lines.extend(describe(related, &context));
    }
    if more.contains(&true) {
        lines.push(format!("[the newest {MAX_TASKS} tasks; there are more]"));
    }
    Ok(ToolOutput::new(
        lines.join("\n"),
        all.iter().map(data).collect(),
    ))
}

/// Removes the last session of a relation if there is one too many; true if it did.
fn truncate(all: &mut Vec<RelatedSession>, relation: Relation) -> bool {
    let matches = |it: &RelatedSession| it.relation == relation;
    let last = all.iter().rposition(matches);
    let is_over = all.iter().filter(|it| matches(it)).count() > MAX_TASKS;
    if let Some(last) = last.filter(|_| is_over) {
        all.remove(last);
    }
    is_over
}

fn describe(related: &RelatedSession, context: &ToolContext) -> Vec<String> {
    let id = &related.session.id;
    let mut lines = vec![match related.relation {
        Relation::Own => format!("this session, {id}"),
        Relation::Parent => format!("parent session, {id}"),
        Relation::Child => format!("task, {id} ({})", status_name(&related.session.status)),
        Relation::Sibling => format!(
            "sibling task, {id} ({})",
            status_name(&related.session.status)
        ),
    }];
    for thread in &related.threads {
        let mut line = format!("  {} ({}", thread.key, status_name(&thread.status));
        if thread.turn.is_some() {
            line.push_str(", running");
        }
        if thread.id == context.thread && *id == context.session {
            line.push_str(", current");
        }
        line.push(')');
        if let Some(summary) = &thread.summary {
            line = format!("{line}: {summary}");
        }
        lines.push(line);
    }
    lines
}

fn data(related: &RelatedSession) -> Value {
    let threads = related.threads.iter().map(|thread| {
        json!({
            "id": thread.id,
            "key": thread.key,
            "status": thread.status,
            "running": thread.turn.is_some(),
        })
    });
    json!({
        "session": related.session.id,
        "relation": match related.relation {
            Relation::Own => "own",
            Relation::Parent => "parent",
            Relation::Child => "child",
            Relation::Sibling => "sibling",
        },
        "threads": threads.collect::<Value>(),
    })
}

/// Serialized name of a status.
fn status_name(status: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(status).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

#[expect(clippy::needless_pass_by_value, reason = "passed to `map_err`")]
fn store_error(error: StoreError) -> ToolError {
    ToolError::failed(error.to_string())
}
