//! Paths of a sandbox that lets nothing out.

use rye_engine::sandbox::SandboxError;

/// The workspace's own path, as its shell shows it.
pub(crate) const WORKSPACE: &str = "/workspace";

/// The longest path, and the longest name in one.
const LONGEST: usize = 4096;
const LONGEST_NAME: usize = 255;

/// A path in the workspace without detours: names with `/` between them, nothing for the
/// workspace itself.
pub(crate) fn resolve(cwd: &str, path: &str) -> Result<String, SandboxError> {
    let outside = || SandboxError::Outside(shown(path));
    let unusable = |why: &str| SandboxError::Unusable {
        path: shown(path),
        why: why.to_owned(),
    };
    if path.len() > LONGEST {
        return Err(unusable("the path is too long"));
    }
    if path.contains('\0') {
        return Err(unusable("the path has a zero byte"));
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
            name if name.len() > LONGEST_NAME => return Err(unusable("a name is too long")),
            name => names.push(name),
        }
    }
    let resolved = names.join("/");
    if resolved.len() > LONGEST {
        return Err(unusable("the path is too long"));
    }
    Ok(resolved)
}

/// The folder that a resolved path is in, and its name there; none for the workspace.
pub(crate) fn split(path: &str) -> Option<(&str, &str)> {
    match path.rsplit_once('/') {
        Some(split) => Some(split),
        None if path.is_empty() => None,
        None => Some(("", path)),
    }
}

/// A name in a folder.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// A path as a message shows it: not endless.
fn shown(path: &str) -> String {
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
    fn paths_are_taken_from_where_one_is() {
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
    fn paths_that_lead_out_are_refused() {
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
        fn whatever_is_resolved_is_inside(cwd in "[a-z]{0,3}", path in "[a./]{0,20}") {
            if let Ok(resolved) = resolve(&cwd, &path) {
                prop_assert!(!resolved.starts_with('/'));
                prop_assert!(resolved.split('/').all(|name| name != ".." && name != "."));
                prop_assert_eq!(resolve("", &resolved).unwrap(), resolved);
            }
        }
    }
}
