//! What can be typed for sessions of agents.

use clap::{Args, Subcommand, ValueEnum};
use rye_host::SandboxKind;

#[derive(Debug, Args)]
#[command(
    after_help = "The answer goes to standard output, all else to standard error. At a gate it asks on a\n\
    terminal; elsewhere it waits for `rye gate approve` from another one. Whatever happens to this\n\
    process, the session goes on with `rye session resume`.\n\n\
    Examples:\n  \
    rye prompt 'say hello' --model scripted:hello.yaml\n  \
    rye prompt 'and now in French' --session 01a1…"
)]
pub(crate) struct PromptArgs {
    /// What is asked.
    #[arg(value_name = "TEXT", required = true)]
    pub(crate) text: Vec<String>,
    /// A session to go on with, or a part of its id. Else a new one.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Its thread.
    #[arg(long, value_name = "KEY", default_value = "default")]
    pub(crate) thread: String,
    /// The model, as `provider/model` or `scripted:FILE`: see `rye models list`.
    #[arg(long, value_name = "M")]
    pub(crate) model: Option<String>,
    /// Where tools work. Else where they did, and in memory in a new session.
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxChoice>,
    /// Approve what is asked for.
    #[arg(long)]
    pub(crate) yes: bool,
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
    #[command(after_help = "Example:\n  rye session resume 01a1…")]
    Resume(ResumeArgs),
    /// Forget a session and all that belongs to it.
    #[command(after_help = "Example:\n  rye session rm 01a1…")]
    Rm(SessionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// Its id, or the beginning or the end of it.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    /// Where tools work. Else where they did, and in memory in a new session.
    #[arg(long, value_enum)]
    pub(crate) sandbox: Option<SandboxChoice>,
    /// Approve what is asked for.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GateCommand {
    /// List what waits for a decision.
    #[command(after_help = "Example:\n  rye gate list")]
    List,
    /// Let it.
    #[command(after_help = "Example:\n  rye gate approve 01a1…")]
    Approve(GateArgs),
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
    /// Its id, or the beginning, the end or another part that no other has.
    #[arg(value_name = "GATE")]
    pub(crate) gate: String,
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
