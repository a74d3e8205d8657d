//! Verifying what a tool brings with it, before it runs.

use std::path::Path;

use rye_items::trust::Trust;
use rye_items::{Dependencies, Library, Scope};
use serde_json::Value;

use super::facts::CallAnchor;
use crate::chain::Chain;
use crate::error::ExecuteError;
use crate::shape;

/// Verifies what the tool brings with it, as the nearest link says.
pub(super) fn verify(
    library: &Library,
    trust: &Trust<'_>,
    chain: &Chain,
    anchor: &CallAnchor,
) -> Result<Option<Dependencies>, ExecuteError> {
    let about = chain
        .links
        .iter()
        .find_map(|link| link.metadata.value("verify_deps"));
    let item = &chain.tool().item;
    let Some(scope) = about
        .map(|about| scope(about, item.reference.id.folder(), anchor))
        .transpose()
        .map_err(ExecuteError::VerifyDeps)?
        .flatten()
    else {
        return Ok(None);
    };
    let mut roots = library.spaces().of(item.space);
    let Some(root) = roots.find(|root| root.bundle() == item.bundle.as_deref()) else {
        return Ok(None);
    };
    library
        .verify_dependencies(root, &scope, trust)
        .map(Some)
        .map_err(ExecuteError::Dependency)
}

/// What is said of those that do not verify and are let pass.
pub(super) fn warning(dependencies: Option<Dependencies>) -> Option<String> {
    let waived = dependencies?.waived;
    let what = match waived {
        0 => return None,
        1 => "a file that the tool brings along and that does".to_owned(),
        more => format!("{more} files that the tool brings along and that do"),
    };
    Some(format!(
        "RYE_DEV_MODE lets {what} not verify pass: see `rye verify --all`"
    ))
}

/// The files that a description means; none where the tool's own is all. The
/// error is a sentence.
fn scope(about: &Value, tool_folder: &str, anchor: &CallAnchor) -> Result<Option<Scope>, String> {
    if about.is_null() || !shape::flag(about, "enabled", true)? {
        return Ok(None);
    }
    let tool_folder = match tool_folder {
        "" => "tools".to_owned(),
        folder => format!("tools/{folder}"),
    };
    let recursive = shape::flag(about, "recursive", true)?;
    let extensions = shape::texts(about, "extensions")?;
    let exclude_dirs = shape::texts(about, "exclude_dirs")?.unwrap_or_default();
    let (folder, recursive) = match shape::text(about, "scope")?.unwrap_or("anchor") {
        "tool_file" => return Ok(None),
        "tool_siblings" => (tool_folder, false),
        "tool_dir" => (tool_folder, recursive),
        "anchor" => match &anchor.declared {
            Some((_, anchored, _)) if anchored.is_marked => {
                let above = above(&tool_folder, &anchor.tool_dir, &anchored.path);
                let why = "the anchor is outside the space; use the scope tool_dir";
                (above.ok_or(why)?, recursive)
            }
            // The tool's folder serves for paths only: the tool alone is covered.
            _ => return Ok(None),
        },
        other => {
            return Err(format!(
                "there is no scope `{other}`; the scopes are anchor, tool_dir, tool_siblings, tool_file"
            ));
        }
    };
    Ok(Some(Scope {
        folder,
        recursive,
        extensions: extensions.ok_or("`extensions` is missing: which files are verified")?,
        exclude_dirs,
    }))
}

/// The anchor as a folder of the space: as many steps above the tool's folder
/// as it is on the disk.
fn above(tool_folder: &str, tool_dir: &Path, anchor: &Path) -> Option<String> {
    let steps = tool_dir.strip_prefix(anchor).ok()?.components().count();
    let mut folder = tool_folder;
    for _ in 0..steps {
        folder = folder.rsplit_once('/')?.0;
    }
    Some(folder.to_owned())
}
