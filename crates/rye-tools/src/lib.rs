//! The agent's built-in tools, which work in any [sandbox](rye_engine::sandbox::Sandbox), and the
//! [meta tools](meta_tools) `list_tools` and `call_tool`.
//!
//! ```
//! let tools = rye_tools::tools();
//! let names: Vec<_> = tools.iter().map(|tool| tool.def().spec.name.as_str()).collect();
//! assert_eq!(names, [
//!     "bash", "edit", "glob", "grep", "list_threads", "read", "task", "thread_read", "write",
//! ]);
//! ```

mod approval;
mod bash;
mod edit;
mod glob;
mod grep;
pub mod meta_tools;
mod placeholder_guard;
mod read;
mod skill;
mod task;
mod threads;
mod tree;
mod write;

use std::sync::Arc;

use rye_protocol::{ErrorCode, ErrorInfo};
use serde::de::DeserializeOwned;
use serde_json::Value;

use rye_engine::sandbox::SandboxError;
use rye_engine::tool::{Tool, ToolError};

pub use bash::Bash;
pub use edit::Edit;
pub use glob::Glob;
pub use grep::Grep;
pub use read::Read;
pub use skill::Skill;
pub use task::Task;
pub use threads::{ListThreads, ThreadRead};
pub use write::Write;

/// All built-in tools except [`Skill`].
pub fn tools() -> Vec<Arc<dyn Tool>> {
    // Held while a file is read and written, so that no change is lost.
    let write_lock = Arc::default();
    vec![
        Arc::new(Bash::default()),
        Arc::new(Edit::new(Arc::clone(&write_lock))),
        Arc::new(Glob::default()),
        Arc::new(Grep::default()),
        Arc::new(ListThreads::default()),
        Arc::new(Read::default()),
        Arc::new(Task::default()),
        Arc::new(ThreadRead::default()),
        Arc::new(Write::new(write_lock)),
    ]
}

pub(crate) fn parse<T: DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    let invalid = |error: serde_json::Error| {
        ToolError(ErrorInfo::new(
            ErrorCode::InvalidArguments,
            error.to_string(),
        ))
    };
    serde_json::from_value(args).map_err(invalid)
}

/// Formats a count with a noun in singular or plural.
fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn sandbox_error(error: SandboxError) -> ToolError {
    ToolError(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rye_engine::tool::EffectClass;

    #[test]
    fn effect_and_exclusivity_of_each_tool() {
        let actual = tools().into_iter().map(|tool| {
            let def = tool.def();
            (def.spec.name.clone(), def.effect, def.exclusive)
        });
        let actual: Vec<_> = actual.collect();
        let expected = [
            ("bash", EffectClass::AtMostOnce, false),
            ("edit", EffectClass::AtMostOnce, true),
            ("glob", EffectClass::Pure, false),
            ("grep", EffectClass::Pure, false),
            ("list_threads", EffectClass::Pure, false),
            ("read", EffectClass::Pure, false),
            ("task", EffectClass::Idempotent, false),
            ("thread_read", EffectClass::Pure, false),
            ("write", EffectClass::Idempotent, true),
        ];
        assert_eq!(
            actual,
            expected.map(|(name, effect, exclusive)| (name.to_owned(), effect, exclusive))
        );
    }
}
