//! The anchor: the folder that a tool's imports and dependencies start from.

use std::path::{Path, PathBuf};

use rye_items::MANIFEST;
use serde_json::Value;

use crate::shape;

/// An anchor as an item describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    mode: Mode,
    markers: Vec<String>,
    root: RootOf,
    /// A folder of the runtime, relative to its own.
    pub lib: Option<String>,
    /// Where to run, as a template.
    pub cwd: Option<String>,
    /// What becomes of which variable.
    pub env_paths: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Walk up to the nearest marker.
    Auto,
    /// The folder itself; if markers are named, one must be in it or above.
    Always,
    /// No anchor.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RootOf {
    ToolDir,
    ToolParent,
    ProjectPath,
}

/// Where an anchor is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchored {
    /// The folder.
    pub path: PathBuf,
    /// Whether a marker, a manifest or the description says so. Where none does, the tool
    /// brings nothing along.
    pub is_marked: bool,
}

/// An anchor that is described wrongly, or cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnchorError {
    /// The description cannot be read.
    #[error("`anchor`: {0}")]
    Description(String),
    /// A marker must be there, and is not.
    #[error("none of {} is in {} or above it, and the anchor needs one", .markers.join(", "), .folder.display())]
    NoMarker {
        /// What was looked for.
        markers: Vec<String>,
        /// From where.
        folder: PathBuf,
    },
    /// A folder that would become two in a list of folders.
    #[error(
        "{path} has a colon in it, and in {variable} a colon ends a folder's name; move the project to a path without one"
    )]
    Colon {
        /// The folder.
        path: String,
        /// The list.
        variable: String,
    },
}

impl Anchor {
    /// The anchor of a tool whose links declare none: only a manifest marks it.
    pub(crate) fn undeclared() -> Self {
        Self {
            mode: Mode::Auto,
            markers: Vec::new(),
            root: RootOf::ToolDir,
            lib: None,
            cwd: None,
            env_paths: Value::Null,
        }
    }

    /// Reads the description of an anchor.
    pub fn read(about: &Value) -> Result<Option<Self>, AnchorError> {
        let wrong = |why: String| AnchorError::Description(why);
        if about.is_null() || !shape::flag(about, "enabled", true).map_err(wrong)? {
            return Ok(None);
        }
        let text = |key: &str| shape::text(about, key).map_err(wrong);
        let mode = match text("mode")? {
            None | Some("auto") => Mode::Auto,
            Some("always") => Mode::Always,
            Some("never") => Mode::Never,
            Some(other) => {
                return Err(wrong(format!(
                    "there is no mode `{other}`; the modes are auto, always, never"
                )));
            }
        };
        if mode == Mode::Never {
            return Ok(None);
        }
        let root = match text("root")? {
            None | Some("tool_dir") => RootOf::ToolDir,
            Some("tool_parent") => RootOf::ToolParent,
            Some("project_path") => RootOf::ProjectPath,
            Some(other) => {
                return Err(wrong(format!(
                    "there is no root `{other}`; the roots are tool_dir, tool_parent, project_path"
                )));
            }
        };
        let markers = shape::texts(about, "markers_any").map_err(wrong)?;
        let markers = markers.unwrap_or_default();
        if let Some(marker) = markers.iter().find(|marker| !is_plain(marker)) {
            return Err(wrong(format!("`{marker}` is not the name of a marker")));
        }
        Ok(Some(Self {
            mode,
            root,
            markers,
            lib: text("lib")?.map(str::to_owned),
            cwd: text("cwd")?.map(str::to_owned),
            env_paths: about.get("env_paths").cloned().unwrap_or_default(),
        }))
    }

    /// Finds the anchor of a tool. `tools` is the folder `tools/` of its space,
    /// above which nothing is looked for.
    pub fn find(
        &self,
        tool_dir: &Path,
        tools: &Path,
        project: &Path,
    ) -> Result<Anchored, AnchorError> {
        let start = match self.root {
            RootOf::ToolDir => tool_dir.to_owned(),
            RootOf::ToolParent => tool_dir.parent().unwrap_or(tool_dir).to_owned(),
            RootOf::ProjectPath => project.to_owned(),
        };
        let limit = if start.starts_with(tools) {
            tools
        } else {
            &start
        };
        let has_marker = |folder: &Path| {
            let mut markers = self.markers.iter().map(String::as_str);
            let is_there = |marker: &str| folder.join(marker).exists();
            markers.any(is_there) || (folder.starts_with(tools) && is_there(MANIFEST))
        };
        let marked = start
            .ancestors()
            .take_while(|folder| folder.starts_with(limit))
            .find(|folder| has_marker(folder));
        match (self.mode, marked) {
            (Mode::Always, None) if !self.markers.is_empty() => Err(AnchorError::NoMarker {
                markers: self.markers.clone(),
                folder: start,
            }),
            (Mode::Always, _) => Ok(Anchored {
                path: start,
                is_marked: true,
            }),
            (_, Some(folder)) => Ok(Anchored {
                path: folder.to_owned(),
                is_marked: true,
            }),
            (_, None) => Ok(Anchored {
                path: start,
                is_marked: false,
            }),
        }
    }
}

/// A marker is the name of a file, and leads nowhere else.
fn is_plain(marker: &str) -> bool {
    !matches!(marker, "" | "." | "..") && !marker.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_nearest_marker_counts_and_never_one_above_the_tools() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path();
        let tools = project.join(".ai/tools");
        let dir = tools.join("a/b");
        fs::create_dir_all(&dir).unwrap();
        fs::write(project.join("package.json"), "").unwrap();
        let auto = Anchor::read(&json!({"markers_any": ["package.json"]}))
            .unwrap()
            .unwrap();
        let found = auto.find(&dir, &tools, project).unwrap();
        assert_eq!((found.path, found.is_marked), (dir.clone(), false));
        fs::write(tools.join("package.json"), "").unwrap();
        assert_eq!(auto.find(&dir, &tools, project).unwrap().path, tools);
        fs::write(tools.join("a/package.json"), "").unwrap();
        let found = auto.find(&dir, &tools, project).unwrap();
        assert_eq!((found.path, found.is_marked), (tools.join("a"), true));

        let always = Anchor::read(&json!({"mode": "always", "markers_any": ["package.json"]}))
            .unwrap()
            .unwrap();
        assert_eq!(always.find(&dir, &tools, project).unwrap().path, dir);
        let missing = Anchor::read(&json!({"mode": "always", "markers_any": ["Gemfile"]}))
            .unwrap()
            .unwrap();
        let error = missing.find(&dir, &tools, project).unwrap_err().to_string();
        assert!(error.starts_with("none of Gemfile is in "), "{error}");
        let parent = Anchor::read(&json!({"root": "tool_parent"}))
            .unwrap()
            .unwrap();
        assert_eq!(
            parent.find(&dir, &tools, project).unwrap().path,
            tools.join("a")
        );
        let whole = Anchor::read(&json!({"mode": "always", "root": "project_path"}))
            .unwrap()
            .unwrap();
        assert_eq!(whole.find(&dir, &tools, project).unwrap().path, project);
    }

    #[test]
    fn an_anchor_may_be_switched_off_and_must_not_be_misspelt() {
        for off in [
            json!(null),
            json!({"enabled": false}),
            json!({"mode": "never"}),
        ] {
            assert_eq!(Anchor::read(&off), Ok(None));
        }
        for wrong in [json!({"mode": "sometimes"}), json!({"root": "moon"})] {
            assert!(Anchor::read(&wrong).is_err());
        }
    }
}
