//! What can be typed for sessions of agents.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use rye_engine::protocol::{Limits, Millis, QueueMode};
use rye_host::SandboxKind;
use serde_json::Value;

use super::{key_of_thread, part_of_id};

#[derive(Debug, Args)]
#[command(
    after_help = "Enter sends; while the agent works it waits for its turn, Ctrl-S says it at once, Esc ends\n\
    the work. /help shows all commands and keys. Whatever happens to this process, the session goes\n\
    on with `rye chat --session ID`. With --json, the conversation is on standard error.\n\n\
    Examples:\n  \
    rye chat\n  \
    rye chat --model scripted:demo\n  \
    rye chat --session 01a1… --sandbox local"
)]
pub(crate) struct ChatArgs {
    /// A session to go on with, or the beginning or the end of its id. Else a new one.
    #[arg(long, value_name = "ID", value_parser = part_of_id)]
    pub(crate) session: Option<String>,
    /// The thread to begin with.
    #[arg(long, value_name = "KEY", default_value = "default", value_parser = key_of_thread)]
    pub(crate) thread: String,
    /// The model, as `provider/model` or `scripted:FILE`: see `rye models list`.
    #[arg(long, value_name = "M")]
    pub(crate) model: Option<String>,
    /// Where tools work. Else where they did, and in memory in a new session.
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxChoice>,
    /// The folder it works in. Else the project.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Line by line: for screen readers, and terminals that cannot be painted on.
    #[arg(long)]
    pub(crate) plain: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The answer goes to standard output, all else to standard error; with --json, each event is a\n\
    line as it happens, and the last line is the outcome. What comes by a pipe or from a file on\n\
    standard input is put below TEXT, or is all of it. At a gate it asks on a terminal; elsewhere it\n\
    waits for `rye gate approve` from another one. Whatever happens to this process, the session goes\n\
    on with `rye session resume`.\n\n\
    Exit codes: 0 answered, 1 not (the model failed, for one), 2 wrong usage, 4 refused, 5 a gate waits\n\
    (--no-wait), 6 somebody ended it, 7 a limit, 8 no result that fits the schema, 124 --max-time.\n\n\
    Examples:\n  \
    rye prompt 'say hello' --model scripted:hello.yaml\n  \
    git diff | rye prompt 'review this'\n  \
    rye prompt 'and now in French' --session 01a1…\n  \
    rye prompt 'review it' --role reviewer --schema findings.json"
)]
pub(crate) struct PromptArgs {
    /// What is asked. Else what standard input says.
    #[arg(value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// A session to go on with, or the beginning or the end of its id. Else a new one.
    #[arg(long, value_name = "ID", value_parser = part_of_id)]
    pub(crate) session: Option<String>,
    /// Its thread.
    #[arg(long, value_name = "KEY", default_value = "default", value_parser = key_of_thread)]
    pub(crate) thread: String,
    /// The model, as `provider/model` or `scripted:FILE`: see `rye models list`.
    #[arg(long, value_name = "M")]
    pub(crate) model: Option<String>,
    /// The role that answers: a file of `.ai/roles/`. Else the session's, if it has one.
    #[arg(long, value_name = "NAME")]
    pub(crate) role: Option<String>,
    /// A skill to use: a file of `.ai/skills/`.
    #[arg(long, value_name = "NAME")]
    pub(crate) skill: Option<String>,
    /// What a variable of the skill stands for. May be given more than once.
    #[arg(long = "var", value_name = "NAME=VALUE", requires = "skill", value_parser = variable)]
    pub(crate) variables: Vec<(String, String)>,
    /// A folder with further skills. May be given more than once.
    #[arg(long = "skills", value_name = "DIR")]
    pub(crate) skills: Vec<PathBuf>,
    /// A file with the JSON Schema of a result, which is printed in place of the answer.
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,
    /// Where tools work. Else where they did, and in memory in a new session.
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxChoice>,
    /// Approve what is asked for this prompt, by tasks too; never what waited before.
    #[arg(long)]
    pub(crate) yes: bool,
    /// End at a gate that nobody here can be asked about, rather than wait: as soon as nothing
    /// else goes on in the session.
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// The organisation whose credentials a new session may use: see `rye vault set --org`.
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    pub(crate) org: Option<String>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// A variable and what it stands for.
fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is written as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// How much a prompt may use up. What tasks use up counts.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits, tasks included")]
pub(crate) struct LimitArgs {
    /// How often the model is called at most.
    #[arg(long = "max-turns", value_name = "N")]
    turns: Option<u64>,
    /// How many tokens are read and written at most.
    #[arg(long = "max-tokens", value_name = "N")]
    tokens: Option<u64>,
    /// How many dollars are spent at most.
    #[arg(long = "max-cost", value_name = "USD", value_parser = dollars)]
    cost: Option<u64>,
    /// How many seconds it takes at most.
    #[arg(long = "max-time", value_name = "S")]
    time: Option<u64>,
}

impl LimitArgs {
    pub(crate) fn from(&self, now: SystemTime) -> Limits {
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

/// An amount in millionths of a dollar.
fn dollars(text: &str) -> Result<u64, String> {
    const MILLION: f64 = 1e6;
    let amount: f64 = text.parse().map_err(|_| "it is no amount".to_owned())?;
    if !(0.0..1e9).contains(&amount) {
        return Err("it is no amount of dollars".to_owned());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between 0 and 10^15"
    )]
    let millionths = (amount * MILLION).round() as u64;
    Ok(millionths)
}

/// Where tools work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxChoice {
    /// Files in memory, and a small shell that starts no processes
    Virtual,
    /// The project's folder; nothing is confined
    Local,
}

impl From<SandboxChoice> for SandboxKind {
    fn from(choice: SandboxChoice) -> Self {
        match choice {
            SandboxChoice::Virtual => Self::Virtual,
            SandboxChoice::Local => Self::Local,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List sessions, the newest first.
    #[command(after_help = "Example:\n  rye session list")]
    List,
    /// Show a session: what was said and done.
    #[command(after_help = "Example:\n  rye session show 01a1…")]
    Show(SessionArgs),
    /// Go on with a session where it was, until nothing is left to do.
    #[command(
        after_help = "Exit codes are those of `rye prompt`, for the first prompt that was not answered. Of a task, the\n\
        session at the top goes on.\n\n\
        Example:\n  rye session resume 01a1…"
    )]
    Resume(ResumeArgs),
    /// Check that nothing of a session was altered, removed, reordered or added.
    #[command(
        after_help = "Each entry names the hash of the one before it, and the ends of turns are signed, as\n\
        decisions are. A file needs nothing but the public keys, which must be trusted here.\n\n\
        Examples:\n  \
        rye session verify 01a1…\n  \
        rye session verify work.jsonl"
    )]
    Verify(VerifySessionArgs),
    /// Write a session to a file, with all that belongs to it.
    #[command(after_help = "Examples:\n  \
        rye session export 01a1… --output work.jsonl\n  \
        rye session export 01a1… --script --output work.yaml")]
    Export(ExportSessionArgs),
    /// Take in a session from a file; it goes on here.
    #[command(after_help = "Example:\n  rye session import work.jsonl && rye session list")]
    Import(ImportSessionArgs),
    /// Begin a session that shares the past of another.
    #[command(after_help = "Examples:\n  \
        rye session fork 01a1…\n  \
        rye session fork 01a1… --at 01a2…")]
    Fork(ForkArgs),
    /// Sum up a long history, so that a model can go on with it; or take that back.
    #[command(
        after_help = "Nothing is lost: the record keeps all of it. It also happens by itself when a model has\n\
        hardly room left; `.ai/config/agent/compaction.yaml` says when and how.\n\n\
        Examples:\n  \
        rye session compact 01a1…\n  \
        rye session compact 01a1… --undo"
    )]
    Compact(CompactArgs),
    /// Give a thread a role, a model or a mode of its own, or show what it has.
    #[command(
        after_help = "It holds from the next prompt on. What a prompt names goes before it, and what the session\n\
        was begun with comes after it; `none` takes a role or a model back.\n\n\
        Examples:\n  \
        rye session thread 01a1…\n  \
        rye session thread 01a1… --thread review --role reviewer --model local/qwen3\n  \
        rye session thread 01a1… --role none"
    )]
    Thread(ThreadArgs),
    /// Forget a session and all that belongs to it.
    #[command(after_help = "Example:\n  rye session rm 01a1…")]
    Rm(SessionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// Its id, or the beginning or the end of it.
    #[arg(value_name = "ID", value_parser = part_of_id)]
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Its thread.
    #[arg(long, value_name = "KEY", default_value = "default", value_parser = key_of_thread)]
    pub(crate) thread: String,
    /// Take the last summary back: what it covers is read again.
    #[arg(long)]
    pub(crate) undo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ThreadArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The thread; it is made if it is not there.
    #[arg(long, value_name = "KEY", default_value = "default", value_parser = key_of_thread)]
    pub(crate) thread: String,
    /// The role that answers in it: a file of `.ai/roles/`.
    #[arg(long, value_name = "NAME")]
    pub(crate) role: Option<String>,
    /// The model that answers in it, as `provider/model` or `scripted:FILE`.
    #[arg(long, value_name = "M")]
    pub(crate) model: Option<String>,
    /// What becomes of a prompt that comes while it is busy.
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeChoice>,
}

/// What becomes of a prompt that comes while a thread is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeChoice {
    /// It waits for its turn
    Followup,
    /// It takes the place of what runs
    Steer,
    /// It waits for others, and they are asked together
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
    /// Its id, or the beginning or the end of it; or a file that it was written to.
    #[arg(value_name = "ID|FILE", value_parser = part_of_id)]
    pub(crate) what: String,
}

#[derive(Debug, Args)]
pub(crate) struct ExportSessionArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The file; else standard output. One that an export was written to is written anew.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace whatever is in the file.
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Write what its model said as a script, for `--model scripted:FILE`.
    #[arg(long)]
    pub(crate) script: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is asked of a model and no tool runs: the answers and results are those of the\n\
    record. What comes of them, and what a model would be told beside them today, is compared with\n\
    the record. Exits 1 when something differs.\n\n\
    Examples:\n  \
    rye replay 01a1…\n  \
    rye replay work.jsonl"
)]
pub(crate) struct ReplayArgs {
    /// A session's id, or the beginning or the end of it; or a file that it was written to.
    #[arg(value_name = "ID|FILE", value_parser = part_of_id)]
    pub(crate) what: String,
}

#[derive(Debug, Args)]
pub(crate) struct ImportSessionArgs {
    /// The file, or `-` for standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Import sessions that cannot be verified; they stay marked, and no approval in them counts.
    #[arg(long)]
    pub(crate) allow_unverified: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// The last entry that both have, or the beginning or the end of its id. Else the last one that there is.
    #[arg(long, value_name = "ENTRY", value_parser = part_of_id)]
    pub(crate) at: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Where tools work. Else where they did, and in memory in a new session.
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxChoice>,
    /// Approve what is asked for in the session, also what waits already.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GateCommand {
    /// List what waits for a decision.
    #[command(after_help = "Example:\n  rye gate list")]
    List,
    /// Let it.
    #[command(
        after_help = "What is approved is what would run now. If it changes, it is asked about again.\n\n\
        Examples:\n  \
        rye gate approve 01a1…\n  \
        rye gate approve 01a1… --for session"
    )]
    Approve(ApproveArgs),
    /// Do not let it.
    #[command(after_help = "Example:\n  rye gate deny 01a1…")]
    Deny(GateArgs),
    /// Answer a question.
    #[command(after_help = "Examples:\n  \
        rye gate answer 01a1… --value 'the second one'\n  \
        rye gate answer 01a1… --action skip")]
    Answer(AnswerArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// Its id, or a part of it that no other gate has, ended or not.
    #[arg(value_name = "GATE", value_parser = part_of_id)]
    pub(crate) gate: String,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
    #[command(flatten)]
    pub(crate) gate: GateArgs,
    /// How long it holds, for a tool that is called through `call_tool`.
    #[arg(long = "for", value_enum, default_value = "call")]
    pub(crate) holds: Holds,
    /// Other arguments, as JSON, which it runs with instead.
    #[arg(long, value_name = "JSON", value_parser = arguments)]
    pub(crate) arguments: Option<Value>,
}

/// Arguments, as JSON.
fn arguments(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))
}

/// How long an approval holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Holds {
    /// This once
    Call,
    /// Until the session ends, as long as the tool is the same
    Session,
    /// In this project, signed with your key, as long as the tool is the same
    Project,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    #[command(flatten)]
    pub(crate) gate: GateArgs,
    /// Which of the answers that can be chosen.
    #[arg(long, value_name = "ACTION", default_value = "answer")]
    pub(crate) action: String,
    /// What to say beside it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) value: Option<String>,
}
