//! What was said and done in the threads around.

mod read;

use serde_json::{Value, json};

use crate::BoxFuture;
use crate::history::{RelatedSession, Relation};
use crate::store::StoreError;
use crate::tool::{Effect, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

pub use read::ThreadRead;

/// How many tasks are told: of those that this session gave, and of those beside it.
const TASKS: usize = 100;

/// Names the threads that [`ThreadRead`] can read.
#[derive(Debug)]
pub struct ListThreads {
    def: ToolDef,
}

impl Default for ListThreads {
    fn default() -> Self {
        let description = "Lists the threads that `thread_read` can read: those of this \
            session, of the one that asked for it, of its other tasks, and of the tasks that \
            this session gave.";
        let parameters = json!({ "type": "object", "additionalProperties": false });
        Self {
            def: ToolDef::new("list_threads", description, parameters).effect(Effect::Pure),
        }
    }
}

impl Tool for ListThreads {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, _: Value, context: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let history = context.history()?;
            // One more says whether there are more.
            let mut all = history.related(TASKS + 1).await.map_err(failed)?;
            let more = [Relation::Sibling, Relation::Child].map(|it| cut(&mut all, it));
            let mut lines = Vec::new();
            for related in &all {
                lines.extend(describe(related, &context));
            }
            if more.contains(&true) {
                lines.push(format!("[the newest {TASKS} tasks; there are more]"));
            }
            Ok(ToolOutput {
                text: lines.join("\n"),
                data: all.iter().map(data).collect(),
                attachments: Vec::new(),
            })
        })
    }
}

/// Leaves the last one out where there is one too many of a kind.
fn cut(all: &mut Vec<RelatedSession>, relation: Relation) -> bool {
    let is_it = |it: &RelatedSession| it.relation == relation;
    let last = all.iter().rposition(is_it);
    let many = all.iter().filter(|it| is_it(it)).count() > TASKS;
    if let Some(last) = last.filter(|_| many) {
        all.remove(last);
    }
    many
}

fn describe(related: &RelatedSession, context: &ToolContext) -> Vec<String> {
    let id = &related.session.id;
    let mut lines = vec![match related.relation {
        Relation::Own => format!("this session, {id}"),
        Relation::Parent => format!("the session above, {id}"),
        Relation::Child => format!("task, {id} ({})", word(&related.session.status)),
        Relation::Sibling => format!(
            "another task of the session above, {id} ({})",
            word(&related.session.status)
        ),
    }];
    for thread in &related.threads {
        let mut line = format!("  {} ({}", thread.key, word(&thread.status));
        if thread.turn.is_some() {
            line.push_str(", at work");
        }
        if thread.id == context.thread && *id == context.session {
            line.push_str(", this one");
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
            "at_work": thread.turn.is_some(),
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

/// What a status is called.
fn word(status: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(status).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn failed(error: StoreError) -> ToolError {
    ToolError::failed(error.to_string())
}
