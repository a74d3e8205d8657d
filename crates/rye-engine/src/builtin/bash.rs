//! CommandTools, run by the sandbox's shell.

use std::time::Duration;

use lillux::{Hash, quote_block, sanitize_line};
use rye_protocol::ProcessRef;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{failed, parse, permission};
use crate::BoxFuture;
use crate::blob::SCHEME;
use crate::sandbox::{Exec, ExecObserver, ExecOutput, Sandbox};
use crate::text::{Whole, without_middle};
use crate::tool::{DecisionRequest, Tool, ToolContext, ToolDef, ToolError, ToolOutput};

/// How long a command runs where the model does not say.
const STANDARD: u64 = 120;
/// And where it does, at most.
const LONGEST: u64 = 3600;
/// How much of each stream is kept, how much is told while it runs, and how much a model
/// reads without asking for more.
const KEPT: usize = 32 * 1024 * 1024;
const TOLD: usize = 256 * 1024;
const SHOWN: usize = 30_000;

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
            not last, files do. Of long output the middle is left out, with a note how to \
            read it.";
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

impl Args {
    /// What the sandbox is to run, and how long it may take.
    fn exec(self) -> (Exec, Duration) {
        let time = self
            .timeout
            .and_then(|it| Duration::try_from_secs_f64(it).ok());
        let time = time.unwrap_or(Duration::from_secs(STANDARD));
        let exec = Exec {
            command: self.command,
            cwd: self.cwd,
            timeout: Some(time),
            max_output: Some(KEPT),
            max_streamed: Some(TOLD),
            ..Exec::default()
        };
        (exec, time)
    }
}

impl Tool for Bash {
    fn def(&self) -> &ToolDef {
        &self.def
    }

    fn may_request_decision(&self, sandbox: &dyn Sandbox) -> bool {
        permission::asks(sandbox)
    }

    fn run(
        &self,
        args: Value,
        context: ToolContext,
    ) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let (mut exec, mut time) = parse::<Args>(args.clone())?.exec();
            let link = permission::link(exec.cwd.as_deref(), &context).await;
            let request = request(&exec, link.as_deref(), context.call.as_str());
            let instead = permission::to_run(&self.def, request, &args, &context).await?;
            if let Some(instead) = &instead {
                (exec, time) = parse::<Args>(instead.args.clone())?.exec();
            } else if permission::link(exec.cwd.as_deref(), &context).await != link {
                let message = "the folder leads to another place than when it was asked about";
                return Err(ToolError::failed(message));
            }
            permission::begins(&self.def, &context).await?;
            let ear = Ear { context: &context };
            let executed = context.sandbox.exec(exec, &ear).await.map_err(failed)?;
            let report = Report::of(executed, time);
            let hash = if report.is_long() {
                context.store_blob(&report.whole()).await
            } else {
                None
            };
            let output = report.output(hash.as_ref());
            Ok(match instead {
                Some(instead) => instead.annotate(output),
                None => output,
            })
        })
    }
}

/// The gate is that of the call and of what it would run, and where: a model that uses a
/// call's id again has to ask again.
fn request(exec: &Exec, link: Option<&str>, call: &str) -> DecisionRequest {
    let Exec { command, cwd, .. } = exec;
    let what = match link {
        Some(real) => json!([command, cwd, real]),
        None => json!([command, cwd]),
    };
    let what = Hash::digest(what.to_string()).to_hex();
    let mut lines = command.trim().lines();
    let first = lines.next().unwrap_or_default();
    let more = if lines.next().is_some() { " …" } else { "" };
    let title = format!("run: {first}{more}");
    let mut request = DecisionRequest::approval(format!("{call}:{what:.32}"), title);
    if let Some(folder) = cwd {
        let leads = link.map_or_else(String::new, |real| {
            format!(", which leads to {}", sanitize_line(real))
        });
        request.body = format!("in {}{leads}:\n", sanitize_line(folder));
    }
    request.body += &quote_block(command);
    permission::leading_to(&mut request, link);
    request
}

/// Passes on what happens meanwhile.
struct Ear<'a> {
    context: &'a ToolContext,
}

impl ExecObserver for Ear<'_> {
    fn on_start(&self, process: &str) {
        self.context
            .register_process(ProcessRef(process.to_owned()));
    }

    fn on_output(&self, text: &str) {
        self.context.output(text);
    }
}

/// What the model reads: the output as it is if all went well, and else what else there
/// is to know.
struct Report {
    stdout: String,
    stderr: String,
    end: Option<String>,
    data: Value,
}

/// What stands before the stream of complaints.
const STDERR: &str = "[stderr]";

impl Report {
    fn of(executed: ExecOutput, time: Duration) -> Self {
        let data = json!({
            "exit_code": executed.exit_code,
            "timed_out": executed.timed_out,
            "truncated": executed.truncated,
        });
        let trimmed = |mut text: String| {
            text.truncate(text.trim_end_matches('\n').len());
            text
        };
        let (stdout, stderr) = (trimmed(executed.stdout), trimmed(executed.stderr));
        let end = match (executed.timed_out, executed.exit_code) {
            (true, _) => Some(format!(
                "[its time was up after {} s: it was ended with all that it started; \
                 give a longer timeout if it needs one]",
                time.as_secs_f64()
            )),
            (false, Some(0)) if stdout.is_empty() && stderr.is_empty() => {
                Some("[no output]".to_owned())
            }
            (false, Some(0)) => None,
            (false, Some(code)) => Some(format!("[exit code {code}]")),
            (false, None) => Some("[a signal ended it]".to_owned()),
        };
        Self {
            stdout,
            stderr,
            end,
            data,
        }
    }

    fn is_long(&self) -> bool {
        self.stdout.len() > SHOWN || self.stderr.len() > SHOWN
    }

    /// All of it.
    fn whole(&self) -> String {
        join(&self.stdout, &self.stderr, self.end.as_deref())
    }

    /// What is shown of it; each stream has its end, where it says how it went.
    fn output(self, hash: Option<&Hash>) -> ToolOutput {
        let cut = |text: &str, first_line| {
            let whole = hash.map(|hash| Whole { hash, first_line });
            without_middle(text, SHOWN, whole)
        };
        let before = match self.stdout.as_str() {
            "" => 0,
            text => text.lines().count(),
        };
        // The line that says what comes is one, too.
        let (stdout, stderr) = (cut(&self.stdout, 1), cut(&self.stderr, before + 2));
        let mut data = self.data;
        if let Some(hash) = hash {
            data["whole"] = json!(format!("{SCHEME}{hash}"));
        }
        ToolOutput {
            text: join(&stdout, &stderr, self.end.as_deref()),
            data,
            attachments: Vec::new(),
        }
    }
}

fn join(stdout: &str, stderr: &str, end: Option<&str>) -> String {
    let complaints = (!stderr.is_empty()).then(|| format!("{STDERR}\n{stderr}"));
    let parts = [Some(stdout.to_owned()), complaints, end.map(str::to_owned)];
    let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(stdout: &str, stderr: &str, exit_code: Option<i32>, timed_out: bool) -> String {
        let executed = ExecOutput {
            stdout: stdout.into(),
            stderr: stderr.into(),
            exit_code,
            timed_out,
            truncated: false,
        };
        Report::of(executed, Duration::from_millis(1500))
            .output(None)
            .text
    }

    #[test]
    fn a_person_agrees_to_one_command_in_one_folder() {
        let exec = |command: &str, cwd: Option<&str>| Exec {
            command: command.to_owned(),
            cwd: cwd.map(str::to_owned),
            ..Exec::default()
        };
        let asked = request(&exec("make\nmake install", Some("src")), None, "call-1");
        assert_eq!(asked.title, "run: make …");
        assert_eq!(asked.body, "in src:\n│ make\n│ make install");
        let key = asked.resume_key;
        assert!(key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
        let same = request(&exec("make\nmake install", Some("src")), None, "call-1");
        assert_eq!(same.resume_key, key);
        for (command, cwd, link, call) in [
            ("make\nmake install", None, None, "call-1"),
            ("make", Some("src"), None, "call-1"),
            ("make\nmake install", Some("src"), None, "call-2"),
            ("make\nmake install", Some("src"), Some("/etc"), "call-1"),
        ] {
            let other = request(&exec(command, cwd), link, call);
            assert_ne!(other.resume_key, key, "{command} {cwd:?} {link:?} {call}");
        }
    }

    #[test]
    fn a_command_looks_like_nothing_that_is_said_of_it() {
        let exec = Exec {
            command: "true\nrisk: low\r\u{202e}".to_owned(),
            cwd: Some("src:\nrisk: low".to_owned()),
            ..Exec::default()
        };
        let body = request(&exec, Some("/etc\nrisk: low"), "call-1").body;
        assert_eq!(
            body,
            "in src:\\u{a}risk: low, which leads to /etc\\u{a}risk: low:\n│ true\n\
             │ risk: low\\u{d}\\u{202e}"
        );
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

    #[test]
    fn what_is_left_out_can_be_found_in_the_whole() {
        let (hash, line) = (Hash::digest(b""), "123456789\n");
        let executed = ExecOutput {
            stdout: line.repeat(5000),
            stderr: line.repeat(5000),
            exit_code: Some(1),
            ..ExecOutput::default()
        };
        let report = Report::of(executed, Duration::ZERO);
        assert!(report.is_long());
        let whole = report.whole();
        let output = report.output(Some(&hash));
        assert_eq!(output.data["whole"], format!("blob:{hash}"));
        let notes = output.text.lines().filter_map(|line| {
            let (count, rest) = line.strip_prefix("[… ")?.split_once(" lines, ")?;
            let (_, place) = rest.split_once("offset ")?;
            let place = place.strip_suffix(" …]")?;
            Some((count.parse::<usize>().ok()?, place.parse::<usize>().ok()?))
        });
        let notes: Vec<_> = notes.collect();
        assert_eq!(notes, [(2000, 1501), (2000, 6502)]);
        let nth = |number: usize| whole.lines().nth(number - 1);
        assert_eq!(nth(5001), Some(STDERR));
        assert_eq!(nth(6502), Some("123456789"));
        assert_eq!(whole.lines().last(), Some("[exit code 1]"));
    }
}
