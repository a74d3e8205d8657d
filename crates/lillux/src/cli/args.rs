//! The command-line arguments, without behaviour.

pub(crate) mod cas;
mod keys;
mod processes;

use clap::{Parser, Subcommand};

use cas::CasCommand;
pub(crate) use keys::{
    Content, EnvelopeCommand, InspectArgs, KeyKind, KeypairArgs, OpenArgs, SealArgs, SignArgs,
    VerifyArgs,
};
pub(crate) use processes::{
    ExecArgs, Inherit, KillArgs, ProgramArgs, SpawnArgs, StatusArgs, Target, WatchArgs,
};

/// Run processes, store content, use keys and sealed secrets from scripts
///
/// Every command prints one JSON object on standard output. A failure prints
/// `{"success":false,"error":{"code","message","hint"}}` there and a readable
/// message on standard error.
#[derive(Debug, Parser)]
#[command(
    name = "lillux",
    version,
    after_help = "Exit codes: 0 success, 1 failure, 2 wrong usage, 3 integrity failure, 4 permission denied, 124 timeout.\n\
                  `lillux COMMAND --help` shows examples."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program and wait until it and all its descendants have ended
    Exec(ExecArgs),
    /// Start a detached program in a new session
    Spawn(SpawnArgs),
    /// Show whether a process runs
    Status(StatusArgs),
    /// End a process, its group and its descendants: SIGTERM, then SIGKILL
    Kill(KillArgs),
    /// Wait for a file to change, a process to end, or a thread in a database to end
    Watch(WatchArgs),
    /// Store bytes and JSON objects under their SHA-256
    #[command(subcommand)]
    Cas(CasCommand),
    /// Create a key pair for signatures or for envelopes
    Keypair(KeypairArgs),
    /// Sign a hash, a file or standard input
    Sign(SignArgs),
    /// Verify a signature over a hash, a file or standard input
    Verify(VerifyArgs),
    /// Seal secrets to public keys, open and inspect them
    #[command(subcommand)]
    Envelope(EnvelopeCommand),
    /// Print the time: ISO 8601, epoch milliseconds, monotonic nanoseconds
    #[command(after_help = "Example:\n  lillux time")]
    Time,
}
