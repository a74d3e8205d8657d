//! Tools that every agent has, over whatever sandbox there is.
//!
//! ```
//! let tools = rye_engine::builtin::tools();
//! let names: Vec<_> = tools.iter().map(|tool| tool.def().spec.name.as_str()).collect();
//! assert_eq!(names, ["bash", "read", "task", "write"]);
//! ```

mod bash;
mod read;
mod task;
mod write;

use std::sync::Arc;

use rye_protocol::{ErrorCode, ErrorInfo};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::sandbox::SandboxError;
use crate::tool::{Tool, ToolError};

pub use bash::Bash;
pub use read::Read;
pub use task::Task;
pub use write::Write;

/// All of them.
pub fn tools() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(Bash::default()),
        Arc::new(Read::default()),
        Arc::new(Task::default()),
        Arc::new(Write::default()),
    ]
}

fn parse<T: DeserializeOwned>(args: Value) -> Result<T, ToolError> {
    let wrong = |error: serde_json::Error| {
        ToolError(ErrorInfo::new(
            ErrorCode::InvalidArguments,
            error.to_string(),
        ))
    };
    serde_json::from_value(args).map_err(wrong)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn failed(error: SandboxError) -> ToolError {
    ToolError::failed(error.to_string())
}
