//! What can be typed. No behaviour here.

pub(crate) mod cas;
mod keys;

use clap::{Parser, Subcommand};

use cas::CasCommand;
pub(crate) use keys::{
    Content, EnvelopeCommand, InspectArgs, KeyKind, KeypairArgs, OpenArgs, SealArgs, SignArgs,
    VerifyArgs,
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
    disable_help_subcommand = true,
    arg_required_else_help = false,
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 integrity failure, 4 permission refused, 124 timed out.\n\
                  `lillux COMMAND --help` shows examples."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Tell the time: ISO 8601, epoch milliseconds, monotonic nanoseconds.
    #[command(after_help = "Example:\n  lillux time")]
    Time,

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
}
