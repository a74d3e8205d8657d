//! What can be typed. No behaviour here.

mod cas;

use clap::{Parser, Subcommand};

pub(crate) use cas::{CasCommand, Gc, Get, Has, Put, Store, Verify};

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
}
