//! What can be typed for items.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lillux::keys::Fingerprint;
use rye_items::signature::provenance_problem;
use rye_items::{ItemKind, Space};

use super::SpaceChoice;

#[derive(Debug, Args)]
#[command(after_help = "Safe to repeat: nothing that is there is changed.\n\n\
    Examples:\n  \
    rye init\n  \
    rye init --project ~/work/notes")]
pub(crate) struct InitArgs {
    /// Whose key it is, in the words of its trust file. Else USER.
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "An id is a tool's unless it says otherwise: `directive:ID`, `knowledge:ID`, `config:ID`.\n\
    In a glob, `*` stays within a segment and `**` does not. The system space is not signed here,\n\
    and files about keys are not: `rye keys trust` is for them.\n\n\
    Examples:\n  \
    rye sign hello\n  \
    rye sign .ai/tools/hello.py knowledge:style\n  \
    rye sign 'text/**'\n  \
    rye sign --manifest .venv\n  \
    rye sign --all --provenance github@ada"
)]
pub(crate) struct SignArgs {
    /// Ids, globs, files or folders.
    #[arg(value_name = "ID|PATH", required_unless_present_any = ["all", "manifest"])]
    pub(crate) targets: Vec<String>,
    /// Sign everything in a directory as it is: the environment of an interpreter, such as
    /// `.venv` or `node_modules`, or a directory of tools that load each other.
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["targets", "all"])]
    pub(crate) manifest: Vec<PathBuf>,
    /// Sign every item of the space.
    #[arg(long, conflicts_with = "targets")]
    pub(crate) all: bool,
    /// The space for --all and globs. Else the project's, or the user's where there is none.
    #[arg(long, value_enum)]
    pub(crate) space: Option<SpaceChoice>,
    /// Whom the signature names besides the key: `github@ada`. Nothing checks it.
    #[arg(long, value_name = "PROVIDER@USER", value_parser = provenance)]
    pub(crate) provenance: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exits 0 when all verify, 3 when one does not, 1 or 4 when one cannot be read.\n\n\
    Examples:\n  \
    rye verify hello\n  \
    rye verify ./downloaded.md\n  \
    rye verify --all --space project"
)]
pub(crate) struct VerifyArgs {
    /// Ids, globs, files or folders.
    #[arg(value_name = "ID|PATH", required_unless_present = "all")]
    pub(crate) targets: Vec<String>,
    /// Verify every item of every space.
    #[arg(long, conflicts_with = "targets")]
    pub(crate) all: bool,
    /// The one space for --all and globs.
    #[arg(long, value_enum)]
    pub(crate) space: Option<AnySpace>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    rye load hello\n  \
    rye load knowledge:rye/writing-tools --content\n  \
    rye load rye/core/runtimes/bash/bash --to project\n  \
    rye load config:agent/approvals --to user --yes")]
pub(crate) struct LoadArgs {
    /// The item: `ID`, `directive:ID`, `knowledge:ID`, `config:ID`.
    #[arg(value_name = "ID")]
    pub(crate) item: String,
    /// Write the content alone, byte for byte.
    #[arg(long, conflicts_with = "to")]
    pub(crate) content: bool,
    /// Copy the item, with its signature, into this space. Asks before it copies configuration.
    #[arg(long, value_name = "SPACE", value_enum)]
    pub(crate) to: Option<SpaceChoice>,
    /// Copy configuration without asking.
    #[arg(long, requires = "to")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The best come first. The beginning of a word finds it, and so does one with a letter wrong.\n\
    Without words, all items are listed.\n\n\
    Examples:\n  \
    rye search count words\n  \
    rye search --type knowledge signing\n  \
    rye search --space project --limit 50"
)]
pub(crate) struct SearchArgs {
    /// Words, in any order.
    #[arg(value_name = "QUERY")]
    pub(crate) words: Vec<String>,
    /// Only items of this type: tool, directive, knowledge, config. May be repeated.
    #[arg(long = "type", value_name = "TYPE", value_parser = kind)]
    pub(crate) kinds: Vec<ItemKind>,
    /// Only items of this space. May be repeated.
    #[arg(long = "space", value_enum)]
    pub(crate) spaces: Vec<AnySpace>,
    /// Only items of this category and those below it.
    #[arg(long, value_name = "C")]
    pub(crate) category: Option<String>,
    /// Only items that say to be signed by this key.
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) signer: Option<Fingerprint>,
    /// Only items of this risk: low, medium, high, critical.
    #[arg(long, value_parser = ["low", "medium", "high", "critical"], hide_possible_values = true)]
    pub(crate) risk: Option<String>,
    /// How many at most, 1 to 200. Else the setting search.limit.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: Option<u32>,
}

fn provenance(text: &str) -> Result<String, &'static str> {
    match provenance_problem(text) {
        None => Ok(text.to_owned()),
        Some(_) => {
            Err("it is of the form provider@user: letters, digits, `.`, `_`, `-`, `+` and `/`")
        }
    }
}

fn kind(text: &str) -> Result<ItemKind, &'static str> {
    text.parse()
        .map_err(|_| "the types are tool, directive, knowledge and config")
}

#[derive(Debug, Subcommand)]
pub(crate) enum SystemCommand {
    /// Write the system space of this binary into a folder, signed.
    #[command(
        after_help = "The folder is then a bundle: with RYE_SYSTEM_SPACE=DIR it is used in place of the one\n\
        in the binary.\n\n\
        Example:\n  rye system export ./system"
    )]
    Export(ExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The folder; its `.ai/` is made.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// One of the three spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnySpace {
    /// The project's
    Project,
    /// The person's own
    User,
    /// What ships with rye
    System,
}

impl From<AnySpace> for Space {
    fn from(choice: AnySpace) -> Self {
        match choice {
            AnySpace::Project => Self::Project,
            AnySpace::User => Self::User,
            AnySpace::System => Self::System,
        }
    }
}
