//! What can be typed. No behaviour here.

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
    ExecArgs, Inherit, KillArgs, ProgramArgs, SpawnArgs, StatusArgs, Target, WatchArgs, seconds,
    variable,
};

/// Processes, a content store, keys, sealed secrets, time: a kernel for scripts.
///
/// Every command prints one JSON object on standard output. A failure prints
/// `{"success":false,"error":{"code","message","hint"}}` there and the same in
/// words on standard error.
#[derive(Debug, Parser)]
#[command(
    name = "lillux",
    version,
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 integrity failure, 4 permission refused, 124 timed out.\n\
                  `lillux COMMAND --help` shows examples."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program and wait until it and all its descendants have ended.
    Exec(ExecArgs),
    /// Start a program that outlives this call, in a session of its own.
    Spawn(SpawnArgs),
    /// Tell whether a process runs.
    Status(StatusArgs),
    /// End a process, its group and its descendants: SIGTERM, then SIGKILL.
    Kill(KillArgs),
    /// Wait for a file to change, a process to end, or a recorded run to reach its end.
    Watch(WatchArgs),
    /// Keep bytes and JSON objects under their SHA-256.
    #[command(subcommand)]
    Cas(CasCommand),
    /// Make a key pair for signatures or for envelopes.
    Keypair(KeypairArgs),
    /// Sign a hash, a file or standard input.
    Sign(SignArgs),
    /// Check a signature over a hash, a file or standard input.
    Verify(VerifyArgs),
    /// Seal secrets to public keys, open and inspect them.
    #[command(subcommand)]
    Envelope(EnvelopeCommand),
    /// Tell the time: ISO 8601, epoch milliseconds, monotonic nanoseconds.
    #[command(after_help = "Example:\n  lillux time")]
    Time,
}
