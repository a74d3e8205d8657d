//! What can be typed. No behaviour here.

mod config;
mod engine;
mod execute;
mod graph;
mod items;
mod keys;
mod later;
mod mcp;
mod models;
mod vault;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::settings::Color;

pub(crate) use config::{AcceptArgs, ConfigCommand};
pub(crate) use engine::{
    ChatArgs, CompactArgs, ExportSessionArgs, ForkArgs, GateArgs, GateCommand, Holds,
    ImportSessionArgs, PromptArgs, ReplayArgs, ResumeArgs, SessionArgs, SessionCommand, ThreadArgs,
    VerifySessionArgs,
};
pub(crate) use execute::{CallOptions, ExecuteArgs, RunCommand, TailArgs, TraceChoice, seconds};
pub(crate) use graph::{Drawing, GraphCommand, GraphRunArgs, ShowArgs, StepArgs, ValidateArgs};
pub(crate) use items::{
    ExportArgs, InitArgs, LoadArgs, SearchArgs, SignArgs, SystemCommand, VerifyArgs,
};
pub(crate) use keys::{GenerateArgs, KeysCommand, RevokeArgs, TrustArgs};
pub(crate) use later::Later;
pub(crate) use mcp::{
    AddArgs, DiscoverArgs, ImportArgs, InstallArgs, LoginArgs, LogoutArgs, McpCallArgs, McpCommand,
    RemoveArgs, ServeArgs, ServerName,
};
pub(crate) use models::{ModelsCommand, TestArgs};
pub(crate) use vault::{GetArgs, ListArgs, OwnerArgs, RmArgs, SetArgs, SpaceChoice, VaultCommand};

/// Run signed tools, and nothing that was not verified.
#[derive(Debug, Parser)]
#[command(
    name = "rye",
    version,
    disable_help_subcommand = true,
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 integrity failure, 4 permission refused, 124 timed out.\n\
                  `rye COMMAND --help` shows examples."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Default, Args)]
#[expect(
    clippy::doc_markdown,
    reason = "the comments are the help, which is plain text"
)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// The project's folder. Else RYE_PROJECT, else the nearest folder above with `.ai/`.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// Print one JSON document on standard output, and nothing else there.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing on standard error but errors.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Whether to colour: auto, always, never. Else RYE_COLOR; NO_COLOR is honoured.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        hide_possible_values = true
    )]
    pub(crate) color: Option<Color>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a key, a space for the project and a first tool, signed.
    Init(Later<InitArgs>),
    /// See the whole story: signed, tampered with, approved, killed, resumed, verified.
    #[command(
        after_help = "It needs no network, no key and no set-up, and leaves nothing behind.\n\n\
        Example:\n  rye demo"
    )]
    Demo(Later<DemoArgs>),
    /// Run a tool, once all that it is made of is verified.
    Execute(Later<ExecuteArgs>),
    /// Validate, run, step and draw state graphs.
    #[command(subcommand)]
    Graph(Later<GraphCommand>),
    /// List, watch and end runs: those of graphs, and those in the background.
    #[command(subcommand)]
    Run(Later<RunCommand>),
    /// Find items by words.
    Search(Later<SearchArgs>),
    /// Show an item: what it is, who signed it, its content.
    Load(Later<LoadArgs>),
    /// Sign items with your key.
    Sign(Later<SignArgs>),
    /// Check that items are what their signers signed.
    Verify(Later<VerifyArgs>),
    /// Make, list, trust and revoke signing keys.
    #[command(subcommand)]
    Keys(Later<KeysCommand>),
    /// Keep secrets, sealed to your own key.
    #[command(subcommand)]
    Vault(Later<VaultCommand>),
    /// Talk with an agent in the terminal.
    Chat(Later<ChatArgs>),
    /// Ask an agent something, and wait for its answer.
    Prompt(Later<PromptArgs>),
    /// List, show and go on with sessions of agents.
    #[command(subcommand)]
    Session(Later<SessionCommand>),
    /// Run a session again from its record, offline, and say what differs today.
    Replay(Later<ReplayArgs>),
    /// Decide where an agent waits for a person.
    #[command(subcommand)]
    Gate(Later<GateCommand>),
    /// List and test the models that agents can ask.
    #[command(subcommand)]
    Models(Later<ModelsCommand>),
    /// Serve items to MCP clients, and use the tools of MCP servers.
    #[command(subcommand)]
    Mcp(Later<McpCommand>),
    /// Show what holds for a call, and where each value is from.
    #[command(subcommand)]
    Config(Later<ConfigCommand>),
    /// The items that ship with rye.
    #[command(subcommand)]
    System(Later<SystemCommand>),
    /// Check the installation, and say how to put right what is wrong.
    #[command(after_help = "Exits 1 when something fails.\n\nExample:\n  rye doctor")]
    Doctor,
    /// Print completions for a shell.
    #[command(after_help = "Examples:\n  \
        rye completions bash >~/.local/share/bash-completion/completions/rye\n  \
        rye completions zsh >~/.zfunc/_rye\n  \
        rye completions fish >~/.config/fish/completions/rye.fish")]
    Completions(Later<CompletionsArgs>),
    /// Explain a command or a topic.
    #[command(after_help = "Without a topic, lists them.\n\n\
        Examples:\n  \
        rye help tools\n  \
        rye help keys trust")]
    Help(Later<HelpArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Leave the folder in which it happened.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HelpArgs {
    /// A command, with the words below it, or a topic.
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// An id, or a part of one. Nothing is a part of all of them: a variable that a script has
/// not set must not choose whichever there is.
fn part_of_id(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        return Err("it is empty, and an id is not");
    }
    Ok(text.to_owned())
}

/// The key of a thread.
fn key_of_thread(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        return Err("it is empty, and the key of a thread is not");
    }
    Ok(text.to_owned())
}
