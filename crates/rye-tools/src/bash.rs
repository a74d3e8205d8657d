//! The tool `bash`: runs a command in the sandbox's shell.

use std::sync::Arc;
use std::time::Duration;

use lillux::{Hash, quote_block, sanitize_line};
use serde::Deserialize;
use serde_json::{Value, json};

use super::background::BackgroundCommands;
use super::{OutputForwarder, approval, parse, sandbox_error};
use rye_engine::BoxFuture;
use rye_engine::arguments::annotate;
use rye_engine::blob::{FULL_OUTPUT, SCHEME};
use rye_engine::sandbox::{Exec, ExecOutput, Grants, Sandbox};
use rye_engine::text::{FullText, truncate_middle};
use rye_engine::tool::{
    COMMAND_PREFIX, DecisionRequest, PREFIX, Tool, ToolContext, ToolDef, ToolError, ToolOutput,
};
use rye_protocol::{ErrorCode, ErrorInfo};

/// Default timeout, in seconds.
const DEFAULT_TIMEOUT: u64 = 120;
/// Maximum timeout, in seconds.
const MAX_TIMEOUT: u64 = 3600;
/// Maximum size of each captured stream, in bytes.
const MAX_OUTPUT: usize = 32 * 1024 * 1024;
/// Maximum size of the output that is published while the command runs, in bytes.
const MAX_STREAMED: usize = 256 * 1024;
/// Maximum size of each stream in the result, in bytes. The full output is stored as a blob.
const MAX_SHOWN: usize = 30_000;

/// Runs a command in the sandbox's shell. A call is never repeated automatically, because its
/// effects are unknown. Without an isolating sandbox, a person must approve it first.
pub struct Bash {
    def: ToolDef,
    background: Arc<BackgroundCommands>,
}

impl Default for Bash {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Bash {
    /// Creates the tool with the commands in the background, which other tools read and end.
    pub(super) fn new(background: Arc<BackgroundCommands>) -> Self {
        let description = "Runs a command in a shell and returns its output and, if it is not 0, \
            its exit code. Each command runs in a new shell: variables and `cd` do not persist, \
            files do. The middle of long output is omitted, with a note on how to read it.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "command": { "type": "string", "minLength": 1, "description": "The command line." },
                "cwd": { "type": "string", "description": "Working directory. Default: the workspace." },
                "timeout": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": MAX_TIMEOUT,
                    "description": "Seconds until the process tree is killed. Default: 120.",
                },
                "background": { "type": "boolean", "description": "For servers and watchers: returns at once; the command ends with the session. Without `timeout`." },
                "read": {
                    "type": "array", "items": { "type": "string", "minLength": 1 },
                    "description": "Paths outside of the workspace that the command reads.",
                },
                "write": {
                    "type": "array", "items": { "type": "string", "minLength": 1 },
                    "description": "Paths outside of the workspace, or protected ones such as `.git`, that the command writes.",
                },
                "network": {
                    "type": "array", "items": { "type": "string", "minLength": 1 },
                    "description": "Hosts that the command connects to: `crates.io`, `db.example.com:5432`.",
                },
                "unconfined": { "type": "boolean", "description": "Runs the command without the sandbox, if nothing else works." },
                "reason": { "type": "string", "description": "Why the command needs `read`, `write`, `network` or `unconfined`, for the person who approves it." },
            },
            "required": ["command"],
            "additionalProperties": false,
        });
        Self {
            def: ToolDef::new("bash", description, parameters),
            background,
        }
    }
}

#[derive(Deserialize)]
struct Args {
    command: String,
    cwd: Option<String>,
    timeout: Option<f64>,
    #[serde(default)]
    background: bool,
    /// What the command may use beyond the sandbox's policy.
    #[serde(flatten)]
    grants: Grants,
    #[serde(default)]
    reason: String,
}

impl Args {
    fn parse(args: &Value, context: &ToolContext) -> Result<Self, ToolError> {
        let mut parsed: Self = parse(args.clone())?;
        if !context.sandbox.confinement().confines_commands() {
            // Nothing is confined, so there is nothing to grant.
            parsed.grants = Grants::default();
        }
        if parsed.background && context.sandbox.review().is_some() {
            let message = "commands cannot run in the background in review mode, because they \
                would change files after the review: run the command without `background`";
            return Err(ToolError(ErrorInfo::new(
                ErrorCode::InvalidArguments,
                message,
            )));
        }
        Ok(parsed)
    }

    /// The command for the sandbox, and its timeout.
    fn exec(&self) -> (Exec, Duration) {
        let timeout = self
            .timeout
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let timeout = timeout.unwrap_or(Duration::from_secs(DEFAULT_TIMEOUT));
        let exec = Exec {
            command: self.command.clone(),
            cwd: self.cwd.clone(),
            timeout: Some(timeout),
            max_output: Some(MAX_OUTPUT),
            max_streamed: Some(MAX_STREAMED),
            ..Exec::default()
        };
        (exec, timeout)
    }
}

impl Tool for Bash {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn may_request_decision(&self, sandbox: &dyn Sandbox) -> bool {
        approval::may_need_approval(sandbox)
    }

    fn run(
        &self,
        args: Value,
        own_context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let mut parsed = Args::parse(&args, &own_context)?;
            let (mut exec, mut timeout) = parsed.exec();
            let mut context = widened(&parsed.grants, &own_context)?;
            let link = approval::resolved_link(exec.cwd.as_deref(), &context).await;
            let mut request = approval_request(&exec, link.as_deref(), context.call.as_str());
            approval::add_grants(&mut request, &parsed.grants, &parsed.reason, &context);
            let edited = approval::approve_command(&self.def, request, &args, &context).await?;
            if let Some(edited) = &edited {
                parsed = Args::parse(&edited.args, &own_context)?;
                (exec, timeout) = parsed.exec();
                context = widened(&parsed.grants, &own_context)?;
            } else if approval::resolved_link(exec.cwd.as_deref(), &context).await != link {
                let message =
                    "the working directory resolves to another path than when it was approved";
                return Err(ToolError::failed(message));
            }
            approval::mark_started(&self.def, &context).await?;
            if parsed.background {
                let output = self.background.start(exec, &context).await?;
                return Ok(annotate(edited.as_ref(), output));
            }
            let output = context.exec(exec, &OutputForwarder(&context)).await;
            let output = output.map_err(sandbox_error)?;
            let kept = approval::settle_quarantined(&output.quarantined, &context).await?;
            let report = Report::new(output, timeout, kept);
            let hash = if report.is_long() {
                context.store_blob(&report.full_text()).await
            } else {
                None
            };
            let output = report.output(hash.as_ref());
            Ok(annotate(edited.as_ref(), output))
        })
    }
}

/// The context of a call, with a sandbox whose policy also allows the grants.
fn widened(grants: &Grants, context: &ToolContext) -> Result<ToolContext, ToolError> {
    let mut context = context.clone();
    if !grants.is_empty() {
        context.sandbox = context.sandbox.widened(grants).map_err(sandbox_error)?;
    }
    Ok(context)
}

/// The request for approval. Its key covers the call, the command and the working directory, so
/// that a reused call id needs a new approval.
fn approval_request(exec: &Exec, link: Option<&str>, call: &str) -> DecisionRequest {
    let Exec { command, cwd, .. } = exec;
    let subject = match link {
        Some(resolved) => json!([command, cwd, resolved]),
        None => json!([command, cwd]),
    };
    let subject = Hash::digest(subject.to_string()).to_hex();
    let mut lines = command.trim().lines();
    let first = lines.next().unwrap_or_default();
    let more = if lines.next().is_some() { " …" } else { "" };
    let title = format!("run: {first}{more}");
    let mut request = DecisionRequest::approval(format!("{call}:{subject:.32}"), title);
    if let Some(dir) = cwd {
        let suffix = link.map_or_else(String::new, |resolved| {
            format!(" (resolves to {})", sanitize_line(resolved))
        });
        request.body = format!("in {}{suffix}:\n", sanitize_line(dir));
    }
    request.body += &quote_block(command);
    approval::add_resolved_path(&mut request, link);
    if let Some(prefix) = command_prefix(command) {
        let prefix = json!({ PREFIX: prefix, "cwd": cwd });
        request.context.insert(COMMAND_PREFIX.to_owned(), prefix);
    }
    request
}

/// Programs that run what their arguments say, so their name does not limit what happens.
const RUNNERS: &str = "ash awk bash bun busybox chroot chrt command csh dash deno docker doas env \
    eval exec find fish flatpak gawk ionice kubectl ksh lua mawk nice node nohup nsenter parallel \
    perl php podman powershell pwsh python ruby runuser script sed setsid sh ssh stdbuf su sudo \
    systemd-run tclsh time timeout tsx unshare watch xargs xonsh zsh";

/// The words at the start of a command by which a person can approve similar commands:
/// `cargo test` for `cargo test -p x`. `None` if words do not describe what runs: several
/// commands, redirections, expansions, assignments, and programs that run other programs.
fn command_prefix(command: &str) -> Option<String> {
    let is_inert = |letter: char| {
        letter.is_alphanumeric()
            || matches!(
                letter,
                ' ' | '-' | '_' | '.' | '/' | '=' | ':' | ',' | '@' | '+' | '%'
            )
    };
    let command = command.trim();
    if !command.chars().all(is_inert) {
        return None;
    }
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    let program = words.next()?;
    let unversioned =
        program.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let is_runner = RUNNERS
        .split_whitespace()
        .any(|runner| runner == unversioned);
    // A path in the workspace is a file that the agent can change.
    if is_runner || program.contains(['/', '=']) || program.starts_with('-') {
        return None;
    }
    let is_subcommand = |word: &&str| {
        word.starts_with(char::is_alphabetic) && !word.contains(['.', '/', '=', ':', '@'])
    };
    match words.next() {
        // The subcommand is behind the options; without it, the prefix would cover all.
        Some(word) if word.starts_with('-') => None,
        Some(word) if is_subcommand(&word) => Some(format!("{program} {word}")),
        _ => Some(program.to_owned()),
    }
}

/// The result of a command: its output and, unless it succeeded, how it ended.
struct Report {
    stdout: String,
    stderr: String,
    status_line: Option<String>,
    data: Value,
}

/// Line before the standard error stream.
const STDERR: &str = "[stderr]";

impl Report {
    fn new(output: ExecOutput, timeout: Duration, kept: Option<String>) -> Self {
        let data = json!({
            "exit_code": output.exit_code,
            "timed_out": output.timed_out,
            "truncated": output.truncated,
        });
        let trimmed = |mut text: String| {
            text.truncate(text.trim_end_matches('\n').len());
            text
        };
        let (stdout, stderr) = (trimmed(output.stdout), trimmed(output.stderr));
        let status_line = match (output.timed_out, output.exit_code) {
            (true, _) => Some(format!(
                "[timed out after {} s; the process tree was killed. \
                 Set a longer timeout if needed]",
                timeout.as_secs_f64()
            )),
            (false, Some(0)) if stdout.is_empty() && stderr.is_empty() => {
                Some("[no output]".to_owned())
            }
            (false, Some(0)) => None,
            (false, Some(code)) => Some(format!("[exit code {code}]")),
            (false, None) => Some("[killed by a signal]".to_owned()),
        };
        let refused = output.refused_connections.iter();
        let refused = refused.map(|it| format!("[connection refused by the sandbox: {it}]"));
        let lines = [status_line, kept].into_iter().flatten().chain(refused);
        let status_line = lines.reduce(|first, second| format!("{first}\n{second}"));
        Self {
            stdout,
            stderr,
            status_line,
            data,
        }
    }

    fn is_long(&self) -> bool {
        self.stdout.len() > MAX_SHOWN || self.stderr.len() > MAX_SHOWN
    }

    /// The complete text.
    fn full_text(&self) -> String {
        join(&self.stdout, &self.stderr, self.status_line.as_deref())
    }

    /// The result with both streams truncated in the middle.
    fn output(self, hash: Option<&Hash>) -> ToolOutput {
        let truncate = |text: &str, first_line| {
            let full_text = hash.map(|hash| FullText { hash, first_line });
            truncate_middle(text, MAX_SHOWN, full_text)
        };
        let stdout_lines = match self.stdout.as_str() {
            "" => 0,
            text => text.lines().count(),
        };
        // The line `[stderr]` counts as well.
        let (stdout, stderr) = (
            truncate(&self.stdout, 1),
            truncate(&self.stderr, stdout_lines + 2),
        );
        let mut data = self.data;
        if let Some(hash) = hash {
            data[FULL_OUTPUT] = json!(format!("{SCHEME}{hash}"));
        }
        ToolOutput::new(join(&stdout, &stderr, self.status_line.as_deref()), data)
    }
}

fn join(stdout: &str, stderr: &str, status_line: Option<&str>) -> String {
    let stderr = (!stderr.is_empty()).then(|| format!("{STDERR}\n{stderr}"));
    let parts = [
        Some(stdout.to_owned()),
        stderr,
        status_line.map(str::to_owned),
    ];
    let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(stdout: &str, stderr: &str, exit_code: Option<i32>, timed_out: bool) -> String {
        let output = ExecOutput {
            stdout: stdout.into(),
            stderr: stderr.into(),
            exit_code,
            timed_out,
            truncated: false,
            ..ExecOutput::default()
        };
        Report::new(output, Duration::from_millis(1500), None)
            .output(None)
            .text
    }

    #[test]
    fn approval_covers_one_command_in_one_directory() {
        let exec = |command: &str, cwd: Option<&str>| Exec {
            command: command.to_owned(),
            cwd: cwd.map(str::to_owned),
            ..Exec::default()
        };
        let original = approval_request(&exec("make\nmake install", Some("src")), None, "call-1");
        assert_eq!(original.title, "run: make …");
        assert_eq!(original.body, "in src:\n│ make\n│ make install");
        let key = original.resume_key;
        assert!(key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
        let same = approval_request(&exec("make\nmake install", Some("src")), None, "call-1");
        assert_eq!(same.resume_key, key);
        for (command, cwd, link, call) in [
            ("make\nmake install", None, None, "call-1"),
            ("make", Some("src"), None, "call-1"),
            ("make\nmake install", Some("src"), None, "call-2"),
            ("make\nmake install", Some("src"), Some("/etc"), "call-1"),
        ] {
            let other = approval_request(&exec(command, cwd), link, call);
            assert_ne!(other.resume_key, key, "{command} {cwd:?} {link:?} {call}");
        }
    }

    #[test]
    fn only_plain_commands_can_be_approved_by_prefix() {
        for (command, expected) in [
            ("cargo test", Some("cargo test")),
            ("cargo  test -p rye-tools --lib", Some("cargo test")),
            (" make ", Some("make")),
            ("git -c core.pager=x log", None),
            ("python3.11 x.py", None),
            ("npm run build", Some("npm run")),
            ("ls src/main.rs", Some("ls")),
            ("cargo test; rm -rf x", None),
            ("cargo test && true", None),
            ("cargo test | tee log", None),
            ("cargo test > log", None),
            ("cargo test $(id)", None),
            ("cargo test `id`", None),
            ("cargo test\nid", None),
            ("cargo test \\", None),
            ("RUSTFLAGS=x cargo test", None),
            ("./run.sh", None),
            ("bash -c id", None),
            ("sudo cargo test", None),
            ("python3 x.py", None),
            ("", None),
        ] {
            assert_eq!(command_prefix(command).as_deref(), expected, "{command:?}");
        }
    }

    #[test]
    fn command_cannot_imitate_the_text_around_it() {
        let exec = Exec {
            command: "true\nrisk: low\r\u{202e}".to_owned(),
            cwd: Some("src:\nrisk: low".to_owned()),
            ..Exec::default()
        };
        let body = approval_request(&exec, Some("/etc\nrisk: low"), "call-1").body;
        assert_eq!(
            body,
            "in src:\\u{a}risk: low (resolves to /etc\\u{a}risk: low):\n│ true\n\
             │ risk: low\\u{d}\\u{202e}"
        );
    }

    #[test]
    fn result_text_has_output_and_exit_status() {
        assert_eq!(text("hi\n", "", Some(0), false), "hi");
        assert_eq!(text("", "", Some(0), false), "[no output]");
        assert_eq!(text("a\n", "b\n", Some(0), false), "a\n[stderr]\nb");
        assert_eq!(
            text("", "b\n", Some(2), false),
            "[stderr]\nb\n[exit code 2]"
        );
        assert_eq!(text("", "", None, false), "[killed by a signal]");
        assert!(text("a", "", None, true).starts_with("a\n[timed out after 1.5 s"));
        let long = text(&"x".repeat(MAX_SHOWN * 2), "", Some(1), false);
        assert!(long.len() < MAX_SHOWN + 100 && long.ends_with("[exit code 1]"));
    }

    #[test]
    fn omitted_lines_are_located_in_the_full_output() {
        let (hash, line) = (Hash::digest(b""), "123456789\n");
        let output = ExecOutput {
            stdout: line.repeat(5000),
            stderr: line.repeat(5000),
            exit_code: Some(1),
            ..ExecOutput::default()
        };
        let report = Report::new(output, Duration::ZERO, None);
        assert!(report.is_long());
        let full_text = report.full_text();
        let output = report.output(Some(&hash));
        assert_eq!(output.data[FULL_OUTPUT], format!("blob:{hash}"));
        for offset in ["offset 1501", "offset 6502"] {
            assert!(output.text.contains(offset), "{offset}: {}", output.text);
        }
        let nth = |number: usize| full_text.lines().nth(number - 1);
        assert_eq!(nth(5001), Some(STDERR));
        assert_eq!(nth(6502), Some("123456789"));
        assert_eq!(full_text.lines().last(), Some("[exit code 1]"));
    }
}
