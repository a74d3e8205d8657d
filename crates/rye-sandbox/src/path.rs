//! Path resolution inside the in-memory workspace.

use rye_engine::sandbox::SandboxError;

/// The path of the workspace as the shell shows it.
pub(crate) const WORKSPACE: &str = "/workspace";

/// Maximum length of a path and of a name, in bytes.
const MAX_PATH_LEN: usize = 4096;
const MAX_NAME_LEN: usize = 255;

/// Normalises a path to names separated by `/`, relative to the workspace; the
/// workspace itself is empty.
pub(crate) fn resolve(cwd: &str, path: &str) -> Result<String, SandboxError> {
    let outside = || SandboxError::Outside(display_path(path));
    let unusable = |reason: &str| SandboxError::Unusable {
        path: display_path(path),
        reason: reason.to_owned(),
    };
    if path.len() > MAX_PATH_LEN {
        return Err(unusable("the path is too long"));
    }
    if path.contains('\0') {
        return Err(unusable("the path contains a NUL byte"));
    }
    let (from, path) = if path.starts_with('/') {
        let below = path.strip_prefix(WORKSPACE).ok_or_else(outside)?;
        let is_below = below.is_empty() || below.starts_with('/');
        ("", is_below.then_some(below).ok_or_else(outside)?)
    } else {
        (cwd, path)
    };
    let mut names: Vec<&str> = from.split('/').filter(|name| !name.is_empty()).collect();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop().ok_or_else(outside)?;
            }
            name if name.len() > MAX_NAME_LEN => return Err(unusable("a name is too long")),
            name => names.push(name),
        }
    }
    let resolved = names.join("/");
    if resolved.len() > MAX_PATH_LEN {
        return Err(unusable("the path is too long"));
    }
    Ok(resolved)
}

/// The parent and the name of a resolved path; `None` for the workspace.
pub(crate) fn split(path: &str) -> Option<(&str, &str)> {
    match path.rsplit_once('/') {
        Some(split) => Some(split),
        None if path.is_empty() => None,
        None => Some(("", path)),
    }
}

/// Joins a directory and a name.
pub(crate) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() {
        name.to_owned()
    } else {
        format!("{dir}/{name}")
    }
}

/// Truncates a path for display in a message.
fn display_path(path: &str) -> String {
    if path.chars().count() > 200 {
        let start: String = path.chars().take(200).collect();
        return format!("{start}…");
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn relative_paths_are_resolved_against_the_working_directory() {
        for (cwd, path, resolved) in [
            ("", "a/b", "a/b"),
            ("a", "b", "a/b"),
            ("a/b", "../c/./d//e/", "a/c/d/e"),
            ("a", "..", ""),
            ("a", "", "a"),
            ("a", "/workspace", ""),
            ("a", "/workspace/x", "x"),
        ] {
            assert_eq!(resolve(cwd, path).unwrap(), resolved, "{cwd} {path}");
        }
    }

    #[test]
    fn paths_outside_the_workspace_are_rejected() {
        for path in [
            "..",
            "a/../..",
            "/",
            "/etc/passwd",
            "/workspacex",
            "/workspace/..",
        ] {
            let error = resolve("", path).unwrap_err();
            assert_eq!(error, SandboxError::Outside(path.to_owned()));
        }
        for path in ["a\0b", &"x".repeat(256), &"x/".repeat(4000)] {
            let error = resolve("", path).unwrap_err();
            assert!(matches!(error, SandboxError::Unusable { .. }), "{error}");
        }
    }

    proptest! {
        #[test]
        fn resolved_paths_are_inside_the_workspace(cwd in "[a-z]{0,3}", path in "[a./]{0,20}") {
            if let Ok(resolved) = resolve(&cwd, &path) {
                prop_assert!(!resolved.starts_with('/'));
                prop_assert!(resolved.split('/').all(|name| name != ".." && name != "."));
                prop_assert_eq!(resolve("", &resolved).unwrap(), resolved);
            }
        }
    }
}
