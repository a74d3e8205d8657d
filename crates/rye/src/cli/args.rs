//! Command-line grammar: the clap types of every command. No behaviour here.

mod acp;
mod automation;
mod config;
mod control;
mod engine;
mod execute;
mod graph;
mod items;
mod keys;
mod mcp;
mod models;
mod quota;
mod server;
mod vault;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use rye_host::LogFormat;
use rye_host::settings::Color;

pub(crate) use acp::AcpArgs;
pub(crate) use automation::{
    ActionArgs, AddHookArgs, AddScheduleArgs, AddWebhookArgs, DeliveriesArgs, HookCommand,
    ReplayDeliveryArgs, ScheduleArgs, ScheduleCommand, WebhookCommand,
};
pub(crate) use config::{AcceptArgs, ConfigCommand};
pub(crate) use control::{ControlArgs, WatchArgs, WithdrawGateArgs};
pub(crate) use engine::{
    ApprovalScope, ArtifactsArgs, ChatArgs, CompactArgs, DiffArgs, EvalArgs, ExportSessionArgs,
    ForkArgs, GateArgs, GateCommand, ImportSessionArgs, PromptArgs, ReplayArgs, ResumeArgs,
    ReviewArgs, SandboxChoice, SandboxCommand, SandboxRunArgs, SandboxServeArgs, SelectionArgs,
    SessionArgs, SessionCommand, ShowSessionArgs, ThreadArgs, TitleArgs, UndoArgs,
    VerifySessionArgs,
};
pub(crate) use execute::{
    CallOptions, CarryOutArgs, ExecuteArgs, RunCommand, TailArgs, ToolSandboxChoice, TraceChoice,
    seconds,
};
pub(crate) use graph::{Drawing, GraphCommand, GraphRunArgs, ShowArgs, StepArgs, ValidateArgs};
pub(crate) use items::{
    ExportArgs, InitArgs, LoadArgs, SearchArgs, SignArgs, SystemCommand, VerifyArgs,
};
pub(crate) use keys::{GenerateArgs, KeysCommand, RevokeArgs, TrustArgs};
pub(crate) use mcp::{
    AddArgs, DiscoverArgs, ImportArgs, InstallArgs, LoginArgs, LogoutArgs, McpCallArgs, McpCommand,
    RemoveArgs, ServeArgs,
};
pub(crate) use models::{ModelsCommand, TestArgs};
pub(crate) use quota::{QuotaCommand, QuotaOwnerArgs, SetQuotaArgs};
pub(crate) use server::{CreateTokenArgs, RevokeTokenArgs, ServeHttpArgs, TokenCommand};
pub(crate) use vault::{
    GetArgs, ListArgs, LoginServiceArgs, OwnerArgs, RmArgs, SetArgs, SpaceChoice, VaultCommand,
};

/// Run signed tools and durable agents
#[derive(Debug, Parser)]
#[command(
    name = "rye",
    version,
    disable_help_subcommand = true,
    after_help = "Exit codes: 0 success, 1 failure, 2 wrong usage, 3 integrity failure, 4 permission denied, 124 timeout.\n\
    Run `rye COMMAND --help` for options and examples."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Default, Args)]
#[expect(
    clippy::doc_markdown,
    reason = "doc comments become the help text, which is plain text"
)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Project directory [default: RYE_PROJECT, or the nearest parent with `.ai/`]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Print the result as one JSON document; `rye prompt` prints one event per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Hide warnings, hints and progress; errors and pending gates are still shown
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Colour output: auto, always, never [default: RYE_COLOR, or auto unless NO_COLOR is set]
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_parser = color_parser(),
        hide_possible_values = true
    )]
    pub(crate) color: Option<Color>,
    /// Log what happens: error, warn, info, debug, trace, or CRATE=LEVEL,... [default: RYE_LOG]
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Append the log to a file instead of standard error [default: RYE_LOG_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// Format of the log: text, json [default: RYE_LOG_FORMAT, or text]
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        value_parser = log_format_parser(),
        hide_possible_values = true
    )]
    pub(crate) log_format: Option<LogFormat>,
}

/// Parses a colour setting.
fn color_parser() -> impl TypedValueParser<Value = Color> {
    let names = Color::ALL.map(Color::as_str);
    PossibleValuesParser::new(names).map(|name| name.parse().unwrap_or_default())
}

/// Parses a log format.
fn log_format_parser() -> impl TypedValueParser<Value = LogFormat> {
    PossibleValuesParser::new(LogFormat::NAMES).try_map(|name| name.parse::<LogFormat>())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a signing key, a project space and a first signed tool
    Init(InitArgs),
    /// Show signing, tampering, approval, crash recovery and verification in one second
    #[command(
        after_help = "Runs offline in a temporary directory. Needs no key and no setup.\n\n\
        Example:\n  rye demo"
    )]
    Demo(DemoArgs),
    /// Run a tool after verifying its whole chain
    Execute(ExecuteArgs),
    /// Validate, run, step and draw state graphs
    #[command(subcommand)]
    Graph(GraphCommand),
    /// List, follow and cancel runs of graphs and background tools
    #[command(subcommand)]
    Run(RunCommand),
    /// Search items
    Search(SearchArgs),
    /// Show an item: metadata, signer and content
    Load(LoadArgs),
    /// Sign items with your key
    Sign(SignArgs),
    /// Verify the signatures of items
    Verify(VerifyArgs),
    /// Generate, list, trust and revoke signing keys
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Store secrets, encrypted to your key
    #[command(subcommand)]
    Vault(VaultCommand),
    /// Chat with an agent in the terminal
    Chat(ChatArgs),
    /// Send a prompt to an agent and wait for the answer
    Prompt(PromptArgs),
    /// List, show, resume and verify agent sessions
    #[command(subcommand)]
    Session(SessionCommand),
    /// Replay a session offline and report what differs
    Replay(ReplayArgs),
    /// Run tasks with a model and check what it did
    Eval(EvalArgs),
    /// List and answer pending decisions
    #[command(subcommand)]
    Gate(GateCommand),
    /// Run commands in the confined sandbox, and check what this machine can confine
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// List and test models
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Serve items to MCP clients, and use the tools of MCP servers
    #[command(subcommand)]
    Mcp(McpCommand),
    /// Serve sessions to an editor with the Agent Client Protocol, on standard input and output
    Acp(AcpArgs),
    /// Serve sessions over HTTP
    Serve(ServeHttpArgs),
    /// Create, list and revoke access tokens of the HTTP server
    #[command(subcommand)]
    Token(TokenCommand),
    /// Limit what users and organisations may use
    #[command(subcommand)]
    Quota(QuotaCommand),
    /// Start prompts and graphs at times
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Send events of sessions to URLs
    #[command(subcommand)]
    Webhook(WebhookCommand),
    /// Start prompts and graphs when signed requests arrive
    #[command(subcommand)]
    Hook(HookCommand),
    /// Show settings and where each value comes from
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Export the items that ship with rye
    #[command(subcommand)]
    System(SystemCommand),
    /// Check the installation and suggest fixes
    #[command(after_help = "Exits 1 if a check fails.\n\nExample:\n  rye doctor")]
    Doctor,
    /// Print shell completions
    #[command(after_help = "Examples:\n  \
        rye completions bash >~/.local/share/bash-completion/completions/rye\n  \
        rye completions zsh >~/.zfunc/_rye\n  \
        rye completions fish >~/.config/fish/completions/rye.fish")]
    Completions(CompletionsArgs),
    /// Explain a command or a topic
    #[command(after_help = "Without a topic, lists all topics.\n\n\
        Examples:\n  \
        rye help tools\n  \
        rye help keys trust")]
    Help(HelpArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep the temporary directory
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HelpArgs {
    /// Command (with subcommands) or topic
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to generate completions for
    pub(crate) shell: clap_complete::Shell,
}

/// Parses an id or a part of one. Rejects the empty string: it is a prefix of every id, so an
/// unset shell variable would otherwise select an arbitrary one.
fn partial_id(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        return Err("an id must not be empty");
    }
    Ok(text.to_owned())
}

/// Parses the key of a thread.
fn thread_key(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        return Err("a thread key must not be empty");
    }
    Ok(text.to_owned())
}
