//! Changes of files: what an agent did to the workspace, with the content before and after.

use serde::{Deserialize, Serialize};

/// A change of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileChange {
    /// Path, relative to the workspace if it is inside.
    pub path: String,
    /// The file before the change; none if it did not exist.
    pub before: Option<FileContent>,
    /// The file after the change; none if it was deleted.
    pub after: Option<FileContent>,
    /// The topmost directory that was created for a new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_dir: Option<String>,
}

/// The content of a file at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileContent {
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 of the content; none if the content is not kept, because it is too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Reference to the blob that contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Where it starts in the blob.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// Whether the owner may execute the file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(offset: &u64) -> bool {
    *offset == 0
}

impl FileContent {
    /// Whether two files are the same. Files whose content was not kept are never the same.
    pub fn is_same(&self, other: &Self) -> bool {
        self.hash.is_some() && self.hash == other.hash && self.executable == other.executable
    }
}
