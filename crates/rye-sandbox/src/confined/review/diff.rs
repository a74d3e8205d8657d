//! The unified diff of a change set.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use rye_engine::protocol::{Change, ChangeSet, FileKind, FileVersion};
use similar::TextDiff;

use super::scan::{change_path, open_file};

/// Maximum size of a file whose lines are compared.
const MAX_FILE: u64 = 1024 * 1024;
/// Maximum size of the diff. Further files are listed without their content.
const MAX_DIFF: usize = 16 * 1024 * 1024;
/// Maximum time to compare two files precisely.
const MAX_TIME: Duration = Duration::from_millis(200);

/// The diff of all changes. Binary and long files are shown by hash and size.
pub(super) fn unified(set: &ChangeSet, workspace: &Path, upper: &Path) -> String {
    let mut diff = String::new();
    for change in &set.changes {
        let has_room = diff.len() < MAX_DIFF;
        add(change, workspace, upper, has_room, &mut diff);
    }
    diff
}

fn add(change: &Change, workspace: &Path, upper: &Path, has_room: bool, diff: &mut String) {
    let (old, new) = (change.old.as_ref(), change.new.as_ref());
    let is_dir = |it: Option<&FileVersion>| it.is_none_or(|it| it.kind == FileKind::Directory);
    if is_dir(old) && is_dir(new) {
        return;
    }
    let name = |prefix: &str, version: Option<&FileVersion>| match version {
        Some(_) => format!("{prefix}/{}", change.path),
        None => "/dev/null".to_owned(),
    };
    let (old_name, new_name) = (name("a", old), name("b", new));
    let same_content = old.map(|it| (it.kind, &it.hash)) == new.map(|it| (it.kind, &it.hash));
    if same_content {
        return;
    }
    let path = change_path(&change.path).unwrap_or_default();
    let texts = has_room.then(|| {
        (
            text(old, &workspace.join(&path)),
            text(new, &upper.join(&path)),
        )
    });
    if let Some((Some(before), Some(after))) = texts {
        let compared = TextDiff::configure()
            .timeout(MAX_TIME)
            .diff_lines(&before, &after);
        let _ = write!(
            diff,
            "{}",
            compared.unified_diff().header(&old_name, &new_name)
        );
        if !diff.ends_with('\n') {
            diff.push('\n');
        }
        return;
    }
    let describe = |version: Option<&FileVersion>| match version {
        Some(it) => format!("{} bytes, sha256 {:.16}", it.size, it.hash),
        None => "none".to_owned(),
    };
    let _ = writeln!(diff, "--- {old_name}\n+++ {new_name}");
    let _ = writeln!(diff, "not shown: {} -> {}", describe(old), describe(new));
}

/// The text of a version, if it can be compared by lines.
fn text(version: Option<&FileVersion>, path: &Path) -> Option<String> {
    let Some(version) = version else {
        return Some(String::new());
    };
    match version.kind {
        FileKind::Link => Some(format!("link to {}\n", version.target.as_deref()?)),
        FileKind::File if version.size <= MAX_FILE => {
            let file = open_file(path).ok()?;
            let mut bytes = Vec::new();
            file.take(MAX_FILE + 1).read_to_end(&mut bytes).ok()?;
            if bytes.contains(&0) {
                return None;
            }
            String::from_utf8(bytes).ok()
        }
        FileKind::Directory if fs::symlink_metadata(path).is_ok() => Some(String::new()),
        _ => None,
    }
}
