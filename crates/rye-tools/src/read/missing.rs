//! Suggests similar paths for a file that does not exist.

use std::time::Duration;

use rye_engine::sandbox::{Sandbox, SandboxError, WalkOptions};
use rye_engine::tool::ToolError;

use super::super::sandbox_error;

/// Maximum number of suggestions.
const MAX_SUGGESTIONS: usize = 5;
/// Maximum number of files to check for the same name.
const MAX_WALKED: usize = 100_000;
/// Time limit for the search.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Converts an error; a missing file gets suggestions.
pub(crate) async fn not_found_error(
    sandbox: &dyn Sandbox,
    path: &str,
    error: SandboxError,
) -> ToolError {
    if !matches!(error, SandboxError::NotFound(_)) {
        return sandbox_error(error);
    }
    let path = path.trim_end_matches('/');
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut suggestions = same_name(sandbox, path, name).await;
    if suggestions.is_empty() {
        suggestions = similar_names(sandbox, dir, name).await;
    }
    if suggestions.is_empty() {
        return ToolError::failed(match existing_parent(sandbox, dir).await {
            Some(existing) => format!("{error}; the nearest existing directory is {existing}"),
            None => error.to_string(),
        });
    }
    ToolError::failed(format!("{error}; similar: {}", suggestions.join(", ")))
}

/// Files with the same name elsewhere in the workspace, the most similar path first.
async fn same_name(sandbox: &dyn Sandbox, path: &str, name: &str) -> Vec<String> {
    let walk = WalkOptions {
        path: String::new(),
        hidden: false,
        ignored: false,
        max_files: MAX_WALKED,
        time_limit: TIMEOUT,
    };
    let Ok(walked) = sandbox.walk(&walk).await else {
        return Vec::new();
    };
    let has_name = |path: &String| path.rsplit('/').next() == Some(name);
    let mut found: Vec<_> = walked.files.into_iter().map(|file| file.path).collect();
    found.retain(has_name);
    most_similar(found, path)
}

/// The most similar names in the same directory.
async fn similar_names(sandbox: &dyn Sandbox, dir: &str, name: &str) -> Vec<String> {
    let Ok(files) = sandbox.list(dir).await else {
        return Vec::new();
    };
    let names = files.into_iter().map(|file| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let end = if file.is_dir { "/" } else { "" };
        format!("{name}{end}")
    });
    let start = if dir.is_empty() { "" } else { "/" };
    let names = most_similar(names.collect(), name).into_iter();
    names.map(|name| format!("{dir}{start}{name}")).collect()
}

fn most_similar(mut names: Vec<String>, to: &str) -> Vec<String> {
    names.sort_by_cached_key(|other| strsim::osa_distance(to, other));
    names.truncate(MAX_SUGGESTIONS);
    names
}

/// The nearest existing parent directory.
async fn existing_parent(sandbox: &dyn Sandbox, dir: &str) -> Option<String> {
    let mut dir = dir;
    while let Some((parent, _)) = dir.rsplit_once('/') {
        dir = parent;
        if !dir.is_empty() && sandbox.list(dir).await.is_ok() {
            return Some(dir.to_owned());
        }
    }
    None
}
