//! The agent's built-in tools, which work in any [sandbox](rye_engine::sandbox::Sandbox), and the
//! [meta tools](meta_tools) `list_tools` and `call_tool`.
//!
//! ```
//! let tools = rye_tools::tools();
//! let names: Vec<_> = tools.iter().map(|tool| tool.def().spec.name.as_str()).collect();
//! assert_eq!(names, [
//!     "apply_patch", "ask", "bash", "bash_kill", "bash_output", "edit", "glob", "grep",
//!     "list_threads", "plan", "read", "task", "thread_read", "write",
//! ]);
//! ```

mod apply_patch;
mod approval;
mod ask;
mod background;
mod bash;
mod checks;
mod edit;
mod fetch;
mod glob;
mod grep;
pub mod meta_tools;
mod placeholder_guard;
mod plan;
mod read;
mod skill;
mod task;
mod threads;
mod tree;
mod write;

use std::sync::Arc;

use rye_protocol::{ErrorCode, ErrorInfo, ProcessRef};
use serde::de::DeserializeOwned;
use serde_json::Value;

use rye_engine::BoxFuture;
use rye_engine::sandbox::{ExecObserver, SandboxError};
use rye_engine::tool::{Tool, ToolContext, ToolDef, ToolError, ToolOutput};

use apply_patch::ApplyPatch;
use ask::Ask;
use background::{BackgroundCommands, bash_kill, bash_output};
pub use bash::Bash;
pub use checks::{CheckSpec, Checks};
use edit::Edit;
pub use fetch::{Fetch, fetch};
pub use glob::glob;
pub use grep::grep;
use plan::plan;
pub use read::read;
pub use skill::skill;
pub use task::task;
pub use threads::{list_threads, thread_read};
use write::Write;

/// All built-in tools except [`skill()`] and [`fetch()`], which need more than a sandbox.
pub fn tools() -> Vec<Arc<dyn Tool>> {
    tools_with_checks(Checks::default())
}

/// Like [`tools()`], with checks of the files that tools change.
pub fn tools_with_checks(checks: Checks) -> Vec<Arc<dyn Tool>> {
    let checks = Arc::new(checks);
    // Held while a file is read and written, so that no change is lost.
    let write_lock = Arc::<tokio::sync::Mutex<()>>::default();
    let background = Arc::<BackgroundCommands>::default();
    vec![
        Arc::new(ApplyPatch::new(
            Arc::clone(&write_lock),
            Arc::clone(&checks),
        )),
        Arc::new(Ask::default()),
        Arc::new(Bash::new(Arc::clone(&background))),
        Arc::new(bash_kill(Arc::clone(&background))),
        Arc::new(bash_output(background)),
        Arc::new(Edit::new(Arc::clone(&write_lock), Arc::clone(&checks))),
        Arc::new(glob()),
        Arc::new(grep()),
        Arc::new(list_threads()),
        Arc::new(plan()),
        Arc::new(read()),
        Arc::new(task()),
        Arc::new(thread_read()),
        Arc::new(Write::new(write_lock, checks)),
    ]
}

/// A tool that a function runs.
struct FunctionTool<F> {
    def: ToolDef,
    run: F,
}

impl<F> Tool for FunctionTool<F>
where
    F: Fn(Value, ToolContext) -> BoxFuture<'static, Result<ToolOutput, ToolError>>,
    F: Send + Sync + 'static,
{
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        (self.run)(args, context)
    }
}

/// Creates a tool from its definition and the function that runs a call.
fn tool<A, F, R>(def: ToolDef, run: F) -> impl Tool
where
    A: DeserializeOwned,
    F: Fn(A, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    let run = move |args, context| -> BoxFuture<'static, _> {
        match parse(args) {
            Ok(args) => Box::pin(run(args, context)),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    };
    FunctionTool { def, run }
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

/// Publishes output and the process id while the command runs.
struct OutputForwarder<'a>(&'a ToolContext);

impl ExecObserver for OutputForwarder<'_> {
    fn on_start(&self, process: &str) {
        self.0.register_process(ProcessRef(process.to_owned()));
    }

    fn on_output(&self, text: &str) {
        self.0.output(text);
    }

    fn approve_connection<'a>(&'a self, target: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(approval::approve_connection(target, self.0))
    }
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
            ("apply_patch", EffectClass::AtMostOnce, true),
            ("ask", EffectClass::Idempotent, false),
            ("bash", EffectClass::AtMostOnce, false),
            ("bash_kill", EffectClass::Idempotent, false),
            ("bash_output", EffectClass::AtMostOnce, false),
            ("edit", EffectClass::AtMostOnce, true),
            ("glob", EffectClass::Pure, false),
            ("grep", EffectClass::Pure, false),
            ("list_threads", EffectClass::Pure, false),
            ("plan", EffectClass::Pure, false),
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
