//! Change sets: what an agent changed in its copy of a workspace, for a person to approve.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// Key of a gate's context: the [summary](ChangeSetSummary) of the change set that it is about.
pub const CHANGE_SET: &str = "change_set";

/// The differences between a workspace and a session's copy of it, sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeSet {
    /// The changed paths.
    pub changes: Vec<Change>,
    /// What the copy contains but an approval doesn't apply, such as `socket run.sock`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<String>,
}

/// A path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// Path relative to the workspace, [escaped](escape_path).
    pub path: String,
    /// The workspace's version; `None` if the path is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<FileVersion>,
    /// The session's version; `None` if the path is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<FileVersion>,
    /// Whether the workspace's version changed after the session had started from it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// Whether the file decides what programs do later, such as `.git/config`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protected: bool,
}

/// One version of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileVersion {
    /// Type of file.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// SHA-256 of the content, or of a link's target; empty for a directory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// Length in bytes.
    #[serde(default)]
    pub size: u64,
    /// Target of a link, escaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// Type of a file in a change set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A socket, pipe or device, which can only be removed.
    Special,
}

/// What a gate says about its change set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeSetSummary {
    /// Hash of the paths, types, modes, old and new contents. An approval is bound to it.
    pub hash: String,
    /// Number of new paths.
    pub added: usize,
    /// Number of paths whose content or mode differs.
    pub changed: usize,
    /// Number of removed paths.
    pub removed: usize,
    /// The changed paths, unless there are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Paths that also changed in the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// Blob with the [`ChangeSet`] as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// Blob with the complete diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// The part of a change set that an approval covers; by default all of it. It is the value of a
/// decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// Only these paths, and what is below them. Empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Not these paths, and what is below them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Blobs with other contents for changed files, by path.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub edits: BTreeMap<String, String>,
}

impl Selection {
    /// Whether a path is selected.
    pub fn includes(&self, path: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|it| is_at_or_below(path, it));
        (self.only.is_empty() || is_in(&self.only)) && !is_in(&self.except)
    }

    /// A path that selects nothing in the change set, or an edit of something that is not a new
    /// or changed file that is selected.
    pub fn unknown_path(&self, set: &ChangeSet) -> Option<&str> {
        let mut named = self.only.iter().chain(&self.except);
        let matches = |name: &&String| {
            let mut changes = set.changes.iter();
            changes.any(|change| is_at_or_below(&change.path, name))
        };
        let editable = |path: &&String| {
            let mut changes = set.changes.iter();
            let is_file = |change: &Change| {
                let new = change.new.as_ref();
                new.is_some_and(|new| new.kind == FileKind::File)
            };
            self.includes(path) && changes.any(|it| it.path == **path && is_file(it))
        };
        let unknown = named.find(|name| !matches(name));
        let unknown = unknown.or_else(|| self.edits.keys().find(|path| !editable(path)));
        unknown.map(String::as_str)
    }
}

fn is_at_or_below(path: &str, dir: &str) -> bool {
    let dir = dir.trim_start_matches("./").trim_end_matches('/');
    let rest = path.strip_prefix(dir);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The decision about a change set, once it has taken effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settlement {
    /// Paths whose change was applied to the workspace.
    pub applied: Vec<String>,
    /// Applied paths whose content the person edited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edited: Vec<String>,
    /// Paths whose change was discarded.
    pub rejected: Vec<String>,
}

/// A path as text without loss: control characters, `\` and bytes that are not UTF-8 are escaped
/// as `\n`, `\u{1b}`, `\\` and `\xff`.
pub fn escape_path(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => text.extend(c.escape_default()),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Reverses [`escape_path`]. Returns `None` if the text is not the form that it returns.
pub fn unescape_path(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = &rest[at + 1..];
        let mut length = 1;
        match escape.chars().next()? {
            '\\' => bytes.push(b'\\'),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'x' => {
                length = 3;
                bytes.push(u8::from_str_radix(escape.get(1..3)?, 16).ok()?);
            }
            'u' => {
                let end = escape.find('}')?;
                length = end + 1;
                let code = escape.get(2..end)?;
                let c = char::from_u32(u32::from_str_radix(code, 16).ok()?)?;
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => return None,
        }
        rest = escape.get(length..)?;
    }
    bytes.extend_from_slice(rest.as_bytes());
    (escape_path(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_survives_escaping() {
        for (path, text) in [
            (&b"src/main.rs"[..], "src/main.rs"),
            (b"a\nb\x1b\\", "a\\nb\\u{1b}\\\\"),
            (b"\xff/\xc3\xa4\xc3", "\\xff/ä\\xc3"),
            (b"", ""),
        ] {
            assert_eq!(escape_path(path), text);
            assert_eq!(unescape_path(text).as_deref(), Some(path));
        }
        for invalid in ["\\", "\\q", "\\x4", "\\x41", "\\u{}", "\\u{110000}", "a\nb"] {
            assert_eq!(unescape_path(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn selection_covers_directories_but_not_common_prefixes() {
        let only = |paths: &[&str]| Selection {
            only: paths.iter().map(|it| (*it).to_owned()).collect(),
            ..Selection::default()
        };
        assert!(Selection::default().includes("a"));
        assert!(only(&["src/"]).includes("src/a"));
        assert!(only(&["./src"]).includes("src"));
        assert!(!only(&["src"]).includes("src2/a"));
        let except = Selection {
            except: vec!["src/b".to_owned()],
            ..only(&["src"])
        };
        assert!(except.includes("src/a") && !except.includes("src/b/c"));
    }

    #[test]
    fn selection_of_unknown_paths_is_found() {
        let file = FileVersion {
            kind: FileKind::File,
            mode: 0o644,
            hash: String::new(),
            size: 0,
            target: None,
        };
        let change = |path: &str, new: Option<FileVersion>| Change {
            path: path.to_owned(),
            old: Some(file.clone()),
            new,
            conflict: false,
            protected: false,
        };
        let set = ChangeSet {
            changes: vec![change("d/a", Some(file.clone())), change("gone", None)],
            omitted: Vec::new(),
        };
        let edit = |path: &str| Selection {
            edits: BTreeMap::from([(path.to_owned(), String::new())]),
            ..Selection::default()
        };
        let except = |path: &str| Selection {
            except: vec![path.to_owned()],
            ..Selection::default()
        };
        assert_eq!(edit("d/a").unknown_path(&set), None);
        assert_eq!(edit("gone").unknown_path(&set), Some("gone"));
        assert_eq!(except("d").unknown_path(&set), None);
        assert_eq!(except("other").unknown_path(&set), Some("other"));
        let excluded = Selection {
            except: vec!["d".to_owned()],
            ..edit("d/a")
        };
        assert_eq!(excluded.unknown_path(&set), Some("d/a"));
    }
}
