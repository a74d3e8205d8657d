//! Tools that every agent has, over whatever sandbox there is.
//!
//! ```
//! let tools = rye_engine::builtin::tools();
//! let names: Vec<_> = tools.iter().map(|tool| tool.def().spec.name.as_str()).collect();
//! assert_eq!(names, [
//!     "bash", "edit", "glob", "grep", "list_threads", "read", "task", "thread_read", "write",
//! ]);
//! ```

mod bash;
mod edit;
mod glob;
mod grep;
mod permission;
mod read;
mod redacted;
mod skill;
mod task;
mod threads;
mod tree;
mod write;

use std::sync::Arc;

use rye_protocol::{ErrorCode, ErrorInfo};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::sandbox::SandboxError;
use crate::tool::{Tool, ToolError};

pub use bash::Bash;
pub use edit::Edit;
pub use glob::Glob;
pub use grep::Grep;
pub use read::Read;
pub(crate) use read::image_type;
pub use skill::Skill;
pub use task::Task;
pub use threads::{ListThreads, ThreadRead};
pub use write::Write;

/// All of them.
pub fn tools() -> Vec<Arc<dyn Tool>> {
    // A change of a file is read and written as one.
    let alone = Arc::default();
    vec![
        Arc::new(Bash::default()),
        Arc::new(Edit::new(Arc::clone(&alone))),
        Arc::new(Glob::default()),
        Arc::new(Grep::default()),
        Arc::new(ListThreads::default()),
        Arc::new(Read::default()),
        Arc::new(Task::default()),
        Arc::new(ThreadRead::default()),
        Arc::new(Write::new(alone)),
    ]
}

pub(crate) fn parse<T: DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    let wrong = |error: serde_json::Error| {
        ToolError(ErrorInfo::new(
            ErrorCode::InvalidArguments,
            error.to_string(),
        ))
    };
    serde_json::from_value(args).map_err(wrong)
}

/// So many of something.
fn counted(number: usize, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}

fn failed(error: SandboxError) -> ToolError {
    ToolError(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Effect;

    #[test]
    fn what_may_run_again_is_known_of_each_tool() {
        let known = tools().into_iter().map(|tool| {
            let def = tool.def();
            (def.spec.name.clone(), def.effect, def.exclusive)
        });
        let known: Vec<_> = known.collect();
        let wanted = [
            ("bash", Effect::AtMostOnce, false),
            ("edit", Effect::AtMostOnce, true),
            ("glob", Effect::Pure, false),
            ("grep", Effect::Pure, false),
            ("list_threads", Effect::Pure, false),
            ("read", Effect::Pure, false),
            ("task", Effect::Idempotent, false),
            ("thread_read", Effect::Pure, false),
            ("write", Effect::Idempotent, true),
        ];
        assert_eq!(
            known,
            wanted.map(|(name, effect, alone)| (name.to_owned(), effect, alone))
        );
    }
}
