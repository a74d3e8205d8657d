//! What there is instead of a file that is not there.

use std::time::Duration;

use crate::sandbox::{Sandbox, SandboxError, WalkOptions};
use crate::tool::ToolError;

use super::super::failed;

/// How many names are told.
const NAMES: usize = 5;
/// How many files are looked at for one of the same name, and how long.
const LOOKED_AT: usize = 100_000;
const TIME: Duration = Duration::from_secs(1);

/// Why a file is not there, with what may have been meant.
pub(in crate::builtin) async fn explain(
    sandbox: &dyn Sandbox,
    path: &str,
    error: SandboxError,
) -> ToolError {
    if !matches!(error, SandboxError::NotFound(_)) {
        return failed(error);
    }
    let path = path.trim_end_matches('/');
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut told = same_name(sandbox, path, name).await;
    if told.is_empty() {
        told = near(sandbox, folder, name).await;
    }
    if told.is_empty() {
        return ToolError::failed(match above(sandbox, folder).await {
            Some(there) => format!("{error}; of the folders above it there is only {there}"),
            None => error.to_string(),
        });
    }
    ToolError::failed(format!("{error}; there are: {}", told.join(", ")))
}

/// Files of the same name elsewhere in the workspace, the likeliest first.
async fn same_name(sandbox: &dyn Sandbox, path: &str, name: &str) -> Vec<String> {
    let walk = WalkOptions {
        path: String::new(),
        hidden: false,
        ignored: false,
        max_files: LOOKED_AT,
        time_limit: TIME,
    };
    let Ok(walked) = sandbox.walk(&walk).await else {
        return Vec::new();
    };
    let named = |path: &String| path.rsplit('/').next() == Some(name);
    let mut found: Vec<_> = walked.files.into_iter().map(|file| file.path).collect();
    found.retain(named);
    nearest(found, path)
}

/// The names in the same folder that are most like it.
async fn near(sandbox: &dyn Sandbox, folder: &str, name: &str) -> Vec<String> {
    let Ok(files) = sandbox.list(folder).await else {
        return Vec::new();
    };
    let names = files.into_iter().map(|file| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let end = if file.is_dir { "/" } else { "" };
        format!("{name}{end}")
    });
    let start = if folder.is_empty() { "" } else { "/" };
    let near = nearest(names.collect(), name).into_iter();
    near.map(|name| format!("{folder}{start}{name}")).collect()
}

fn nearest(mut names: Vec<String>, to: &str) -> Vec<String> {
    names.sort_by_cached_key(|other| strsim::osa_distance(to, other));
    names.truncate(NAMES);
    names
}

/// The nearest folder above that is there.
async fn above(sandbox: &dyn Sandbox, folder: &str) -> Option<String> {
    let mut folder = folder;
    while let Some((above, _)) = folder.rsplit_once('/') {
        folder = above;
        if !folder.is_empty() && sandbox.list(folder).await.is_ok() {
            return Some(folder.to_owned());
        }
    }
    None
}
