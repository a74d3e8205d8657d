//! Arguments of the commands about items: `init`, `sign`, `verify`, `load`, `search`, `system`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lillux::keys::Fingerprint;
use rye_items::signature::provenance_problem;
use rye_items::{ItemKind, Space};

use super::SpaceChoice;

#[derive(Debug, Args)]
#[command(after_help = "Safe to repeat: changes nothing that exists.\n\n\
    Examples:\n  \
    rye init\n  \
    rye init --agents\n  \
    rye init --project ~/work/notes")]
pub(crate) struct InitArgs {
    /// Owner name in the key's trust file [default: USER]
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Also write AGENTS.md, two roles, and a signed file for rules about approvals
    #[arg(long)]
    pub(crate) agents: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "An id without a prefix is a tool; use `directive:ID`, `knowledge:ID` or `config:ID` for others.\n\
    In a glob, `*` matches within a path segment and `**` across segments. Skips the system space and\n\
    trust files (use `rye keys trust`).\n\n\
    Examples:\n  \
    rye sign hello\n  \
    rye sign .ai/tools/hello.py knowledge:style\n  \
    rye sign 'text/**'\n  \
    rye sign --manifest .venv\n  \
    rye sign --all --provenance github@ada"
)]
pub(crate) struct SignArgs {
    /// Ids, globs, files or directories
    #[arg(value_name = "ID|PATH", required_unless_present_any = ["all", "manifest"])]
    pub(crate) targets: Vec<String>,
    /// Sign all files in a directory: an interpreter environment such as `.venv` or
    /// `node_modules`, or a directory of tools that load each other
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "all")]
    pub(crate) manifest: Vec<PathBuf>,
    /// Sign every item in the space
    #[arg(long, conflicts_with = "targets")]
    pub(crate) all: bool,
    /// Space for --all and globs [default: project, or user outside a project]
    #[arg(long, value_enum)]
    pub(crate) space: Option<SpaceChoice>,
    /// Claimed identity of the signer, such as `github@ada`; rye does not check it
    #[arg(long, value_name = "PROVIDER@USER", value_parser = provenance)]
    pub(crate) provenance: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exits 0 if all verify, 3 if one does not, 1 or 4 if one cannot be read.\n\n\
    Examples:\n  \
    rye verify hello\n  \
    rye verify ./downloaded.md\n  \
    rye verify --all --space project"
)]
pub(crate) struct VerifyArgs {
    /// Ids, globs, files or directories
    #[arg(value_name = "ID|PATH", required_unless_present = "all")]
    pub(crate) targets: Vec<String>,
    /// Verify every item in every space
    #[arg(long, conflicts_with = "targets")]
    pub(crate) all: bool,
    /// Restrict --all and globs to a space
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
    /// Item: `ID` (a tool), `directive:ID`, `knowledge:ID` or `config:ID`
    #[arg(value_name = "ID")]
    pub(crate) item: String,
    /// Print only the content, byte for byte
    #[arg(long, conflicts_with = "to")]
    pub(crate) content: bool,
    /// Copy the item and its signature into this space; asks before copying configuration
    #[arg(long, value_name = "SPACE", value_enum)]
    pub(crate) to: Option<SpaceChoice>,
    /// Copy configuration without asking
    #[arg(long, requires = "to")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Lists the best matches first. Matches prefixes and tolerates one typo in words of 4 to 7\n\
    letters, two in longer words. Without a query, lists all items.\n\n\
    Examples:\n  \
    rye search count words\n  \
    rye search --type knowledge signing\n  \
    rye search --space project --limit 50"
)]
pub(crate) struct SearchArgs {
    /// Words to search for, in any order
    #[arg(value_name = "QUERY")]
    pub(crate) words: Vec<String>,
    /// Only items of this type: tool, directive, knowledge, config; can be repeated
    #[arg(long = "type", value_name = "TYPE", value_parser = kind)]
    pub(crate) kinds: Vec<ItemKind>,
    /// Only items in this space; can be repeated
    #[arg(long = "space", value_enum)]
    pub(crate) spaces: Vec<AnySpace>,
    /// Only items in this category or below
    #[arg(long, value_name = "CATEGORY")]
    pub(crate) category: Option<String>,
    /// Only items whose signature names this key
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) signer: Option<Fingerprint>,
    /// Only items with this risk: low, medium, high, critical
    #[arg(long, value_parser = ["low", "medium", "high", "critical"], hide_possible_values = true)]
    pub(crate) risk: Option<String>,
    /// Maximum number of results, 1 to 200 [default: setting search.limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: Option<u32>,
}

fn provenance(text: &str) -> Result<String, &'static str> {
    match provenance_problem(text) {
        None => Ok(text.to_owned()),
        Some(_) => Err("expected PROVIDER@USER, of letters, digits, `.`, `_`, `-`, `+` and `/`"),
    }
}

fn kind(text: &str) -> Result<ItemKind, &'static str> {
    text.parse()
        .map_err(|_| "expected tool, directive, knowledge or config")
}

#[derive(Debug, Subcommand)]
pub(crate) enum SystemCommand {
    /// Write the built-in system space to a directory
    #[command(
        after_help = "To use the directory instead of the built-in space, set RYE_SYSTEM_SPACE=DIR.\n\n\
        Example:\n  rye system export ./system"
    )]
    Export(ExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Directory to create `.ai/` in
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// Any of the three spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnySpace {
    /// The project's items
    Project,
    /// Your own items
    User,
    /// Items that ship with rye
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
