//! Arguments of the commands about agents: `chat`, `prompt`, `session`, `replay`, `gate`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use rye_engine::changes::Selection;
use rye_engine::protocol::{Limits, Millis, PromptId, QueueMode};
use rye_host::SandboxKind;
use serde_json::Value;

use super::control::{ControlArgs, WatchArgs, WithdrawGateArgs};
use super::{partial_id, thread_key};

#[derive(Debug, Args)]
#[command(
    after_help = "Enter sends a message. While the agent works, Enter queues it, Ctrl-S sends it at once and Esc\n\
    interrupts. /help lists all commands and keys. The session survives a crash: resume it with\n\
    `rye chat --session ID`. With --json, the conversation goes to standard error.\n\n\
    Examples:\n  \
    rye chat\n  \
    rye chat --model scripted:demo\n  \
    rye chat --continue\n  \
    rye chat --session 4d1f83a2 --sandbox local"
)]
pub(crate) struct ChatArgs {
    /// Resume this session (id, or unique prefix or suffix) [default: create one]
    #[arg(long, value_name = "ID", value_parser = partial_id)]
    pub(crate) session: Option<String>,
    /// Resume the newest session of this project
    #[arg(long = "continue", short = 'c', conflicts_with = "session")]
    pub(crate) continue_newest: bool,
    /// Thread to open
    #[arg(long, value_name = "KEY", default_value = "default", value_parser = thread_key)]
    pub(crate) thread: String,
    /// Model, as `provider/model` or `scripted:FILE` (see `rye models list`)
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Where tools run [default: as before; in a new session, confined in a project and virtual
    /// elsewhere]
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxChoice>,
    /// Keep changes apart from the real files until you approve them at the end of each turn; needs
    /// the sandbox `confined` [default: as configured]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", conflicts_with = "session")]
    pub(crate) review: Option<bool>,
    /// System prompt of a new session, instead of the built-in one
    #[arg(long, value_name = "FILE", conflicts_with = "session")]
    pub(crate) system: Option<PathBuf>,
    /// Working directory of the agent [default: the project]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Print line by line, for screen readers and simple terminals
    #[arg(long)]
    pub(crate) plain: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Prints the answer on standard output, and progress on standard error. On a terminal, the\n\
    answer appears as it is generated. With --json, prints one event per line as it happens; the last\n\
    line is the outcome. Piped input is appended to TEXT, or is the whole prompt. At a gate, asks on\n\
    the terminal, or waits for `rye gate approve` if there is no terminal. The session survives a\n\
    crash: continue it with `rye session resume`.\n\n\
    Exit codes: 0 answered, 1 failed, 2 wrong usage, 4 permission denied, 5 gate pending (--no-wait),\n\
    6 aborted, 7 limit reached, 8 result does not match the schema, 124 --max-time reached.\n\n\
    Examples:\n  \
    rye prompt 'say hello' --model scripted:hello.yaml\n  \
    git diff | rye prompt 'review this'\n  \
    rye prompt 'and now in French' --continue\n  \
    rye prompt 'deploy' --session 4d1f83a2 --id deploy-17\n  \
    rye prompt 'what is wrong here?' --attach screen.png --attach app.log\n  \
    rye prompt 'review this' --role reviewer --schema findings.json"
)]
pub(crate) struct PromptArgs {
    /// Prompt text [default: standard input]
    #[arg(value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Continue this session (id, or unique prefix or suffix) [default: create one]
    #[arg(long, value_name = "ID", value_parser = partial_id)]
    pub(crate) session: Option<String>,
    /// Continue the newest session of this project
    #[arg(long = "continue", conflicts_with_all = ["session", "org"])]
    pub(crate) continues: bool,
    /// Id of the prompt, unique in its session: sending it again neither repeats the work nor the
    /// cost, but prints the outcome of the first time. Needs --session or --continue
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<PromptId>,
    /// Attach an image or a text file; can be repeated
    #[arg(long = "attach", value_name = "FILE")]
    pub(crate) attachments: Vec<PathBuf>,
    /// Thread of the session
    #[arg(long, value_name = "KEY", default_value = "default", value_parser = thread_key)]
    pub(crate) thread: String,
    /// Model, as `provider/model` or `scripted:FILE` (see `rye models list`)
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Role, a file in `.ai/roles/` [default: the session's role]
    #[arg(long, value_name = "NAME")]
    pub(crate) role: Option<String>,
    /// System prompt of a new session, instead of the built-in one
    #[arg(long, value_name = "FILE", conflicts_with = "session")]
    pub(crate) system: Option<PathBuf>,
    /// Skill to use, a file in `.ai/skills/`
    #[arg(long, value_name = "NAME")]
    pub(crate) skill: Option<String>,
    /// Set a variable of the skill; can be repeated
    #[arg(long = "var", value_name = "NAME=VALUE", requires = "skill", value_parser = variable)]
    pub(crate) variables: Vec<(String, String)>,
    /// Additional directory with skills; can be repeated
    #[arg(long = "skills", value_name = "DIR")]
    pub(crate) skills: Vec<PathBuf>,
    /// Print a result that matches this JSON Schema instead of the answer
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,
    /// Where tools run [default: as before; in a new session, confined in a project and virtual
    /// elsewhere]
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxChoice>,
    /// Keep changes apart from the real files until you approve them at the end of each turn; needs
    /// the sandbox `confined` [default: as configured]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", conflicts_with = "session")]
    pub(crate) review: Option<bool>,
    /// Approve the gates of this prompt and its tasks without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Exit at a gate instead of waiting, once nothing else runs in the session
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Organisation whose credentials a new session may use (see `rye vault set --org`)
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    pub(crate) org: Option<String>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// Parses `NAME=VALUE`.
fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each task runs in a temporary project of its own, with all gates approved. The format of the\n\
    files is in docs/evaluation.md. Exits 1 if a task failed.\n\n\
    Examples:\n  \
    rye eval tasks.yaml --model anthropic/claude-sonnet-5-5\n  \
    rye eval tasks.yaml --task fix-typo --json"
)]
pub(crate) struct EvalArgs {
    /// Files with tasks
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Model, as `provider/model` [default: the default model]
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Use the script of each task instead of a model
    #[arg(long, conflicts_with = "model")]
    pub(crate) scripted: bool,
    /// Run only this task; can be repeated
    #[arg(long = "task", value_name = "ID")]
    pub(crate) tasks: Vec<String>,
    /// Where tools run [default: confined]
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxChoice>,
    /// Number of tasks that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) jobs: usize,
}

/// Limits of a prompt, including its tasks.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits (including tasks)")]
pub(crate) struct LimitArgs {
    /// Maximum number of model calls
    #[arg(long = "max-turns", value_name = "N")]
    turns: Option<u64>,
    /// Maximum number of tokens, input and output
    #[arg(long = "max-tokens", value_name = "N")]
    tokens: Option<u64>,
    /// Maximum cost in US dollars
    #[arg(long = "max-cost", value_name = "USD", value_parser = dollars)]
    cost: Option<u64>,
    /// Maximum duration in seconds
    #[arg(long = "max-time", value_name = "SECONDS")]
    time: Option<u64>,
}

impl LimitArgs {
    pub(crate) fn to_limits(&self, now: SystemTime) -> Limits {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        Limits {
            turns: self.turns,
            tokens: self.tokens,
            micro_dollars: self.cost,
            depth: None,
            until: self
                .time
                .map(|seconds| now.after(Duration::from_secs(seconds))),
        }
    }
}

/// Parses an amount of dollars into millionths of a dollar.
pub(super) fn dollars(text: &str) -> Result<u64, String> {
    const MILLION: f64 = 1e6;
    let amount: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if !(0.0..1e9).contains(&amount) {
        return Err("expected an amount from 0 to 1000000000".to_owned());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is between 0 and 10^15"
    )]
    let millionths = (amount * MILLION).round() as u64;
    Ok(millionths)
}

/// Where tools run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxChoice {
    /// In-memory files and a small shell that starts no processes
    Virtual,
    /// The project directory, without confinement
    Local,
    /// The project directory, confined by the kernel: no network and no other files
    Confined,
    /// The project directory, in a container of Docker or Podman
    Docker,
    /// The machine that `sandbox.yaml` names
    Remote,
}

impl From<SandboxChoice> for SandboxKind {
    fn from(choice: SandboxChoice) -> Self {
        match choice {
            SandboxChoice::Virtual => Self::Virtual,
            SandboxChoice::Local => Self::Local,
            SandboxChoice::Confined => Self::Confined,
            SandboxChoice::Docker => Self::Docker,
            SandboxChoice::Remote => Self::Remote,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List sessions, newest first
    #[command(after_help = "Example:\n  rye session list")]
    List,
    /// Show the history of a session
    #[command(after_help = "Examples:\n  \
        rye session show 4d1f83a2\n  \
        rye session show 4d1f83a2 --full")]
    Show(ShowSessionArgs),
    /// Resume a session and run it until nothing is left to do
    #[command(
        after_help = "Exit codes are those of `rye prompt`, for the first prompt that was not answered. If ID is a\n\
        task, resumes the top-level session that it belongs to.\n\n\
        Example:\n  rye session resume 4d1f83a2"
    )]
    Resume(ResumeArgs),
    /// Abort what runs in a session and clear its queue
    #[command(
        after_help = "Works whichever process holds the session. The session stays usable.\n\n\
        Examples:\n  \
        rye session abort 4d1f83a2\n  \
        rye session abort 4d1f83a2 --thread review"
    )]
    Abort(ControlArgs),
    /// Pause a session: it accepts prompts, but starts nothing more
    #[command(
        after_help = "A running model call or tool call ends first. The pause survives a restart.\n\n\
        Example:\n  rye session pause 4d1f83a2 && rye session resume-queue 4d1f83a2"
    )]
    Pause(ControlArgs),
    /// End the pause of a session
    #[command(after_help = "Example:\n  rye session resume-queue 4d1f83a2")]
    ResumeQueue(ControlArgs),
    /// Print the events of a session as they happen
    #[command(
        after_help = "Works whichever process holds the session, and goes on when it changes. With --json, prints one\n\
        event per line. Ctrl-C ends it; the session is not affected.\n\n\
        Examples:\n  \
        rye session watch 4d1f83a2\n  \
        rye session watch 4d1f83a2 --after 0 --until-idle --json"
    )]
    Watch(WatchArgs),
    /// Verify that the history of a session was not altered
    #[command(
        after_help = "Entries form a hash chain; each end of a turn and each decision is signed. To verify an\n\
        exported file, the public keys must be trusted here.\n\n\
        Examples:\n  \
        rye session verify 4d1f83a2\n  \
        rye session verify work.jsonl"
    )]
    Verify(VerifySessionArgs),
    /// Export a session and its tasks to a file
    #[command(after_help = "Examples:\n  \
        rye session export 4d1f83a2 --output work.jsonl\n  \
        rye session export 4d1f83a2 --script --output work.yaml")]
    Export(ExportSessionArgs),
    /// Import a session from a file
    #[command(after_help = "Example:\n  rye session import work.jsonl && rye session list")]
    Import(ImportSessionArgs),
    /// Create a session that shares the history of another
    #[command(after_help = "Examples:\n  \
        rye session fork 4d1f83a2\n  \
        rye session fork 4d1f83a2 --at 90c2be17")]
    Fork(ForkArgs),
    /// Replace old history by a summary, or undo a compaction
    #[command(
        after_help = "The record keeps the full history. Compaction also happens automatically when the context\n\
        window is nearly full; configure it in `.ai/config/agent/compaction.yaml`.\n\n\
        Examples:\n  \
        rye session compact 4d1f83a2\n  \
        rye session compact 4d1f83a2 --undo"
    )]
    Compact(CompactArgs),
    /// Show or set the role, model and queue mode of a thread
    #[command(
        after_help = "Takes effect with the next prompt. Options of a prompt take precedence; the session's own\n\
        settings are the fallback. `none` removes a role or a model.\n\n\
        Examples:\n  \
        rye session thread 4d1f83a2\n  \
        rye session thread 4d1f83a2 --thread review --role reviewer --model local/qwen3\n  \
        rye session thread 4d1f83a2 --role none"
    )]
    Thread(ThreadArgs),
    /// Change the title of a session
    #[command(
        after_help = "By default the title is the start of the first prompt.\n\n\
        Example:\n  rye session title 4d1f83a2 'Fix the build'"
    )]
    Title(TitleArgs),
    /// List the files that tools produced, or download one
    #[command(after_help = "Examples:\n  rye session artifacts 4d1f83a2\n  \
        rye session artifacts 4d1f83a2 --get 1\n  \
        rye session artifacts 4d1f83a2 --get report.pdf --output - | less")]
    Artifacts(ArtifactsArgs),
    /// Review the changes that a session in review mode has made, or turn the mode on or off
    #[command(
        after_help = "Opens a gate with the changes, as the end of a turn does. Exit codes are those of\n\
        `rye prompt`.\n\nExamples:\n  rye session review 4d1f83a2\n  rye session review 4d1f83a2 --on"
    )]
    Review(ReviewArgs),
    /// Show what a session changed in files
    #[command(
        after_help = "Shows the changes of the agent, its tasks and its commands, also after a crash and without\n\
        git. Changes that were undone are not shown.\n\n\
        Examples:\n  \
        rye session diff 4d1f83a2\n  \
        rye session diff 4d1f83a2 --turn 2\n  \
        rye session diff 4d1f83a2 --file src/main.rs"
    )]
    Diff(DiffArgs),
    /// Undo what a session changed in files
    #[command(
        after_help = "Restores the files as they were before the session, or before the turn. If a file changed since,\n\
        undoes nothing; --force undoes it all the same. Rye keeps the replaced content.\n\n\
        Examples:\n  \
        rye session undo 4d1f83a2\n  \
        rye session undo 4d1f83a2 --turn 2\n  \
        rye session undo 4d1f83a2 --file src/main.rs"
    )]
    Undo(UndoArgs),
    /// Delete a session and its tasks
    #[command(after_help = "Example:\n  rye session rm 4d1f83a2")]
    Rm(SessionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// Session id, or a unique prefix or suffix
    #[arg(value_name = "ID", value_parser = partial_id)]
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct ShowSessionArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Show all text, and the id of each entry
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ArtifactsArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Download this one: its number or name
    #[arg(long, value_name = "ARTIFACT")]
    pub(crate) get: Option<String>,
    /// File to write, or `-` for standard output [default: its name, in the current directory]
    #[arg(long, short, value_name = "FILE", requires = "get")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long, requires = "get")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TitleArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// New title, one line
    #[arg(value_name = "TEXT")]
    pub(crate) title: String,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) selection: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) selection: ChangeArgs,
    /// Also undo changes of files that changed since
    #[arg(long)]
    pub(crate) force: bool,
}

/// Which changes of a session.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Only the changes of the Nth prompt
    #[arg(long, value_name = "N")]
    turn: Option<usize>,
    /// Only the changes of this file or directory
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
}

impl ChangeArgs {
    pub(crate) fn selection(&self) -> Selection {
        Selection {
            turn: self.turn,
            path: self.file.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Thread of the session
    #[arg(long, value_name = "KEY", default_value = "default", value_parser = thread_key)]
    pub(crate) thread: String,
    /// Undo the last compaction
    #[arg(long)]
    pub(crate) undo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ThreadArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Thread of the session; created if it does not exist
    #[arg(long, value_name = "KEY", default_value = "default", value_parser = thread_key)]
    pub(crate) thread: String,
    /// Role, a file in `.ai/roles/`, or `none`
    #[arg(long, value_name = "NAME")]
    pub(crate) role: Option<String>,
    /// Model, as `provider/model` or `scripted:FILE`, or `none`
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// What to do with a prompt that arrives while the thread is busy
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeChoice>,
}

/// What to do with a prompt that arrives while a thread is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeChoice {
    /// Queue it
    Followup,
    /// Interrupt the running prompt
    Steer,
    /// Queue it and send all queued prompts together
    Collect,
}

impl From<ModeChoice> for QueueMode {
    fn from(choice: ModeChoice) -> Self {
        match choice {
            ModeChoice::Followup => Self::Followup,
            ModeChoice::Steer => Self::Steer,
            ModeChoice::Collect => Self::Collect,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct VerifySessionArgs {
    /// Session id, a unique prefix or suffix of it, or an exported file
    #[arg(value_name = "ID|FILE", value_parser = partial_id)]
    pub(crate) source: String,
}

#[derive(Debug, Args)]
pub(crate) struct ExportSessionArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// File to write [default: standard output]; overwrites an earlier export
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite any file
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Write the model's answers as a script for `--model scripted:FILE`
    #[arg(long)]
    pub(crate) script: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Calls no model and runs no tool: answers and results come from the record. Compares the\n\
    outcome, and the requests that the current configuration would send, with the record. Exits 1\n\
    if something differs.\n\n\
    Examples:\n  \
    rye replay 4d1f83a2\n  \
    rye replay work.jsonl"
)]
pub(crate) struct ReplayArgs {
    /// Session id, a unique prefix or suffix of it, or an exported file
    #[arg(value_name = "ID|FILE", value_parser = partial_id)]
    pub(crate) source: String,
}

#[derive(Debug, Args)]
pub(crate) struct ImportSessionArgs {
    /// File to read, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Import a session that fails verification; it stays marked as unverified, and its approvals
    /// do not count
    #[arg(long)]
    pub(crate) allow_unverified: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Last shared entry (id, or unique prefix or suffix) [default: the latest]
    #[arg(long, value_name = "ENTRY", value_parser = partial_id)]
    pub(crate) at: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Where tools run [default: as before]
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxChoice>,
    /// Approve all gates of the session without asking, including those that are already pending
    #[arg(long)]
    pub(crate) yes: bool,
    /// Exit at a gate instead of waiting, once nothing else runs in the session
    #[arg(long)]
    pub(crate) no_wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReviewArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Exit once the gate is open instead of waiting for a decision
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Turn review mode on; nothing may run in the session
    #[arg(long, conflicts_with_all = ["off", "no_wait"])]
    pub(crate) on: bool,
    /// Turn review mode off, once no change waits for a review
    #[arg(long, conflicts_with = "no_wait")]
    pub(crate) off: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GateCommand {
    /// List pending gates
    #[command(after_help = "Example:\n  rye gate list")]
    List,
    /// Show a gate; of a review, all changes
    #[command(after_help = "Examples:\n  \
        rye gate show 7c41d9e0\n  \
        rye gate show 7c41d9e0 | less")]
    Show(GateArgs),
    /// Approve a pending gate
    #[command(
        after_help = "The approval covers the files and arguments that the gate shows. If one of them changes before the\n\
        call runs, a new gate opens.\n\n\
        Examples:\n  \
        rye gate approve 7c41d9e0\n  \
        rye gate approve 7c41d9e0 --for session\n  \
        rye gate approve 7c41d9e0 --except src/generated"
    )]
    Approve(ApproveArgs),
    /// Deny a pending gate
    #[command(after_help = "Examples:\n  \
        rye gate deny 7c41d9e0\n  \
        rye gate deny 7c41d9e0 --reason 'use the staging server'")]
    Deny(DenyArgs),
    /// Withdraw a pending gate: the tool that opened it fails, and the agent continues
    #[command(after_help = "Example:\n  rye gate withdraw 7c41d9e0 --reason 'no longer needed'")]
    Withdraw(WithdrawGateArgs),
    /// Answer a question
    #[command(after_help = "Examples:\n  \
        rye gate answer 7c41d9e0 --value 'the second one'\n  \
        rye gate answer 7c41d9e0 --action skip")]
    Answer(AnswerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// Gate id, or a unique part of it
    #[arg(value_name = "GATE", value_parser = partial_id)]
    pub(crate) gate: String,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    #[command(flatten)]
    pub(crate) gate: GateArgs,
    /// Which calls the approval covers
    #[arg(long = "for", value_enum, default_value = "call")]
    pub(crate) scope: ApprovalScope,
    /// Approve, but run with these arguments (a JSON object)
    #[arg(long, value_name = "JSON", value_parser = arguments)]
    pub(crate) arguments: Option<Value>,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

/// Which changes of a review are applied.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reviews")]
pub(crate) struct SelectionArgs {
    /// Apply only these changed paths, and what is below them; discard the rest
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) only: Vec<String>,
    /// Discard these changed paths, and what is below them
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) except: Vec<String>,
    /// Apply the content of FILE to a changed path instead; can be repeated
    #[arg(long, value_name = "PATH=FILE", value_parser = edit)]
    pub(crate) edit: Vec<(String, PathBuf)>,
}

/// Parses `PATH=FILE`.
fn edit(text: &str) -> Result<(String, PathBuf), String> {
    let (path, file) = text.rsplit_once('=').ok_or("expected PATH=FILE")?;
    Ok((path.to_owned(), PathBuf::from(file)))
}

/// Parses JSON arguments.
fn arguments(text: &str) -> Result<Value, String> {
    rye_engine::protocol::json::parse(text).map_err(|error| format!("invalid JSON: {error}"))
}

/// How long an approval holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApprovalScope {
    /// This call only
    Call,
    /// All calls of the tool in this session and directory, until the tool changes; of a built-in
    /// tool, only calls with the same arguments
    Session,
    /// Commands of `bash` in this session and directory that start with the same words
    Prefix,
    /// All calls of the item in this project, until the item changes; needs your key
    Project,
}

#[derive(Debug, Args)]
pub(crate) struct DenyArgs {
    #[command(flatten)]
    pub(crate) gate: GateArgs,
    /// Why, for the agent
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    #[command(flatten)]
    pub(crate) gate: GateArgs,
    /// Answer to choose, if the gate offers several
    #[arg(long, value_name = "ACTION", default_value = "answer")]
    pub(crate) action: String,
    /// Text of the answer
    #[arg(long, value_name = "TEXT")]
    pub(crate) value: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Show how strongly this machine can confine commands
    #[command(after_help = "Exits 1 if commands cannot be confined.\n\n\
        Example:\n  rye sandbox check")]
    Check,
    /// Run a command in the confined sandbox
    #[command(
        after_help = "The command works in the project (or --workspace), without network and without access to other\n\
        files. rye exits with the exit code of the command.\n\n\
        Examples:\n  \
        rye sandbox run -- make test\n  \
        rye sandbox run --workspace /tmp/scratch -- bash -c 'echo $HOME'"
    )]
    Run(SandboxRunArgs),
    /// Serve a sandbox to sessions on other machines
    #[command(
        after_help = "With --stdio, the client is at the other end of ssh; this is what `--sandbox remote` starts.\n\
        With --listen, clients need the secret of --token-file, which has at least 32 characters.\n\n\
        Examples:\n  \
        rye sandbox serve --stdio --workspace /srv/work\n  \
        rye sandbox serve --listen 0.0.0.0:7443 --workspace /srv/work --token-file secret \\\n    \
        --tls-cert cert.pem --tls-key key.pem"
    )]
    Serve(SandboxServeArgs),
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("transport").required(true).args(["stdio", "listen"]))]
pub(crate) struct SandboxServeArgs {
    /// Directory of the sandbox
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: PathBuf,
    /// Kind of sandbox
    #[arg(long, value_enum, default_value = "confined", value_name = "KIND")]
    pub(crate) sandbox: ServedChoice,
    /// Serve one client on standard input and output
    #[arg(long)]
    pub(crate) stdio: bool,
    /// Serve clients that connect to this address
    #[arg(long, value_name = "ADDRESS:PORT", requires = "token_file")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// File with the secret from which clients derive their tokens
    #[arg(long, value_name = "FILE", conflicts_with = "stdio")]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file with the certificate chain; required unless ADDRESS is this machine's
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        conflicts_with = "stdio"
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// End the commands of a client after this many seconds without a sign of life
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) client_timeout: u64,
}

/// A sandbox that can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServedChoice {
    /// The directory, confined by the kernel
    Confined,
    /// The directory, without confinement
    Local,
}

impl From<ServedChoice> for rye_host::sandbox::ServedKind {
    fn from(choice: ServedChoice) -> Self {
        match choice {
            ServedChoice::Confined => Self::Confined,
            ServedChoice::Local => Self::Local,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SandboxRunArgs {
    /// Directory that the command can write [default: the project]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Weaken the confinement to this tier, for tests [default: the strongest]
    #[arg(long, value_enum, value_name = "TIER")]
    pub(crate) tier: Option<TierChoice>,
    /// Command and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// How strongly commands are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TierChoice {
    /// Namespaces, with Landlock as a second layer
    Full,
    /// Landlock alone, without sockets
    Landlock,
}

impl From<TierChoice> for rye_host::sandbox::Tier {
    fn from(choice: TierChoice) -> Self {
        match choice {
            TierChoice::Full => Self::Full,
            TierChoice::Landlock => Self::Landlock,
        }
    }
}
