//! Commands, run by the sandbox's shell.

use std::time::Duration;

use lillux::Hash;
use rye_protocol::{ErrorCode, ErrorInfo, ProcessRef};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{failed, parse};
use crate::sandbox::{Exec, Executed, Watcher};
use crate::store::Later;
use crate::text::without_middle;
use crate::tool::{DecisionRequest, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// How long a command runs where the model does not say.
const STANDARD: u64 = 120;
/// And where it does, at most.
const LONGEST: u64 = 3600;
/// How much of each stream the sandbox keeps, and how much of that a model reads.
const KEPT: usize = 256 * 1024;
const SHOWN: usize = 30_000;
/// The kind of sandbox that confines nothing.
const UNCONFINED: &str = "local";

/// Runs a command in the sandbox's shell. It is never repeated on its own: who knows what
/// it did. Where nothing confines it, a person must agree first.
#[derive(Debug)]
pub struct Bash {
    def: ToolDef,
}

impl Default for Bash {
    fn default() -> Self {
        let description = "Runs a command in a shell and gives what it prints and, if it is \
            not 0, its exit code. Each command has a shell of its own: variables and `cd` do \
            not last, files do. Long output is cut in the middle.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "minLength": 1, "description": "What the shell reads." },
                "cwd": { "type": "string", "description": "The folder to run it in; else the workspace." },
                "timeout": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": LONGEST,
                    "description": "Seconds after which it is ended, with all that it started; else 120.",
                },
            },
            "required": ["command"],
            "additionalProperties": false,
        });
        Self {
            def: ToolDef::new("bash", description, parameters),
        }
    }
}

#[derive(Deserialize)]
struct Args {
    command: String,
    cwd: Option<String>,
    timeout: Option<f64>,
}

impl Tool for Bash {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn run(&self, args: Value, context: ToolContext) -> Later<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let args: Args = parse(args)?;
            let time = args
                .timeout
                .and_then(|it| Duration::try_from_secs_f64(it).ok());
            let time = time.unwrap_or(Duration::from_secs(STANDARD));
            let exec = Exec {
                command: args.command,
                cwd: args.cwd,
                timeout: Some(time),
                max_output: Some(KEPT),
                ..Exec::default()
            };
            if context.sandbox.kind() == UNCONFINED {
                approval(&exec, &context).await?;
            }
            let ear = Ear { context: &context };
            let executed = context.sandbox.exec(exec, &ear).await.map_err(failed)?;
            Ok(report(executed, time))
        })
    }
}

/// Waits until a person agrees to this very command.
async fn approval(exec: &Exec, context: &ToolContext) -> Result<(), ToolError> {
    let request = request(exec, context.call.as_str());
    let resolution = context.request_decision(request).await?;
    if resolution.action == "approve" {
        return Ok(());
    }
    let message = format!("{} did not allow it", resolution.by);
    Err(ToolError(ErrorInfo::new(ErrorCode::Denied, message)))
}

/// The gate is that of the call and of what it would run: a model that uses a call's id
/// again has to ask again.
fn request(exec: &Exec, call: &str) -> DecisionRequest {
    let Exec { command, cwd, .. } = exec;
    let what = Hash::of(json!([command, cwd]).to_string()).to_hex();
    let first = command.trim().lines().next().unwrap_or_default();
    let mut request =
        DecisionRequest::approval(format!("{call}:{what:.32}"), format!("run: {first}"));
    request.body = match cwd {
        Some(folder) => format!("in {folder}:\n{command}"),
        None => command.clone(),
    };
    request
}

/// Passes on what happens meanwhile.
struct Ear<'a> {
    context: &'a ToolContext,
}

impl Watcher for Ear<'_> {
    fn started(&self, process: &str) {
        self.context.started(ProcessRef(process.to_owned()));
    }

    fn printed(&self, text: &str) {
        self.context.output(text);
    }
}

/// What the model reads: the output as it is if all went well, and else what else there
/// is to know.
fn report(executed: Executed, time: Duration) -> ToolOutput {
    let data = json!({
        "exit_code": executed.exit_code,
        "timed_out": executed.timed_out,
        "truncated": executed.truncated,
    });
    let shown = |text: String| without_middle(text.trim_end_matches('\n').to_owned(), SHOWN);
    let (stdout, stderr) = (shown(executed.stdout), shown(executed.stderr));
    let mut parts = Vec::new();
    if !stdout.is_empty() {
        parts.push(stdout);
    }
    if !stderr.is_empty() {
        parts.push(format!("[stderr]\n{stderr}"));
    }
    match (executed.timed_out, executed.exit_code) {
        (true, _) => parts.push(format!(
            "[its time was up after {} s: it was ended with all that it started; \
             give a longer timeout if it needs one]",
            time.as_secs_f64()
        )),
        (false, Some(0)) if parts.is_empty() => parts.push("[no output]".to_owned()),
        (false, Some(0)) => {}
        (false, Some(code)) => parts.push(format!("[exit code {code}]")),
        (false, None) => parts.push("[a signal ended it]".to_owned()),
    }
    ToolOutput {
        text: parts.join("\n"),
        data,
        attachments: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(stdout: &str, stderr: &str, exit_code: Option<i32>, timed_out: bool) -> String {
        let executed = Executed {
            stdout: stdout.into(),
            stderr: stderr.into(),
            exit_code,
            timed_out,
            truncated: false,
        };
        report(executed, Duration::from_millis(1500)).text
    }

    #[test]
    fn a_person_agrees_to_one_command_in_one_folder() {
        let exec = |command: &str, cwd: Option<&str>| Exec {
            command: command.to_owned(),
            cwd: cwd.map(str::to_owned),
            ..Exec::default()
        };
        let asked = request(&exec("make\nmake install", Some("src")), "call-1");
        assert_eq!(asked.title, "run: make");
        assert_eq!(asked.body, "in src:\nmake\nmake install");
        let key = asked.resume_key;
        assert!(key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
        let same = request(&exec("make\nmake install", Some("src")), "call-1");
        assert_eq!(same.resume_key, key);
        for (command, cwd, call) in [
            ("make\nmake install", None, "call-1"),
            ("make", Some("src"), "call-1"),
            ("make\nmake install", Some("src"), "call-2"),
        ] {
            let other = request(&exec(command, cwd), call);
            assert_ne!(other.resume_key, key, "{command} {cwd:?} {call}");
        }
    }

    #[test]
    fn a_model_reads_what_it_needs_and_no_more() {
        assert_eq!(text("hi\n", "", Some(0), false), "hi");
        assert_eq!(text("", "", Some(0), false), "[no output]");
        assert_eq!(text("a\n", "b\n", Some(0), false), "a\n[stderr]\nb");
        assert_eq!(
            text("", "b\n", Some(2), false),
            "[stderr]\nb\n[exit code 2]"
        );
        assert_eq!(text("", "", None, false), "[a signal ended it]");
        assert!(text("a", "", None, true).starts_with("a\n[its time was up after 1.5 s"));
        let long = text(&"x".repeat(SHOWN * 2), "", Some(1), false);
        assert!(long.len() < SHOWN + 100 && long.ends_with("[exit code 1]"));
    }
}
