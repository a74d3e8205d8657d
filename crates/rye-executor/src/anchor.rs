//! The anchor: the directory that a tool's imports and dependencies are resolved from.

use std::path::{Path, PathBuf};

use rye_items::MANIFEST;
use serde_json::Value;

use crate::value_ext;

/// Anchor declaration of an item: how to find the anchor directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    mode: Mode,
    markers: Vec<String>,
    start: SearchStart,
    /// Library directory, relative to the runtime's directory and to the anchor.
    pub lib: Option<String>,
    /// Template of the working directory.
    pub cwd: Option<String>,
    /// Changes to environment variables, by variable name.
    pub env_paths: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The nearest directory upwards that contains a marker.
    Auto,
    /// The start directory; if markers are declared, it or a parent must contain one.
    Always,
    /// The item has no anchor.
    Never,
}

/// Directory where the search for markers starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchStart {
    ToolDir,
    ToolParent,
    ProjectPath,
}

/// Directory that an anchor declaration resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnchorLocation {
    /// The anchor directory.
    pub path: PathBuf,
    /// Whether a marker, a manifest or the declaration selects this directory. Otherwise it is
    /// the tool's directory, and the tool has no dependencies.
    pub is_marked: bool,
    /// Name of the file that marks a directory.
    pub marker: Option<String>,
    /// The directories that were searched for a marker, in order.
    pub searched: Vec<PathBuf>,
}

/// Why the anchor of a tool cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnchorError {
    /// The declaration is invalid.
    #[error("`anchor`: {0}")]
    InvalidDeclaration(String),
    /// A marker is required, but neither the start directory nor a parent contains one.
    #[error("no anchor marker ({}) in {} or its parents", .markers.join(", "), .start.display())]
    NoMarker {
        /// File names that count as markers.
        markers: Vec<String>,
        /// Directory where the search started.
        start: PathBuf,
    },
    /// A path contains a colon, which separates the entries of a path variable.
    #[error(
        "{path} contains a colon, which separates entries in {variable}; move the project to a path without a colon"
    )]
    ColonInPath {
        /// The directory.
        path: String,
        /// Name of the environment variable.
        variable: String,
    },
}

impl Anchor {
    /// Default for chains that declare no anchor: only a manifest marks the directory.
    pub(crate) fn undeclared() -> Self {
        Self {
            mode: Mode::Auto,
            markers: Vec::new(),
            start: SearchStart::ToolDir,
            lib: None,
            cwd: None,
            env_paths: Value::Null,
        }
    }

    /// Parses an anchor declaration; `None` if the anchor is disabled.
    pub fn parse(declaration: &Value) -> Result<Option<Self>, AnchorError> {
        let invalid = |why: String| AnchorError::InvalidDeclaration(why);
        let is_enabled = || value_ext::flag(declaration, "enabled", true).map_err(invalid);
        if declaration.is_null() || !is_enabled()? {
            return Ok(None);
        }
        let text = |key: &str| value_ext::text(declaration, key).map_err(invalid);
        let mode = match text("mode")? {
            None | Some("auto") => Mode::Auto,
            Some("always") => Mode::Always,
            Some("never") => Mode::Never,
            Some(other) => {
                return Err(invalid(format!(
                    "unknown mode `{other}`; expected auto, always or never"
                )));
            }
        };
        if mode == Mode::Never {
            return Ok(None);
        }
        let start = match text("root")? {
            None | Some("tool_dir") => SearchStart::ToolDir,
            Some("tool_parent") => SearchStart::ToolParent,
            Some("project_path") => SearchStart::ProjectPath,
            Some(other) => {
                return Err(invalid(format!(
                    "unknown root `{other}`; expected tool_dir, tool_parent or project_path"
                )));
            }
        };
        let markers = value_ext::texts(declaration, "markers_any").map_err(invalid)?;
        let markers = markers.unwrap_or_default();
        if let Some(marker) = markers.iter().find(|marker| !is_file_name(marker)) {
            return Err(invalid(format!("marker `{marker}` is not a file name")));
        }
        Ok(Some(Self {
            mode,
            start,
            markers,
            lib: text("lib")?.map(str::to_owned),
            cwd: text("cwd")?.map(str::to_owned),
            env_paths: declaration.get("env_paths").cloned().unwrap_or_default(),
        }))
    }

    /// Finds the anchor directory of a tool. The search does not go above `tools`, the `tools/`
    /// directory of the tool's space.
    pub fn locate(
        &self,
        tool_dir: &Path,
        tools: &Path,
        project: &Path,
    ) -> Result<AnchorLocation, AnchorError> {
        let start = match self.start {
            SearchStart::ToolDir => tool_dir.to_owned(),
            SearchStart::ToolParent => tool_dir.parent().unwrap_or(tool_dir).to_owned(),
            SearchStart::ProjectPath => project.to_owned(),
        };
        let limit = if start.starts_with(tools) {
            tools
        } else {
            &start
        };
        let marker_in = |dir: &Path| {
            let manifest = dir.starts_with(tools).then_some(MANIFEST);
            let mut markers = self.markers.iter().map(String::as_str).chain(manifest);
            markers.find(|marker| dir.join(marker).exists())
        };
        let mut searched = Vec::new();
        let mut marked = None;
        for dir in start.ancestors().take_while(|dir| dir.starts_with(limit)) {
            searched.push(dir.to_owned());
            marked = marker_in(dir).map(|marker| (dir.to_owned(), marker.to_owned()));
            if marked.is_some() {
                break;
            }
        }
        if self.mode == Mode::Always && marked.is_none() && !self.markers.is_empty() {
            return Err(AnchorError::NoMarker {
                markers: self.markers.clone(),
                start,
            });
        }
        let is_marked = self.mode == Mode::Always || marked.is_some();
        let (path, marker) = match (self.mode, marked) {
            (Mode::Always, marked) => (start, marked.map(|(_, marker)| marker)),
            (_, Some((dir, marker))) => (dir, Some(marker)),
            (_, None) => (start, None),
        };
        Ok(AnchorLocation {
            path,
            is_marked,
            marker,
            searched,
        })
    }
}

/// Whether a marker is a plain file name without path separators.
fn is_file_name(marker: &str) -> bool {
    !matches!(marker, "" | "." | "..") && !marker.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn anchor(declaration: &Value) -> Anchor {
        Anchor::parse(declaration).unwrap().unwrap()
    }

    #[test]
    fn nearest_marker_wins_and_markers_above_tools_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path();
        let tools = project.join(".ai/tools");
        let tool_dir = tools.join("a/b");
        fs::create_dir_all(&tool_dir).unwrap();
        fs::write(project.join("package.json"), "").unwrap();
        let locate = |anchor: &Anchor| anchor.locate(&tool_dir, &tools, project);
        let auto = anchor(&json!({"markers_any": ["package.json"]}));
        let found = locate(&auto).unwrap();
        assert_eq!((found.path, found.is_marked), (tool_dir.clone(), false));
        fs::write(tools.join("package.json"), "").unwrap();
        assert_eq!(locate(&auto).unwrap().path, tools);
        fs::write(tools.join("a/package.json"), "").unwrap();
        let found = locate(&auto).unwrap();
        assert_eq!((found.path, found.is_marked), (tools.join("a"), true));

        let always = anchor(&json!({"mode": "always", "markers_any": ["package.json"]}));
        assert_eq!(locate(&always).unwrap().path, tool_dir);
        let missing = anchor(&json!({"mode": "always", "markers_any": ["Gemfile"]}));
        let error = locate(&missing).unwrap_err();
        assert!(matches!(error, AnchorError::NoMarker { .. }), "{error}");
        let parent = anchor(&json!({"root": "tool_parent"}));
        assert_eq!(locate(&parent).unwrap().path, tools.join("a"));
        let whole_project = anchor(&json!({"mode": "always", "root": "project_path"}));
        assert_eq!(locate(&whole_project).unwrap().path, project);
    }

    #[test]
    fn anchor_can_be_disabled_and_unknown_modes_are_rejected() {
        for disabled in [
            json!(null),
            json!({"enabled": false}),
            json!({"mode": "never"}),
        ] {
            assert_eq!(Anchor::parse(&disabled), Ok(None));
        }
        for invalid in [json!({"mode": "sometimes"}), json!({"root": "moon"})] {
            assert!(Anchor::parse(&invalid).is_err());
        }
    }
}
