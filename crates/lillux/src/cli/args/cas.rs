//! `lillux cas …`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use lillux::Hash;

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  \
    date | lillux cas put --root store\n\n\
    `lillux cas COMMAND --help` shows more.")]
pub(crate) enum CasCommand {
    /// Store a blob, or a JSON object, and tell its hash.
    #[command(after_help = "Examples:\n  \
        lillux cas put --root store --file report.pdf\n  \
        date | lillux cas put --root store\n  \
        echo '{\"b\": 1, \"a\": 2}' | lillux cas put --root store --object\n\n\
        The root is made if it is not there. Putting what is already there changes nothing,\n\
        renews its time for `gc`, and heals it if it was corrupted.")]
    Put(Put),
    /// Give back what is under a hash, after checking it.
    #[command(after_help = "Examples:\n  \
        lillux cas get --root store HASH\n  \
        lillux cas get --root store HASH --out report.pdf\n  \
        lillux cas get --root store HASH --raw | wc -c\n\n\
        Prints `data` for text, `data_base64` for other bytes, `object` for an object.\n\
        With --raw, standard output is the content and nothing else; a failure is told\n\
        on standard error and by the exit code.")]
    Get(Get),
    /// Tell whether there is something under a hash, without reading it.
    #[command(after_help = "Example:\n  \
        lillux cas has --root store HASH\n\n\
        Exits with 0 whether it is there or not; `exists` tells.")]
    Has(Has),
    /// Read what is under a hash, or everything, and tell what is corrupted.
    #[command(after_help = "Examples:\n  \
        lillux cas verify --root store\n  \
        lillux cas verify --root store HASH\n\n\
        Exits with 3 if anything is corrupted. To heal it, put the same content again.")]
    Verify(Verify),
    /// Remove what the kept hashes do not reach.
    #[command(after_help = "Examples:\n  \
        lillux cas gc --root store --keep HASH --keep HASH --dry-run\n  \
        lillux cas gc --root store --keep-from roots.txt --grace 86400\n\n\
        An object reaches what its strings name by hash. What was put within the grace\n\
        time stays. If a kept hash is missing, or a reachable object is corrupted,\n\
        nothing is removed.")]
    Gc(Gc),
}

/// Which store.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// The folder of the store.
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Read this file; standard input if not given.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The input is JSON: store its canonical form as an object.
    #[arg(long)]
    pub(crate) object: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    #[command(flatten)]
    pub(crate) store: Store,
    /// 64 lower-case hex characters.
    pub(crate) hash: Hash,
    /// Write the content to this file, whole or not at all.
    #[arg(long, value_name = "FILE", conflicts_with = "raw")]
    pub(crate) out: Option<PathBuf>,
    /// Write the content to standard output, in place of a JSON object.
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Has {
    #[command(flatten)]
    pub(crate) store: Store,
    /// 64 lower-case hex characters.
    pub(crate) hash: Hash,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(crate) store: Store,
    /// 64 lower-case hex characters; everything if not given.
    pub(crate) hash: Option<Hash>,
}

#[derive(Debug, Args)]
#[group(id = "kept", required = true, multiple = true, args = ["keep", "keep_from", "keep_nothing"])]
pub(crate) struct Gc {
    #[command(flatten)]
    pub(crate) store: Store,
    /// Keep this and what it reaches.
    #[arg(long, value_name = "HASH", num_args = 1..)]
    pub(crate) keep: Vec<Hash>,
    /// Keep the hashes in this file, one a line, and what they reach; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep_from: Option<PathBuf>,
    /// Keep only what is recent.
    #[arg(long, conflicts_with_all = ["keep", "keep_from"])]
    pub(crate) keep_nothing: bool,
    /// Keep what was put within this time.
    #[arg(long, value_name = "SECONDS", default_value_t = lillux::cas::DEFAULT_GRACE.as_secs())]
    pub(crate) grace: u64,
    /// Tell what would be removed, and remove nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
