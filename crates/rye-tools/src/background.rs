//! Commands in the background: `bash` starts them, `bash_output` reads their output and `bash_kill`
//! ends them. They end with the session.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rye_protocol::{BackgroundCommand as BackgroundView, ErrorCode, ErrorInfo, SessionId};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::tool;
use rye_engine::sandbox::{Exec, ExecObserver, ExecOutput, Sandbox, SandboxError};
use rye_engine::text::truncate_middle;
use rye_engine::tool::{EffectClass, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// Maximum number of commands that run in the background of a session.
const MAX_RUNNING: usize = 16;
/// Maximum size of the output of a command, in bytes.
const MAX_OUTPUT: usize = 4 * 1024 * 1024;
/// Maximum size of the output in a result, in bytes.
const MAX_SHOWN: usize = 30_000;
/// How long a new command is watched, so that a command that fails at once is reported at once.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// Maximum time to wait for output, in seconds.
const MAX_WAIT: u64 = 600;

/// The commands of all sessions, shared by the three tools.
#[derive(Default)]
pub(super) struct BackgroundCommands {
    all: Mutex<HashMap<SessionId, Vec<Arc<BackgroundCommand>>>>,
}

/// A command in the background.
struct BackgroundCommand {
    id: String,
    command: String,
    /// Output and state; watched by readers.
    state: watch::Sender<State>,
    stop: CancellationToken,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// Output since the last report.
    output: String,
    /// How the command ended, for the model.
    ended: Option<String>,
}

impl ExecObserver for BackgroundCommand {
    fn on_start(&self, _: &str) {}

    fn on_output(&self, text: &str) {
        self.state.send_modify(|state| state.output.push_str(text));
    }
}

impl BackgroundCommands {
    /// Starts a command and watches it for a moment.
    pub(super) async fn start(
        self: &Arc<Self>,
        exec: Exec,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let closed = context.session_closed()?;
        self.check_limit(&context.session)?;
        context.record_unknown_changes().await?;
        // Other calls may have started commands meanwhile.
        self.check_limit(&context.session)?;
        let command = {
            let mut all = self.all.lock();
            let own = all.entry(context.session.clone()).or_default();
            let command = Arc::new(BackgroundCommand {
                id: format!("bg-{}", own.len() + 1),
                command: exec.command.clone(),
                state: watch::Sender::default(),
                stop: CancellationToken::new(),
            });
            own.push(Arc::clone(&command));
            command
        };
        context.report_background(command.view(None));
        let exec = Exec {
            timeout: None,
            max_output: Some(MAX_OUTPUT),
            max_streamed: Some(MAX_OUTPUT),
            ..exec
        };
        let (commands, session) = (Arc::clone(self), context.session.clone());
        let (running, sandbox) = (Arc::clone(&command), Arc::clone(&context.sandbox));
        let context = context.clone();
        tokio::spawn(async move {
            let ended = tokio::select! {
                biased;
                () = closed.cancelled() => {
                    // Nobody can read the output of a closed session.
                    commands.all.lock().remove(&session);
                    "ended with the session".to_owned()
                }
                () = running.stop.cancelled() => "killed".to_owned(),
                output = sandbox.exec(exec, &*running) => ending(output, &*sandbox).await,
            };
            context.report_background(running.view(Some(&ended)));
            running.state.send_modify(|state| state.ended = Some(ended));
        });
        command
            .wait(FIRST_LOOK, |state| state.ended.is_some())
            .await;
        Ok(command.report())
    }

    /// Fails if the session cannot start another command.
    fn check_limit(&self, session: &SessionId) -> Result<(), ToolError> {
        let all = self.all.lock();
        let own = all.get(session).map_or(&[][..], Vec::as_slice);
        let running = own.iter().filter(|it| it.is_running()).count();
        if running < MAX_RUNNING {
            return Ok(());
        }
        let message =
            format!("{running} commands run in the background already: end one with `bash_kill`");
        Err(ToolError(ErrorInfo::new(ErrorCode::Limit, message)))
    }

    fn find(&self, id: &str, context: &ToolContext) -> Result<Arc<BackgroundCommand>, ToolError> {
        let all = self.all.lock();
        let own = all.get(&context.session).map_or(&[][..], Vec::as_slice);
        let found = own.iter().find(|it| it.id == id).cloned();
        found.ok_or_else(|| {
            let ids: Vec<_> = own.iter().map(|it| it.id.as_str()).collect();
            let known = match ids.as_slice() {
                [] => {
                    "none was started since the session was opened; earlier ones have ended".into()
                }
                ids => format!("there are {}", ids.join(", ")),
            };
            ToolError::failed(format!("no command `{id}` in the background: {known}"))
        })
    }
}

impl BackgroundCommand {
    /// The command for people who follow the session.
    fn view(&self, ended: Option<&str>) -> BackgroundView {
        BackgroundView {
            id: self.id.clone(),
            command: self.command.clone(),
            ended: ended.map(str::to_owned),
        }
    }

    fn is_running(&self) -> bool {
        self.state.borrow().ended.is_none()
    }

    /// Waits until the state fulfils a condition, or for this long.
    async fn wait(&self, time: Duration, mut condition: impl FnMut(&State) -> bool) {
        let mut state = self.state.subscribe();
        let changed = state.wait_for(|state| condition(state));
        // A timeout is an answer as well.
        let _ = tokio::time::timeout(time, changed).await;
    }

    /// The output since the last report, and the status.
    fn report(&self) -> ToolOutput {
        let mut new = String::new();
        let mut ended = None;
        self.state.send_modify(|state| {
            // What was reported is in the history.
            new = std::mem::take(&mut state.output);
            ended.clone_from(&state.ended);
        });
        let status = match &ended {
            Some(ended) => format!("[{}: {ended}]", self.id),
            None => format!(
                "[{} runs in the background; `bash_output` reads its output, `bash_kill` ends it]",
                self.id
            ),
        };
        let output = truncate_middle(new.trim_end_matches('\n'), MAX_SHOWN, None);
        let text = match output.as_str() {
            "" => status,
            output => format!("{output}\n{status}"),
        };
        let data = json!({
            "id": self.id,
            "command": self.command,
            "running": ended.is_none(),
            "ended": ended,
        });
        ToolOutput::new(text, data)
    }
}

/// How a command ended. Protected files that it created are removed, because nobody waits for it
/// and could keep them.
async fn ending(output: Result<ExecOutput, SandboxError>, sandbox: &dyn Sandbox) -> String {
    let output = match output {
        Ok(output) => output,
        Err(error) => return format!("failed: {error}"),
    };
    let mut text = match output.exit_code {
        Some(code) => format!("exit code {code}"),
        None => "killed by a signal".to_owned(),
    };
    if !output.quarantined.is_empty() {
        let paths = output.quarantined.join(", ");
        let removed = sandbox.settle_quarantined(&output.quarantined, false).await;
        let _ = match removed {
            Ok(()) => write!(text, "; removed protected files: {paths}"),
            Err(error) => write!(text, "; cannot remove {paths}: {error}"),
        };
    }
    for refused in &output.refused_connections {
        let _ = write!(text, "; connection refused by the sandbox: {refused}");
    }
    text
}

#[derive(Deserialize)]
struct OutputArgs {
    id: String,
    #[serde(default)]
    wait: u64,
}

/// The tool that reads the output of a command in the background.
pub(super) fn bash_output(commands: Arc<BackgroundCommands>) -> impl Tool {
    let description = "Returns what a command in the background has printed since the last call, \
        and whether it still runs.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "id": { "type": "string", "description": "Id from `bash`: `bg-1`." },
            "wait": {
                "type": "integer", "minimum": 0, "maximum": MAX_WAIT,
                "description": "Seconds to wait for output or the end. Default: 0.",
            },
        },
        "required": ["id"],
        "additionalProperties": false,
    });
    // A repeated call would miss the output that the first one returned.
    let def = ToolDef::new("bash_output", description, parameters).effect(EffectClass::AtMostOnce);
    tool(def, move |args: OutputArgs, context: ToolContext| {
        let commands = Arc::clone(&commands);
        async move {
            let command = commands.find(&args.id, &context)?;
            let wait = Duration::from_secs(args.wait.min(MAX_WAIT));
            command
                .wait(wait, |state| {
                    !state.output.is_empty() || state.ended.is_some()
                })
                .await;
            Ok(command.report())
        }
    })
}

#[derive(Deserialize)]
struct KillArgs {
    id: String,
}

/// The tool that ends a command in the background.
pub(super) fn bash_kill(commands: Arc<BackgroundCommands>) -> impl Tool {
    let description = "Ends a command in the background and all its processes.";
    let parameters = json!({
        "type": "object",
        "properties": { "id": { "type": "string", "description": "Id from `bash`: `bg-1`." } },
        "required": ["id"],
        "additionalProperties": false,
    });
    let def = ToolDef::new("bash_kill", description, parameters).effect(EffectClass::Idempotent);
    tool(def, move |args: KillArgs, context: ToolContext| {
        let commands = Arc::clone(&commands);
        async move {
            let command = commands.find(&args.id, &context)?;
            command.stop.cancel();
            let mut state = command.state.subscribe();
            // The sender lives as long as the command.
            let _ = state.wait_for(|state| state.ended.is_some()).await;
            Ok(command.report())
        }
    })
}
