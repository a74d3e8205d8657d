//! Arguments of `lillux cas`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lillux::Hash;

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  \
    date | lillux cas put --root store\n\n\
    `lillux cas COMMAND --help` shows more.")]
pub(crate) enum CasCommand {
    /// Store a blob or a JSON object and print its hash
    #[command(after_help = "Examples:\n  \
        lillux cas put --root store --file report.pdf\n  \
        date | lillux cas put --root store\n  \
        echo '{\"b\": 1, \"a\": 2}' | lillux cas put --root store --object\n\n\
        The root is created if it does not exist. Storing existing content again updates its\n\
        time for `gc` and repairs it if it is corrupted.")]
    Put(Put),
    /// Verify and print the content with a hash
    #[command(after_help = "Examples:\n  \
        lillux cas get --root store HASH\n  \
        lillux cas get --root store HASH --out report.pdf\n  \
        lillux cas get --root store HASH --raw | wc -c\n\n\
        Prints `data` for text, `data_base64` for other bytes, `object` for an object.\n\
        With --raw, standard output is only the content; a failure is printed on standard\n\
        error only.")]
    Get(Get),
    /// Show whether the store has content with a hash, without reading it
    #[command(after_help = "Example:\n  \
        lillux cas has --root store HASH\n\n\
        Exits with 0 in both cases; see `exists` in the output.")]
    Has(Has),
    /// Verify one hash or the whole store and report corrupted files
    #[command(after_help = "Examples:\n  \
        lillux cas verify --root store\n  \
        lillux cas verify --root store HASH\n\n\
        Exits with 3 if a file is corrupted. To repair it, put the same content again.")]
    Verify(Verify),
    /// Remove content that the kept hashes do not reach
    #[command(after_help = "Examples:\n  \
        lillux cas gc --root store --keep HASH --keep HASH --dry-run\n  \
        lillux cas gc --root store --keep-from roots.txt --grace 86400\n\n\
        An object reaches the content whose hashes its strings contain. Content that was\n\
        put within the grace time is kept. If a kept hash is missing or a reachable object\n\
        is corrupted, nothing is removed.")]
    Gc(Gc),
}

/// The store to use.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// Directory of the store
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    #[command(flatten)]
    pub(crate) store: Store,
    /// File to store [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Parse the input as JSON and store its canonical form as an object
    #[arg(long)]
    pub(crate) object: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) store: Store,
    /// SHA-256, 64 lower-case hex characters
    pub(crate) hash: Hash,
    /// Write the content to this file, atomically
    #[arg(long, value_name = "FILE", conflicts_with = "raw")]
    pub(crate) out: Option<PathBuf>,
    /// Write the content to standard output instead of a JSON object
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Has {
    #[command(flatten)]
    pub(crate) store: Store,
    /// SHA-256, 64 lower-case hex characters
    pub(crate) hash: Hash,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) store: Store,
    /// SHA-256, 64 lower-case hex characters [default: the whole store]
    pub(crate) hash: Option<Hash>,
}

#[derive(Debug, Args)]
#[group(id = "kept", required = true, multiple = true, args = ["keep", "keep_from", "keep_nothing"])]
pub(crate) struct Gc {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Keep this content and everything it reaches
    #[arg(long, value_name = "HASH", num_args = 1..)]
    pub(crate) keep: Vec<Hash>,
    /// Keep the hashes in this file, one per line, and everything they reach; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) keep_from: Option<PathBuf>,
    /// Keep only recent content
    #[arg(long, conflicts_with_all = ["keep", "keep_from"])]
    pub(crate) keep_nothing: bool,
    /// Keep content that was put within this time
    #[arg(long, value_name = "SECONDS", default_value_t = lillux::cas::DEFAULT_GRACE.as_secs())]
    pub(crate) grace: u64,
    /// Only print what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
}
